//! The bytes of a folder's files, counted by all processes that share the folder.
//!
//! A process adds the bytes of a block before it makes the file. So after a crash, for example, the
//! count may be too high; the next sweep measures the folder and corrects it.

use nowait_sys::mutex::Mutex;
use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::Path,
};

/// The folder of the files that processes share, inside the root.
pub(crate) const OWN_FOLDER: &str = ".nowait";

/// The count of bytes, in a file of 8 bytes that processes share.
#[derive(Debug)]
pub(crate) struct Usage {
    /// The file of the count. flock(2) excludes other processes, the mutex other threads.
    count: Mutex<File>,
    /// A file that a sweeping process locks.
    sweep: File,
    limit: u64,
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// The bytes are reserved.
    Yes,
    /// The bytes are reserved, and the folder is nearly full, so the caller should start a sweep.
    NearlyFull,
    /// The bytes are not reserved.
    Full,
}

impl Usage {
    /// Opens the count of `root`, whose files may have `limit` bytes in all. A new count is
    /// `limit`, until a sweep has measured the folder.
    pub(crate) fn open(root: &Path, limit: u64) -> io::Result<Usage> {
        let own = root.join(OWN_FOLDER);
        make_private(&own)?;
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(own.join(name))
        };
        let usage = Usage { count: Mutex::new(open("usage")?), sweep: open("sweep")?, limit };
        usage.change(|known| (known.unwrap_or(limit), ()))?;
        Ok(usage)
    }

    /// Reserves bytes for a new file.
    pub(crate) fn reserve(&self, bytes: u64) -> io::Result<Reserved> {
        let (limit, nearly) = (self.limit, self.limit - self.limit / 16);
        self.change(|used| {
            let used = used.unwrap_or(limit);
            match used.saturating_add(bytes) {
                more if more > limit => (used, Reserved::Full),
                more if more > nearly => (more, Reserved::NearlyFull),
                more => (more, Reserved::Yes),
            }
        })
    }

    /// Subtracts the bytes that were reserved for a file that was not made.
    pub(crate) fn give_back(&self, bytes: u64) -> io::Result<()> {
        self.change(|used| (used.unwrap_or(self.limit).saturating_sub(bytes), ()))
    }

    pub(crate) fn used(&self) -> io::Result<u64> {
        self.change(|used| (used.unwrap_or(self.limit), used.unwrap_or(self.limit)))
    }

    /// Corrects the count after a measurement, which found `bytes`. The count was `before` when the
    /// measurement began; reservations made since then stay.
    pub(crate) fn measured(&self, before: u64, bytes: u64) -> io::Result<()> {
        self.change(|used| {
            let since = used.unwrap_or(before).saturating_sub(before);
            (bytes.saturating_add(since), ())
        })
    }

    /// Returns the number of bytes at which a sweep stops removing blocks.
    pub(crate) fn low_mark(&self) -> u64 {
        self.limit - self.limit / 8
    }

    /// Keeps other processes from sweeping until the result is dropped. `None`: another process
    /// sweeps now.
    pub(crate) fn try_lock_sweep(&self) -> io::Result<Option<SweepLock<'_>>> {
        match self.sweep.try_lock() {
            Ok(()) => Ok(Some(SweepLock(&self.sweep))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Replaces the count by the result of `change`, which gets `None` if the file is new.
    fn change<T>(&self, change: impl FnOnce(Option<u64>) -> (u64, T)) -> io::Result<T> {
        let file = self.count.lock();
        file.lock()?;
        let mut bytes = [0; 8];
        let known = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Some(u64::from_le_bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => {
                file.unlock()?;
                return Err(error);
            }
        };
        let (next, result) = change(known);
        let written = match known {
            Some(same) if same == next => Ok(()),
            _ => file.write_all_at(&next.to_le_bytes(), 0),
        };
        file.unlock()?;
        written.map(|()| result)
    }
}

/// Returns the bytes of a capacity that may be reserved. The rest is for blocks that are in flight
/// when a measurement begins, because it may miss them.
pub(crate) fn reservable(capacity_bytes: u64, in_flight_bytes: u64) -> u64 {
    capacity_bytes - in_flight_bytes.min(capacity_bytes / 4)
}

/// Keeps other processes from sweeping.
#[derive(Debug)]
pub(crate) struct SweepLock<'a>(&'a File);

impl Drop for SweepLock<'_> {
    fn drop(&mut self) {
        // `unlock` fails only if the lock is gone already.
        let _ = self.0.unlock();
    }
}

/// Makes a folder, and the folders above it, for the user alone. Existing folders stay as they are.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_count_is_full_until_the_folder_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let usage = Usage::open(folder.path(), 1600).unwrap();
        assert_eq!(usage.reserve(1).unwrap(), Reserved::Full);
        usage.measured(usage.used().unwrap(), 0).unwrap();
        assert_eq!(usage.reserve(1500).unwrap(), Reserved::Yes);
        assert_eq!(usage.reserve(100).unwrap(), Reserved::NearlyFull);
        assert_eq!(usage.reserve(1).unwrap(), Reserved::Full);
        usage.give_back(1).unwrap();
        assert_eq!(usage.used().unwrap(), 1599);
    }

    #[test]
    fn a_part_of_the_capacity_is_for_blocks_in_flight() {
        assert_eq!(reservable(1000, 64), 936);
        assert_eq!(reservable(1000, 1 << 20), 750);
        assert_eq!(reservable(3, 64), 3);
    }

    #[test]
    fn processes_share_the_count_and_a_measurement_keeps_later_reservations() {
        let folder = tempfile::tempdir().unwrap();
        let one = Usage::open(folder.path(), 1000).unwrap();
        let before = one.used().unwrap();
        one.measured(before, 100).unwrap();
        let other = Usage::open(folder.path(), 1000).unwrap();
        let before = other.used().unwrap();
        assert_eq!(one.reserve(50).unwrap(), Reserved::Yes);
        other.measured(before, 20).unwrap();
        assert_eq!(one.used().unwrap(), 70);
    }
}
