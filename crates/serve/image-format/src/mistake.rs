//! Deliberate mistakes of the state machine, for simulations that must find them.
//!
//! Only with the feature `mistakes` can the state machine make a mistake. Released programs are
//! built without this feature, and never check for a mistake.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A flush ends when its own segment is put, even if earlier segments are not.
    IgnoreGaps,
    /// The next writer puts no fence.
    NoFence,
    /// A refused PUT of a segment counts as an earlier success.
    TrustRefusal,
    /// The writer puts a head before the segments in its checkpoint's map are durable.
    HeadFirst,
    /// A segment without live blocks is deleted before a head names a checkpoint that shows this.
    DeleteAtOnce,
    /// Flushes and reads end without a proof that the writer still has the image.
    NeverAsk,
    /// The log continues behind a fence at places that the earlier writer may still use.
    ResumeBehind,
    /// If a block of the open segment is written again, the segment keeps the older data.
    KeepFirst,
    /// A writer that has put its fence does not check for a later writer.
    ServeAtOnce,
    /// A checkpoint also deletes segments that lost their last live block after its map was made.
    DeleteByNewerMap,
    /// Moved blocks replace data that clients have written since the collector read the blocks.
    MoveOverNewer,
    /// The collector moves blocks without verifying them.
    MoveUnchecked,
    /// A segment is deleted as soon as its blocks have been moved in memory.
    DeleteMoved,
    /// The next writer deletes no leftovers of earlier writers.
    LeaveBehind,
    /// Segments that a snapshot needs are deleted.
    ForgetSnapshots,
    /// Segments without live blocks are deleted although they belong to the log of a snapshot.
    ForgetLog,
    /// A writer replaces a head that was edited meanwhile, and so loses the edit.
    OverwriteEdits,
    /// The checkpoint of a smaller image contains the blocks that were cut off.
    CutLater,
    /// Cut blocks count as dead since the last segment, although a snapshot may end behind it.
    CutInPlace,
    /// Changes continue while an image becomes smaller.
    ChangeMeanwhile,
    /// Blocks of an encrypted image are stored in plain.
    StorePlain,
    /// A writer takes an image over before it checks its key.
    TakeOverFirst,
    /// The names of objects contain only the path of their image.
    NameByPath,
    /// The first missing segment counts as the end of the log, even if others follow.
    GapIsEnd,
    /// An object with the epoch of a writer counts as this writer's, also if another has put it.
    IgnoreNonce,
    /// Blocks are moved only when no flush waits.
    StarveCollection,
    /// A flush ends though the image may have been removed long ago.
    FlushUnproven,
    /// Segments are sent though another writer may have the image.
    SendUnproven,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 28] = [
        Mistake::IgnoreGaps,
        Mistake::NoFence,
        Mistake::TrustRefusal,
        Mistake::HeadFirst,
        Mistake::DeleteAtOnce,
        Mistake::NeverAsk,
        Mistake::ResumeBehind,
        Mistake::KeepFirst,
        Mistake::ServeAtOnce,
        Mistake::DeleteByNewerMap,
        Mistake::MoveOverNewer,
        Mistake::MoveUnchecked,
        Mistake::DeleteMoved,
        Mistake::LeaveBehind,
        Mistake::ForgetSnapshots,
        Mistake::ForgetLog,
        Mistake::OverwriteEdits,
        Mistake::CutLater,
        Mistake::CutInPlace,
        Mistake::ChangeMeanwhile,
        Mistake::StorePlain,
        Mistake::TakeOverFirst,
        Mistake::NameByPath,
        Mistake::GapIsEnd,
        Mistake::IgnoreNonce,
        Mistake::StarveCollection,
        Mistake::FlushUnproven,
        Mistake::SendUnproven,
    ];
}

#[cfg(feature = "mistakes")]
std::thread_local! {
    static MADE: core::cell::Cell<Option<Mistake>> = const { core::cell::Cell::new(None) };
}

/// From now on, state machines on the calling thread make this mistake; `None`: they make none.
#[cfg(feature = "mistakes")]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

#[inline]
pub(crate) fn makes(mistake: Mistake) -> bool {
    #[cfg(feature = "mistakes")]
    return MADE.get() == Some(mistake);
    #[cfg(not(feature = "mistakes"))]
    {
        let _ = mistake;
        false
    }
}
