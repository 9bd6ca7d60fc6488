//! Mistakes that the cache makes on purpose, for tests that must find them.
//!
//! They exist with the feature `mistakes` only, which only simulations ask for; what is shipped is
//! built without it, and asks nothing.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A write does not wait for the end of a writeback.
    WriteIntoWriteback,
    /// A page that was written to is not marked: nothing will write it back.
    ForgetDirty,
    /// A sync takes the last flush for its own, though that began before its pages were written.
    OldFlush,
    /// The end of a writeback kicks no entry.
    LoseKicks,
    /// The last page of a sync's range is left out.
    SyncShort,
    /// What lies behind the end of the file in its last page is not zeroed when that is read.
    KeepTail,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 6] = [
        Mistake::WriteIntoWriteback,
        Mistake::ForgetDirty,
        Mistake::OldFlush,
        Mistake::LoseKicks,
        Mistake::SyncShort,
        Mistake::KeepTail,
    ];
}

#[cfg(feature = "mistakes")]
std::thread_local! {
    static MADE: core::cell::Cell<Option<Mistake>> = const { core::cell::Cell::new(None) };
}

/// Has caches make a mistake, or none, on the calling thread from now on.
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
