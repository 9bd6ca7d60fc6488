//! Deliberate mistakes of an image, for simulations that must find them.
//!
//! The mistakes exist only with the feature `mistakes`. Released programs are built without it, and
//! never check for a mistake.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A flush ends when its own segment is put, even if earlier ones are not.
    IgnoreGaps,
    /// The next writer puts no fence.
    NoFence,
    /// A refused PUT counts as an earlier success.
    TrustRefusal,
    /// The head names a checkpoint before the segments in it are durable.
    HeadFirst,
    /// A segment without live blocks is deleted before a checkpoint without it is durable.
    DeleteAtOnce,
    /// A writer reads on and never checks that the image is still its own.
    NeverAsk,
    /// The log continues behind a fence at places that the earlier writer may still use.
    ResumeBehind,
    /// A segment that overwrites some of its own blocks keeps the older ones.
    KeepFirst,
    /// A writer that has put its fence does not check for a later writer.
    ServeAtOnce,
    /// A checkpoint deletes segments that lost their last live block only after it.
    DeleteByNewerMap,
    /// Moved blocks replace data written since the collector read them.
    MoveOverNewer,
    /// The collector moves blocks without verifying them.
    MoveUnchecked,
    /// A segment is deleted as soon as its blocks have been moved in memory.
    DeleteMoved,
    /// The next writer deletes no leftovers of earlier ones.
    LeaveBehind,
    /// Segments that a snapshot needs are deleted.
    ForgetSnapshots,
    /// Segments without live blocks are deleted between the map of a snapshot and its end.
    ForgetLog,
    /// A writer replaces a head that was edited meanwhile.
    OverwriteEdits,
    /// The checkpoint of a smaller image contains the blocks that were cut off.
    CutLater,
    /// Cut blocks count as dead since the last segment, at which a snapshot that has them may end.
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
    /// An object with a writer's epoch counts as the writer's own.
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

/// Makes images on the calling thread make this mistake, or none, from now on.
#[cfg(feature = "mistakes")]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Returns `true` if the image is to make this mistake here.
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
