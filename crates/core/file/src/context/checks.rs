//! How often the driver checks a context: at each of its ticks, or rarely while the context is
//! calm, because its callers fetch events by themselves.
//!
//! A check takes 15 µs of a processor, which is much for a program with a few requests a second. If
//! the callers stop coming, their requests wait for the driver once, for at most two of the
//! driver's checks.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use nowait_retry::watch::Watch;

/// The number of ticks in a row, one second, without a request that waited for the driver, after
/// which a context is calm.
const TICKS: u32 = 200;

#[derive(Default)]
pub(crate) struct Checks {
    /// The driver checks the context while this is on.
    pub(crate) watch: Watch,
    /// The number of ticks since a request has waited for the driver. Written by the driver only.
    ticks: AtomicU32,
    /// `true`: the driver checks the context rarely, or will from its next tick on. A thread that
    /// needs the driver clears this flag.
    is_on: AtomicBool,
}

impl Checks {
    /// `is_calm`: since the last tick no request has waited for the driver, and the program needs
    /// no driver to bring its events. Called by the driver only.
    pub(super) fn tick(&self, is_calm: bool) {
        let ticks = if is_calm { self.ticks.load(Relaxed).saturating_add(1) } else { 0 };
        if ticks <= TICKS {
            self.is_on.store(ticks == TICKS, SeqCst);
        }
        // A thread may have ended the calm since the tick before.
        let goes_on = ticks <= TICKS || self.is_on.load(SeqCst);
        self.ticks.store(if goes_on { ticks } else { 0 }, Relaxed);
    }

    /// Ends the calm. Returns `true` if the driver must be told.
    pub(super) fn end(&self) -> bool {
        self.is_on.load(SeqCst) && self.is_on.swap(false, SeqCst)
    }

    /// Returns `true` if the calm began before the last tick. Called by the driver only.
    pub(super) fn is_long(&self) -> bool {
        self.ticks.load(Relaxed) > TICKS && self.is_on.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_a_tick_before_it_is_used() {
        let checks = Checks::default();
        (0..TICKS).for_each(|_| checks.tick(true));
        assert!(!checks.is_long() && checks.is_on.load(SeqCst));
        checks.tick(true);
        assert!(checks.is_long());
        checks.tick(false);
        assert!(!checks.is_long() && !checks.end());
    }

    #[test]
    fn a_thread_ends_it_at_any_time() {
        for before in [TICKS, TICKS + 1, TICKS + 9] {
            let checks = Checks::default();
            (0..before).for_each(|_| checks.tick(true));
            assert!(checks.end() && !checks.end() && !checks.is_long());
            checks.tick(true);
            assert!(!checks.is_long() && checks.ticks.load(Relaxed) <= TICKS);
            (0..=TICKS).for_each(|_| checks.tick(true));
            assert!(checks.is_long());
        }
    }
}
