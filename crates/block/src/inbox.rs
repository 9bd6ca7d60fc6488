//! Where completions of user space wait to be reaped.

use crate::{Completion, gate::Gate};
use nowait_sys::{Errno, sync::Mutex, time::Deadline};

/// A list that one thread reaps and any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    gate: Gate,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    completions: Vec<Completion>,
    /// How many a sleeping reaper waits for; fewer do not rouse it.
    wanted: usize,
}

impl Inbox {
    /// Moves `batch` in and rouses the reaper if it has enough now.
    pub(crate) fn add(&self, batch: &mut Vec<Completion>) {
        let mut list = self.list.lock();
        list.completions.append(batch);
        let enough = list.wanted > 0 && list.completions.len() >= list.wanted;
        drop(list);
        if enough && self.gate.nudge() {
            self.gate.rouse();
        }
    }

    /// As [`crate::BlockBackend::reap`].
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

    /// As [`crate::BlockBackend::wake`].
    pub(crate) fn wake(&self) {
        if self.gate.wake() {
            self.gate.rouse();
        }
    }

    /// Returns how many completions wait.
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
