//! The allocation of frames for operations, which waits by a retry.

use crate::buddy::ORDER_MAX;
use crate::file::CachedFile;
use crate::folio::{ERROR, FolioId};
use crate::frames::NoFrames;
use crate::primitives::Arc;
use nowait_block::Bio;
use nowait_retry::WaitEntry;
use nowait_sys::Errno;

/// Dirty pages to write at a time, when memory is short.
const CLEAN_PAGES: u64 = 1024;

/// The state of an attempt to get frames, over the iterations of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The caller looks again, because the cache has changed.
    Again,
    /// A wait entry was left.
    Wait,
}

/// Runs `attempt` until it succeeds. Reclaims frames in between; when there is nothing to reclaim,
/// puts the writeback of dirty pages on `plug`, and leaves a wait entry.
///
/// # Errors
/// `ENOMEM`: all frames hold pages that could not be written, and nothing is in flight that would
/// free a frame. Their writeback is tried once more, for later operations.
pub(crate) fn with_frames(
    file: &Arc<CachedFile>,
    plug: &mut Vec<Bio>,
    make: &dyn Fn() -> WaitEntry,
    mut attempt: impl FnMut(&mut Vec<Bio>) -> Result<(), NoFrames>,
) -> Result<Attempt, Errno> {
    let cache = file.cache();
    let mut armed = false;
    loop {
        if attempt(plug).is_ok() {
            return Ok(Attempt::Again);
        }
        if cache.reclaim(1, plug) {
            continue;
        }
        if armed {
            return Ok(Attempt::Wait);
        }
        // Operations that need a frame do not each retry failed folios: they would kick each other.
        if cache.is_stuck() {
            cache.clean(CLEAN_PAGES, plug);
            return Err(Errno::NOMEM);
        }
        cache.clean_unless(ERROR, CLEAN_PAGES, plug);
        // Then tries once more: an I/O that ended before this kicks no entry.
        cache.frames().wait_for_room(make());
        armed = true;
    }
}

/// Creates the missing pages from `from` to before `end`, as far as frames are free, and starts
/// reading them. Waits if no frame is free, or while too many frames are being read from the
/// device. Fails as [`with_frames`].
pub(crate) fn read_missing(
    file: &Arc<CachedFile>,
    from: u64,
    end: u64,
    plug: &mut Vec<Bio>,
    make: &dyn Fn() -> WaitEntry,
) -> Result<Attempt, Errno> {
    let (cache, mapping) = (file.cache(), file.mapping());
    if mapping.must_wait_to_read() {
        // Then checks once more, as for a frame.
        cache.frames().wait_for_room(make());
        return Ok(if mapping.must_wait_to_read() { Attempt::Wait } else { Attempt::Again });
    }
    with_frames(file, plug, make, |plug| {
        let (created, result) = create_now(file, from, end, plug);
        file.fill(&created, plug);
        // A part is better than nothing: the operation goes on with it.
        if created.is_empty() { result } else { Ok(()) }
    })
}

/// Creates the missing pages from `from` to before `end`, with all frames that can be had now.
pub(crate) fn create_now(
    file: &CachedFile,
    from: u64,
    end: u64,
    plug: &mut Vec<Bio>,
) -> (Vec<FolioId>, Result<(), NoFrames>) {
    let cache = file.cache();
    // The last free frames are scattered: reclaims a block of them, so that there are long runs.
    let block = (end - from).min(1 << ORDER_MAX);
    if cache.frames().free_frames() < block {
        cache.reclaim(block, plug);
    }
    let mut created = Vec::new();
    loop {
        match file.mapping().create_missing(from, end, &mut created) {
            Err(NoFrames) if cache.reclaim(1, plug) => {}
            result => return (created, result),
        }
    }
}
