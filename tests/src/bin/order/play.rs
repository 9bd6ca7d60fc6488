//! Makes the file of a script, submits its requests through libaio, and records the outcomes.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nowait_tests::aio;
use nowait_tests::request::{self, Context};

use crate::script::{
    Blocks, CONTEXTS, Cached, Kind, PAGE, PAGES, REQUESTS_MAX, Request, Script, THREADS_MAX,
};

/// The byte of written blocks before the first request.
pub(crate) const OLD: u8 = 0xff;
/// The byte that fills the buffers of reads.
pub(crate) const UNTOUCHED: u8 = 0xfe;

/// The outcome of one request. Its times are ticks of the script's clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) res: i64,
    /// The whole buffer of a read.
    pub(crate) bytes: Vec<u8>,
    /// The times at which its io_submit began and returned, and its event was taken.
    pub(crate) begun: u64,
    pub(crate) returned: u64,
    pub(crate) taken: u64,
}

pub(crate) struct Played {
    /// In the order of the script's requests.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) size: u64,
    /// The content of the file at the end, read through the page cache and directly.
    pub(crate) views: [(&'static str, Vec<u8>); 2],
}

/// The file, its descriptors and the contexts, which all scripts of a run share.
pub(crate) struct Stage {
    path: PathBuf,
    buffered: File,
    direct: File,
    /// The file opened with O_APPEND, first buffered, then with O_DIRECT.
    appending: [File; 2],
    contexts: Vec<[Context; CONTEXTS as usize]>,
}

/// The batch of one io_submit: the index of the context, `true` if the thread first takes all
/// events, and the requests with their indexes.
type Batch<'a> = (usize, bool, Vec<(usize, &'a Request)>);

impl Stage {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join(format!("order-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let open = |options: &OpenOptions| options.open(&path).expect("a file in the folder");
        let buffered = open(&options);
        let direct = open(options.truncate(false).custom_flags(libc::O_DIRECT));
        let appending =
            [0, libc::O_DIRECT].map(|mode| open(options.append(true).custom_flags(mode)));
        // SAFETY: numbers only.
        let rc =
            unsafe { libc::posix_fadvise(buffered.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        assert_eq!(rc, 0, "posix_fadvise");
        let context = || Context::new(REQUESTS_MAX as i32).expect("io_setup");
        let contexts = (0..THREADS_MAX).map(|_| std::array::from_fn(|_| context())).collect();
        Self { path, buffered, direct, appending, contexts }
    }

    /// Makes the file as the script describes it. Direct writes make the written blocks, so that
    /// these are on the device without a sync, and not cached.
    fn set(&self, script: &Script) {
        self.forget_errors();
        self.buffered.set_len(0).expect("ftruncate");
        self.buffered.set_len(script.size).expect("ftruncate");
        let runs = script.pages.chunk_by(|one, other| one.blocks == other.blocks);
        each_run(runs, |page, at, len| match page.blocks {
            Blocks::Hole => {}
            Blocks::Unwritten => {
                let (keep, fd) = (libc::FALLOC_FL_KEEP_SIZE, self.buffered.as_raw_fd());
                // SAFETY: numbers only.
                let rc = unsafe { libc::fallocate(fd, keep, at as i64, len as i64) };
                assert_eq!(rc, 0, "fallocate");
            }
            Blocks::Written => {
                let len = len.min(script.size.saturating_sub(at)) / PAGE * PAGE;
                let old =
                    request::Request::write(self.direct.as_fd(), &vec![OLD; len as usize], at);
                self.direct.write_all_at(old.bytes(), at).expect("a direct write");
            }
        });
        let runs = script.pages.chunk_by(|one, other| one == other);
        let mut room = vec![0; (PAGES * PAGE) as usize];
        each_run(runs, |page, at, len| {
            let len = len.min(script.size.saturating_sub(at)) as usize;
            match page.cached {
                Cached::No => {}
                Cached::Clean => {
                    self.buffered.read_exact_at(&mut room[..len], at).expect("a read");
                }
                Cached::Dirty => {
                    let pages = (at..at + len as u64).step_by(PAGE as usize);
                    let old: Vec<_> = pages.map(|at| [before(script, at); PAGE as usize]).collect();
                    self.buffered.write_all_at(&old.as_flattened()[..len], at).expect("a write");
                }
            }
        });
    }

    /// Clears an error of an earlier script, so that the next sync does not report this error.
    fn forget_errors(&self) {
        for file in [&self.buffered, &self.direct] {
            let (fd, what) = (file.as_raw_fd(), libc::SYNC_FILE_RANGE_WAIT_BEFORE);
            // SAFETY: numbers only. This call returns the error and so clears it.
            let _ = unsafe { libc::sync_file_range(fd, 0, 1, what) };
        }
    }

    pub(crate) fn play(&self, script: &Script) -> Played {
        self.set(script);
        let clock = AtomicU64::new(1);
        let threads = script.requests.iter().map(|it| it.thread + 1).max().unwrap_or(0);
        let mut outcomes = vec![Outcome::default(); script.requests.len()];
        let parts: Vec<_> = thread::scope(|scope| {
            let clock = &clock;
            let actor = |thread| move || self.act(script, thread, clock);
            match threads {
                0 | 1 => vec![actor(0)()],
                _ => {
                    let threads: Vec<_> = (0..threads).map(|it| scope.spawn(actor(it))).collect();
                    threads.into_iter().map(|it| it.join().expect("a thread")).collect()
                }
            }
        });
        for (index, outcome) in parts.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        let size = self.buffered.metadata().expect("stat").size();
        let cached = std::fs::read(&self.path).expect("the file");
        let room = size.next_multiple_of(PAGE) as usize;
        let mut device = request::Request::read(self.direct.as_fd(), room, 0);
        let count = self.direct.read_at(device.bytes_mut(), 0).or_else(|_| {
            // The read fails at blocks that a buffered write has only reserved (see `rule.rs`). The
            // sync allocates these blocks; the sync itself may fail, too.
            let _ = self.direct.sync_all();
            self.direct.read_at(device.bytes_mut(), 0)
        });
        let device = device.bytes()[..count.expect("a direct read")].to_vec();
        let views = [("the page cache", cached), ("the device", device)];
        Played { outcomes, size, views }
    }

    fn act(&self, script: &Script, thread: usize, clock: &AtomicU64) -> Vec<(usize, Outcome)> {
        let tick = || clock.fetch_add(1, Ordering::SeqCst);
        let contexts = &self.contexts[thread];
        let mut outcomes = vec![];
        let mut in_flight: Vec<(usize, Outcome)> = vec![];
        let mut take = |in_flight: &mut Vec<(usize, Outcome)>| {
            for (number, context) in contexts.iter().enumerate() {
                let is_own = |index: usize| script.requests[index].context == number;
                let count = in_flight.iter().filter(|it| is_own(it.0)).count();
                let done = context.reap_all(count);
                let taken = tick();
                for done in done {
                    let of = in_flight.iter_mut().find(|it| it.0 as u64 == done.tag);
                    let (index, outcome) = of.expect("it is in flight");
                    (outcome.res, outcome.taken) = (done.res, taken);
                    if script.requests[*index].kind == Kind::Read {
                        outcome.bytes = done.request.bytes().to_vec();
                    }
                }
            }
            outcomes.append(in_flight);
        };
        for (context, waits, batch) in batches(script, thread) {
            if waits {
                take(&mut in_flight);
            }
            let requests = batch.iter().map(|(index, it)| (*index as u64, self.request(it)));
            let (requests, begun) = (requests.collect(), tick());
            let count = contexts[context].submit_tagged(requests);
            let returned = tick();
            assert_eq!(count, batch.len() as i32, "io_submit of {batch:?}");
            let outcome = Outcome { begun, returned, ..Outcome::default() };
            in_flight.extend(batch.iter().map(|(index, _)| (*index, outcome.clone())));
        }
        take(&mut in_flight);
        outcomes
    }

    fn request(&self, wanted: &Request) -> request::Request {
        let file = if wanted.direct { &self.direct } else { &self.buffered };
        let (fd, len) = (file.as_fd(), wanted.len as usize);
        let made = match wanted.kind {
            Kind::Sync => return request::Request::fsync(fd),
            Kind::Read => request::Request::read(fd, len, wanted.at).filled(UNTOUCHED),
            Kind::Write => request::Request::write(fd, &vec![wanted.value(); len], wanted.at),
            // An append with an even number goes to the file that is open with O_APPEND.
            Kind::Append if wanted.number.is_multiple_of(2) => {
                let fd = self.appending[usize::from(wanted.direct)].as_fd();
                request::Request::write(fd, &vec![wanted.value(); len], 0)
            }
            Kind::Append => {
                request::Request::write(fd, &vec![wanted.value(); len], 0).flags(aio::RWF_APPEND)
            }
        };
        if wanted.part > 0 { made.in_parts(wanted.part as usize) } else { made }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the byte that the file has at an offset before a script's first request.
pub(crate) fn before(script: &Script, at: u64) -> u8 {
    let page = script.pages.get((at / PAGE) as usize);
    // `Stage::set` writes whole pages only.
    let end = script.size / PAGE * PAGE;
    match page {
        Some(page) if page.blocks == Blocks::Written && at < end => OLD,
        _ => 0,
    }
}

/// Calls `work` with the first page, the offset and the length of each run.
fn each_run<'a>(
    runs: impl Iterator<Item = &'a [crate::script::Page]>,
    mut work: impl FnMut(crate::script::Page, u64, u64),
) {
    let mut at = 0;
    for run in runs {
        let len = run.len() as u64 * PAGE;
        work(run[0], at, len);
        at += len;
    }
}

fn batches(script: &Script, thread: usize) -> Vec<Batch<'_>> {
    let mut batches: Vec<Batch<'_>> = vec![];
    let own = script.requests.iter().enumerate().filter(|(_, it)| it.thread == thread);
    for (index, request) in own {
        match batches.last_mut() {
            Some((context, _, batch))
                if request.joined && !request.waits && *context == request.context =>
            {
                batch.push((index, request));
            }
            _ => batches.push((request.context, request.waits, vec![(index, request)])),
        }
    }
    batches
}
