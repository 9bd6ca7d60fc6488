//! A file that another process writes, too, by its own open, without the engine.
//!
//! The other process has the odd pages, the program the even ones, through handles in the page
//! cache of its engine. A new handle must read each write that ended before its open. At the end
//! all data of both is on disk, and after the last close no table of the engine has the file.

use crate::{files::contents, spawn, swarm};
use nowait::{AlignedBuffer, BackendChoice, CacheMode, File, Nowait, OpenOptions};
use nowait_machine::{opens_of, step};
use nowait_sim::Prng;
use nowait_sys::{
    file::{self, IoVec},
    inspect::{self, O_CREAT, O_RDWR},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

const PATH: &str = "/rivals";
const PAGE: usize = 4096;
const PAGES: usize = 16;
const STEPS: usize = 25;

/// The newest version of each page that is certainly in the file.
type Written = Arc<[AtomicU64; PAGES]>;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Open,
    Write,
    Sync,
    Read,
    SetLen,
    Close,
    /// Lets time pass, so that the file's timestamps are old when the engine next looks at them.
    Pause,
}

const KINDS: [(Kind, u32); 7] = [
    (Kind::Open, 4),
    (Kind::Write, 3),
    (Kind::Sync, 3),
    (Kind::Read, 2),
    (Kind::SetLen, 1),
    (Kind::Close, 2),
    (Kind::Pause, 3),
];

fn pause() {
    std::thread::park_timeout(Duration::from_millis(30));
}

fn page(version: u64) -> AlignedBuffer {
    let words: Vec<u8> = version.to_ne_bytes().repeat(PAGE / 8);
    AlignedBuffer::from(&words[..])
}

fn version(bytes: &[u8], what: &str) -> u64 {
    let first = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks(8).all(|word| word == first.to_ne_bytes()), "{what}: a page in parts");
    first
}

/// The other process: each write is visible to every later open when its call returns.
fn rival(written: &Written, mut prng: Prng) {
    let path = c"/rivals";
    let open = inspect::open(path, O_RDWR, 0).unwrap();
    for next in 1..=STEPS as u64 {
        let at = prng.index(PAGES / 2) * 2 + 1;
        if !step(|| format!("the rival writes version {next} to page {at}")) {
            continue;
        }
        let bytes = page(next);
        let part = IoVec { base: bytes.as_ptr().cast_mut(), len: PAGE };
        // SAFETY: the bytes are live, and only read.
        let moved = unsafe { file::pwritev2(open.raw(), &[part], (at * PAGE) as i64, 0) };
        if moved == Ok(PAGE) {
            written[at].store(next, SeqCst);
        }
        if prng.chance(500_000) {
            pause();
        }
    }
}

struct Actor {
    nowait: Nowait,
    written: Written,
    prng: Prng,
    handles: Vec<File>,
    next: u64,
    /// Number of opens that the other process may have.
    others: usize,
}

impl Actor {
    fn act(&mut self, kind: Kind) {
        match kind {
            Kind::Open => self.open(),
            Kind::Write => self.write(),
            Kind::Close => self.close(),
            Kind::Pause => pause(),
            Kind::Sync => self.any(|file| file.sync_data().unwrap()),
            Kind::SetLen => self.any(|file| file.set_len((PAGES * PAGE) as u64).unwrap()),
            Kind::Read => self.any(|file| {
                let mut bytes = AlignedBuffer::zeroed(PAGES * PAGE);
                file.read_exact_at(&mut bytes, 0).unwrap();
            }),
        }
    }

    fn any(&mut self, act: impl FnOnce(&File)) {
        if !self.handles.is_empty() {
            let index = self.prng.index(self.handles.len());
            act(&self.handles[index]);
        }
    }

    fn open(&mut self) {
        let written: Vec<u64> = self.written.iter().map(|page| page.load(SeqCst)).collect();
        let options = OpenOptions::new().read(true).write(true).cache(CacheMode::User);
        let file = options.open(&self.nowait, PATH).unwrap();
        let mut bytes = AlignedBuffer::zeroed(PAGES * PAGE);
        file.read_exact_at(&mut bytes, 0).unwrap();
        for (at, least) in written.into_iter().enumerate() {
            let found = version(&bytes[at * PAGE..][..PAGE], "read");
            assert!(found >= least, "page {at}: version {found} is read, {least} was there");
        }
        self.handles.push(file);
    }

    fn write(&mut self) {
        let (at, next) = (self.prng.index(PAGES / 2) * 2, self.next);
        let written = self.written.clone();
        self.any(|file| {
            file.write_all_at(&page(next), (at * PAGE) as u64).unwrap();
            written[at].store(next, SeqCst);
        });
        self.next += 1;
    }

    fn close(&mut self) {
        let Some(file) = self.handles.pop() else { return };
        file.close().unwrap();
        if self.handles.is_empty() {
            let opens = opens_of(PATH);
            assert!(opens <= self.others, "{opens} opens of a file that is closed");
        }
    }
}

pub(crate) fn program(seed: u64) {
    let mut prng = Prng::new(seed ^ 0x41a1);
    let backends = [BackendChoice::Threads, BackendChoice::Kaio, BackendChoice::Uring];
    let builder = Nowait::builder().backend(backends[prng.index(3)]);
    let nowait = builder.cache_bytes([256 << 10, 4 << 20][prng.index(2)]).build().unwrap();
    let made = inspect::open(c"/rivals", O_RDWR | O_CREAT, 0o600).unwrap();
    file::set_len(made.raw(), (PAGES * PAGE) as u64).unwrap();
    drop(made);
    let written: Written = Arc::new([const { AtomicU64::new(0) }; PAGES]);
    let (of_rival, fork) = (written.clone(), prng.fork());
    let other = spawn("rival", move || rival(&of_rival, fork));
    let weights = swarm(&KINDS, &mut prng);
    let (handles, of_actor) = (Vec::new(), written.clone());
    let mut actor = Actor { nowait, written: of_actor, prng, handles, next: 1, others: 1 };
    for _ in 0..STEPS {
        let kind = KINDS[actor.prng.weighted(&weights)].0;
        if step(|| format!("{kind:?}")) {
            actor.act(kind);
        }
    }
    other.join().unwrap();
    actor.others = 0;
    while !actor.handles.is_empty() {
        actor.close();
    }
    let left = contents(c"/rivals");
    for (at, newest) in written.iter().map(|page| page.load(SeqCst)).enumerate() {
        let found = version(&left[at * PAGE..][..PAGE], "left");
        assert_eq!(found, newest, "page {at} at the end");
    }
}
