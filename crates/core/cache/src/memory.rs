//! Allocation of frames for operations.

use crate::buddy::ORDER_MAX;
use crate::file::CachedFile;
use crate::folio::{ERROR, FolioId};
use crate::frames::NoFrames;
use crate::primitives::Arc;
use nowait_block::Bio;
use nowait_retry::WaitEntry;
use nowait_sys::Errno;

/// About the number of dirty pages that an operation starts to write when it finds no frame.
const CLEAN_PAGES: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The cache may have changed: the caller checks it again.
    Again,
    /// The step left a wait entry: the iteration ends.
    Wait,
}

/// Runs `attempt` until it succeeds, and reclaims frames after each failure. If no frame can be
/// reclaimed, puts the writeback of dirty pages on `plug` and leaves a wait entry. Then tries until
/// again no frame can be reclaimed.
///
/// # Errors
/// `ENOMEM`: every folio in the pool has failed its last writeback, so no frame will become free by
/// itself. Some of the writebacks are started again, for later operations.
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
        // A waiting operation leaves out failed folios (`clean_unless`): the end of another failed
        // writeback would kick all waiting operations, and each would start it again.
        if cache.is_stuck() {
            cache.clean(CLEAN_PAGES, plug);
            return Err(Errno::NOMEM);
        }
        cache.clean_unless(ERROR, CLEAN_PAGES, plug);
        // The loop then tries again: an I/O that ended before the entry was left does not kick it.
        cache.frames().wait_for_room(make());
        armed = true;
    }
}

/// Creates the missing pages from `from` to before `end`, as many as get frames, and starts reading
/// them. Leaves a wait entry if no page gets a frame, or if the device's reads use too many frames.
/// Fails as [`with_frames`].
pub(crate) fn read_missing(
    file: &Arc<CachedFile>,
    from: u64,
    end: u64,
    plug: &mut Vec<Bio>,
    make: &dyn Fn() -> WaitEntry,
) -> Result<Attempt, Errno> {
    let (cache, mapping) = (file.cache(), file.mapping());
    if mapping.must_wait_to_read() {
        // Checks again, because reads may have ended before the entry was left.
        cache.frames().wait_for_room(make());
        return Ok(if mapping.must_wait_to_read() { Attempt::Wait } else { Attempt::Again });
    }
    with_frames(file, plug, make, |plug| {
        let (created, result) = create_now(file, from, end, plug);
        file.fill(&created, plug);
        if created.is_empty() { result } else { Ok(()) }
    })
}

/// Creates missing pages, as many as get frames. The new folios are locked.
pub(crate) fn create_now(
    file: &CachedFile,
    from: u64,
    end: u64,
    plug: &mut Vec<Bio>,
) -> (Vec<FolioId>, Result<(), NoFrames>) {
    let cache = file.cache();
    // Few free frames are scattered. Reclaiming a block of frames gives longer runs.
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
