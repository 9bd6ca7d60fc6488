//! Requests that only blocking calls can carry out, on threads of their own.

use crate::{
    BlockingTask, Chunk, Extent, Image, Mailbox, RequestEnd, Source, Tag,
    turns::{Asker, Turns},
};
use core::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use nowait::{AlignedBuffer, Errno, Zeroing};
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::time::now_ns;
use std::{sync::Arc, thread};

/// Threads that run blocking tasks, started as needed. Dropping this value waits until the threads
/// have run all queued tasks.
#[derive(Debug)]
pub struct BlockingTasks {
    line: Arc<Line>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    threads_max: usize,
}

#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    news: Condvar,
    /// When the threads begin to give up all tasks except writes, by the clock of [`now_ns`].
    ends_ns: AtomicU64,
}

#[derive(Debug)]
struct State {
    jobs: Turns<Job>,
    /// The client of each running task, and a flag that tells the task that this client has gone.
    running: Vec<((usize, u64), Arc<AtomicBool>)>,
    idle: usize,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    image: Arc<Image>,
    task: BlockingTask,
    tag: Tag,
    mailbox: Arc<Mailbox>,
}

impl BlockingTasks {
    /// Makes a value that starts up to `threads` threads. Clients take turns. The tasks of one
    /// client for one image may occupy half of the threads, or the only thread.
    pub fn new(threads: usize) -> Arc<BlockingTasks> {
        BlockingTasks::of_images(threads, 1)
    }

    /// Like [`BlockingTasks::new`], with one more thread for each image but the first. So tasks of
    /// an image whose store has stalled leave one thread for each other image.
    pub fn of_images(threads: usize, images: usize) -> Arc<BlockingTasks> {
        let (jobs, threads_max) = (Turns::new(threads), threads + images.saturating_sub(1));
        let state = Mutex::new(State { jobs, running: Vec::new(), idle: 0, closed: false });
        let ends_ns = AtomicU64::new(u64::MAX);
        let line = Arc::new(Line { state, news: Condvar::new(), ends_ns });
        Arc::new(BlockingTasks { line, threads: Mutex::default(), threads_max: threads_max.max(1) })
    }

    /// Queues a task, whose end comes into `mailbox` unless [`BlockingTasks::forget`] drops it.
    pub fn push(&self, image: &Arc<Image>, task: BlockingTask, tag: Tag, mailbox: &Arc<Mailbox>) {
        let asker = Asker { client: client(mailbox, tag.owner), image: Arc::as_ptr(image).addr() };
        let job = Job { image: image.clone(), task, tag, mailbox: mailbox.clone() };
        let mut state = self.line.state.lock();
        let may_run = state.jobs.push(asker, job);
        let short_of_hands = may_run && state.jobs.len() > state.idle;
        drop(state);
        self.line.news.notify_one();
        if short_of_hands {
            self.hire();
        }
    }

    /// Drops the tasks that `owner` has queued with `mailbox` and that have not begun; returns the
    /// chunks of these tasks. The end of a running task still comes into `mailbox`. A running task
    /// that is not a write may end early with `ECANCELED`, done in part.
    pub fn forget(&self, owner: u64, mailbox: &Arc<Mailbox>) -> Vec<Chunk> {
        let client = client(mailbox, owner);
        let mut state = self.line.state.lock();
        let its = state.running.iter().filter(|(whose, _)| *whose == client);
        its.for_each(|(_, gone)| gone.store(true, Relaxed));
        let dropped = state.jobs.forget(client);
        drop(state);
        let memory = dropped.into_iter().filter_map(|job| match job.task {
            BlockingTask::WriteParts { chunk, .. } => Some(chunk),
            _ => None,
        });
        memory.collect()
    }

    /// Makes the threads give up all tasks except writes from `at_ns` on, by the clock of
    /// [`now_ns`]: such tasks end with `ESHUTDOWN`, done in part or not at all. If called several
    /// times, the earliest time counts.
    pub fn end_at(&self, at_ns: u64) {
        self.line.ends_ns.fetch_min(at_ns, Relaxed);
    }

    fn hire(&self) {
        let mut threads = self.threads.lock();
        if threads.len() == self.threads_max {
            return;
        }
        let line = self.line.clone();
        let named = thread::Builder::new().name("nowait-chores".to_owned());
        match named.spawn(move || line.work()) {
            Ok(thread) => threads.push(thread),
            // If there are other threads, they will run the task. Otherwise the queued tasks fail
            // with `EAGAIN`. The calling thread must not run them: a task may wait for a request
            // that this thread itself has in flight.
            Err(_) if threads.is_empty() => {
                while let Some((asker, job)) = { self.line.state.lock().jobs.take() } {
                    job.refuse(Errno::AGAIN);
                    self.line.state.lock().jobs.end(asker);
                }
            }
            Err(_) => {}
        }
    }
}

/// Each serving thread has one mailbox, and numbers its own clients.
fn client(mailbox: &Arc<Mailbox>, owner: u64) -> (usize, u64) {
    (Arc::as_ptr(mailbox).addr(), owner)
}

impl Drop for BlockingTasks {
    fn drop(&mut self) {
        self.line.state.lock().closed = true;
        self.line.news.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            let _ = thread.join();
        }
    }
}

impl Line {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((asker, job)) = state.jobs.take() {
                let gone = Arc::new(AtomicBool::new(false));
                state.running.push((asker.client, gone.clone()));
                drop(state);
                job.end(&Limit { gone: &gone, ends_ns: &self.ends_ns });
                state = self.state.lock();
                state.running.retain(|(_, running)| !Arc::ptr_eq(running, &gone));
                state.jobs.end(asker);
                // Two more jobs may run now: one of the same client, and one of another client of
                // the same image. This thread takes only one job.
                if state.idle > 0 && state.jobs.len() > 1 {
                    self.news.notify_one();
                }
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                self.news.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

type Done = Result<(), Errno>;

/// The reasons why a task that is not a write gives up before its next piece.
struct Limit<'a> {
    gone: &'a AtomicBool,
    ends_ns: &'a AtomicU64,
}

impl Limit<'_> {
    fn check(&self) -> Done {
        if self.gone.load(Relaxed) {
            return Err(Errno::CANCELED);
        }
        if now_ns() >= self.ends_ns.load(Relaxed) { Err(Errno::SHUTDOWN) } else { Ok(()) }
    }
}

impl Job {
    /// Reports `EIO` if the task panicked.
    fn end(self, limit: &Limit<'_>) {
        let mut ended = RequestEnd::plain(self.tag, Ok(()));
        let nowait = self.image.file().nowait();
        let flushes = &self.image.flushes;
        let known = flushes.failures();
        let done = || self.run(limit, &mut ended.extents);
        let done = nowait.caught("in a blocking task", done);
        ended.result = done.unwrap_or(Err(Errno::IO));
        let flush = (ended.result.is_ok() && self.is_durable()).then(|| flushes.begin_write(known));
        if flush.is_some() {
            let done = nowait.caught("in a blocking task", || self.image.file().sync_data());
            ended.result = done.unwrap_or(Err(Errno::IO));
        }
        if let BlockingTask::WriteParts { chunk, .. } = self.task {
            ended.chunk = Some(chunk);
        }
        let ended = match flush {
            Some(flush) => flush.end(ended, &self.mailbox),
            None => Some(ended),
        };
        ended.into_iter().for_each(|ended| self.mailbox.put(ended));
    }

    fn is_durable(&self) -> bool {
        match self.task {
            BlockingTask::Discard { durable, .. }
            | BlockingTask::Zero { durable, .. }
            | BlockingTask::WriteParts { durable, .. } => durable,
            BlockingTask::Extents { .. } | BlockingTask::Prefetch { .. } => false,
        }
    }

    fn run(&self, limit: &Limit<'_>, found: &mut Vec<Extent>) -> Done {
        #[cfg(test)]
        tests::inject(self.tag);
        let image = &*self.image;
        match &self.task {
            BlockingTask::Discard { range, .. } => discard(image, range, limit),
            BlockingTask::Zero { range, allocated, fast, .. } => {
                zero(image, range, *allocated, *fast, limit)
            }
            BlockingTask::Extents { range, max } => {
                *found = extents(image, range.clone(), *max, limit)?;
                Ok(())
            }
            BlockingTask::Prefetch { range } => prefetch(image, range.clone(), limit).map(drop),
            BlockingTask::WriteParts { chunk, offset, .. } => {
                write_parts(image, chunk.data(), *offset)
            }
        }
    }

    fn refuse(self, errno: Errno) {
        let mut ended = RequestEnd::plain(self.tag, Err(errno));
        if let BlockingTask::WriteParts { chunk, .. } = self.task {
            ended.chunk = Some(chunk);
        }
        self.mailbox.put(ended);
    }
}

/// The most bytes that a discard or zeroing covers between two checks of the limit.
const STEP_BYTES: u64 = 64 << 20;

fn steps(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (mut at, end) = (range.start, range.end);
    core::iter::from_fn(move || {
        let start = at;
        at = (at / STEP_BYTES).saturating_add(1).saturating_mul(STEP_BYTES).min(end);
        (start < end).then_some(start..at)
    })
}

/// Frees the space of the whole blocks of the range. Also succeeds if the source cannot free space.
fn discard(image: &Image, range: &Range<u64>, limit: &Limit<'_>) -> Done {
    for step in steps(&whole_blocks(image, range)) {
        limit.check()?;
        match image.file().discard(step) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            outcome => outcome?,
        }
    }
    Ok(())
}

fn zero(image: &Image, range: &Range<u64>, allocated: bool, fast: bool, limit: &Limit<'_>) -> Done {
    let inner = whole_blocks(image, range);
    let start = image.place(0);
    if inner.is_empty() {
        return write_zeroes(image, range, limit);
    }
    let zeroing = if allocated { Zeroing::Allocated } else { Zeroing::Hole };
    for step in steps(&inner) {
        limit.check()?;
        let shared = image.stripes.share(&step);
        match image.file().zero(step.clone(), zeroing, fast) {
            Err(Errno::OPNOTSUPP) if !fast => {
                drop(shared);
                write_zeroes(image, &(step.start - start..inner.end - start), limit)?;
                break;
            }
            outcome => outcome?,
        }
    }
    write_zeroes(image, &(range.start..inner.start - start), limit)?;
    write_zeroes(image, &(inner.end - start..range.end), limit)
}

fn whole_blocks(image: &Image, range: &Range<u64>) -> Range<u64> {
    let align = image.alignment();
    let start = image.place(range.start).next_multiple_of(align);
    let end = image.place(range.end) / align * align;
    start..end.max(start)
}

/// Memory for direct I/O is aligned to this.
const PAGE_BYTES: usize = 4096;
const ZEROES_BYTES: u64 = 256 << 10;

fn write_zeroes(image: &Image, range: &Range<u64>, limit: &Limit<'_>) -> Done {
    if range.is_empty() {
        return Ok(());
    }
    let zeroes = AlignedBuffer::zeroed((range.end - range.start).min(ZEROES_BYTES) as usize);
    let mut offset = range.start;
    while offset < range.end {
        limit.check()?;
        let align = image.alignment();
        // Unless this is the last write, end it at the end of a block, so that the next write
        // begins at a block boundary.
        let until = (image.place(offset) + ZEROES_BYTES) / align * align - image.place(0);
        let len = (until.min(range.end) - offset).min(zeroes.len() as u64);
        write_parts(image, &zeroes[..len as usize], offset)?;
        offset += len;
    }
    Ok(())
}

/// Unless the bytes are whole blocks in page-aligned memory, reads the first and the last block,
/// inserts the bytes, and writes all blocks.
fn write_parts(image: &Image, bytes: &[u8], offset: u64) -> Done {
    let (align, file) = (image.alignment(), image.file());
    let start = image.place(offset);
    let end = start + bytes.len() as u64;
    let whole = start.is_multiple_of(align) && end.is_multiple_of(align);
    if whole && (bytes.as_ptr() as usize).is_multiple_of(PAGE_BYTES) {
        let _shared = image.stripes.share(&(start..end));
        return file.write_all_at(bytes, start);
    }
    let (first, behind) = (start / align * align, end.next_multiple_of(align));
    let _alone = image.stripes.alone(&(first..behind));
    let mut blocks = AlignedBuffer::zeroed((behind - first) as usize);
    let size = align as usize;
    let last = blocks.len() - size;
    read_block(&**file, &mut blocks[..size], first)?;
    if last > 0 {
        // Inside `blocks` the last block may begin in the middle of a page, and direct I/O needs
        // aligned memory. So a buffer of its own takes the block.
        let mut block = AlignedBuffer::zeroed(size);
        read_block(&**file, &mut block, first + last as u64)?;
        blocks[last..].copy_from_slice(&block);
    }
    let from = (start - first) as usize;
    blocks[from..from + bytes.len()].copy_from_slice(bytes);
    file.write_all_at(&blocks, first)
}

fn read_block(file: &dyn Source, block: &mut [u8], offset: u64) -> Done {
    file.read_at(block, offset).map(drop)
}

fn extents(
    image: &Image,
    range: Range<u64>,
    max: usize,
    limit: &Limit<'_>,
) -> Result<Vec<Extent>, Errno> {
    let (start, end) = (image.place(range.start), image.place(range.end));
    let mut found: Vec<Extent> = Vec::new();
    let mut at = start;
    while at < end {
        limit.check()?;
        for (until, data) in image.file().extents(at, end)? {
            let len = until.min(end) - at;
            at += len;
            let full = found.len() == max;
            match found.last_mut() {
                _ if len == 0 => break,
                Some(last) if last.hole != data => last.len += len,
                _ if full => return Ok(found),
                _ => found.push(Extent { len, hole: !data }),
            }
        }
    }
    Ok(found)
}

/// The most bytes of one prefetch: a prefetch is only a hint, and other tasks wait for its thread.
const PREFETCH_BYTES_MAX: u64 = 32 << 20;

fn prefetch(image: &Image, range: Range<u64>, limit: &Limit<'_>) -> Result<u64, Errno> {
    let mut scratch = AlignedBuffer::zeroed(ZEROES_BYTES as usize);
    let mut at = range.start;
    let end = range.end.min(at.saturating_add(PREFETCH_BYTES_MAX));
    while at < end {
        limit.check()?;
        let len = (end - at).min(ZEROES_BYTES) as usize;
        let read = image.file().read_at(&mut scratch[..len], image.place(at));
        if read? == 0 {
            break;
        }
        at += len as u64;
    }
    Ok(at - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageOptions, Pool};
    use nowait::Nowait;
    use nowait_sys::{
        epoll::{self, Epoll},
        time::Deadline,
    };
    use std::{collections::VecDeque, os::unix::fs::FileExt};

    struct Rig {
        tasks: Arc<BlockingTasks>,
        image: Arc<Image>,
        mailbox: Arc<Mailbox>,
        epoll: Epoll,
        pool: Pool,
        expected: Result<(), Errno>,
        _folder: tempfile::TempDir,
    }

    impl Rig {
        /// Makes room for four threads; one client may occupy two of them.
        fn new() -> Rig {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = folder.path().join("image");
            std::fs::write(&path, vec![1; 64 << 10]).unwrap();
            let options = ImageOptions { path, ..ImageOptions::default() };
            let image = Image::open(&Nowait::new().unwrap(), &options).unwrap();
            let (mailbox, epoll) = (Mailbox::new().unwrap(), Epoll::new().unwrap());
            epoll.add(mailbox.raw(), epoll::IN, 0).unwrap();
            let (tasks, pool) = (BlockingTasks::new(4), Pool::new(1 << 20));
            let (image, expected) = (Arc::new(image), Ok(()));
            Rig { tasks, image, mailbox, epoll, pool, expected, _folder: folder }
        }

        fn write_part(&mut self, owner: u64) {
            let mut chunk = self.pool.take(100);
            chunk.data_mut().fill(owner as u8);
            let task = BlockingTask::WriteParts { chunk, offset: 10, durable: false };
            self.push(owner, task);
        }

        fn push(&self, owner: u64, task: BlockingTask) {
            let tag = Tag { owner, slot: 0, part: 0 };
            self.tasks.push(&self.image, task, tag, &self.mailbox);
        }

        fn ends(&mut self, count: usize) -> Vec<u64> {
            let (mut ended, mut ready) = (VecDeque::new(), Vec::with_capacity(1));
            let limit = Deadline::after_ns(60_000_000_000);
            while ended.len() < count {
                self.epoll.wait(&mut ready, limit);
                self.mailbox.empty(&mut ended);
                assert_ne!(limit.remaining_ns(), Some(0), "nothing ends any more");
            }
            let owner = |ended: RequestEnd| {
                assert_eq!(ended.result, self.expected);
                ended.chunk.into_iter().for_each(|chunk| self.pool.give_back(chunk));
                ended.tag.owner
            };
            ended.into_iter().map(owner).collect()
        }
    }

    #[test]
    fn the_tasks_of_one_client_do_not_hold_those_of_another() {
        let mut rig = Rig::new();
        let image = rig.image.clone();
        // While `held` exists, no write of a part of a sector of this image can end.
        let held = image.stripes.alone(&(0..4096));
        (0..50).for_each(|_| rig.write_part(1));
        rig.push(2, BlockingTask::Extents { range: 0..4096, max: 1 });
        assert_eq!(rig.ends(1), [2]);
        drop(held);
        assert_eq!(rig.ends(50), [1; 50]);
        assert_eq!(rig.pool.used_bytes(), 0);
    }

    #[test]
    fn waiting_tasks_of_a_client_that_has_gone_are_dropped() {
        let mut rig = Rig::new();
        let image = rig.image.clone();
        let held = image.stripes.alone(&(0..4096));
        (0..50).for_each(|_| rig.write_part(1));
        rig.write_part(3);
        let dropped = rig.tasks.forget(1, &rig.mailbox);
        assert!(dropped.len() >= 48, "two at most have begun, {} have not", dropped.len());
        let begun = 50 - dropped.len();
        dropped.into_iter().for_each(|chunk| rig.pool.give_back(chunk));
        drop(held);
        let mut owners = rig.ends(begun + 1);
        owners.sort_unstable();
        assert_eq!(owners, [vec![1; begun], vec![3]].concat());
        assert_eq!(rig.pool.used_bytes(), 0);
    }

    const FAILS: u64 = u64::MAX;

    pub(super) fn inject(tag: Tag) {
        assert!(tag.owner != FAILS, "injected");
    }

    #[test]
    fn a_task_whose_thread_fails_ends_with_eio_and_the_next_ones_are_done() {
        let mut rig = Rig::new();
        // 20 tasks are more than there are threads.
        rig.expected = Err(Errno::IO);
        (0..20).for_each(|_| rig.write_part(FAILS));
        assert_eq!(rig.ends(20), [FAILS; 20]);
        assert_eq!(rig.pool.used_bytes(), 0);
        rig.expected = Ok(());
        (0..20).for_each(|_| rig.write_part(1));
        assert_eq!(rig.ends(20), [1; 20]);
        assert_eq!(rig.image.file().nowait().failed_threads(), 20);
    }

    #[test]
    fn a_prefetch_reads_no_more_than_its_limit() {
        let rig = Rig::new();
        let file = std::fs::File::options().write(true).open(rig.image.file().path()).unwrap();
        file.set_len(2 * PREFETCH_BYTES_MAX).unwrap();
        let limit = Limit { gone: &AtomicBool::new(false), ends_ns: &AtomicU64::new(u64::MAX) };
        let read = |range| prefetch(&rig.image, range, &limit).unwrap();
        assert_eq!(read(0..2 * PREFETCH_BYTES_MAX), PREFETCH_BYTES_MAX);
        assert_eq!(read(8192..800_768), 792_576);
    }

    /// Queues a task that zeroes two steps, and calls `stop` before the second step begins. Returns
    /// `true` if the task zeroed the second step.
    fn zero_stopped(rig: &mut Rig, stop: impl FnOnce(&Rig)) -> bool {
        const SECOND: Range<u64> = STEP_BYTES..STEP_BYTES + 4096;
        let path = rig.image.file().path();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let ones = |at| file.write_all_at(&[1; 4096], at).unwrap();
        ones(0);
        ones(SECOND.start);
        rig.image.resize().unwrap();
        let image = rig.image.clone();
        // The beginning of the first step has the same lock as the second step, so the first step
        // waits.
        let held = image.stripes.alone(&SECOND);
        let range = 0..SECOND.end;
        rig.push(1, BlockingTask::Zero { range, allocated: false, fast: false, durable: false });
        // Wait until a thread has taken the task. The list of running tasks cannot tell, because it
        // may still hold an earlier task.
        while { rig.tasks.line.state.lock().jobs.len() } > 0 {}
        stop(rig);
        drop(held);
        assert_eq!(rig.ends(1), [1]);
        let mut block = [7; 4096];
        file.read_exact_at(&mut block, SECOND.start).unwrap();
        block == [0; 4096]
    }

    #[test]
    fn a_running_task_is_given_up_when_its_client_goes_or_time_is_up() {
        let mut rig = Rig::new();
        assert!(zero_stopped(&mut rig, |_| {}), "nothing stops it");
        rig.expected = Err(Errno::CANCELED);
        let gone = |rig: &Rig| assert!(rig.tasks.forget(1, &rig.mailbox).is_empty());
        assert!(!zero_stopped(&mut rig, gone));
        rig.expected = Err(Errno::SHUTDOWN);
        assert!(!zero_stopped(&mut rig, |rig| rig.tasks.end_at(0)));
        rig.push(
            1,
            BlockingTask::Zero { range: 0..4096, allocated: true, fast: false, durable: false },
        );
        assert_eq!(rig.ends(1), [1]);
        rig.expected = Ok(());
        rig.write_part(1);
        assert_eq!(rig.ends(1), [1]);
    }

    #[test]
    fn a_range_is_divided_at_multiples_of_a_step() {
        let all: Vec<_> = steps(&(4096..2 * STEP_BYTES + 1)).collect();
        let at = [4096, STEP_BYTES, 2 * STEP_BYTES, 2 * STEP_BYTES + 1];
        assert_eq!(all, [at[0]..at[1], at[1]..at[2], at[2]..at[3]]);
        assert_eq!(steps(&(7..7)).count(), 0);
        assert_eq!(steps(&(u64::MAX - 1..u64::MAX)).count(), 1);
    }
}
