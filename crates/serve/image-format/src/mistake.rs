//! Mistakes that an image makes on purpose, for simulations that must find them.
//!
//! They exist with the feature `mistakes` only; what is shipped is built without, and asks nothing.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A flush ends when its own segment is put, whatever became of those before.
    IgnoreGaps,
    /// The next writer puts no fence.
    NoFence,
    /// A PUT that is refused is taken for one that was done before.
    TrustRefusal,
    /// The head names a checkpoint before the segments in it are durable.
    HeadFirst,
    /// A segment without live blocks is deleted before a checkpoint without it is durable.
    DeleteAtOnce,
    /// A writer reads on and never asks whether the image is still its own.
    NeverAsk,
    /// Where the log goes on behind a fence, places may be taken.
    ResumeBehind,
    /// A segment that overwrites some of its own blocks keeps the older ones.
    KeepFirst,
    /// A writer that has put its fence does not ask whether a later one has come meanwhile.
    ServeAtOnce,
    /// After a checkpoint, segments are deleted that lost their last live block only later.
    DeleteByNewerMap,
    /// What is moved out of a segment takes the place of what was written since it was asked for.
    MoveOverNewer,
    /// What is moved out of a segment is not checked.
    MoveUnchecked,
    /// A segment is deleted as soon as its blocks have been moved in memory.
    DeleteMoved,
    /// What writers before have left is left.
    LeaveBehind,
    /// Segments are deleted that a snapshot needs.
    ForgetSnapshots,
    /// Segments without live blocks are deleted between the map of a snapshot and its end.
    ForgetLog,
    /// A writer puts its head in place of one that was edited meanwhile.
    OverwriteEdits,
    /// A smaller image has a checkpoint with what is cut off.
    CutLater,
    /// What is cut off is dead since the last segment, where a snapshot may end that has it.
    CutInPlace,
    /// While an image becomes smaller, changes go on.
    ChangeMeanwhile,
    /// Blocks of an encrypted image are stored as they are.
    StorePlain,
    /// A writer takes an image over before it looks whether it has the key.
    TakeOverFirst,
    /// Objects are named by the path of their image only.
    NameByPath,
    /// The first segment that is missing is taken for the end of the log, whatever follows.
    GapIsEnd,
    /// An object is a writer's own that has its epoch.
    IgnoreNonce,
    /// Blocks are moved only when no flush waits.
    StarveCollection,
    /// A flush ends though the image may have been removed long ago.
    FlushUnproven,
    /// Segments are sent though the image may be another writer's.
    SendUnproven,
}

impl Mistake {
    /// All of them.
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

/// Has images make a mistake, or none, on the calling thread from now on.
#[cfg(feature = "mistakes")]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Tells whether this mistake is to be made here.
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
