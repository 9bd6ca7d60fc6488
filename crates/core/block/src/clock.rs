//! A clock for simulations.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use std::sync::Arc;

/// A clock that moves only by [`VirtualClock::advance`] and [`VirtualClock::advance_to`].
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// Makes a clock at zero.
    pub fn new() -> Arc<VirtualClock> {
        Arc::default()
    }

    /// Returns the time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Moves the clock on by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, AcqRel);
    }

    /// Moves the clock on to `ns`, unless it shows a later time already.
    pub fn advance_to(&self, ns: u64) {
        self.0.fetch_max(ns, AcqRel);
    }
}
