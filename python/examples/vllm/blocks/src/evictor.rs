//! The thread that keeps the folder within its capacity: it records last uses and evicts blocks.

use crate::{
    names::file_of,
    sweep::Found,
    usage::{Reserved, SweepLock, Usage},
};
use nowait_sys::mutex::{Condvar, Mutex};
use std::{
    fs::{File, FileTimes},
    io, mem,
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// A use is recorded only if the recorded last use is older than this.
const USE_NOTED_AFTER: Duration = Duration::from_mins(1);
/// Time between attempts to sweep while another process sweeps. The end of that sweep wakes no
/// thread here.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Most sweeps that the store of a block waits for: other processes may have taken the room that a
/// sweep made.
const SWEEPS_MAX: usize = 4;
/// Most uses that wait to be recorded; further uses are dropped, because they only improve the
/// order of evictions.
const USES_MAX: usize = 1 << 16;

/// The state that the evictor's thread shares with the threads that store and load.
#[derive(Debug)]
pub(crate) struct Evictor {
    root: PathBuf,
    /// The folder of the files of blocks.
    folder: PathBuf,
    block_bytes: u64,
    /// `None`: the folder may have any size.
    usage: Option<Usage>,
    /// `true` keeps the names of evicted files for [`Evictor::take_evicted`].
    tells_evictions: bool,
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Book {
    used: Vec<Vec<u8>>,
    evicted: Vec<PathBuf>,
    is_sweep_wanted: bool,
    /// Number of sweeps that have ended.
    sweeps: u64,
    is_closing: bool,
}

impl Evictor {
    pub(crate) fn new(
        (root, folder): (PathBuf, PathBuf),
        block_bytes: usize,
        usage: Option<Usage>,
        tells_evictions: bool,
    ) -> Evictor {
        let book = Book { is_sweep_wanted: true, ..Book::default() };
        Evictor {
            root,
            folder,
            block_bytes: block_bytes as u64,
            usage,
            tells_evictions,
            book: Mutex::new(book),
            changed: Condvar::new(),
        }
    }

    /// Records that blocks were used now; the evictor's thread writes the times later. Does nothing
    /// if the folder may have any size.
    pub(crate) fn note(&self, keys: impl Iterator<Item = Vec<u8>>) {
        if self.usage.is_none() {
            return;
        }
        let mut book = self.book.lock();
        let room = USES_MAX - book.used.len();
        book.used.extend(keys.take(room));
        self.changed.notify_all();
    }

    /// Reserves the bytes of a block, and waits for evictions if there is no room.
    pub(crate) fn reserve(&self) -> io::Result<()> {
        let Some(usage) = &self.usage else { return Ok(()) };
        let mut sweeps_left = SWEEPS_MAX;
        loop {
            match usage.reserve(self.block_bytes)? {
                Reserved::Yes => return Ok(()),
                Reserved::NearlyFull => {
                    self.book.lock().is_sweep_wanted = true;
                    self.changed.notify_all();
                    return Ok(());
                }
                Reserved::Full if sweeps_left == 0 => {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
                Reserved::Full => sweeps_left -= 1,
            }
            self.wait_for_sweep();
        }
    }

    /// Waits until a sweep that begins now has ended, or the evictor closes.
    fn wait_for_sweep(&self) {
        let mut book = self.book.lock();
        // A sweep that runs now may have passed files already: then wait for the sweep after it.
        let after = book.sweeps + if book.is_sweep_wanted { 1 } else { 2 };
        while book.sweeps < after && !book.is_closing {
            book.is_sweep_wanted = true;
            self.changed.notify_all();
            self.changed.wait(&mut book);
        }
    }

    /// Gives back the bytes of a block that was not stored.
    pub(crate) fn give_back(&self) {
        if let Some(usage) = &self.usage {
            // If this fails, the count is too high until the next sweep.
            let _ = usage.give_back(self.block_bytes);
        }
    }

    /// Returns the files of the blocks evicted since the last call, if `tells_evictions` is set.
    pub(crate) fn take_evicted(&self) -> Vec<PathBuf> {
        mem::take(&mut self.book.lock().evicted)
    }

    /// Ends the evictor's thread, and a running sweep early.
    pub(crate) fn close(&self) {
        self.book.lock().is_closing = true;
        self.changed.notify_all();
    }

    /// Runs on the evictor's thread until the evictor closes.
    pub(crate) fn run(&self) {
        let mut is_first = true;
        while let Some((sweeps, used)) = self.next() {
            used.iter().for_each(|key| self.note_use(key));
            if !sweeps {
                continue;
            }
            let removed = self.sweep(is_first).unwrap_or_default();
            is_first = false;
            let mut book = self.book.lock();
            book.sweeps += 1;
            if self.tells_evictions {
                book.evicted.extend(removed);
            }
            self.changed.notify_all();
        }
    }

    /// Waits for work, and returns `true` if a sweep is wanted, and the keys of used blocks.
    /// `None`: the thread ends.
    fn next(&self) -> Option<(bool, Vec<Vec<u8>>)> {
        let mut book = self.book.lock();
        loop {
            if book.is_closing {
                return None;
            }
            let sweeps = mem::take(&mut book.is_sweep_wanted);
            if sweeps || !book.used.is_empty() {
                return Some((sweeps, mem::take(&mut book.used)));
            }
            self.changed.wait(&mut book);
        }
    }

    fn goes_on(&self) -> bool {
        !self.book.lock().is_closing
    }

    /// Measures the folder and removes blocks until at most [`Usage::low_mark`] bytes are left.
    /// Returns the files of the removed blocks. If the folder may have any size, removes only
    /// abandoned temporary files.
    fn sweep(&self, is_first: bool) -> io::Result<Vec<PathBuf>> {
        let Some(usage) = &self.usage else {
            Found::abandoned(&self.root, || self.goes_on())?.shrink(u64::MAX);
            return Ok(Vec::new());
        };
        let Some(_lock) = self.lock_sweep(usage)? else { return Ok(Vec::new()) };
        let before = usage.used()?;
        if before <= usage.low_mark() && !is_first {
            return Ok(Vec::new()); // another process has swept meanwhile
        }
        let mut found = Found::read(&self.root, || self.goes_on())?;
        if !self.goes_on() {
            return Ok(Vec::new());
        }
        let removed = found.shrink(usage.low_mark());
        usage.measured(before, found.bytes)?;
        Ok(removed)
    }

    /// Waits until no other process sweeps, and keeps others from sweeping. `None`: the evictor
    /// closes.
    fn lock_sweep<'a>(&self, usage: &'a Usage) -> io::Result<Option<SweepLock<'a>>> {
        loop {
            if let Some(lock) = usage.try_lock_sweep()? {
                return Ok(Some(lock));
            }
            let mut book = self.book.lock();
            if book.is_closing {
                return Ok(None);
            }
            self.changed.wait_for(&mut book, TRY_AGAIN_AFTER);
        }
    }

    /// Sets the access time of a block's file to now if it is older than [`USE_NOTED_AFTER`]. A
    /// read does not always do so: it depends on the mount options.
    fn note_use(&self, key: &[u8]) {
        let noted = || -> Option<()> {
            let file = File::open(file_of(&self.folder, key)?).ok()?;
            let accessed = file.metadata().ok()?.accessed().ok()?;
            let now = SystemTime::now();
            let is_old = now.duration_since(accessed).is_ok_and(|age| age > USE_NOTED_AFTER);
            is_old.then(|| file.set_times(FileTimes::new().set_accessed(now)).ok())?
        };
        // The file may have been evicted meanwhile: then there is no use to record.
        let _ = noted();
    }
}
