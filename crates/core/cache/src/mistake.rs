//! Mistakes that the cache makes on purpose, for tests that must find them.
//!
//! The mistakes exist with the feature `mistakes` or with `--cfg simulated` only, which simulations
//! ask for; shipped builds have neither, and check nothing.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A write does not wait for the end of a writeback.
    WriteIntoWriteback,
    /// A page that was written to is not marked: nothing will write it back.
    ForgetDirty,
    /// A page that was written to makes all pages of its folio dirty.
    DirtyAround,
    /// Pages that a failing device has not written count against the writers of all other devices.
    ShareWithSick,
    /// A sync uses the last flush, although that began before the sync's pages were written.
    OldFlush,
    /// The end of a writeback kicks no entry.
    LoseKicks,
    /// The last page of a sync's range is left out.
    SyncShort,
    /// The bytes after the end of the file are not zeroed when its last page is read.
    KeepTail,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 8] = [
        Mistake::WriteIntoWriteback,
        Mistake::ForgetDirty,
        Mistake::DirtyAround,
        Mistake::ShareWithSick,
        Mistake::OldFlush,
        Mistake::LoseKicks,
        Mistake::SyncShort,
        Mistake::KeepTail,
    ];
}

#[cfg(all(feature = "mistakes", not(simulated)))]
std::thread_local! {
    static MADE: core::cell::Cell<Option<Mistake>> = const { core::cell::Cell::new(None) };
}

/// The number of the mistake, from 1 on, for all threads of the simulated machine.
#[cfg(simulated)]
static MADE: nowait_sys::primitives::AtomicU32 = nowait_sys::primitives::AtomicU32::new(0);

/// Makes caches make `mistake`, or none, on the calling thread from now on.
#[cfg(all(feature = "mistakes", not(simulated)))]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Makes all caches of the process make `mistake`, or none, from now on.
#[cfg(simulated)]
pub fn make(mistake: Option<Mistake>) {
    let number = mistake.map_or(0, |mistake| mistake as u32 + 1);
    MADE.store(number, nowait_sys::primitives::Ordering::SeqCst);
}

/// Returns `true` if the cache makes this mistake.
#[inline]
pub(crate) fn makes(mistake: Mistake) -> bool {
    #[cfg(simulated)]
    return MADE.load(nowait_sys::primitives::Ordering::SeqCst) == mistake as u32 + 1;
    #[cfg(all(feature = "mistakes", not(simulated)))]
    return MADE.get() == Some(mistake);
    #[cfg(not(any(feature = "mistakes", simulated)))]
    {
        let _ = mistake;
        false
    }
}
