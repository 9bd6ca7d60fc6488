//! Deferred requests: accepted, and in no queue. A thread that waits for events runs them, or else
//! a thread of the engine runs them.

use crate::primitives::{
    AtomicUsize, Mutex,
    Ordering::{Acquire, Release, SeqCst},
    fence,
};
use nowait_sys::time::Deadline;
use std::collections::VecDeque;

/// The deferred requests of a context.
pub trait Deferred: Send + Sync {
    /// Returns `true` if no request is deferred.
    fn is_empty(&self) -> bool;
    /// Tries the oldest requests again, without waiting for data.
    fn retry(&self);
    /// Runs the oldest request by calls that may block, and tries other requests again.
    fn run(&self);
    /// Hands all requests to the engine's threads, without waiting for data.
    fn hand_over(&self);
}

/// Returns `true` if `deadline` is more than 10 ms away: a thread that waits until then may block
/// in a deferred request.
pub fn may_block(deadline: Deadline) -> bool {
    const LEAST_NS: u64 = 10_000_000;
    deadline == Deadline::NEVER || deadline > Deadline::after_ns(LEAST_NS)
}

/// A list of deferred values in the order of their submission.
///
/// A thread *runs* the list while it has the guard of [`DeferredList::begin`]. It must check the
/// list again after it has dropped the guard: [`DeferredList::push_all`] asks for a wake-up only if
/// no thread runs the list.
pub struct DeferredList<T> {
    items: Mutex<Items<T>>,
    /// Readable without the lock.
    count: AtomicUsize,
    runners: AtomicUsize,
}

/// A value taken off the list, and its number.
pub struct Item<T> {
    number: u64,
    /// The deferred value.
    pub value: T,
}

struct Items<T> {
    waiting: VecDeque<Item<T>>,
    last: u64,
}

impl<T> Default for DeferredList<T> {
    fn default() -> DeferredList<T> {
        DeferredList {
            items: Mutex::new(Items { waiting: VecDeque::new(), last: 0 }),
            count: AtomicUsize::new(0),
            runners: AtomicUsize::new(0),
        }
    }
}

/// Counts the calling thread as one that runs the list, until this is dropped.
#[must_use]
pub struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
        // Pairs with the fence in `push_all`: either the pushing thread sees no runner, or this
        // thread finds the new values when it checks the list again.
        fence(SeqCst);
    }
}

impl<T> DeferredList<T> {
    /// Adds values. Returns `true` if no thread runs the list: the caller must wake a thread that
    /// sleeps.
    #[must_use]
    pub fn push_all(&self, values: impl Iterator<Item = T>) -> bool {
        let mut items = self.items.lock();
        for value in values {
            items.last += 1;
            let number = items.last;
            items.waiting.push_back(Item { number, value });
        }
        self.count.store(items.waiting.len(), Release);
        drop(items);
        fence(SeqCst);
        self.runners.load(SeqCst) == 0
    }

    /// Counts the calling thread as one that runs the list, until the result is dropped.
    pub fn begin(&self) -> Running<'_> {
        self.runners.fetch_add(1, SeqCst);
        Running(&self.runners)
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Returns the number of values on the list.
    pub fn len(&self) -> usize {
        self.count.load(Acquire)
    }

    /// Returns the number of the value added last. Numbers grow by one with each value.
    pub fn last(&self) -> u64 {
        self.items.lock().last
    }

    /// Takes the oldest value off the list.
    pub fn pop(&self) -> Option<Item<T>> {
        self.pop_until(u64::MAX)
    }

    /// Takes the oldest value off the list, if its number is at most `last`.
    pub fn pop_until(&self, last: u64) -> Option<Item<T>> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let item = items.waiting.pop_front_if(|item| item.number <= last);
        self.count.store(items.waiting.len(), Release);
        item
    }

    /// Puts an item back in its place in the order.
    pub fn put_back(&self, item: Item<T>) {
        let mut items = self.items.lock();
        let place = items.waiting.partition_point(|other| other.number < item.number);
        items.waiting.insert(place, item);
        self.count.store(items.waiting.len(), Release);
    }

    /// Takes the oldest value that `is` accepts off the list.
    pub fn take(&self, is: impl Fn(&T) -> bool) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let place = items.waiting.iter().position(|item| is(&item.value))?;
        let item = items.waiting.remove(place);
        self.count.store(items.waiting.len(), Release);
        item.map(|item| item.value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn all(list: &DeferredList<u32>) -> Vec<u32> {
        core::iter::from_fn(|| list.pop()).map(|item| item.value).collect()
    }

    #[test]
    fn what_is_put_back_keeps_its_place() {
        let list = DeferredList::default();
        let _ = list.push_all(0..4);
        let (first, second) = (list.pop().unwrap(), list.pop().unwrap());
        list.put_back(second);
        list.put_back(first);
        assert_eq!(list.len(), 4);
        assert_eq!(list.take(|value| *value == 2), Some(2));
        assert_eq!(list.take(|value| *value == 2), None);
        assert_eq!(all(&list), [0, 1, 3]);
        assert!(list.is_empty());
    }

    #[test]
    fn values_that_came_after_a_look_stay() {
        let list = DeferredList::default();
        let _ = list.push_all(core::iter::once(0));
        let seen = list.last();
        let _ = list.push_all(core::iter::once(1));
        assert_eq!(list.pop_until(seen).map(|item| item.value), Some(0));
        assert!(list.pop_until(seen).is_none());
        assert_eq!(all(&list), [1]);
    }

    #[test]
    fn a_sleeper_is_wanted_only_while_no_thread_runs_the_list() {
        let list = DeferredList::default();
        assert!(list.push_all(core::iter::once(0)));
        let running = list.begin();
        assert!(!list.push_all(core::iter::once(1)));
        drop(running);
        assert!(list.push_all(core::iter::once(2)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::Arc;
    use loom::thread;

    fn one_leaves(leave: fn(&DeferredList<u32>) -> bool) {
        loom::model(move || {
            let list = Arc::new(DeferredList::default());
            let other = list.clone();
            let pusher = thread::spawn(move || other.push_all(core::iter::once(1)));
            let is_empty = leave(&list);
            let wakes = pusher.join().unwrap();
            assert!(wakes || !is_empty, "no thread runs it");
        });
    }

    #[test]
    fn loom_a_value_wakes_a_thread_or_is_found() {
        one_leaves(|list| {
            drop(list.begin());
            list.is_empty()
        });
    }

    #[test]
    #[should_panic(expected = "no thread runs it")]
    fn loom_canary_a_look_before_leaving() {
        one_leaves(|list| {
            let running = list.begin();
            let is_empty = list.is_empty();
            drop(running);
            is_empty
        });
    }

    #[test]
    fn loom_each_value_is_taken_once() {
        loom::model(|| {
            let list = Arc::new(DeferredList::default());
            let _ = list.push_all(0..2);
            let (retries, cancels) = (list.clone(), list.clone());
            let retries = thread::spawn(move || {
                let missed = retries.pop();
                missed.into_iter().for_each(|item| retries.put_back(item));
            });
            let cancels = thread::spawn(move || cancels.take(|value| *value == 1));
            let mut taken: Vec<u32> = list.pop().map(|item| item.value).into_iter().collect();
            retries.join().unwrap();
            taken.extend(cancels.join().unwrap());
            taken.extend(core::iter::from_fn(|| list.pop()).map(|item| item.value));
            taken.sort_unstable();
            assert_eq!(taken, [0, 1]);
        });
    }
}
