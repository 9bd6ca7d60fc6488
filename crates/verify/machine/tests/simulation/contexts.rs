//! Contexts as the drop-in libraries use them: threads that submit and end, threads that wait for
//! events, closed descriptors, cancellation and destruction at the same time.
//!
//! Each accepted request ends once: by an event, or with the context. When the context is gone,
//! written data is in the file.

use crate::{spawn, swarm};
use nowait_block::Segments;
use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind, SubmitMode, UserFile,
    command::open_for,
    submit::{EventTarget, Submission},
};
use nowait_machine::step;
use nowait_sim::Prng;
use nowait_sys::{
    Errno, Fd,
    aio::IoEvent,
    aligned::AlignedBuffer,
    eventfd::EventFd,
    file::IoVec,
    inspect::{self, O_CREAT, O_DIRECT, O_RDWR},
    time::Deadline,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const POLLIN: u16 = 1;
/// Number of looks for events after which a request counts as hanging.
const ROUNDS_MAX: u64 = 3_000;

const KINDS: [(Kind, u32); 4] =
    [(Kind::Write, 4), (Kind::Read, 2), (Kind::Fsync, 1), (Kind::Poll(POLLIN), 1)];

struct Request {
    memory: AlignedBuffer,
    kind: Kind,
    block: Option<u64>,
    ends: u32,
}

struct Program {
    context: Arc<Context>,
    counter: EventFd,
    direct: bool,
    cancels: bool,
    /// The submitters' descriptors, if rings cancel the requests of ended threads: the engine
    /// repeats such a request by the descriptor's number.
    kept: Option<Mutex<Vec<Fd>>>,
    asked: Mutex<BTreeMap<u64, Request>>,
    next: AtomicU64,
    next_block: AtomicU64,
    submitters: AtomicU64,
    destroyed: AtomicBool,
    weights: [u32; KINDS.len()],
}

impl Program {
    fn asked(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Request>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw_kinds(&self, prng: &mut Prng) -> Vec<(Kind, Prng)> {
        let count = 1 + prng.index(6);
        let drawn = (0..count).map(|_| {
            let mut prng = prng.fork();
            (KINDS[prng.weighted(&self.weights)].0, prng)
        });
        drawn.filter(|(kind, _)| step(|| format!("submit {kind:?}"))).collect()
    }

    fn draw(&self, (kind, mut prng): (Kind, Prng), fd: i32) -> (u64, Command) {
        let name = self.next.fetch_add(1, SeqCst);
        let fd = if matches!(kind, Kind::Poll(_)) { self.counter.raw() } else { fd };
        let block = (kind == Kind::Write).then(|| self.next_block.fetch_add(1, SeqCst));
        // Once each block has its write, further writes become reads.
        let block = block.filter(|block| *block < BLOCKS);
        let kind = if kind == Kind::Write && block.is_none() { Kind::Read } else { kind };
        let offset = block.unwrap_or_else(|| prng.below(BLOCKS)) * BLOCK as u64;
        let mut memory = AlignedBuffer::zeroed(BLOCK);
        memory.fill(name as u8 | 1);
        let segments = match kind {
            Kind::Read | Kind::Write => {
                Segments::One(IoVec { base: memory.as_mut_ptr(), len: BLOCK })
            }
            _ => Segments::NONE,
        };
        self.asked().insert(name, Request { memory, kind, block, ends: 0 });
        // SAFETY: the memory is freed at the end of the program.
        let command =
            unsafe { Command::new(kind, (fd, open_for(fd).unwrap()), segments, offset as i64) };
        (name, command)
    }

    fn submit(&self, mut prng: Prng) {
        let flags = O_RDWR | if self.direct { O_DIRECT } else { 0 };
        let file = inspect::open(c"/file", flags, 0).unwrap();
        let drawn = self.draw_kinds(&mut prng);
        let granted = match drawn.len() {
            0 => None,
            count => self.context.io().reserve(count).ok(),
        };
        if let Some(granted) = granted {
            let mut submission = Submission::new(&self.context);
            for drawn in drawn.into_iter().take(granted) {
                let (name, command) = self.draw(drawn, file.raw());
                let target = EventTarget { data: name, obj: name, eventfd: None };
                if let Err(errno) = submission.submit(command, target) {
                    assert_eq!(errno, Errno::AGAIN);
                    self.asked().remove(&name);
                    self.context.io().release(1);
                }
            }
            submission.finish();
        }
        match &self.kept {
            Some(kept) => kept.lock().unwrap().push(file),
            None => drop(file),
        }
        self.submitters.fetch_sub(1, SeqCst);
    }

    fn note_end(&self, event: IoEvent) {
        let mut asked = self.asked();
        let it = asked.get_mut(&event.data).expect("an event of a request");
        it.ends += 1;
        assert_eq!(it.ends, 1, "an event comes once");
        let cancelled = event.res == -i64::from(Errno::CANCELED.raw());
        let done = match it.block {
            Some(_) => event.res == BLOCK as i64,
            None => event.res >= 0,
        };
        // A direct read does not reference the file, so the engine cannot repeat the read.
        let may_be_given_up = self.kept.is_some() && it.kind == Kind::Read;
        let may_be_cancelled = self.cancels || self.destroyed.load(SeqCst) || may_be_given_up;
        assert!(done || cancelled && may_be_cancelled, "{event:?} of {:?}", it.kind);
        if cancelled {
            it.block = None;
        }
    }

    fn wait(&self, mut prng: Prng) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "some never end: {:?}", self.unended());
            let max = 1 + prng.index(8);
            let min = prng.index(max + 1);
            let deadline = match prng.index(3) {
                0 => Deadline::NOW,
                1 => Deadline::after_ns(prng.below(1_000_000)),
                _ if self.submitters.load(SeqCst) > 0 => Deadline::after_ns(20_000_000),
                _ => Deadline::NOW,
            };
            let sink = |_: usize, event| {
                self.note_end(event);
                Ok(())
            };
            match self.context.wait_events(min, max, deadline, None, sink) {
                Ok(_) => {}
                Err(Errno::INVAL) => return assert!(self.destroyed.load(SeqCst)),
                Err(errno) => assert_eq!(errno, Errno::INTR),
            }
            self.counter.signal();
            let over =
                self.submitters.load(SeqCst) == 0 && self.asked().values().all(|it| it.ends == 1);
            if over {
                return;
            }
        }
    }

    fn unended(&self) -> Vec<(u64, Kind)> {
        let asked = self.asked();
        asked.iter().filter(|(_, it)| it.ends == 0).map(|(name, it)| (*name, it.kind)).collect()
    }

    /// Takes the inode's lock repeatedly, by ftruncate(2): direct writes wait for the lock.
    fn hold_up(_: &Program, mut prng: Prng) {
        let file = inspect::open(c"/file", O_RDWR, 0).unwrap();
        for _ in 0..prng.index(10) {
            if step(|| "have the file alone".to_owned()) {
                nowait_sys::file::set_len(file.raw(), BLOCKS * BLOCK as u64).unwrap();
            }
        }
    }

    fn destroy(&self, mut prng: Prng) {
        if step(|| "destroy the context".to_owned()) {
            (0..prng.index(30)).for_each(|_| std::thread::yield_now());
            self.destroyed.store(true, SeqCst);
            self.context.destroy().unwrap();
        }
    }

    fn cancel(&self, mut prng: Prng) {
        for _ in 0..prng.index(10) {
            let mut prng = prng.fork();
            if step(|| "cancel a request".to_owned()) {
                let name = prng.below(self.next.load(SeqCst) + 1);
                let _ = self.context.cancel(name);
            }
        }
    }
}

/// Fills the holes, and caches the pages: the kernel then refuses direct writes that must not wait.
fn fill(file: &Fd) {
    let mut zeroes = AlignedBuffer::zeroed(BLOCK);
    for block in 0..BLOCKS {
        let part = IoVec { base: zeroes.as_mut_ptr(), len: BLOCK };
        let offset = (block * BLOCK as u64) as i64;
        // SAFETY: the memory is live.
        let written = unsafe { nowait_sys::file::pwritev2(file.raw(), &[part], offset, 0) };
        assert_eq!(written, Ok(BLOCK));
    }
}

pub(crate) fn program(seed: u64) {
    let mut prng = Prng::new(seed ^ 0xc0);
    let backends = [BackendChoice::Threads, BackendChoice::Kaio, BackendChoice::Uring];
    let backend = backends[prng.weighted(&[1, 2, 1])];
    let submit = [SubmitMode::Auto, SubmitMode::Offload][prng.index(2)];
    let config = Config { backend, submit, cache_bytes: 1 << 20, ..Config::default() };
    let engine = Engine::on_machine(config, "simulated".to_owned()).unwrap();
    let file: Fd = inspect::open(c"/file", O_RDWR | O_CREAT, 0o600).unwrap();
    nowait_sys::file::set_len(file.raw(), BLOCKS * BLOCK as u64).unwrap();
    if prng.chance(500_000) {
        fill(&file);
    }
    let cached = prng.chance(300_000).then(|| UserFile::open(&engine, file.raw()).unwrap());
    let submitters = prng.range(1..=8);
    let gives_up = prng.chance(300_000);
    if gives_up {
        nowait_machine::give_up_with_threads();
    }
    let program = Arc::new(Program {
        context: Context::new(&engine, 1, 16).unwrap(),
        counter: EventFd::new().unwrap(),
        direct: prng.chance(700_000),
        cancels: seed.is_multiple_of(4),
        kept: gives_up.then(Mutex::default),
        asked: Mutex::default(),
        next: AtomicU64::new(1),
        next_block: AtomicU64::new(0),
        submitters: AtomicU64::new(submitters),
        destroyed: AtomicBool::new(false),
        weights: swarm(&KINDS, &mut prng),
    });
    let holds_up = prng.chance(300_000);
    let mut threads = Vec::new();
    let mut begin = |name: &str, work: fn(&Program, Prng)| {
        let (program, prng) = (program.clone(), prng.fork());
        threads.push(spawn(name, move || work(&program, prng)));
    };
    (0..submitters).for_each(|number| begin(&format!("submit {number}"), Program::submit));
    (0..=seed % 3).for_each(|number| begin(&format!("wait {number}"), Program::wait));
    if holds_up {
        begin("hold up", Program::hold_up);
    }
    if program.cancels {
        begin("cancel", Program::cancel);
    }
    if seed.is_multiple_of(5) {
        begin("destroy", Program::destroy);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if !program.destroyed.load(SeqCst) {
        program.context.destroy().unwrap();
    }
    cached.iter().for_each(|cached| cached.settle(&engine).unwrap());
    let mut found = AlignedBuffer::zeroed(BLOCK);
    for (name, it) in program.asked().iter() {
        let Some(block) = it.block else { continue };
        let part = IoVec { base: found.as_mut_ptr(), len: BLOCK };
        let offset = (block * BLOCK as u64) as i64;
        // SAFETY: the memory is live.
        let count = unsafe { nowait_sys::file::preadv2(file.raw(), &[part], offset, 0) };
        assert_eq!(count, Ok(BLOCK));
        let is_written = *found == *it.memory;
        // A cancelled request may have no event when the context is destroyed.
        let may_be_cancelled = program.cancels && it.ends == 0;
        assert!(is_written || may_be_cancelled, "request {name} has written block {block}");
    }
    drop(cached);
    drop(Arc::into_inner(program).expect("all threads have ended"));
    engine.shutdown();
}
