//! A folder of blocks, which takes jobs and returns finished ones. A submit and a look at results
//! never wait for the disk.

use crate::{
    admission::{self, Direction, IN_FLIGHT_MAX},
    board::{BlockFailure, Board, Finished, Task},
    carrier::{BlockQueue, Carrier, is_whole},
    evictor::Evictor,
    names,
    usage::{self, Usage, make_private},
};
use nowait::{AlignedBuffer, CacheMode, Nowait, OpenOptions};
use nowait_sys::{
    Errno,
    fork::ForkMark,
    mutex::Mutex,
    own_thread::{OwnHandle, OwnThread, STACK_BYTES},
    thread,
};
use std::{
    fs, io, mem,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The memory that blocks are loaded into and stored from.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    at: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; the maker's promise lets any thread use the memory.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region of the `len` bytes at `at`.
    ///
    /// # Safety
    /// The memory may be read and written, and stays in place until the [`BlockFolder`] is closed
    /// or dropped. No other code touches a block of a job that has not finished.
    pub unsafe fn new(at: *mut u8, len: usize) -> Region {
        Region { at, len }
    }

    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        self.at.wrapping_add(offset)
    }
}

/// The settings of a folder of blocks.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder whose blocks together have at most `capacity_bytes`.
    pub root: PathBuf,
    /// The folder of the files of blocks, inside the root.
    pub folder: PathBuf,
    /// Bytes of each block.
    pub block_bytes: usize,
    /// Most bytes of the root's blocks. `None`: no bound.
    pub capacity_bytes: Option<u64>,
    /// Most bytes read and written at a time.
    pub in_flight_bytes: u64,
    /// `true` keeps the keys of evicted blocks for [`BlockFolder::take_evicted`].
    pub tells_evictions: bool,
}

/// A folder of blocks. Dropping it closes it.
#[derive(Debug)]
pub struct BlockFolder {
    config: Config,
    memory: Region,
    is_direct: bool,
    board: Arc<Board>,
    evictor: Arc<Evictor>,
    /// The threads of the folder. A caller of [`BlockFolder::close`] holds the lock while it waits
    /// for them, so other callers wait too.
    threads: Mutex<Vec<OwnHandle>>,
    mark: ForkMark,
}

impl BlockFolder {
    /// Opens the folder, and makes it if it is missing. Blocks.
    ///
    /// # Errors
    /// The folder cannot be made or written; no descriptors or threads left.
    pub fn open(nowait: &Nowait, memory: Region, config: Config) -> io::Result<BlockFolder> {
        make_private(&config.folder)?;
        let usage = config.capacity_bytes.map(|capacity| {
            Usage::open(&config.root, usage::reservable(capacity, config.in_flight_bytes))
        });
        let paths = (config.root.clone(), config.folder.clone());
        let evictor =
            Evictor::new(paths, config.block_bytes, usage.transpose()?, config.tells_evictions);
        let cache = suitable_cache(nowait, &config, memory)?;
        let limit = admission::limit(config.in_flight_bytes, config.block_bytes);
        let folder = BlockFolder {
            memory,
            is_direct: cache == CacheMode::Direct,
            board: Arc::new(Board::new(limit)),
            evictor: Arc::new(evictor),
            threads: Mutex::default(),
            mark: ForkMark::new(),
            config,
        };
        for direction in [Direction::Load, Direction::Store] {
            let queue = nowait.queue(IN_FLIGHT_MAX)?;
            folder.start_carrier(nowait, direction, cache, queue)?;
        }
        let evictor = folder.evictor.clone();
        folder.spawn("nowait-evictor", move || evictor.run())?;
        Ok(folder)
    }

    fn start_carrier(
        &self,
        nowait: &Nowait,
        direction: Direction,
        cache: CacheMode,
        queue: BlockQueue,
    ) -> io::Result<()> {
        let name = match direction {
            Direction::Load => "nowait-loads",
            Direction::Store => "nowait-stores",
        };
        let carrier = Carrier {
            direction,
            nowait: nowait.clone(),
            board: self.board.clone(),
            evictor: self.evictor.clone(),
            folder: self.config.folder.clone(),
            memory: self.memory,
            block_bytes: self.config.block_bytes,
            cache,
            queue,
        };
        self.spawn(name, move || carrier.run())
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let work = || {
            // The thread must not preempt vLLM's scheduler thread when that one wakes it.
            thread::yield_to_wakers();
            work();
        };
        let thread = OwnThread::spawn(name, STACK_BYTES, work)
            .map_err(|errno| io::Error::from_raw_os_error(errno.raw()))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Returns `true` if blocks bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Returns `true` in a child that was forked after the folder was opened: the child may only
    /// drop the folder, because a thread of the parent may have held its locks at the fork.
    pub fn is_the_parents(&self) -> bool {
        !self.mark.is_here()
    }

    /// Submits a job, which loads the block of each key into the memory of its slot, or stores it
    /// from there. Never waits.
    ///
    /// If a slot is outside the memory, only its block fails.
    pub fn submit(&self, job: i64, direction: Direction, blocks: Vec<(Vec<u8>, i64)>) {
        let (mut tasks, mut failures) = (Vec::with_capacity(blocks.len()), Vec::new());
        for (index, (key, slot)) in blocks.into_iter().enumerate() {
            match self.offset_of(slot) {
                Some(offset) => tasks.push(Task { job: 0, index, key, offset }),
                None => failures.push(BlockFailure { index, reason: no_slot(slot) }),
            }
        }
        self.board.submit(job, direction, tasks, failures);
    }

    fn offset_of(&self, slot: i64) -> Option<usize> {
        let offset = usize::try_from(slot).ok()?.checked_mul(self.config.block_bytes)?;
        let end = offset.checked_add(self.config.block_bytes)?;
        (end <= self.memory.len).then_some(offset)
    }

    /// Returns the jobs that have ended since the last call. Never waits.
    pub fn take_finished(&self) -> Vec<Finished> {
        self.board.take_finished()
    }

    /// Returns the keys of the blocks that this process has evicted since the last call; none
    /// unless [`Config::tells_evictions`] is set.
    pub fn take_evicted(&self) -> Vec<Vec<u8>> {
        let evicted = self.evictor.take_evicted();
        evicted.iter().filter_map(|file| names::key_of(&self.config.folder, file)).collect()
    }

    /// Records that blocks were used now, for the order of evictions. Never waits.
    pub fn touch(&self, keys: impl Iterator<Item = Vec<u8>>) {
        self.evictor.note(keys);
    }

    /// Returns the file of a key. `None`: the key is too short.
    pub fn file_of(&self, key: &[u8]) -> Option<PathBuf> {
        names::file_of(&self.config.folder, key)
    }

    /// Returns `true` for each key whose block is stored. Waits for the disk, as stat(2) does.
    pub fn contains(&self, keys: &[Vec<u8>]) -> Vec<bool> {
        let is_stored = |key: &Vec<u8>| {
            self.file_of(key).is_some_and(|path| is_whole(&path, self.config.block_bytes))
        };
        keys.iter().map(is_stored).collect()
    }

    /// Waits at most `timeout` until all submitted jobs have ended; returns `true` if all have.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.board.wait_idle(timeout)
    }

    /// Fails the waiting jobs, and waits until the blocks in flight are transferred. After that no
    /// thread uses the memory of the blocks. Does nothing in a forked child.
    pub fn close(&self) {
        if self.is_the_parents() {
            return;
        }
        self.evictor.close();
        self.board.close();
        let mut threads = self.threads.lock();
        while let Some(thread) = threads.pop() {
            thread.join();
        }
    }
}

impl Drop for BlockFolder {
    fn drop(&mut self) {
        if self.is_the_parents() {
            mem::forget(mem::take(self.threads.get_mut())); // they run in the parent
        }
        self.close();
    }
}

fn no_slot(slot: i64) -> String {
    format!("cannot transfer a block: there is no slot {slot} in the memory")
}

/// Returns the cache mode for the folder's files: direct if the file system has direct I/O, and if
/// its alignment fits the memory and the size of a block.
fn suitable_cache(nowait: &Nowait, config: &Config, memory: Region) -> io::Result<CacheMode> {
    // The file is named like a block, so that a sweep removes it after a crash.
    let folder = config.folder.join("000/00_g0");
    make_private(&folder)?;
    let path = names::temporary(&folder.join("000000.bin"));
    let probe = |cache| {
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).cache(cache);
        options.open(nowait, &path)
    };
    let is_direct = probe(CacheMode::Direct).is_ok_and(|file| {
        let alignment = file.alignment();
        let fits = alignment.is_some_and(|alignment| {
            memory.at.addr().is_multiple_of(alignment.memory)
                && config.block_bytes.is_multiple_of(alignment.memory.max(alignment.offset))
        });
        // Some file systems refuse the transfer instead of the open. If the write fails because the
        // file system is full, direct I/O may still work later.
        let written = file.write_all_at(&AlignedBuffer::zeroed(PROBE_BYTES), 0);
        fits && !written.is_err_and(|error| REFUSALS.contains(&error.errno()))
    });
    remove(&path)?;
    if is_direct {
        return Ok(CacheMode::Direct);
    }
    probe(CacheMode::Host)?;
    remove(&path)?;
    Ok(CacheMode::Host)
}

const REFUSALS: [Errno; 2] = [Errno::INVAL, Errno::OPNOTSUPP];
/// A multiple of the block size of every device.
const PROBE_BYTES: usize = 4096;

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
