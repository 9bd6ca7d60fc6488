//! The loops of the engine's threads, one turn at a time.
//!
//! A turn does all the work there is once and never sleeps, so one thread can make the turns of
//! several loops. The result of a turn says what the loop does next.

use core::time::Duration;
use nowait_sys::time::Deadline;

/// The pause of a loop after a turn that panicked.
const FAILED_PAUSE: Duration = Duration::from_millis(1);

/// The next step of a loop after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next turn at once: this one had work to do.
    Turn,
    /// The loop sleeps until another thread wakes it, or until the deadline.
    Sleep(Deadline),
    /// The turn panicked, and the next one may panic again: the loop pauses first.
    Rest,
    /// There are no more turns.
    End,
}

/// A loop of a thread.
pub trait Loop {
    /// Does all the work there is once. Does not sleep, and does not panic.
    fn turn(&mut self) -> Next;

    /// Sleeps until there is work for a turn, or until `deadline`; may return early. Returns at
    /// once if work has come since the last turn. Does not panic.
    fn sleep(&mut self, deadline: Deadline);

    /// Makes turns until the loop ends; for a thread that does nothing else.
    fn run(&mut self) {
        loop {
            match self.turn() {
                Next::Turn => {}
                Next::Sleep(deadline) => self.sleep(deadline),
                Next::Rest => std::thread::sleep(FAILED_PAUSE),
                Next::End => return,
            }
        }
    }
}
