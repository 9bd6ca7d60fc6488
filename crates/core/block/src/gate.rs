//! The word on which one thread waits for completions, and by which other threads wake it.

use nowait_sys::{
    Errno,
    primitives::{AtomicU32, Ordering::AcqRel, futex_wait, futex_wake},
    time::Deadline,
};

const WAITING: u32 = 1;
/// `wake` was called and no wait has returned early for it yet.
const WOKEN: u32 = 2;
/// Each nudge adds this to the word, so that the word differs from the value that the waiter saw.
const STEP: u32 = 4;

/// A futex word: `nudges << 2 | WOKEN | WAITING`.
///
/// The waiter announces itself with [`Gate::begin`], *then* checks once more for completions, then
/// sleeps while the word has the value that `begin` returned. A thread that has completions for the
/// waiter makes them visible, *then* changes the word. So the waiter sees the completions, or the
/// other thread sees the announcement.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    word: AtomicU32,
}

impl Gate {
    /// `None`: [`Gate::wake`] was called before, and the caller must not wait.
    pub(crate) fn begin(&self) -> Option<u32> {
        let before = self.word.fetch_or(WAITING, AcqRel);
        if before & WOKEN == 0 {
            return Some(before | WAITING);
        }
        self.end();
        None
    }

    /// Returns `true` if [`Gate::wake`] was called meanwhile.
    pub(crate) fn end(&self) -> bool {
        self.word.fetch_and(!(WAITING | WOKEN), AcqRel) & WOKEN != 0
    }

    /// A thread that announces its wait after this call sees all that the caller did before the
    /// call, because this call writes the word, without changing its value.
    pub(crate) fn is_waiting(&self) -> bool {
        self.word.fetch_or(0, AcqRel) & WAITING != 0
    }

    /// Makes the current wait, or else the next one, end early. Returns `true` if the caller must
    /// wake the waiting thread with [`Gate::rouse`].
    #[must_use]
    pub(crate) fn wake(&self) -> bool {
        self.word.fetch_or(WOKEN, AcqRel) & (WAITING | WOKEN) == WAITING
    }

    /// Makes a waiting thread check again, without ending its wait. Returns `true` if the caller
    /// must wake that thread with [`Gate::rouse`].
    #[must_use]
    pub(crate) fn nudge(&self) -> bool {
        self.word.fetch_add(STEP, AcqRel) & (WAITING | WOKEN) == WAITING
    }

    pub(crate) fn sleep(&self, seen: u32, deadline: Deadline) -> Result<(), Errno> {
        futex_wait(&self.word, seen, deadline)
    }

    /// Wakes the thread that sleeps in [`Gate::sleep`], or ends a ring's wait at [`Gate::address`].
    pub(crate) fn rouse(&self) {
        futex_wake(&self.word, 1);
    }

    pub(crate) fn address(&self) -> *const u32 {
        core::ptr::from_ref(&self.word).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_before_a_wait_is_kept_and_spent_once() {
        let gate = Gate::default();
        assert!(!gate.wake(), "no thread sleeps");
        assert_eq!(gate.begin(), None);
        assert!(gate.begin().is_some());
        assert!(!gate.end());
    }

    #[test]
    fn nudge_changes_the_word_but_does_not_end_the_wait() {
        let gate = Gate::default();
        let seen = gate.begin().unwrap();
        assert!(gate.nudge());
        assert_eq!(gate.sleep(seen, Deadline::NEVER), Err(Errno::AGAIN));
        assert!(!gate.end());
    }

    #[test]
    fn only_the_first_wake_has_to_rouse() {
        let gate = Gate::default();
        gate.begin().unwrap();
        assert!(gate.wake());
        assert!(!gate.wake());
        assert!(gate.end());
    }
}
