//! The descriptors of the application that go through the page cache of the engine
//! (`NOWAIT_CACHE=user`).
//!
//! What is known of one goes when its close is seen, after what is cached of the file has been
//! written. What is cached is the inode, see `plain_calls.rs`.

use crate::plain_changes;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use nowait::{Engine, UserFile};
use nowait_sys::mutex::RwLock;
use nowait_sys::{
    Errno, fd,
    file::{self, O_ACCMODE, O_DIRECT, O_RDONLY, Stat},
    inspect,
};
use std::{collections::HashMap, ops::RangeInclusive, sync::Arc};

/// Not zero when a file was ever cached: plain calls are looked at from then on.
#[unsafe(export_name = "nowait_cached_any")]
static ANY: AtomicU32 = AtomicU32::new(0);

/// Says that nothing is cached, in a forked child.
pub fn forget_all() {
    ANY.store(0, Relaxed);
    plain_changes::end();
}

/// The descriptors that were looked at.
#[derive(Debug, Default)]
pub struct CachedDescriptors(RwLock<HashMap<i32, Entry>>);

/// What was behind a descriptor.
#[derive(Clone, Debug)]
struct Entry {
    /// Device and inode.
    key: (u64, u64),
    /// `None`: left to the kernel's cache.
    file: Option<Arc<UserFile>>,
}

impl CachedDescriptors {
    /// Returns the file behind a descriptor with these status flags, if it is to be cached. The
    /// first look opens it, which may wait for the disk.
    pub(crate) fn find(&self, engine: &Arc<Engine>, fd: i32, flags: i32) -> Option<Arc<UserFile>> {
        let known = self.0.read().get(&fd).cloned();
        // Before the look at the file: its size never falls behind what we know to be in it.
        let size = known.iter().flat_map(|entry| &entry.file).map(|file| file.cached().disk_size());
        let size = size.max().unwrap_or(0);
        let stat = file::stat(fd).ok()?;
        let file = match known {
            Some(entry) if entry.key == (stat.dev, stat.ino) => entry.file,
            _ => self.enter(engine, fd, flags, &stat),
        };
        let file = file.filter(|file| !file.is_given_up())?;
        if (stat.size as u64) < size && file.key() == (stat.dev, stat.ino) {
            drop(file.exclude(engine)); // another thread has cut it off
        }
        Some(file)
    }

    /// Notes what is behind a descriptor, which is opened through the cache unless something
    /// speaks against it; returns the file then.
    pub(crate) fn enter(
        &self,
        engine: &Arc<Engine>,
        fd: i32,
        flags: i32,
        stat: &Stat,
    ) -> Option<Arc<UserFile>> {
        let key = (stat.dev, stat.ino);
        let file = self.choose(engine, fd, flags, stat);
        if file.is_none() && flags & O_DIRECT != 0 {
            return None; // may be cached when another descriptor has begun to be
        }
        if file.is_some() {
            ANY.store(1, Relaxed);
        }
        let before = self.0.write().insert(fd, Entry { key, file: file.clone() });
        // Closed unseen, and the number was used again.
        if let Some(stale) = before.and_then(|entry| entry.file) {
            let _ = stale.settle(engine);
        }
        file
    }

    /// Opens the file through the cache, unless something speaks against it.
    fn choose(
        &self,
        engine: &Arc<Engine>,
        fd: i32,
        flags: i32,
        stat: &Stat,
    ) -> Option<Arc<UserFile>> {
        if engine.user_file(stat).is_none() {
            let key = (stat.dev, stat.ino);
            let left = |entry: &Entry| entry.key == key && entry.file.is_none();
            // Locks: others use the file too, or our opening and closing it would drop those of
            // this process. Another descriptor of it goes to the kernel's cache.
            let against = flags & O_DIRECT != 0
                || !engine.may_cache(stat, fd)
                || !fd::file_size_is_free() // the cache would find out too late
                || file::is_locked(fd)
                || self.0.read().values().any(left)
                // Its loads and stores are not seen. Last: it reads all of /proc/self/maps.
                || inspect::may_be_mapped(stat.ino).unwrap_or(true);
            if against {
                return None;
            }
        }
        // Not while a write past the cache is in flight: this may be the thread that must end it.
        let file = UserFile::open_if_idle(engine, fd, plain_changes::none).ok()?;
        let writes = flags & O_ACCMODE != O_RDONLY;
        if !file.is_direct() || (writes && !file.is_writable()) {
            // Kept open all the same: to close it would drop the process's locks.
            let _ = file.give_up(engine);
        }
        Some(file)
    }

    /// Forgets the descriptors in a range, which are being closed; what is cached of their files
    /// is written first.
    ///
    /// # Errors
    /// That of a write to a file.
    pub fn close(&self, engine: &Arc<Engine>, range: RangeInclusive<i32>) -> Result<(), Errno> {
        if self.0.read().is_empty() {
            return Ok(());
        }
        let mut closed = Vec::new();
        self.0.write().retain(|fd, entry| {
            let stays = !range.contains(fd);
            if !stays {
                closed.extend(entry.file.take());
            }
            stays
        });
        // One that no request has named is as good as those that requests have.
        if range.start() == range.end() && closed.is_empty() {
            closed.extend(behind(engine, *range.start()));
        }
        let settle = |file: &Arc<UserFile>| {
            // What an error has left goes with the file, unless others have it open.
            file.settle(engine).inspect_err(|_| file.abandon())
        };
        closed.iter().map(settle).fold(Ok(()), Result::and)
    }
}

/// Returns the file behind a descriptor, whether a request has named that or not, if it is cached.
fn behind(engine: &Engine, fd: i32) -> Option<Arc<UserFile>> {
    file::stat(fd).ok().and_then(|stat| with_stat(engine, &stat))
}

/// Returns the file with this `stat`, if it is cached.
pub(crate) fn with_stat(engine: &Engine, stat: &Stat) -> Option<Arc<UserFile>> {
    if !stat.is_regular() || !engine.may_have_user_file(stat) {
        return None; // and no lock was taken: this may be a signal handler
    }
    engine.user_file(stat).filter(|file| !file.is_given_up())
}
