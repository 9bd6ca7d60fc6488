//! The descriptors of the application that go through the page cache of the engine
//! (`NOWAIT_CACHE=user`), and what a plain call on one of them does first.
//!
//! A descriptor is looked at once in every io_submit that names it: a number can be closed unseen
//! (by stdio, or the system call itself), and a request must never reach another file. What is
//! known of it goes when the close is seen, after what is cached of the file has been written.
//!
//! What is cached is the inode. A plain call is looked at by the file behind its descriptor, so
//! duplicates, descriptors opened before and those received from others are all the same.

use crate::{
    plain_changes::{self, Change},
    process::Process,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use nowait::{
    Command, Context, Engine, Exclusion, Kind, Opened, UserFile,
    command::{Flags, open_for},
};
use nowait_sys::mutex::RwLock;
use nowait_sys::{
    Errno, fd,
    file::{self, Advice, O_ACCMODE, O_DIRECT, O_RDONLY, Stat},
    inspect,
};
use std::{collections::HashMap, ops::RangeInclusive, sync::Arc};

/// Not zero when a file was ever cached: plain calls are looked at from then on.
#[unsafe(export_name = "nowait_cached_any")]
static ANY: AtomicU32 = AtomicU32::new(0);

/// Nothing is written from this byte on by way of the cache.
const WRITE_END: i64 = 1 << 40;

/// Says that nothing is cached, in a forked child.
pub fn forget_all() {
    ANY.store(0, Relaxed);
    plain_changes::end();
}

/// The descriptors that were looked at.
#[derive(Debug, Default)]
pub struct CachedFiles(RwLock<HashMap<i32, Entry>>);

/// What was behind a descriptor.
#[derive(Clone, Debug)]
struct Entry {
    /// Device and inode.
    key: (u64, u64),
    /// `None`: left to the kernel's cache.
    file: Option<Arc<UserFile>>,
}

impl CachedFiles {
    /// Returns the file behind a descriptor with these status flags, if it is to be cached. The
    /// first look opens it, which may wait for the disk.
    fn find(&self, engine: &Arc<Engine>, fd: i32, flags: i32) -> Option<Arc<UserFile>> {
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

    fn enter(
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
fn with_stat(engine: &Engine, stat: &Stat) -> Option<Arc<UserFile>> {
    if !stat.is_regular() || !engine.may_have_user_file(stat) {
        return None; // and no lock was taken: this may be a signal handler
    }
    engine.user_file(stat).filter(|file| !file.is_given_up())
}

/// What one call of submit has found behind its descriptors.
pub struct Looks<'a> {
    context: &'a Context,
    cached: Option<(&'a CachedFiles, &'a Arc<Engine>)>,
    seen: Vec<Look>,
    last: Option<Look>,
    /// The last descriptor whose status flags were read, where files are not cached.
    read: Option<(i32, Flags)>,
}

#[derive(Clone)]
struct Look {
    fd: i32,
    flags: Flags,
    file: Option<Arc<UserFile>>,
}

impl<'a> Looks<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Looks<'a> {
        let files = Process::existing().and_then(Process::cached_files);
        let cached = files.map(|files| (files, context.engine()));
        Looks { context, cached, seen: Vec::new(), last: None, read: None }
    }

    /// Returns the status flags of a descriptor for a request of this kind, read or remembered.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn status_flags(&mut self, kind: Kind, fd: i32) -> Result<Flags, Errno> {
        if self.cached.is_none() {
            // Once in each call of submit.
            if let Some((_, flags)) = self.read.filter(|(known, _)| *known == fd) {
                return Ok(flags);
            }
            let flags = match kind {
                Kind::Read | Kind::Write => self.context.status_flags(kind, fd)?,
                _ => open_for(fd)?,
            };
            if matches!(flags, Flags::Read(_)) {
                self.read = Some((fd, flags));
            }
            return Ok(flags);
        }
        self.look(fd).map(|look| look.flags)
    }

    /// Checks that `number` is an event counter.
    ///
    /// # Errors
    /// `EBADF`: not open. `EINVAL`: something else.
    pub fn check_event_counter(&self, number: i32) -> Result<(), Errno> {
        self.context.check_event_counter(number)
    }

    /// Returns the file through which a request goes, if that is cached.
    pub fn file(&mut self, command: &Command) -> Option<Arc<UserFile>> {
        let (_, engine) = self.cached?;
        let file = self.look(command.fd).ok()?.file.clone()?;
        if command.kind == Kind::Write && command.offset >= WRITE_END {
            // How long a file may be is known to its file system: EFBIG is for that to say.
            let _ = file.give_up(engine);
            return None;
        }
        Some(file)
    }

    fn look(&mut self, fd: i32) -> Result<&Look, Errno> {
        if self.last.as_ref().is_none_or(|last| last.fd != fd) {
            let known = self.seen.iter().find(|look| look.fd == fd).cloned();
            let look = if let Some(look) = known {
                look
            } else {
                let flags = open_for(fd)?;
                let find =
                    |(files, engine): (&CachedFiles, _)| files.find(engine, fd, flags.bits());
                Look { fd, flags, file: self.cached.and_then(find) }
            };
            self.seen.extend(self.last.replace(look).filter(|last| last.fd != fd));
        }
        self.last.as_ref().ok_or(Errno::BADF)
    }
}

/// Tells whether the file behind `fd` may be cached, whatever descriptor of it that is: a number
/// says nothing, for it may be a duplicate, or mean another file by now. One statx(2), no lock.
pub fn may_be_cached(fd: i32) -> bool {
    let Some((_, engine)) = Process::existing().and_then(Process::cached_and_engine) else {
        return false;
    };
    let may_be = |stat: Stat| stat.is_regular() && engine.may_have_user_file(&stat);
    engine.has_user_files() && file::stat(fd).is_ok_and(may_be)
}

/// Writes what is cached of the file behind `fd`, after the requests submitted so far: before a
/// plain call that reads it, or asks for its size.
///
/// # Errors
/// That of a write to the file.
pub fn settle(fd: i32) -> Result<(), Errno> {
    with_file(fd, nowait::UserFile::settle).unwrap_or(Ok(()))
}

/// Looks at a descriptor just opened: what is cached of its file is written first, or dropped if
/// the open has cut the file off.
pub fn opened(fd: i32, is_cut: bool) {
    let Some((files, engine)) = Process::of_caller().and_then(Process::cached_and_engine) else {
        return;
    };
    let (Ok(stat), Ok(flags)) = (file::stat(fd), file::status_flags(fd)) else { return };
    let Some(file) = engine.user_file(&stat).filter(|file| !file.is_given_up()) else { return };
    let _ = if is_cut { file.set_len(engine, 0) } else { file.settle(engine) };
    files.enter(engine, fd, flags, &stat);
}

/// Writes what is cached of all files.
pub fn settle_all() {
    if let Some((_, engine)) = Process::of_caller().and_then(Process::cached_and_engine) {
        engine.write_back();
    }
}

/// Tells whether a plain call that changes the file behind `fd` must be looked at. One statx(2).
pub fn may_be_changed(fd: i32) -> bool {
    file::stat(fd).is_ok_and(|stat| stat.is_regular())
}

/// What keeps requests from running beside a plain call that changes their file.
pub enum Excluded {
    /// The file is cached: requests wait until this is dropped.
    Cached(Exclusion),
    /// It is not, and will not be until this ends.
    Uncached(Change),
}

/// Keeps requests to the file behind `fd` and a plain call that changes it apart. `None`: nothing
/// is cached in this process. Takes no lock if the file is not cached.
///
/// # Errors
/// That of a write to the file. `EBADF`: not open.
pub fn exclude(fd: i32) -> Result<Option<Excluded>, Errno> {
    let stat = file::stat(fd)?;
    let Some(change) = plain_changes::enter((stat.dev, stat.ino)) else { return Ok(None) };
    let Some((file, engine)) = cached_with(&stat) else {
        return Ok(Some(Excluded::Uncached(change)));
    };
    plain_changes::leave(change);
    file.exclude(engine).map(|made| Some(Excluded::Cached(made)))
}

/// Leaves the file behind `fd` to the kernel's cache, also for requests that name it first until
/// what is returned is given to [`plain_changes::leave`]: it is mapped meanwhile, and that is found
/// afterwards. `None`: nothing is cached in this process.
///
/// # Errors
/// That of a write to the file. `EBADF`: not open.
pub fn map(fd: i32) -> Result<Option<Change>, Errno> {
    let stat = file::stat(fd)?;
    let Some(change) = plain_changes::enter((stat.dev, stat.ino)) else { return Ok(None) };
    if let Some((file, engine)) = cached_with(&stat) {
        let _ = file.give_up(engine); // what it could not take stays in the cache, as after a write
    }
    Ok(Some(change))
}

/// Gives advice, as posix_fadvise(2), for `len` bytes from `offset` of the file behind `fd`; 0 is
/// up to the end. False: it is not cached, or the arguments are wrong.
pub fn advise(fd: i32, offset: i64, len: i64, advice: i32) -> bool {
    let (Some(advice), Ok(first), Ok(len)) =
        (Advice::from_raw(advice), u64::try_from(offset), u64::try_from(len))
    else {
        return false;
    };
    let end = if len == 0 { u64::MAX } else { first.saturating_add(len) };
    with_file(fd, |file, engine| Opened::from(file).advise(engine, first..end, advice)).is_some()
}

fn with_file<T>(fd: i32, f: impl FnOnce(&Arc<UserFile>, &Arc<Engine>) -> T) -> Option<T> {
    let stat = file::stat(fd).ok()?;
    cached_with(&stat).map(|(file, engine)| f(&file, engine))
}

/// Returns the file with this `stat`, if it is cached, and the engine that caches it.
fn cached_with(stat: &Stat) -> Option<(Arc<UserFile>, &'static Arc<Engine>)> {
    // Not in a vfork child: the memory is the parent's, the descriptors are not.
    let (_, engine) = Process::of_caller()?.cached_and_engine()?;
    Some((with_stat(engine, stat)?, engine))
}
