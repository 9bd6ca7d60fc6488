//! Cancels requests whose time limit passes, and wakes the tasks of those that wait for a place.
//!
//! The list of deadlines has no clock: callers pass the current time. The first deadline starts a
//! thread of the engine, which passes the time to the list.

use crate::reactor::WAKER_STACK_BYTES;
use core::{task::Waker, time::Duration};
use nowait_file::{
    Context,
    turn::{Loop, Next},
};
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::{
    Errno,
    own_thread::{OwnHandle, OwnThread},
    time::{self, Deadline},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

pub(crate) struct Deadlines<W> {
    /// By time in nanoseconds, then in the order of their addition.
    by_time: BTreeMap<(u64, u64), W>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadlineId(u64, u64);

impl<W> Default for Deadlines<W> {
    fn default() -> Deadlines<W> {
        Deadlines { by_time: BTreeMap::new(), next: 0 }
    }
}

impl<W> Deadlines<W> {
    /// Returns `true` if the new deadline is the earliest.
    pub(crate) fn add(&mut self, at_ns: u64, what: W) -> (DeadlineId, bool) {
        let id = (at_ns, self.next);
        self.next += 1;
        self.by_time.insert(id, what);
        (DeadlineId(id.0, id.1), self.by_time.keys().next() == Some(&id))
    }

    pub(crate) fn remove(&mut self, id: DeadlineId) -> Option<W> {
        self.by_time.remove(&(id.0, id.1))
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.by_time.keys().next().map(|(at_ns, _)| *at_ns)
    }

    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<W> {
        let first = self.by_time.first_entry()?;
        (first.key().0 <= now_ns).then(|| first.remove())
    }
}

struct Late {
    context: Weak<Context>,
    action: Action,
}

/// Action of the timer when a deadline has passed.
pub(crate) enum Action {
    /// Cancels this request of the context.
    Cancel(u64),
    /// Wakes a task, which ends its request.
    Wake(Waker),
}

#[derive(Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<OwnHandle>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    deadlines: Deadlines<Late>,
    stopped: bool,
}

impl Timer {
    /// The timer carries out `action`, of a request of `context`, at `at_ns` of CLOCK_MONOTONIC.
    pub(crate) fn add(
        &self,
        at_ns: u64,
        context: &Arc<Context>,
        action: Action,
    ) -> Result<DeadlineId, Errno> {
        self.start()?;
        let late = Late { context: Arc::downgrade(context), action };
        let (id, is_next) = self.shared.state.lock().deadlines.add(at_ns, late);
        if is_next {
            self.shared.news.notify_one();
        }
        Ok(id)
    }

    pub(crate) fn remove(&self, id: DeadlineId) {
        let removed = self.shared.state.lock().deadlines.remove(id);
        drop(removed); // not under the lock: the drop of a waker may drop another future
    }

    fn start(&self) -> Result<(), Errno> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let mut run = Run(self.shared.clone());
            *thread = Some(OwnThread::spawn("nowait-timer", WAKER_STACK_BYTES, move || run.run())?);
        }
        Ok(())
    }

    /// Tells the thread to end, and waits for its end unless the caller is that thread.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopped = true;
        self.shared.news.notify_one();
        let handle = self.thread.lock().take();
        if let Some(handle) = handle.filter(|it| !it.is_this()) {
            handle.join();
        }
    }
}

struct Run(Arc<Shared>);

impl Loop for Run {
    fn turn(&mut self) -> Next {
        let now_ns = time::now_ns();
        let mut state = self.0.state.lock();
        while let Some(late) = state.deadlines.pop(now_ns).filter(|_| !state.stopped) {
            drop(state);
            late.act();
            state = self.0.state.lock();
        }
        match state.stopped {
            true => Next::End,
            false => {
                Next::Sleep(state.deadlines.next_ns().map_or(Deadline::NEVER, Deadline::at_ns))
            }
        }
    }

    fn sleep(&mut self, deadline: Deadline) {
        let mut state = self.0.state.lock();
        // Another thread may meanwhile have added an earlier deadline, or removed `deadline`.
        if state.stopped || state.deadlines.next_ns() != deadline.ns() {
            return;
        }
        match deadline.remaining_ns() {
            None => self.0.news.wait(&mut state),
            Some(ns) => drop(self.0.news.wait_for(&mut state, Duration::from_nanos(ns))),
        }
    }
}

impl Late {
    fn act(self) {
        if let Some(context) = self.context.upgrade() {
            let act = || match self.action {
                // The call fails only if the request is over already.
                Action::Cancel(key) => _ = context.cancel(key),
                Action::Wake(waker) => waker.wake(),
            };
            let _ = context.engine().caught("as the timer", act);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u64),
        Remove(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..50u64).prop_map(Step::Add),
            (0..20usize).prop_map(Step::Remove),
            (0..30u64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn each_comes_once_not_early_and_in_the_order_of_time(
            steps in prop::collection::vec(step(), 0..200)
        ) {
            let (mut deadlines, mut now_ns) = (Deadlines::default(), 0);
            let mut model: Vec<(u64, usize, DeadlineId)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Add(after_ns) => {
                        let at_ns = now_ns + after_ns;
                        let first = model.iter().all(|(other, ..)| at_ns < *other);
                        let (id, is_next) = deadlines.add(at_ns, number);
                        prop_assert_eq!(is_next, first);
                        model.push((at_ns, number, id));
                        model.sort_by_key(|(at_ns, number, _)| (*at_ns, *number));
                    }
                    Step::Remove(index) if !model.is_empty() => {
                        let (_, number, id) = model.remove(index % model.len());
                        prop_assert_eq!(deadlines.remove(id), Some(number));
                        prop_assert_eq!(deadlines.remove(id), None);
                    }
                    Step::Remove(_) => {}
                    Step::Pass(ns) => {
                        now_ns += ns;
                        while let Some(number) = deadlines.pop(now_ns) {
                            let (at_ns, expected, _) = model.remove(0);
                            prop_assert_eq!(number, expected);
                            prop_assert!(at_ns <= now_ns);
                        }
                    }
                }
                prop_assert_eq!(deadlines.next_ns(), model.first().map(|(at_ns, ..)| *at_ns));
            }
        }
    }
}
