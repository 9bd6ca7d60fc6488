//! Busy loops beside the runs: a machine whose processors have other work.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Threads that only burn processor time, until this value is dropped.
#[derive(Default)]
pub struct Busy(Arc<AtomicBool>);

impl Busy {
    pub fn start(count: usize) -> Self {
        let busy = Self::default();
        for _ in 0..count {
            let is_over = busy.0.clone();
            // Not spin_loop(): its instruction can make a virtual machine give its processor away.
            thread::spawn(move || while !black_box(is_over.load(Relaxed)) {});
        }
        busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Used;
    use std::time::{Duration, Instant};

    #[test]
    fn a_loop_burns_processor_time_and_ends_with_its_owner() {
        let (before, begun) = (Used::now().expect("figures"), Instant::now());
        let busy = Busy::start(1);
        let is_over = busy.0.clone();
        while Used::now().expect("figures").less(before).cpu_us < 20_000.0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the loop does not run");
            thread::yield_now();
        }
        drop(busy);
        while Arc::strong_count(&is_over) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the loop does not end");
            thread::yield_now();
        }
    }
}
