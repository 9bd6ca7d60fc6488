//! The folder: takes jobs and hands finished ones out. None of these calls waits for the disk.

use crate::{
    admission::{self, Direction, IN_FLIGHT_MAX},
    board::{BlockFailure, Board, Finished, Task},
    carrier::{BlockQueue, Carrier, is_whole},
    evictor::Evictor,
    names,
    usage::{self, Usage, make_private},
};
use nowait::{AlignedBuffer, CacheMode, Nowait, OpenOptions};
use nowait_sys::{fork::ForkMark, mutex::Mutex, thread};
use std::{
    fs, io, mem,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// Memory that blocks are loaded into and stored from.
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
    /// Names the memory of `len` bytes at `at`.
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

/// How a folder of blocks is used.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder that `capacity_bytes` bounds.
    pub root: PathBuf,
    /// The folder of the files of blocks, inside the root.
    pub folder: PathBuf,
    /// Bytes of each block.
    pub block_bytes: usize,
    /// Most bytes of the root's blocks. `None`: no bound.
    pub capacity_bytes: Option<u64>,
    /// Most bytes read and written at a time.
    pub in_flight_bytes: u64,
    /// Keeps the keys of evicted blocks for [`BlockFolder::take_evicted`].
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
    threads: Mutex<Vec<JoinHandle<()>>>,
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
            // The scheduler's thread, which wakes it, goes on.
            thread::yield_to_wakers();
            work();
        };
        self.threads.lock().push(Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    /// Returns `true` if blocks bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Returns `true` in a child that was forked after the folder was opened: it cannot use it.
    pub fn is_the_parents(&self) -> bool {
        !self.mark.is_here()
    }

    /// Submits a job: the block of each key, from or into the memory of its slot. Never waits.
    ///
    /// A slot outside the memory fails the whole job.
    pub fn submit(&self, job: i64, direction: Direction, blocks: Vec<(Vec<u8>, i64)>) {
        let tasks = blocks.into_iter().enumerate().map(|(index, (key, slot))| {
            let offset = self.offset_of(slot).ok_or_else(|| BlockFailure {
                index,
                reason: format!("cannot transfer a block: there is no slot {slot} in the memory"),
            })?;
            Ok(Task { job: 0, index, key, offset })
        });
        match tasks.collect() {
            Ok(tasks) => self.board.submit(job, direction, tasks),
            Err(failure) => self.board.refuse(job, direction, failure),
        }
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

    /// Returns the keys of the blocks that this process has evicted since the last call.
    pub fn take_evicted(&self) -> Vec<Vec<u8>> {
        let evicted = self.evictor.take_evicted();
        evicted.iter().filter_map(|file| names::key_of(&self.config.folder, file)).collect()
    }

    /// Notes that blocks were used, for the order of evictions. Never waits.
    pub fn touch(&self, keys: impl Iterator<Item = Vec<u8>>) {
        self.evictor.note(keys);
    }

    /// Returns the file of a key. `None`: the key is too short.
    pub fn file_of(&self, key: &[u8]) -> Option<PathBuf> {
        names::file_of(&self.config.folder, key)
    }

    /// Returns `true` for each key whose block is stored. Blocks, as stat(2) does.
    pub fn contains(&self, keys: &[Vec<u8>]) -> Vec<bool> {
        let is_stored = |key: &Vec<u8>| {
            self.file_of(key).is_some_and(|path| is_whole(&path, self.config.block_bytes))
        };
        keys.iter().map(is_stored).collect()
    }

    /// Waits until all submitted jobs have ended, for `timeout` at most. Returns `true` if so.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.board.wait_idle(timeout)
    }

    /// Fails the jobs that wait, and waits for the blocks in flight: nothing uses the memory then.
    pub fn close(&self) {
        let threads = mem::take(&mut *self.threads.lock());
        if self.is_the_parents() {
            return threads.into_iter().for_each(mem::forget); // they run in the parent
        }
        self.evictor.close();
        self.board.close();
        for thread in threads {
            let _ = thread.join(); // a panic was told already
        }
    }
}

impl Drop for BlockFolder {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the cache mode for the folder's files: direct if the file system can, and if memory and
/// size of blocks are aligned as it needs them.
fn suitable_cache(nowait: &Nowait, config: &Config, memory: Region) -> io::Result<CacheMode> {
    // Named like a block, so that a sweep removes it after a crash.
    let path = names::temporary(&config.folder.join("000000.bin"));
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
        // Some file systems refuse the transfer instead of the open.
        fits && file.write_all_at(&AlignedBuffer::zeroed(PROBE_BYTES), 0).is_ok()
    });
    remove(&path)?;
    if is_direct {
        return Ok(CacheMode::Direct);
    }
    probe(CacheMode::Host)?;
    remove(&path)?;
    Ok(CacheMode::Host)
}

/// A multiple of every device's block.
const PROBE_BYTES: usize = 4096;

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
