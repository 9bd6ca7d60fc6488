//! Contexts whose callers come by themselves, so that the driver looks after them rarely.
//!
//! A look takes 15 µs of a processor, which is much for a program with a few requests a second. If
//! the callers stop coming, their requests wait for the driver once, at most for two of its looks.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// Ticks, for a second, at which no request had waited for the driver.
const TICKS: u32 = 200;

/// The time for which a context has been calm.
#[derive(Default)]
pub(super) struct Calm {
    /// The ticks since a request has waited for the driver. Written by the driver only.
    ticks: AtomicU32,
    /// The driver looks after the context rarely, or will from its next tick on: a thread that
    /// needs it says so.
    is_on: AtomicBool,
}

impl Calm {
    /// Counts a tick at which no request had waited for the driver, or one at which some had. On
    /// the driver.
    pub(super) fn tick(&self, is_calm: bool) {
        let ticks = if is_calm { self.ticks.load(Relaxed).saturating_add(1) } else { 0 };
        if ticks <= TICKS {
            self.is_on.store(ticks == TICKS, SeqCst);
        }
        // A thread has ended it since the tick before.
        let goes_on = ticks <= TICKS || self.is_on.load(SeqCst);
        self.ticks.store(if goes_on { ticks } else { 0 }, Relaxed);
    }

    /// Ends it. Returns `true` if the driver does not know.
    pub(super) fn end(&self) -> bool {
        self.is_on.load(SeqCst) && self.is_on.swap(false, SeqCst)
    }

    /// Returns `true` if it is on since a tick before the last one. On the driver.
    pub(super) fn is_long(&self) -> bool {
        self.ticks.load(Relaxed) > TICKS && self.is_on.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_a_tick_before_it_is_used() {
        let calm = Calm::default();
        (0..TICKS).for_each(|_| calm.tick(true));
        assert!(!calm.is_long() && calm.is_on.load(SeqCst));
        calm.tick(true);
        assert!(calm.is_long());
        calm.tick(false);
        assert!(!calm.is_long() && !calm.end());
    }

    #[test]
    fn a_thread_ends_it_at_any_time() {
        for before in [TICKS, TICKS + 1, TICKS + 9] {
            let calm = Calm::default();
            (0..before).for_each(|_| calm.tick(true));
            assert!(calm.end() && !calm.end() && !calm.is_long());
            calm.tick(true);
            assert!(!calm.is_long() && calm.ticks.load(Relaxed) <= TICKS);
            (0..=TICKS).for_each(|_| calm.tick(true));
            assert!(calm.is_long());
        }
    }
}
