//! Mistakes that the cache makes on purpose, for tests that must find them.
//!
//! Only builds with the feature `mistakes` or with `--cfg simulated` make a mistake. Shipped builds
//! have neither.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A write does not wait for the end of a writeback of the same folio.
    WriteIntoWriteback,
    /// A write does not mark a clean folio as dirty, so no writeback finds the folio.
    ForgetDirty,
    /// A write makes all pages of a folio dirty, also pages that it did not change.
    DirtyAround,
    /// Pages of a failing device count against the writers of all other devices.
    ShareWithSick,
    /// A sync relies on the last flush, although that flush began before the sync's pages were
    /// written.
    OldFlush,
    /// The end of a writeback kicks no entry.
    LoseKicks,
    /// A sync of a part of a file leaves out the last page of its range.
    SyncShort,
    /// A read from the device does not zero the bytes after the end of the file.
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

/// The number of the mistake, from 1 on; 0 means none.
#[cfg(simulated)]
static MADE: nowait_sys::primitives::AtomicU32 = nowait_sys::primitives::AtomicU32::new(0);

/// Makes caches make `mistake`, or none, on the calling thread.
#[cfg(all(feature = "mistakes", not(simulated)))]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Makes all caches of the process make `mistake`, or none.
#[cfg(simulated)]
pub fn make(mistake: Option<Mistake>) {
    let number = mistake.map_or(0, |mistake| mistake as u32 + 1);
    MADE.store(number, nowait_sys::primitives::Ordering::SeqCst);
}

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
