//! The loops of the engine's threads, one turn at a time.
//!
//! A turn looks after everything once and never sleeps, so that the owner of the loop can call it:
//! a thread that does nothing else, or one that calls the turns of several loops in an order of its
//! own. Its result is the time for which the loop may sleep.

use core::time::Duration;
use nowait_sys::time::Deadline;

/// How long a loop rests after it has failed.
const FAILED_PAUSE: Duration = Duration::from_millis(1);

/// The next step of a loop after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next turn: there was something to do.
    Turn,
    /// The loop sleeps until there is news, or until the deadline.
    Sleep(Deadline),
    /// The turn failed, and may fail again: the loop rests first.
    Rest,
    /// No more turns.
    End,
}

/// A loop of a thread.
pub trait Loop {
    /// Looks after everything once. Does not sleep, and does not panic.
    fn turn(&mut self) -> Next;

    /// Sleeps until there is something for a turn to do, or until `deadline`; may return early.
    /// Returns at once for news since the last turn. Does not panic.
    fn sleep(&mut self, deadline: Deadline);

    /// Makes turns until there are no more; for a thread that does nothing else.
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
