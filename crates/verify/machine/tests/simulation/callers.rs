//! The ways in which callers take events of libaio: waits, short waits, looks, reads of the ring,
//! and late calls.
//!
//! Each submitting thread has two files and a context. Each accepted request ends once, and in time
//! even if no caller comes. A request finds and leaves the data that the order of submission
//! demands, even if its descriptor number gets another file. io_submit of reads, looks, and waits
//! with a short time limit sleep for no transfer. When the process ends, accepted requests are
//! done.

mod model;
mod ring;

use crate::{
    faces::{leave, waits},
    files::contents,
    signals, spawn, swarm,
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use model::{Access, Request, State};
use nowait_libaio::exports as libaio;
use nowait_machine::{longest_ns, note, process, step, take_signals, transfers_awaited};
use nowait_sim::Prng;
use nowait_sys::{
    Errno, Fd,
    aio::{IoEvent, Iocb, cmd},
    aligned::AlignedBuffer,
    file::{self, Advice},
    inspect::{self, O_CREAT, O_RDWR},
};
use ring::Ring;
use std::{
    collections::BTreeMap,
    ffi::CString,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

const SECTOR: usize = 512;
const PAGE: u64 = 8;
const SECTORS: u64 = 8 * PAGE;
const FILES: usize = 2;
const STEPS: usize = 16;
const IN_FLIGHT_MAX: usize = 8;
/// Interval of the engine's looks for requests for which no caller comes.
const TICK: Duration = Duration::from_millis(5);
/// A caller with a time limit up to this does not block for a request.
const SHORT: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Submit,
    Wait,
    WaitShortly,
    Poll,
    ReadRing,
    /// Pauses until all requests must have ended, and then takes all events at once.
    ComeLate,
    Cancel,
    /// Closes both files, and opens them again in the other order: their numbers may change.
    Swap,
    /// Makes the number of one file refer to the other file.
    Replace,
    Drop,
    Pause,
    Destroy,
}

const KINDS: [(Kind, u32); 12] = [
    (Kind::Submit, 8),
    (Kind::Wait, 2),
    (Kind::WaitShortly, 2),
    (Kind::Poll, 2),
    (Kind::ReadRing, 2),
    (Kind::ComeLate, 1),
    (Kind::Cancel, 1),
    (Kind::Swap, 1),
    (Kind::Replace, 1),
    (Kind::Drop, 2),
    (Kind::Pause, 1),
    (Kind::Destroy, 1),
];

type Shared = Arc<Mutex<State>>;

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Setup {
    weights: [u32; KINDS.len()],
    /// The library watches the program's closes.
    watches: bool,
    signals: bool,
    /// Set before the process ends, while threads may still wait.
    exits: AtomicBool,
    /// The submitting thread makes the first attempts.
    is_auto: bool,
    /// Some threads wait in another thread's context. Then no context is destroyed early: a new one
    /// could get the old address, and these threads would wait there.
    any_waits: AtomicBool,
}

/// Returns the longest time in which `count` requests end if no caller takes their events.
fn bound(count: usize) -> Duration {
    let (transfer, throttled) = longest_ns();
    // The machine may also stop a thread for the time of a transfer when the thread takes a lock.
    let each = Duration::from_nanos(20 * transfer + throttled);
    3 * TICK + each * (count as u32 + 2) + Duration::from_millis(1)
}

struct Actor {
    setup: Arc<Setup>,
    prng: Prng,
    context: usize,
    open: [Fd; FILES],
    state: Shared,
    waiting: Vec<JoinHandle<()>>,
    next: u64,
    /// Descriptor numbers may refer to other files than when requests in flight were submitted.
    has_moved: bool,
}

fn open(path: &CString) -> Fd {
    inspect::open(path, O_RDWR | O_CREAT, 0o600).unwrap()
}

fn new_context(setup: &Setup) -> usize {
    let mut context = 0usize;
    let failed = libaio::nowait_io_setup(16, (&raw mut context) as usize);
    assert!(failed == 0 || setup.exits.load(SeqCst), "io_setup: {failed}");
    context
}

fn getevents(context: usize, (min, max): (usize, usize), limit: Option<Duration>) -> Taken {
    let mut events = vec![IoEvent::default(); max];
    let timeout = [0, limit.map_or(0, |limit| limit.as_nanos() as i64)];
    let timeout = if limit.is_some() { timeout.as_ptr() as usize } else { 0 };
    let room = events.as_mut_ptr() as usize;
    note(|| format!("io_getevents of {min} to {max}, {limit:?}"));
    let taken = waits("io_getevents", || {
        libaio::nowait_io_getevents(context, min as i64, max as i64, room, timeout)
    });
    if taken < 0 {
        return Err(taken);
    }
    events.truncate(taken as usize);
    Ok(events)
}

type Taken = Result<Vec<IoEvent>, i32>;

fn wait(setup: &Setup, context: usize, state: &Mutex<State>) {
    if setup.signals {
        take_signals();
    }
    loop {
        match getevents(context, (1, 2), None) {
            Ok(events) => {
                assert!(!events.is_empty() || setup.signals, "a wait for one event has none");
                let mut state = locked(state);
                events.into_iter().for_each(|event| state.end(event));
            }
            Err(errno) if errno == -Errno::INTR.raw() => assert!(setup.signals),
            Err(_) => return,
        }
    }
}

impl Actor {
    fn new(number: u64, setup: Arc<Setup>, mut prng: Prng) -> Actor {
        let paths =
            ["a", "b"].map(|name| CString::new(format!("/callers-{number}-{name}")).unwrap());
        let open = paths.each_ref().map(open);
        for fd in &open {
            file::set_len(fd.raw(), SECTORS * SECTOR as u64).unwrap();
            // Writes the pages, and drops them from the cache: a write of a part must then read its
            // page.
            let zeroes = AlignedBuffer::zeroed(SECTORS as usize * SECTOR);
            let part = file::IoVec { base: zeroes.as_ptr().cast_mut(), len: zeroes.len() };
            // SAFETY: the bytes are only read.
            unsafe { file::pwritev2(fd.raw(), &[part], 0, 0) }.unwrap();
            file::advise(fd.raw(), 0, 0, Advice::DontNeed).unwrap();
        }
        let context = new_context(&setup);
        let models = [(); FILES].map(|()| vec![vec![0]; SECTORS as usize]);
        let in_flight = BTreeMap::new();
        let state = Arc::new(Mutex::new(State { paths, models, in_flight, bound: None }));
        let waiters = [0, 0, 1, 2, 3][prng.index(5)];
        let mut actor = Actor {
            setup,
            prng,
            context,
            open,
            state,
            waiting: Vec::new(),
            next: 1,
            has_moved: false,
        };
        if waiters > 0 {
            actor.setup.any_waits.store(true, SeqCst);
            actor.begin_waiting(number, waiters);
        }
        actor
    }

    fn begin_waiting(&mut self, number: u64, count: usize) {
        let (transfer, throttled) = longest_ns();
        // If transfers are fast, requests must end before the engine would take over.
        let is_fast = transfer <= 1_000 && throttled == 0 && !self.setup.signals;
        locked(&self.state).bound = match is_fast && self.setup.is_auto {
            true => Some(TICK * 9 / 10),
            false => Some(bound(2 * IN_FLIGHT_MAX)),
        };
        let begin = |waiter| {
            let (setup, state, context) = (self.setup.clone(), self.state.clone(), self.context);
            spawn(&format!("waiter {number}-{waiter}"), move || wait(&setup, context, &state))
        };
        self.waiting = (0..count).map(begin).collect();
    }

    fn in_flight(&self) -> usize {
        locked(&self.state).in_flight.len()
    }

    fn act(mut self) {
        if self.setup.signals {
            take_signals();
        }
        for _ in 0..STEPS {
            let mut prng = self.prng.fork();
            let kind = KINDS[prng.weighted(&self.setup.weights)].0;
            let count = self.in_flight();
            if step(|| format!("{kind:?}, {count} in flight")) {
                self.act_once(kind, prng);
            }
        }
        self.finish();
    }

    fn act_once(&mut self, kind: Kind, mut prng: Prng) {
        let count = self.in_flight();
        match kind {
            Kind::Submit => self.submit(prng),
            Kind::Cancel => self.cancel(prng),
            Kind::Swap if self.may_move() => self.swap(),
            Kind::Replace if self.may_move() => self.replace(prng.index(FILES)),
            Kind::Swap | Kind::Replace => {}
            Kind::Drop => self.drop_pages(),
            Kind::Pause => std::thread::park_timeout(Duration::from_nanos(prng.below(30_000_000))),
            _ if count == 0 => {}
            _ if !self.waiting.is_empty() => self.await_others(prng.index(count)),
            Kind::Wait => self.take(1 + prng.index(count)),
            Kind::WaitShortly => self.take_shortly(prng),
            Kind::Poll => self.poll(),
            Kind::ReadRing => self.read_ring(),
            Kind::ComeLate => self.come_late(),
            Kind::Destroy if self.setup.any_waits.load(SeqCst) => {}
            Kind::Destroy => self.destroy(),
        }
    }

    fn draw(&mut self, mut prng: Prng) -> (u64, Request) {
        let unit = if prng.chance(700_000) { PAGE } else { 1 };
        let at = prng.below(SECTORS) / unit * unit;
        let len = ((1 + prng.below(3)) * unit).min(SECTORS - at);
        let access = [Access::Read, Access::Write, Access::Sync][prng.weighted(&[5, 4, 1])];
        let file = prng.index(FILES);
        let name = self.next;
        self.next += 1;
        let (at, len) = if access == Access::Sync { (0, 0) } else { (at, len) };
        let mut memory = AlignedBuffer::zeroed(len as usize * SECTOR);
        memory.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&name.to_le_bytes()));
        let opcode = match access {
            Access::Read => cmd::PREAD,
            Access::Write => cmd::PWRITE,
            Access::Sync => cmd::FDSYNC,
        };
        let iocb = Box::new(Iocb {
            data: name,
            key: 0,
            rw_flags: 0,
            opcode,
            reqprio: 0,
            fildes: self.open[file].raw() as u32,
            buf: if len == 0 { 0 } else { memory.as_mut_ptr() as u64 },
            nbytes: memory.len() as u64,
            offset: at as i64 * SECTOR as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        });
        let at = at as usize;
        let (before, begun) = (Vec::new(), Instant::now());
        let (is_accepted, is_doubtful) = (false, false);
        let request =
            Request { iocb, memory, access, file, at, before, begun, is_accepted, is_doubtful };
        (name, request)
    }

    fn submit(&mut self, mut prng: Prng) {
        let room = IN_FLIGHT_MAX.saturating_sub(self.in_flight());
        let count = (1 + prng.index(4)).min(room);
        let drawn: Vec<_> = (0..count).map(|_| self.draw(prng.fork())).collect();
        if drawn.is_empty() {
            return;
        }
        let list: Vec<usize> = drawn.iter().map(|(_, it)| (&raw const *it.iocb) as usize).collect();
        let names: Vec<u64> = drawn.iter().map(|(name, _)| *name).collect();
        let only_reads = drawn.iter().all(|(_, it)| it.access == Access::Read);
        let mut state = locked(&self.state);
        for (name, request) in drawn {
            note(|| {
                let Request { access, file, at, ref memory, .. } = request;
                let len = memory.len() / SECTOR;
                let fd = request.iocb.fildes;
                format!("{name}: {access:?} of {len} sectors at {at} of file {file}, number {fd}")
            });
            state.begin(name, request);
        }
        drop(state);
        let slept = transfers_awaited();
        let accepted = waits("io_submit", || {
            libaio::nowait_io_submit(self.context, count as i64, list.as_ptr() as usize)
        });
        assert!(!only_reads || transfers_awaited() == slept, "io_submit of reads waits for one");
        let mut state = locked(&self.state);
        if accepted != count as i32 {
            assert!(self.setup.exits.load(SeqCst), "io_submit: {accepted}");
            names.iter().skip(accepted.max(0) as usize).for_each(|name| state.doubt(*name));
        }
        for name in names.iter().take(accepted.max(0) as usize) {
            if let Some(request) = state.in_flight.get_mut(name) {
                request.is_accepted = true;
            }
        }
    }

    fn end(&self, taken: Taken) -> usize {
        match taken {
            Ok(events) => {
                let count = events.len();
                let mut state = locked(&self.state);
                events.into_iter().for_each(|event| state.end(event));
                count
            }
            Err(errno) => {
                let interrupted = self.setup.signals && errno == -Errno::INTR.raw();
                assert!(interrupted || self.setup.exits.load(SeqCst), "io_getevents: {errno}");
                0
            }
        }
    }

    fn take(&self, count: usize) {
        let mut missing = count;
        while missing > 0 {
            missing =
                missing.saturating_sub(self.end(getevents(self.context, (missing, missing), None)));
        }
    }

    /// Calls `take` repeatedly until it returns an event; `take` must sleep for no transfer.
    fn take_by(&self, what: &str, mut take: impl FnMut() -> Taken) {
        let (longest, begun) = (bound(self.in_flight()), Instant::now());
        loop {
            let slept = transfers_awaited();
            let taken = take();
            assert_eq!(transfers_awaited(), slept, "{what} sleeps for a transfer");
            if self.end(taken) > 0 || self.setup.exits.load(SeqCst) {
                return;
            }
            let took = begun.elapsed();
            assert!(took < longest, "{what}: nothing for {took:?}");
            std::thread::park_timeout(Duration::from_micros(200));
        }
    }

    fn take_shortly(&self, mut prng: Prng) {
        let limit = [1_000, 100_000, 1_000_000, 5_000_000][prng.index(4)];
        let limit = Duration::from_nanos(limit);
        assert!(limit <= SHORT);
        self.take_by("a short wait", || getevents(self.context, (1, IN_FLIGHT_MAX), Some(limit)));
    }

    fn poll(&self) {
        let limit = Some(Duration::ZERO);
        self.take_by("a look", || getevents(self.context, (0, IN_FLIGHT_MAX), limit));
    }

    fn read_ring(&self) {
        let ring = Ring::of(self.context);
        self.take_by("the ring", || Ok(ring.take().into_iter().collect()));
    }

    fn come_late(&self) {
        let ring = Ring::of(self.context);
        let count = self.in_flight();
        std::thread::park_timeout(bound(count));
        let until = Instant::now() + bound(count);
        while ring.len() < count {
            assert!(Instant::now() < until, "{} of {count} have ended", ring.len());
            std::thread::park_timeout(TICK);
        }
        self.take(count);
    }

    fn await_others(&self, left: usize) {
        while self.in_flight() > left && !self.setup.exits.load(SeqCst) {
            std::thread::park_timeout(Duration::from_micros(200));
            let state = locked(&self.state);
            let oldest = state.in_flight.first_key_value();
            if let (Some(bound), Some((name, oldest))) = (state.bound, oldest) {
                let took = oldest.begun.elapsed();
                let longest = bound + TICK;
                assert!(took < longest, "{name} takes {took:?}, although threads wait");
            }
        }
    }

    fn cancel(&self, mut prng: Prng) {
        let mut state = locked(&self.state);
        let names: Vec<u64> = state.in_flight.keys().copied().collect();
        if names.is_empty() {
            return;
        }
        let name = names[prng.index(names.len())];
        state.doubt(name);
        let iocb = (&raw const *state.in_flight[&name].iocb) as usize;
        // The state stays locked: otherwise another thread could free the iocb.
        let said = waits("io_cancel", || libaio::nowait_io_cancel(self.context, iocb, 0));
        let expected = [Errno::INPROGRESS, Errno::INVAL].map(|errno| -errno.raw());
        let is_right = expected.contains(&said) || self.setup.exits.load(SeqCst);
        assert!(is_right, "io_cancel: {said}");
    }

    /// Calls `nowait_closing`, as the preload library does before it closes or replaces a number.
    fn closes(&self, fd: i32) {
        if self.setup.watches {
            let said = waits("close", || libaio::nowait_closing(fd));
            assert_eq!(said, 0, "close");
        }
    }

    /// Without watched closes, the library does not notice that a number got another file and then
    /// its old file again. Then a number moves at most once while requests are in flight.
    fn may_move(&mut self) -> bool {
        let has_moved = self.in_flight() > 0 && self.has_moved;
        self.has_moved = true;
        self.setup.watches || !has_moved
    }

    fn swap(&mut self) {
        let paths = locked(&self.state).paths.clone();
        let [first, second] = core::mem::replace(&mut self.open, [-1, -1].map(Fd::from_raw));
        for fd in [first, second] {
            self.closes(fd.raw());
            drop(fd);
        }
        let second = open(&paths[1]);
        self.open = [open(&paths[0]), second];
    }

    fn replace(&mut self, file: usize) {
        let path = locked(&self.state).paths[file].clone();
        let other = 1 - file;
        let number = core::mem::replace(&mut self.open[file], Fd::from_raw(-1)).into_raw();
        self.closes(number);
        // SAFETY: no memory is involved.
        let made = unsafe { libc::syscall(libc::SYS_dup3, self.open[other].raw(), number, 0) };
        assert_eq!(made, i64::from(number));
        let replaced = core::mem::replace(&mut self.open[other], Fd::from_raw(number));
        self.closes(replaced.raw());
        drop(replaced);
        self.open[file] = open(&path);
    }

    fn drop_pages(&self) {
        for fd in &self.open {
            file::advise(fd.raw(), 0, 0, Advice::DontNeed).unwrap();
        }
    }

    fn destroy(&mut self) {
        self.end_context();
        self.context = new_context(&self.setup);
    }

    fn end_context(&mut self) {
        let context = self.context;
        let failed = waits("io_destroy", || libaio::nowait_io_destroy(context));
        assert!(failed == 0 || self.setup.exits.load(SeqCst), "io_destroy: {failed}");
        self.waiting.drain(..).for_each(|thread| thread.join().unwrap());
        let mut state = locked(&self.state);
        while let Some((name, request)) = state.in_flight.pop_first() {
            if !request.is_doubtful {
                request.judge(&format!("{name}, destroyed"), request.memory.len());
            }
        }
    }

    fn finish(&mut self) {
        if self.prng.chance(500_000) {
            match self.waiting.is_empty() {
                true => self.take(self.in_flight()),
                false => self.await_others(0),
            }
        }
        self.end_context();
        if !self.setup.exits.load(SeqCst) {
            locked(&self.state).judge(contents);
        }
    }
}

fn end_process(setup: &Setup, states: &[Shared], by_exit: bool) -> ! {
    setup.exits.store(true, SeqCst);
    waits("the end of the process", || match by_exit {
        true => libaio::nowait_at_exit(),
        false => leave(),
    });
    for state in states {
        let mut state = locked(state);
        let unsure = state.in_flight.iter().filter(|(_, it)| !it.is_accepted);
        let unsure: Vec<u64> = unsure.map(|(name, _)| *name).collect();
        unsure.into_iter().for_each(|name| state.doubt(name));
        state.judge(|path| process::contents(path.to_str().unwrap()));
    }
    process::exit()
}

fn set_environment(prng: &mut Prng) -> bool {
    let is_auto = prng.chance(850_000);
    let drawn = [
        ("NOWAIT_BACKEND", ["uring", "kaio", "threads"][prng.weighted(&[3, 2, 1])]),
        ("NOWAIT_SUBMIT", if is_auto { "auto" } else { "offload" }),
        ("NOWAIT_WORKERS", ["1", "2", "16"][prng.index(3)]),
        ("NOWAIT_CACHE", "host"),
    ];
    for (name, value) in drawn {
        // SAFETY: no other thread of the process reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    is_auto
}

pub(crate) fn program(seed: u64) {
    let mut prng = Prng::new(seed ^ 0x00ca_11e5);
    let is_auto = set_environment(&mut prng);
    nowait_machine::come_whole();
    let watches = prng.chance(750_000);
    if watches {
        libaio::nowait_watches();
    }
    let signals = prng.chance(200_000);
    if signals {
        signals::install();
    }
    let setup = Arc::new(Setup {
        weights: swarm(&KINDS, &mut prng),
        watches,
        signals,
        exits: AtomicBool::new(false),
        is_auto,
        any_waits: AtomicBool::new(false),
    });
    let after_max = [40_000_000, 1_000_000][prng.index(2)];
    let after = Duration::from_nanos(prng.below(after_max));
    let ends = prng.chance(300_000) && step(|| format!("end the process after {after:?}"));
    let actors: Vec<Actor> = (0..prng.range(1..=2))
        .map(|number| Actor::new(number, setup.clone(), prng.fork()))
        .collect();
    let states: Vec<Shared> = actors.iter().map(|actor| actor.state.clone()).collect();
    let mut threads: Vec<_> = actors
        .into_iter()
        .enumerate()
        .map(|(number, actor)| spawn(&format!("actor {number}"), move || actor.act()))
        .collect();
    threads.extend(signals.then(|| signals::spawn_sender(prng.fork())));
    if ends {
        std::thread::park_timeout(after);
        end_process(&setup, &states, prng.chance(500_000));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    end_process(&setup, &states, true)
}
