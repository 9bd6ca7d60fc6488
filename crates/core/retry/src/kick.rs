//! The right to run an operation.
//!
//! The state of an operation is one word of three bits:
//!
//! - ACTIVE: some party holds the right to run the operation, such as a thread, a run list or a
//!   backend
//! - KICKED: the operation's condition may have come true since its last iteration began
//! - CANCELLED: the operation must end before its next iteration
//!
//! ARCHITECTURE.md has the rules R1 to R5 that these bits keep.

use crate::primitives::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

const ACTIVE: u32 = 1;
const KICKED: u32 = 2;
const CANCELLED: u32 = 4;

/// The right to run an operation, and the memory of kicks that came while a party held the right.
#[derive(Debug)]
pub struct Kick(AtomicU32);

impl Kick {
    /// Makes a right that the caller holds: the caller runs the operation or hands the right on.
    pub fn new_active() -> Kick {
        Kick(AtomicU32::new(ACTIVE))
    }

    /// Asks for another iteration. Returns `true` if the caller now holds the right: the caller
    /// must put the operation on a run list. Returns `false` if the operation is over, or if
    /// another party holds the right: that party runs the operation again.
    #[must_use]
    pub fn kick(&self) -> bool {
        // Writes even if KICKED is set: the write publishes the condition to the next `begin`. A
        // shortcut that only loads loses wake-ups (see the canary below).
        self.0.fetch_or(ACTIVE | KICKED, AcqRel) & ACTIVE == 0
    }

    /// Asks for the end of the operation. Returns as [`Kick::kick`] does.
    #[must_use]
    pub fn cancel(&self) -> bool {
        self.0.fetch_or(ACTIVE | KICKED | CANCELLED, AcqRel) & ACTIVE == 0
    }

    /// Returns `true` if the operation was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Acquire) & CANCELLED != 0
    }

    /// Begins an iteration: clears earlier kicks. Returns `true` if the operation was cancelled.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.0.fetch_and(!KICKED, AcqRel) & CANCELLED != 0
    }

    /// Ends an iteration that waits. Returns `true` if there was a kick meanwhile: the caller runs
    /// the operation again. Otherwise gives up the right: the caller must not touch the operation
    /// any more.
    #[must_use]
    pub fn end_retry(&self) -> bool {
        let mut state = self.0.load(Relaxed);
        loop {
            if state & KICKED != 0 {
                return true;
            }
            match self.0.compare_exchange(state, state & !ACTIVE, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(now) => state = now,
            }
        }
    }
}

#[cfg(test)]
impl Kick {
    /// The mistake that a loom canary finds: it does not write if KICKED is set.
    fn kick_shortcut(&self) -> bool {
        if self.0.load(Acquire) & KICKED != 0 {
            return false;
        }
        self.kick()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_kick_during_an_iteration_runs_it_again() {
        let kick = Kick::new_active();
        assert!(!kick.begin());
        assert!(!kick.kick_shortcut(), "the runner keeps the right");
        assert!(kick.end_retry());
        assert!(!kick.begin());
        assert!(!kick.end_retry());
        assert!(kick.kick(), "dormant: the kicker takes the right");
    }

    #[test]
    fn a_cancelled_operation_ends_before_its_next_iteration() {
        let kick = Kick::new_active();
        assert!(!kick.begin());
        assert!(!kick.cancel());
        assert!(kick.end_retry());
        assert!(kick.begin());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, AtomicBool};
    use loom::thread;

    fn model(kick: fn(&Kick) -> bool) {
        loom::model(move || {
            let op = Arc::new((Kick::new_active(), AtomicBool::new(false)));
            let device = op.clone();
            let device = thread::spawn(move || {
                device.1.store(true, Relaxed);
                kick(&device.0)
            });
            // A kick for another reason, so that KICKED may already be set.
            let _ = op.0.kick();
            let (mut done, mut queued) = (false, true);
            while queued {
                let _ = op.0.begin();
                done = op.1.load(Relaxed);
                queued = !done && op.0.end_retry();
            }
            assert!(device.join().unwrap() || done, "ready, and no thread will look again");
        });
    }

    #[test]
    fn loom_kick_during_iteration_is_not_lost() {
        model(Kick::kick);
    }

    #[test]
    #[should_panic(expected = "no thread will look again")]
    fn loom_canary_shortcut_is_lost() {
        model(Kick::kick_shortcut);
    }

    #[test]
    fn loom_two_kickers_never_both_get_the_right() {
        loom::model(|| {
            let kick = Arc::new(Kick::new_active());
            let _ = kick.begin();
            assert!(!kick.end_retry());
            let other = kick.clone();
            let other = thread::spawn(move || other.kick());
            let here = kick.kick();
            assert!(here ^ other.join().unwrap(), "exactly one of them queues it");
        });
    }
}
