//! What a plain call of the program does first, where files go through the page cache of the
//! engine.
//!
//! It is looked at by the file behind its descriptor, so duplicates, descriptors opened before and
//! those received from others are all the same.

use crate::{
    cached::with_stat,
    plain_changes::{self, Change},
    process::Process,
};
use nowait::{Engine, Exclusion, Opened, UserFile};
use nowait_sys::{
    Errno,
    file::{self, Advice, Stat},
};
use std::sync::Arc;

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
#[expect(clippy::large_enum_variant, reason = "moved once, to where C finds it")]
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
