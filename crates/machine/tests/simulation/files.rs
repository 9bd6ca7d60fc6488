//! Everything that a Rust program can ask for, against a model.
//!
//! Several threads work on one file, each through files it opened in any mode, queues and futures.
//! A page is written by one thread only, so that a read is judged exactly: it may find what was
//! there when it began, or what was begun before it ended. The pages behind a bound belong to a
//! thread that truncates. In the end the file is what was written last.
use crate::model::{Model, PAGE};
use futures_lite::future::{self, block_on};
use nowait::{
    Advice, AlignedBuffer, AsyncFile, BackendChoice, CacheMode, File, Nowait, OpenOptions, Queue,
    SubmitMode, Zeroing,
};
use nowait_machine::note;
use nowait_sim::Prng;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Pages with an owner each.
const PAGES: u64 = 24;
const PATH: &str = "/file";

/// What a run is made of.
struct Setup {
    nowait: Nowait,
    model: Model,
    modes: Vec<CacheMode>,
    /// The file is open in this mode when the others begin, and closed while they work.
    first: CacheMode,
}

impl Setup {
    fn draw(prng: &mut Prng) -> Setup {
        let backends = [BackendChoice::Threads, BackendChoice::Kaio, BackendChoice::Uring];
        let submits = [SubmitMode::Auto, SubmitMode::Inline, SubmitMode::Offload];
        let nowait = Nowait::builder()
            .backend(backends[prng.index(3)])
            .submit(submits[prng.index(3)])
            .cache_bytes([256 << 10, 4 << 20][prng.index(2)])
            .build()
            .unwrap();
        let all = [CacheMode::User, CacheMode::Host, CacheMode::Direct];
        // An open in `User` does not wait for requests that go through the kernel: it comes first.
        let (first, modes) = match prng.index(3) {
            0 => (CacheMode::User, vec![CacheMode::User]),
            1 => (CacheMode::User, vec![CacheMode::Host, CacheMode::Direct]),
            _ => {
                let mode = all[prng.index(3)];
                (mode, vec![mode])
            }
        };
        Setup { nowait, model: Model::new(PAGES), modes, first }
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

/// A thread of the program.
struct Actor {
    setup: Arc<Setup>,
    prng: Prng,
    file: File,
    own: Vec<u64>,
}

impl Actor {
    fn new(setup: Arc<Setup>, mut prng: Prng, number: u64, count: u64) -> Actor {
        let file = setup.open(&mut prng);
        let own = (0..PAGES).filter(|page| page % count == number).collect();
        Actor { setup, prng, file, own }
    }

    fn page_of_own(&mut self) -> u64 {
        self.own[self.prng.index(self.own.len())]
    }

    /// A step that takes longer has been forgotten by the engine, until it looked around for
    /// another reason: transfers take a hundredth of that, and its own look is every second.
    const STEP_MAX: Duration = Duration::from_millis(900);

    fn step(&mut self) {
        let begun = Instant::now();
        self.work();
        assert!(begun.elapsed() < Self::STEP_MAX, "this took {:?}", begun.elapsed());
    }

    fn work(&mut self) {
        let page = self.page_of_own();
        let kind = self.prng.index(12);
        note(|| format!("step {kind} on page {page}, {}", described(&self.file)));
        match kind {
            0 | 1 => self.write(page),
            2 | 3 => self.read(),
            4 => self.file.sync_all().unwrap(),
            5 => self.file.sync_data().unwrap(),
            6 => self.file = self.setup.open(&mut self.prng),
            7 => {
                let advice = [Advice::WillNeed, Advice::DontNeed][self.prng.index(2)];
                self.file.advise(page * PAGE..(page + 3) * PAGE, advice).unwrap();
            }
            8 => self.zero(page),
            9 => self.lend(page),
            10 => self.queue(),
            _ => self.future(page),
        }
    }

    fn write(&mut self, page: u64) {
        let bytes = self.setup.model.begin_write(page);
        self.file.write_all_at(&bytes, page * PAGE).unwrap();
        self.setup.model.end_write(page);
    }

    fn read(&mut self) {
        let (first, count) = (self.prng.below(PAGES), self.prng.range(1..=4));
        let pages = first..(first + count).min(PAGES);
        let seen = self.setup.model.begin_read(pages.clone());
        let mut bytes = AlignedBuffer::zeroed(((pages.end - first) * PAGE) as usize);
        self.file.read_exact_at(&mut bytes, first * PAGE).unwrap();
        self.setup.model.end_read(&seen, &bytes);
    }

    fn zero(&mut self, page: u64) {
        self.setup.model.begin_zero(page);
        let range = page * PAGE..(page + 1) * PAGE;
        let zeroing = [Zeroing::Hole, Zeroing::Allocated][self.prng.index(2)];
        self.file.zero(range, zeroing).unwrap();
        self.setup.model.end_write(page);
    }

    /// What is lent stays as it is, whatever others do; only this thread writes the page.
    fn lend(&mut self, page: u64) {
        let seen = self.setup.model.begin_read(page..page + 1);
        let Some(lent) = self.file.lend(page * PAGE, PAGE as usize).unwrap() else { return };
        let mut bytes = Vec::new();
        lent.chunks().for_each(|slice| bytes.extend_from_slice(slice));
        self.setup.model.end_read(&seen, &bytes);
        if self.prng.chance(500_000) {
            let bytes = self.setup.model.begin_write(page);
            let write = block_on(async {
                let file = AsyncFile::from(self.file.clone());
                let mut write = file.write_at(bytes, page * PAGE);
                let over = future::poll_once(&mut write).await;
                // It waits for this, perhaps on an engine that does nothing else.
                drop(lent);
                match over {
                    Some(over) => over.0,
                    None => write.await.0,
                }
            });
            assert_eq!(write.unwrap(), PAGE as usize);
            self.setup.model.end_write(page);
        }
    }

    /// Writes of different pages, reads and syncs at a time; then the queue goes, perhaps before
    /// all have ended: what was submitted is done all the same.
    fn queue(&mut self) {
        let mut queue: Queue<u64, AlignedBuffer> = self.setup.nowait.queue(16).unwrap();
        let mut pages = self.own.clone();
        self.prng.shuffle(&mut pages);
        pages.truncate(1 + self.prng.index(6));
        for page in &pages {
            let bytes = self.setup.model.begin_write(*page);
            let taken = match self.prng.chance(300_000) {
                true => queue.write_durable(&self.file, bytes, page * PAGE, *page),
                false => queue.write(&self.file, bytes, page * PAGE, *page),
            };
            taken.unwrap();
            if self.prng.chance(300_000) {
                queue.submit();
            }
            // In the order of their submission, where a page cache is.
            if self.file.alignment().is_none() && self.prng.chance(300_000) {
                let bytes = self.setup.model.begin_write(*page);
                queue.write(&self.file, bytes, page * PAGE, *page).unwrap();
            }
        }
        if self.prng.chance(300_000) {
            queue.sync_data(&self.file, u64::MAX).unwrap();
        }
        queue.submit();
        let mut left = queue.len();
        if self.prng.chance(300_000) {
            left = self.prng.index(left + 1);
        }
        let mut ended = 0;
        while ended < left {
            let min = self.prng.index(left - ended + 1);
            ended += queue
                .reap(min, None, |completion| {
                    let expected = if completion.tag == u64::MAX { 0 } else { PAGE as usize };
                    assert_eq!(completion.result.unwrap(), expected);
                })
                .unwrap();
        }
        drop(queue);
        pages.iter().for_each(|page| self.setup.model.end_write(*page));
    }

    fn future(&mut self, page: u64) {
        let file = AsyncFile::from(self.file.clone());
        let bytes = self.setup.model.begin_write(page);
        let sync = self.prng.chance(500_000);
        let (written, synced) = block_on(async {
            let written = file.write_at(bytes, page * PAGE).await.0;
            let synced = if sync { file.sync_data().await } else { Ok(()) };
            (written, synced)
        });
        assert_eq!((written.unwrap(), synced.unwrap()), (PAGE as usize, ()));
        self.setup.model.end_write(page);
    }
}

/// Cuts off and extends the file behind the pages of others, who sync and open it meanwhile.
fn truncate(setup: &Setup, mut prng: Prng, steps: usize) {
    let mut file = setup.open(&mut prng);
    for step in 0..steps as u64 {
        let pages = prng.range(0..=6);
        note(|| format!("truncates to {PAGES} + {pages} pages, {}", described(&file)));
        let end = (PAGES + pages) * PAGE;
        file.set_len(end).unwrap();
        assert_eq!(file.size().unwrap(), end, "as long as it was made");
        assert_eq!(bytes_to_the_end(&file, PAGES * PAGE), pages * PAGE);
        if prng.chance(500_000) {
            file = setup.open(&mut prng);
        }
        let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
        bytes.fill(step as u8 | 1);
        file.write_all_at(&bytes, end).unwrap();
        let mut back = AlignedBuffer::zeroed(PAGE as usize);
        file.read_exact_at(&mut back, end).unwrap();
        assert_eq!(*back, *bytes, "what was appended");
        file.set_len(end).unwrap();
    }
    file.set_len(PAGES * PAGE).unwrap();
}

/// Counts the bytes that can be read from an offset on: a device may give fewer at a time.
fn bytes_to_the_end(file: &File, offset: u64) -> u64 {
    let mut tail = AlignedBuffer::zeroed((8 * PAGE) as usize);
    let mut count = 0;
    loop {
        match file.read_at(&mut tail, offset + count).unwrap() as u64 {
            0 => return count,
            more => count += more,
        }
    }
}

/// Reads the file past everything, when all is closed.
fn contents() -> Vec<u8> {
    let fd = nowait_sys::inspect::open(c"/file", 0, 0).unwrap();
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

/// Runs it on the machine that calls this.
pub(crate) fn program(seed: u64) {
    const STEPS: usize = 25;
    let mut prng = Prng::new(seed ^ 0x5eed);
    let setup = Arc::new(Setup::draw(&mut prng));
    let first = setup.open_in(setup.first);
    first.set_len(PAGES * PAGE).unwrap();
    let actors = prng.range(1..=3);
    let mut threads: Vec<_> = (0..actors)
        .map(|number| {
            let mut actor = Actor::new(setup.clone(), prng.fork(), number, actors);
            std::thread::spawn(move || (0..STEPS).for_each(|_| actor.step()))
        })
        .collect();
    if prng.chance(500_000) {
        let (setup, prng) = (setup.clone(), prng.fork());
        threads.push(std::thread::spawn(move || truncate(&setup, prng, STEPS / 3)));
    }
    threads.push(std::thread::spawn(move || {
        let mut page = AlignedBuffer::zeroed(PAGE as usize);
        (0..prng.below(20))
            .for_each(|page_no| first.read_exact_at(&mut page, page_no * PAGE).unwrap());
        drop(first);
    }));
    let ends: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    let unwind = |panic| std::panic::resume_unwind(panic);
    ends.into_iter().for_each(|end| end.unwrap_or_else(unwind));
    let setup = Arc::into_inner(setup).expect("all threads have ended");
    drop(setup.nowait);
    setup.model.judge(&contents());
}
