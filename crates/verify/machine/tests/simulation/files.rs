//! All requests of a Rust program, checked against a model.
//!
//! Several threads work on one file, through opens in any mode, queues and futures. Each page has
//! one thread that writes it. So a read may find the content at the read's beginning, or any write
//! begun before the read's end. Another thread truncates and extends the file behind these pages.
//! At the end, if no device fails, the file has the content that was written last.
mod chain;

use crate::{
    beside,
    model::{LossesReported, Model, PAGE, Promise},
    spawn, swarm,
};
use futures_lite::future::{self, block_on};
use nowait::{
    Advice, AlignedBuffer, AsyncFile, BackendChoice, CacheMode, Completion, Error, File, Limits,
    Nowait, OpenOptions, Queue, SubmitMode, Zeroing,
};
use nowait_machine::{note, step};
use nowait_sim::{Faults, Prng};
use nowait_sys::Errno;
use std::{
    ffi::CStr,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

const PAGES: u64 = 24;
const PATH: &str = "/file";

pub(crate) struct Setup {
    pub(crate) nowait: Nowait,
    model: Model,
    modes: Vec<CacheMode>,
    first: CacheMode,
    limits: Option<Limits>,
    faulty: bool,
    power: Faults,
    pub(crate) beside: usize,
    weights: [u32; KINDS.len()],
}

impl Setup {
    fn draw(prng: &mut Prng) -> Setup {
        let backends = [BackendChoice::Threads, BackendChoice::Kaio, BackendChoice::Uring];
        let submits = [SubmitMode::Auto, SubmitMode::Offload];
        let limits = prng.chance(250_000).then(|| Limits {
            requests: 1 + prng.index(4),
            bytes: [PAGE, 3 * PAGE, u64::MAX][prng.index(3)],
        });
        let limit = limits.unwrap_or(Limits::NONE);
        let of_queue = prng.chance(500_000);
        let nowait = Nowait::builder()
            .limits(if of_queue { Limits::NONE } else { limit })
            .queue_limits(if of_queue { limit } else { Limits::NONE })
            .backend(backends[prng.index(3)])
            .submit(submits[prng.index(2)])
            .cache_bytes([256 << 10, 4 << 20][prng.index(2)])
            .build()
            .unwrap();
        let all = [CacheMode::User, CacheMode::Host, CacheMode::Direct];
        let first = all[prng.index(3)];
        let modes = match prng.chance(500_000) {
            true => all.to_vec(),
            false => vec![all[prng.index(3)]],
        };
        let (faulty, power) = (prng.chance(300_000), Faults::swarm(prng));
        let (beside, weights) = (prng.index(4), swarm(&KINDS, prng));
        let model = Model::new(PAGES);
        Setup { nowait, model, modes, first, limits, faulty, power, beside, weights }
    }

    fn judge_cut(&self) {
        self.model.judge_left(&nowait_machine::left_after_cut(PATH, &self.power));
    }

    /// Checks that no ended request counts toward the limits.
    fn judge_room(&self) {
        let Some(Limits { requests, bytes }) = self.limits else { return };
        let count = requests.min((bytes / PAGE) as usize);
        let file = self.open_in(CacheMode::Direct);
        let mut queue: Queue<(), AlignedBuffer> = self.nowait.queue(count).unwrap();
        for page in 0..count as u64 {
            let memory = AlignedBuffer::zeroed(PAGE as usize);
            let taken = queue.read(&file, memory, page * PAGE, ());
            taken.unwrap_or_else(|_| panic!("there is room in the queue"));
        }
        queue.submit();
        let judge = |it: Completion<(), AlignedBuffer>| {
            let errno = it.result.map_err(|error| error.errno());
            assert_ne!(errno, Err(Errno::AGAIN), "room for {count} requests");
        };
        queue.reap(count, None, judge).unwrap();
    }

    /// `None`: the device failed the request, as it may, or the limits had no room for the request.
    pub(crate) fn expected<T>(&self, result: Result<T, Error>) -> Option<T> {
        let may_fail = |errno| {
            self.faulty && (errno == Errno::IO || errno == Errno::NOSPC)
                || self.limits.is_some() && errno == Errno::AGAIN
        };
        match result {
            Err(error) if may_fail(error.errno()) => None,
            result => Some(result.unwrap()),
        }
    }

    fn open(&self, prng: &mut Prng) -> File {
        self.open_in(self.modes[prng.index(self.modes.len())])
    }

    fn open_in(&self, mode: CacheMode) -> File {
        let options = OpenOptions::new().read(true).write(true).create(true).cache(mode);
        options.open(&self.nowait, PATH).unwrap()
    }
}

fn described(file: &File) -> String {
    use std::os::fd::{AsFd, AsRawFd};
    let mode = if file.alignment().is_some() { "direct" } else { "host or user" };
    format!("descriptor {}, {mode}", file.as_fd().as_raw_fd())
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
    SyncAll,
    SyncData,
    SyncRange,
    Open,
    Advise,
    Zero,
    Lend,
    Queue,
    Chain,
    Future,
}

const KINDS: [(Kind, u32); 12] = [
    (Kind::Write, 2),
    (Kind::Read, 2),
    (Kind::SyncAll, 1),
    (Kind::SyncData, 1),
    (Kind::SyncRange, 1),
    (Kind::Open, 1),
    (Kind::Advise, 1),
    (Kind::Zero, 1),
    (Kind::Lend, 1),
    (Kind::Queue, 1),
    (Kind::Chain, 1),
    (Kind::Future, 1),
];

struct Actor {
    setup: Arc<Setup>,
    /// Each step forks its generator from this one, so a step left out changes no other step.
    source: Prng,
    prng: Prng,
    file: File,
    told: LossesReported,
    own: Vec<u64>,
}

impl Actor {
    fn new(setup: Arc<Setup>, mut prng: Prng, number: u64, count: u64) -> Actor {
        let told = setup.model.told();
        let file = setup.open(&mut prng);
        let own = (0..PAGES).filter(|page| page % count == number).collect();
        Actor { setup, source: prng.fork(), prng, file, told, own }
    }

    fn page_of_own(&mut self) -> u64 {
        self.own[self.prng.index(self.own.len())]
    }

    /// Shorter than the interval of the engine's check, which finds forgotten requests.
    const STEP_MAX: Duration = Duration::from_millis(900);

    fn step(&mut self) {
        let begun = Instant::now();
        self.work();
        assert!(begun.elapsed() < Self::STEP_MAX, "this took {:?}", begun.elapsed());
    }

    fn work(&mut self) {
        self.prng = self.source.fork();
        let page = self.page_of_own();
        let (kind, _) = KINDS[self.prng.weighted(&self.setup.weights)];
        if !step(|| format!("{kind:?}, page {page}, {}", described(&self.file))) {
            return;
        }
        match kind {
            Kind::Write => self.write(page),
            Kind::Read => self.read(),
            Kind::SyncAll => self.sync(0..PAGES, File::sync_all),
            Kind::SyncData => self.sync(0..PAGES, File::sync_data),
            Kind::SyncRange => {
                let end = (page + 1 + self.prng.below(4)).min(PAGES);
                self.sync(page..end, |file| file.sync_range(page * PAGE, (end - page) * PAGE));
            }
            Kind::Open => {
                // Reads `told` before the open, which reports all later errors.
                let told = self.setup.model.told();
                (self.file, self.told) = (self.setup.open(&mut self.prng), told);
            }
            Kind::Advise => {
                let advice = [Advice::WillNeed, Advice::DontNeed][self.prng.index(2)];
                self.file.advise(page * PAGE..(page + 3) * PAGE, advice).unwrap();
            }
            Kind::Zero => self.zero(page),
            Kind::Lend => self.lend(page),
            Kind::Queue => self.queue(),
            Kind::Chain => self.chain(),
            Kind::Future => self.future(page),
        }
    }

    /// Records the end of a sync, or of a request that includes a sync; returns `false` if it
    /// failed.
    fn synced<T>(&mut self, result: Result<T, Error>, promise: Option<&Promise>) -> bool {
        match (self.setup.expected(result), promise) {
            (Some(_), Some(promise)) => self.setup.model.end_sync(promise, &self.told),
            (Some(_), None) => {}
            (None, _) => {
                self.setup.model.has_failed(&mut self.told);
                return false;
            }
        }
        self.setup.judge_cut();
        true
    }

    fn sync(&mut self, pages: Range<u64>, sync: impl FnOnce(&File) -> Result<(), Error>) {
        let promise = self.setup.model.begin_sync(pages);
        let result = sync(&self.file);
        self.synced(result, Some(&promise));
    }

    /// Records the end of a write: a failed one may have changed any part of the page.
    fn wrote<T>(&self, page: u64, result: Result<T, Error>) {
        if self.setup.expected(result).is_some() {
            self.setup.model.end_write(page);
        }
    }

    fn write(&mut self, page: u64) {
        let bytes = self.setup.model.begin_write(page);
        self.wrote(page, self.file.write_all_at(&bytes, page * PAGE));
    }

    fn read(&mut self) {
        let (first, count) = (self.prng.below(PAGES), self.prng.range(1..=4));
        let pages = first..(first + count).min(PAGES);
        let seen = self.setup.model.begin_read(pages.clone());
        let mut bytes = AlignedBuffer::zeroed(((pages.end - first) * PAGE) as usize);
        let read = self.file.read_exact_at(&mut bytes, first * PAGE);
        if self.setup.expected(read).is_some() {
            self.setup.model.end_read(&seen, &bytes);
        }
    }

    fn zero(&mut self, page: u64) {
        self.setup.model.begin_zero(page);
        let range = page * PAGE..(page + 1) * PAGE;
        let zeroing = [Zeroing::Hole, Zeroing::Allocated][self.prng.index(2)];
        self.wrote(page, self.file.zero(range, zeroing));
    }

    /// Lent bytes do not change, whatever other threads do; only this thread writes the page.
    fn lend(&mut self, page: u64) {
        let seen = self.setup.model.begin_read(page..page + 1);
        let lent = self.setup.expected(self.file.lend(page * PAGE, PAGE as usize)).flatten();
        let Some(lent) = lent else { return };
        let mut bytes = Vec::new();
        lent.chunks().for_each(|slice| bytes.extend_from_slice(slice));
        self.setup.model.end_read(&seen, &bytes);
        if self.prng.chance(500_000) {
            let bytes = self.setup.model.begin_write(page);
            let write = block_on(async {
                let file = AsyncFile::from(self.file.clone());
                let mut write = file.write_at(bytes, page * PAGE);
                let over = future::poll_once(&mut write).await;
                // The write waits for the end of the loan, perhaps on an engine without other work.
                drop(lent);
                match over {
                    Some(over) => over.0,
                    None => write.await.0,
                }
            });
            self.wrote(page, write.inspect(|done| assert_eq!(*done, PAGE as usize)));
        }
    }

    /// May drop the queue early: the engine carries out submitted requests nevertheless.
    fn queue(&mut self) {
        let mut queue: Queue<Tag, AlignedBuffer> = self.setup.nowait.queue(16).unwrap();
        let mut pages = self.own.clone();
        self.prng.shuffle(&mut pages);
        pages.truncate(1 + self.prng.index(6));
        for page in &pages {
            let bytes = self.setup.model.begin_write(*page);
            let version = self.setup.model.newest(*page);
            let taken = match self.prng.chance(300_000) {
                true => {
                    let tag = Tag::Durable(*page, version);
                    queue.write_durable(&self.file, bytes, page * PAGE, tag)
                }
                false => queue.write(&self.file, bytes, page * PAGE, Tag::Write(*page)),
            };
            taken.unwrap();
            if self.prng.chance(300_000) {
                queue.submit();
            }
            // With a page cache, both writes of the page take effect in the order of their
            // submission.
            if self.file.alignment().is_none() && self.prng.chance(300_000) {
                let bytes = self.setup.model.begin_write(*page);
                queue.write(&self.file, bytes, page * PAGE, Tag::Write(*page)).unwrap();
            }
        }
        let promise = self.setup.model.begin_sync(0..PAGES);
        if self.prng.chance(300_000) {
            queue.sync_data(&self.file, Tag::Sync).unwrap();
        }
        queue.submit();
        let mut left = queue.len();
        if self.prng.chance(300_000) {
            left = self.prng.index(left + 1);
        }
        // A request that is not known to have succeeded may have failed.
        let is_unknown = left < queue.len() && (self.setup.faulty || self.setup.limits.is_some());
        let mut unknown = if is_unknown { pages.clone() } else { vec![] };
        let mut ended = 0;
        while ended < left {
            let min = self.prng.index(left - ended + 1);
            let reap = |completion: Completion<Tag, AlignedBuffer>| match completion.tag {
                Tag::Sync => drop(self.synced(completion.result, Some(&promise))),
                Tag::Durable(page, version) => match self.synced(completion.result, None) {
                    true => {
                        self.setup.model.is_durable(page, version);
                        self.setup.judge_cut();
                    }
                    false => unknown.push(page),
                },
                Tag::Write(page) => match self.setup.expected(completion.result) {
                    Some(done) => assert_eq!(done, PAGE as usize),
                    None => unknown.push(page),
                },
            };
            ended += queue.reap(min, None, reap).unwrap();
        }
        drop(queue);
        if is_unknown {
            // The error of a sync may have been lost with its completion.
            self.setup.model.has_failed(&mut self.told);
        }
        pages.retain(|page| !unknown.contains(page));
        pages.iter().for_each(|page| self.setup.model.end_write(*page));
    }

    fn future(&mut self, page: u64) {
        let file = AsyncFile::from(self.file.clone());
        let bytes = self.setup.model.begin_write(page);
        let written = block_on(file.write_at(bytes, page * PAGE)).0;
        self.wrote(page, written.inspect(|done| assert_eq!(*done, PAGE as usize)));
        if self.prng.chance(500_000) {
            self.sync(0..PAGES, |_| block_on(file.sync_data()));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Tag {
    Write(u64),
    Durable(u64, usize),
    Sync,
}

fn truncate(setup: &Setup, mut prng: Prng, steps: usize) {
    let mut file = setup.open(&mut prng);
    for number in 0..steps as u64 {
        let mut prng = prng.fork();
        let pages = prng.range(0..=6);
        if !step(|| format!("truncate to {PAGES} + {pages} pages, {}", described(&file))) {
            continue;
        }
        if truncate_once(setup, &mut prng, &file, (number, pages)).is_none() {
            return note(|| "truncates no more".to_owned());
        }
        if prng.chance(500_000) {
            file = setup.open(&mut prng);
        }
    }
    setup.expected(file.set_len(PAGES * PAGE));
}

/// `None`: a request failed, as `expected` allows.
fn truncate_once(
    setup: &Setup,
    prng: &mut Prng,
    file: &File,
    (number, pages): (u64, u64),
) -> Option<()> {
    let end = (PAGES + pages) * PAGE;
    setup.expected(file.set_len(end))?;
    assert_eq!(file.size().unwrap(), end, "as long as it was made");
    assert_eq!(bytes_to_the_end(setup, file, PAGES * PAGE)?, pages * PAGE);
    let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
    bytes.fill(number as u8 | 1);
    setup.expected(file.write_all_at(&bytes, end))?;
    let mut back = AlignedBuffer::zeroed(PAGE as usize);
    setup.expected(file.read_exact_at(&mut back, end))?;
    assert_eq!(*back, *bytes, "what was appended");
    if prng.chance(500_000) {
        setup.expected(file.sync_data())?;
        std::thread::yield_now();
        setup.expected(file.read_exact_at(&mut back, end))?;
        assert_eq!(*back, *bytes, "what was appended and synced");
    }
    match setup.modes == [CacheMode::User] && prng.chance(500_000) {
        true => cut_behind_a_write(setup, prng, file, end),
        false => setup.expected(file.set_len(end)),
    }
}

/// A truncation waits for an earlier write beyond the new end, and cuts the written bytes off.
fn cut_behind_a_write(setup: &Setup, prng: &mut Prng, file: &File, end: u64) -> Option<()> {
    let mut queue: Queue<(), AlignedBuffer> = setup.nowait.queue(1).unwrap();
    let bytes = AlignedBuffer::zeroed(PAGE as usize);
    let submitted = match prng.chance(500_000) {
        true => queue.write_durable(file, bytes, end, ()),
        false => queue.write(file, bytes, end, ()),
    };
    submitted.unwrap();
    queue.submit();
    let cut = setup.expected(file.set_len(end));
    let mut written = None;
    queue.reap(1, None, |completion| written = setup.expected(completion.result)).unwrap();
    cut?;
    // Without faults, a failed write was only refused: it has written nothing, and the checks hold.
    if setup.faulty {
        written?;
    }
    assert_eq!(file.size().unwrap(), end, "cut off behind the write");
    assert_eq!(bytes_to_the_end(setup, file, end)?, 0);
    cut
}

fn empty(setup: &Setup, mut prng: Prng) {
    const PATH: &str = "/emptied";
    let open = |prng: &mut Prng, truncate| {
        let all = [CacheMode::User, CacheMode::Host, CacheMode::Direct];
        let mut options = OpenOptions::new();
        options = options.read(true).write(true).create(true).truncate(truncate);
        setup.expected(options.cache(all[prng.index(3)]).open(&setup.nowait, PATH))
    };
    let Some(mut older) = open(&mut prng, false) else { return };
    for number in 0..6 {
        let mut prng = prng.fork();
        if !step(|| "write to a file, and empty it".to_owned()) {
            continue;
        }
        let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
        bytes.fill(number as u8 | 1);
        if setup.expected(older.write_all_at(&bytes, prng.below(4) * PAGE)).is_none() {
            return;
        }
        let Some(newer) = open(&mut prng, true) else { return };
        assert_eq!(newer.size().unwrap(), 0, "an open has emptied it");
        assert_eq!(bytes_to_the_end(setup, &older, 0).unwrap_or(0), 0, "for others, too");
        older = newer;
    }
    drop(older);
    assert!(contents(c"/emptied").is_empty(), "it was emptied, and not written to again");
}

/// Counts the bytes from an offset to the end; one read may return fewer.
fn bytes_to_the_end(setup: &Setup, file: &File, offset: u64) -> Option<u64> {
    let mut tail = AlignedBuffer::zeroed((8 * PAGE) as usize);
    let mut count = 0;
    loop {
        match setup.expected(file.read_at(&mut tail, offset + count))? as u64 {
            0 => return Some(count),
            more => count += more,
        }
    }
}

pub(crate) fn contents(path: &CStr) -> Vec<u8> {
    let fd = nowait_sys::inspect::open(path, 0, 0).unwrap();
    let size = nowait_sys::file::stat(fd.raw()).unwrap().size as usize;
    let mut bytes = vec![0; size];
    let mut done = 0;
    while done < size {
        let rest = &mut bytes[done..];
        let part = nowait_sys::file::IoVec { base: rest.as_mut_ptr(), len: rest.len() };
        // SAFETY: the bytes are live.
        done += unsafe { nowait_sys::file::preadv2(fd.raw(), &[part], done as i64, 0) }.unwrap();
    }
    bytes
}

fn faults(prng: &mut Prng) -> Faults {
    let errors = Faults::swarm(prng);
    let room = (PAGES + prng.below(8)) * PAGE;
    Faults {
        read_error_ppm: errors.read_error_ppm / 4,
        write_error_ppm: errors.write_error_ppm / 2,
        flush_error_ppm: errors.flush_error_ppm / 2,
        partial_ppm: errors.partial_ppm,
        forget_ppm: errors.forget_ppm,
        capacity_bytes: prng.chance(300_000).then_some(room),
        ..Faults::none()
    }
}

fn cut_power(setup: &Setup, mut prng: Prng) {
    for _ in 0..10 {
        let after = Duration::from_nanos(prng.below(30_000_000));
        if step(|| format!("cut the power after {after:?}")) {
            std::thread::park_timeout(after);
            setup.judge_cut();
        }
    }
}

pub(crate) fn program(seed: u64) {
    const STEPS: usize = 25;
    let mut prng = Prng::new(seed ^ 0x5eed);
    let setup = Arc::new(Setup::draw(&mut prng));
    let first = setup.open_in(setup.first);
    first.set_len(PAGES * PAGE).unwrap();
    first.sync_all().unwrap();
    if setup.faulty {
        let faults = faults(&mut prng);
        if step(|| format!("have devices fail: {faults:?}")) {
            nowait_machine::set_faults(faults);
        }
    }
    let actors = prng.range(1..=3);
    let mut threads: Vec<_> = (0..actors)
        .map(|number| {
            let mut actor = Actor::new(setup.clone(), prng.fork(), number, actors);
            let work = move || (0..STEPS).for_each(|_| actor.step());
            spawn(&format!("actor {number}"), work)
        })
        .collect();
    if prng.chance(500_000) {
        let (setup, prng) = (setup.clone(), prng.fork());
        threads.push(spawn("truncate", move || truncate(&setup, prng, STEPS / 3)));
    }
    if prng.chance(300_000) {
        let (setup, prng) = (setup.clone(), prng.fork());
        threads.push(spawn("empty", move || empty(&setup, prng)));
    }
    threads.extend(beside::spawn_some(&setup, &mut prng));
    let (of, fork) = (setup.clone(), prng.fork());
    threads.push(spawn("cut power", move || cut_power(&of, fork)));
    let (of, reads) = (setup.clone(), prng.below(20));
    threads.push(spawn("first", move || {
        let mut page = AlignedBuffer::zeroed(PAGE as usize);
        for page_no in 0..reads {
            if step(|| format!("read page {page_no}")) {
                of.expected(first.read_exact_at(&mut page, page_no * PAGE));
            }
        }
        drop(first);
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    setup.judge_cut();
    setup.judge_room();
    nowait_machine::set_faults(Faults::none());
    let setup = Arc::into_inner(setup).expect("all threads have ended");
    drop(setup.nowait);
    match setup.faulty {
        true => setup.model.judge_left(&contents(c"/file")),
        false => setup.model.judge(&contents(c"/file")),
    }
}
