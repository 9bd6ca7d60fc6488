//! Requests that wait for a thread to run them.

use crate::{
    Operation, Request,
    sync::{
        Arc, AtomicBool, AtomicUsize, Mutex,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};
use std::collections::VecDeque;

/// A first-in-first-out list of requests whose right to run goes with their place on it.
pub struct RunList<O: Operation> {
    requests: Mutex<VecDeque<Arc<Request<O>>>>,
    /// What the list holds, for a look without the lock.
    count: AtomicUsize,
    /// The thread that serves the list is about to sleep, or sleeps: it must be woken.
    sleeping: AtomicBool,
}

impl<O: Operation> Default for RunList<O> {
    fn default() -> RunList<O> {
        RunList {
            requests: Mutex::new(VecDeque::new()),
            count: AtomicUsize::new(0),
            sleeping: AtomicBool::new(false),
        }
    }
}

impl<O: Operation> RunList<O> {
    /// Adds a request.
    pub fn push(&self, request: Arc<Request<O>>) {
        let mut requests = self.requests.lock();
        requests.push_back(request);
        self.count.store(requests.len(), Release);
    }

    /// Adds a batch in one step (one lock for all of it). True: the serving thread sleeps, and
    /// the caller must wake it.
    #[must_use]
    pub fn push_all(&self, batch: &mut Vec<Arc<Request<O>>>) -> bool {
        let mut requests = self.requests.lock();
        requests.extend(batch.drain(..));
        self.count.store(requests.len(), Release);
        drop(requests);
        // Either `may_sleep` sees the batch or we see it sleep.
        self.news()
    }

    /// Says that there is news for the serving thread besides requests, after it was made visible;
    /// its fence pairs with that of `may_sleep`.
    /// True: the thread sleeps, and the caller must wake it.
    #[must_use]
    pub fn news(&self) -> bool {
        fence(SeqCst);
        self.sleeping.load(Relaxed) && self.sleeping.swap(false, SeqCst)
    }

    /// Moves up to `max` requests to `batch`, oldest first.
    pub fn take(&self, batch: &mut Vec<Arc<Request<O>>>, max: usize) {
        if self.is_empty() {
            return;
        }
        let mut requests = self.requests.lock();
        let count = requests.len().min(max);
        batch.extend(requests.drain(..count));
        self.count.store(requests.len(), Release);
    }

    /// Returns the first request that `is` accepts; it stays on the list, which is locked
    /// meanwhile: nobody runs what is on it.
    pub fn find(&self, is: impl Fn(&Arc<Request<O>>) -> bool) -> Option<Arc<Request<O>>> {
        self.requests.lock().iter().find(|request| is(request)).cloned()
    }

    /// Tells whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Announces that the serving thread will sleep. False: there is work, it must not.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        fence(SeqCst);
        let empty = self.is_empty();
        if !empty {
            self.sleeping.store(false, SeqCst);
        }
        empty
    }

    /// Says that the serving thread is awake.
    pub fn awake(&self) {
        self.sleeping.store(false, Relaxed);
    }
}
