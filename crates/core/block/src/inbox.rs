//! Completions made in user space that wait to be reaped.

use crate::{Completion, gate::Gate};
use nowait_sys::{Errno, primitives::Mutex, time::Deadline};

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    gate: Gate,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    completions: Vec<Completion>,
    /// The number of completions for which [`Inbox::add`] wakes the reaper; 0: no reaper is about
    /// to sleep.
    wanted: usize,
}

impl Inbox {
    pub(crate) fn add(&self, batch: &mut Vec<Completion>) {
        let mut list = self.list.lock();
        list.completions.append(batch);
        let enough = list.wanted > 0 && list.completions.len() >= list.wanted;
        drop(list);
        if enough && self.gate.nudge() {
            self.gate.rouse();
        }
    }

    pub(crate) fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        let mut interrupted = Ok(());
        loop {
            self.take(done, 0);
            let got = done.len() - before;
            if got >= min || deadline.has_passed() {
                return Ok(());
            }
            if interrupted.is_err() {
                return if got > 0 { Ok(()) } else { interrupted };
            }
            let Some(seen) = self.gate.begin() else { return Ok(()) };
            if self.take(done, min - got) == 0
                && let Err(Errno::INTR) = self.gate.sleep(seen, deadline)
            {
                interrupted = Err(Errno::INTR);
            }
            if self.gate.end() {
                self.take(done, 0);
                return Ok(());
            }
        }
    }

    pub(crate) fn wake(&self) {
        if self.gate.wake() {
            self.gate.rouse();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.lock().completions.len()
    }

    fn take(&self, done: &mut Vec<Completion>, wanted: usize) -> usize {
        let mut list = self.list.lock();
        list.wanted = wanted;
        let there = list.completions.len();
        done.append(&mut list.completions);
        there
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use nowait_sys::primitives::{Arc, forgetting_wakes};

    fn add(inbox: &Inbox) {
        inbox.add(&mut vec![Completion { token: 1, result: Ok(0) }]);
    }

    fn reap(inbox: &Inbox, min: usize) -> usize {
        let mut done = Vec::new();
        inbox.reap(&mut done, min, Deadline::NEVER).unwrap();
        done.len()
    }

    fn two_add(add: fn(&Inbox)) {
        loom::model(move || {
            let inbox = Arc::new(Inbox::default());
            let others = [inbox.clone(), inbox.clone()];
            let others = others.map(|inbox| thread::spawn(move || add(&inbox)));
            assert_eq!(reap(&inbox, 2), 2);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }

    #[test]
    fn loom_a_reaper_sleeps_until_it_has_enough() {
        two_add(add);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_a_completion_that_wakes_no_thread() {
        two_add(|inbox| forgetting_wakes(|| add(inbox)));
    }

    fn woken(wake: fn(&Inbox)) {
        loom::model(move || {
            let inbox = Arc::new(Inbox::default());
            let other = inbox.clone();
            let other = thread::spawn(move || {
                wake(&other);
                add(&other);
            });
            // More completions than will ever come: only the wake-up ends this wait.
            let early = reap(&inbox, 2);
            other.join().unwrap();
            assert_eq!(early + reap(&inbox, 1 - early), 1);
        });
    }

    #[test]
    fn loom_a_wake_up_ends_one_wait() {
        woken(Inbox::wake);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_a_wake_up_that_wakes_no_thread() {
        woken(|inbox| forgetting_wakes(|| inbox.wake()));
    }

    /// Makes the mistake that the gate's order avoids: checks first, and announces the wait
    /// afterwards.
    fn reap_looking_first(inbox: &Inbox) -> usize {
        let mut done = Vec::new();
        while inbox.take(&mut done, 1) == 0 {
            let seen = inbox.gate.begin().unwrap();
            let _ = inbox.gate.sleep(seen, Deadline::NEVER);
            inbox.gate.end();
        }
        done.len()
    }

    fn one_adds(reap: fn(&Inbox) -> usize) {
        loom::model(move || {
            let inbox = Arc::new(Inbox::default());
            let other = inbox.clone();
            let other = thread::spawn(move || add(&other));
            assert_eq!(reap(&inbox), 1);
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_a_completion_meets_a_reaper_that_goes_to_sleep() {
        one_adds(|inbox| reap(inbox, 1));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_a_reaper_that_looks_before_it_says_so() {
        one_adds(reap_looking_first);
    }
}
