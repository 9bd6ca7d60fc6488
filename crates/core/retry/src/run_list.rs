//! Requests that wait for a thread to run them.

use crate::{
    Operation, Request,
    primitives::{
        Arc, AtomicBool, AtomicUsize, Mutex,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};
use std::collections::VecDeque;

/// A first-in-first-out list of requests. The thread that takes a request off the list holds the
/// right to run it.
pub struct RunList<O: Operation> {
    requests: Mutex<VecDeque<Arc<Request<O>>>>,
    /// Readable without the lock.
    count: AtomicUsize,
    /// Set while the serving thread sleeps or is about to: it must be woken for new work.
    sleeping: AtomicBool,
    wake: Option<Box<dyn Fn() + Send + Sync>>,
}

impl<O: Operation> Default for RunList<O> {
    fn default() -> RunList<O> {
        RunList {
            requests: Mutex::new(VecDeque::new()),
            count: AtomicUsize::new(0),
            sleeping: AtomicBool::new(false),
            wake: None,
        }
    }
}

impl<O: Operation> RunList<O> {
    /// Makes a list that calls `wake` for each request of [`RunList::push`]. `wake` must run no
    /// request itself, because the kicking thread may hold locks.
    pub fn with_wake(wake: Box<dyn Fn() + Send + Sync>) -> RunList<O> {
        RunList { wake: Some(wake), ..RunList::default() }
    }

    /// Adds one request and calls the list's `wake` function, if there is one.
    pub fn push(&self, request: Arc<Request<O>>) {
        let mut requests = self.requests.lock();
        requests.push_back(request);
        self.count.store(requests.len(), Release);
        drop(requests);
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    /// Adds a batch under one lock. Returns `true` if the serving thread sleeps; the caller must
    /// wake it.
    #[must_use]
    pub fn push_all(&self, batch: &mut Vec<Arc<Request<O>>>) -> bool {
        let mut requests = self.requests.lock();
        requests.extend(batch.drain(..));
        self.count.store(requests.len(), Release);
        drop(requests);
        // Either `may_sleep` sees the batch, or `news` sees the serving thread sleep.
        self.news()
    }

    /// Announces news that the caller has made visible. Returns `true` if the serving thread
    /// sleeps; the caller must wake it.
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

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Announces that the serving thread will sleep. Returns `false` if the list is not empty: the
    /// thread must not sleep.
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

    /// Marks the serving thread as awake.
    pub fn awake(&self) {
        self.sleeping.store(false, Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::{
        Step,
        primitives::{AtomicU32, forgetting_wakes, futex_wait, futex_wake},
        wait::Wait,
    };
    use loom::thread;
    use nowait_sys::{Errno, time::Deadline};

    struct Nothing;

    impl Operation for Nothing {
        type Plug = ();

        fn iterate(&mut self, (): &mut (), _: &Wait<'_, Self>) -> Step {
            Step::Done(Ok(0))
        }

        fn complete(
            &mut self,
            (): &mut (),
            _: &Wait<'_, Self>,
            result: Result<u32, Errno>,
        ) -> Step {
            Step::Done(result)
        }

        fn finish(&mut self, (): &mut (), _: &Wait<'_, Self>, _: Result<u32, Errno>) {}
    }

    /// The word keeps a wake-up that comes before the sleep, as a queue does.
    #[derive(Default)]
    struct Served {
        list: RunList<Nothing>,
        news: AtomicBool,
        word: AtomicU32,
    }

    impl Served {
        fn wake(&self) {
            self.word.swap(1, SeqCst);
            futex_wake(&self.word, 1);
        }

        fn sleep(&self) {
            while self.word.swap(0, SeqCst) == 0 {
                let _ = futex_wait(&self.word, 0, Deadline::NEVER);
            }
        }

        fn serve(&self, may_sleep: fn(&RunList<Nothing>) -> bool) {
            let (mut batch, mut heard) = (Vec::new(), false);
            while batch.is_empty() || !heard {
                self.list.take(&mut batch, usize::MAX);
                heard |= self.news.load(Relaxed) && self.news.swap(false, SeqCst);
                if (batch.is_empty() || !heard) && may_sleep(&self.list) && !self.news.load(SeqCst)
                {
                    self.sleep();
                }
                self.list.awake();
            }
        }

        fn hand_over(&self) {
            let home = Arc::new(RunList::default());
            if self.list.push_all(&mut vec![Request::new(Nothing, home)]) {
                self.wake();
            }
        }

        fn tell(&self) {
            self.news.store(true, SeqCst);
            if self.list.news() {
                self.wake();
            }
        }
    }

    fn served(may_sleep: fn(&RunList<Nothing>) -> bool, hand_over: fn(&Served), tell: fn(&Served)) {
        loom::model(move || {
            let served = Arc::<Served>::default();
            let (one, other) = (served.clone(), served.clone());
            let one = thread::spawn(move || hand_over(&one));
            let other = thread::spawn(move || tell(&other));
            served.serve(may_sleep);
            one.join().unwrap();
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_the_serving_thread_does_not_sleep_on_work() {
        served(RunList::may_sleep, Served::hand_over, Served::tell);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_a_batch_that_wakes_no_thread() {
        let hand_over = |served: &Served| forgetting_wakes(|| served.hand_over());
        served(RunList::may_sleep, hand_over, Served::tell);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_news_that_wake_no_thread() {
        let tell = |served: &Served| forgetting_wakes(|| served.tell());
        served(RunList::may_sleep, Served::hand_over, tell);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_looking_before_announcing_the_sleep() {
        let late = |list: &RunList<Nothing>| {
            let empty = list.is_empty();
            list.sleeping.store(empty, SeqCst);
            empty
        };
        served(late, Served::hand_over, Served::tell);
    }
}
