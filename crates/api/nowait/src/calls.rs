//! Threads for calls that have no asynchronous form: open, close, truncate.
//!
//! The threads share the application's descriptor table, unlike the driver and the workers: a file
//! that they open has a number of the application. The threads start when needed, and end when idle
//! or with the engine.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::own_thread::OwnThread;
use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

/// Most threads as long as calls end. If all these threads are busy, further calls wait.
const THREADS_MAX: usize = 8;
/// Most threads while calls do not return, as on a device that hangs or a FIFO without another end.
/// Such calls must not delay calls on other files.
const STUCK_MAX: usize = 256;
/// If no thread begins a waiting call for this time, all threads count as stuck.
const STUCK: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Calls(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
    /// Condition on which the relief thread waits for [`STUCK`] at a time. No thread signals the
    /// condition.
    relief: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
    begun: u64,
    has_relief: bool,
}

impl State {
    fn take_job(&mut self) -> Option<Job> {
        self.begun += u64::from(!self.jobs.is_empty());
        self.jobs.pop_front()
    }

    /// If this returns `true`, the caller must start a relief thread: jobs wait, no thread is idle,
    /// and the usual number of threads is reached.
    fn calls_relief(&mut self) -> bool {
        let calls = !self.jobs.is_empty()
            && self.idle == 0
            && (THREADS_MAX..STUCK_MAX).contains(&self.threads);
        calls && !core::mem::replace(&mut self.has_relief, true)
    }
}

type Job = Box<dyn FnOnce() + Send>;

impl Calls {
    /// Runs `work` on one of the threads. If there is none and none can be started, runs `work` on
    /// the calling thread.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Call<R> {
        let call = Arc::new(Mutex::new(CallState { over: None, waker: None }));
        let landing = call.clone();
        self.push(Box::new(move || {
            let over = catch_unwind(AssertUnwindSafe(work));
            let mut waiting = landing.lock();
            waiting.over = Some(over);
            let waker = waiting.waker.take();
            drop(waiting);
            // If the future was dropped, this thread drops the result, which may close a file and
            // block.
            drop(landing);
            if let Some(waker) = waker {
                waker.wake();
            }
        }));
        Call(call)
    }

    /// Drops `remains`, whose drop may block, on one of the threads.
    pub(crate) fn bury(&self, remains: impl Send + 'static) {
        self.run(move || drop(remains));
    }

    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.push(Box::new(move || {
            let _ = catch_unwind(AssertUnwindSafe(work));
        }));
    }

    fn push(&self, job: Job) {
        if self.0.enqueue(job) && !self.0.spawn() {
            self.0.miss_thread();
        }
    }
}

impl Shared {
    /// Puts a job into the line. If this returns `true`, the caller must start a thread, which is
    /// counted already.
    fn enqueue(self: &Arc<Shared>, job: Job) -> bool {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < THREADS_MAX {
            state.threads += 1;
            return true;
        }
        let calls_relief = state.calls_relief();
        drop(state);
        if calls_relief {
            self.start_relief();
        }
        self.news.notify_one();
        false
    }

    /// Subtracts a thread that could not be started. If none is left, runs the jobs in line: other
    /// callers may have counted on that thread.
    fn miss_thread(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        while state.threads == 0
            && let Some(job) = state.take_job()
        {
            drop(state);
            job();
            state = self.state.lock();
        }
    }

    fn spawn(self: &Arc<Shared>) -> bool {
        let shared = self.clone();
        OwnThread::spawn("nowait-calls", 256 << 10, move || shared.run()).is_ok()
    }

    fn start_relief(self: &Arc<Shared>) {
        let shared = self.clone();
        if OwnThread::spawn("nowait-calls", 256 << 10, move || shared.relieve()).is_err() {
            self.state.lock().has_relief = false;
        }
    }

    /// The function of the relief thread. When calls wait and no thread has begun a call for
    /// [`STUCK`], the relief thread becomes one of the threads. When no call waits, it ends.
    fn relieve(self: &Arc<Shared>) {
        let mut state = self.state.lock();
        loop {
            let begun = state.begun;
            self.relief.wait_for(&mut state, STUCK);
            if state.jobs.is_empty() || state.begun == begun {
                break;
            }
        }
        state.has_relief = false;
        if !state.jobs.is_empty() {
            state.threads += 1;
            drop(state);
            self.run();
        }
    }

    fn run(self: &Arc<Shared>) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.take_job() {
                let calls_relief = state.calls_relief();
                drop(state);
                if calls_relief {
                    self.start_relief();
                }
                job();
                state = self.state.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let idle = self.news.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if idle && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Drop for Calls {
    /// Tells the threads to end when no call waits. No call on a file is left, because each such
    /// call holds a handle of the engine. The dropping thread may itself be one of these threads,
    /// so the drop waits for none of them.
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.news.notify_all();
    }
}

/// The future of a call's result. If the future is dropped early, the call continues, and the
/// thread that runs the call drops its result.
pub(crate) struct Call<R>(Arc<Mutex<CallState<R>>>);

struct CallState<R> {
    over: Option<Result<R, Box<dyn Any + Send>>>,
    waker: Option<Waker>,
}

impl<R> Future for Call<R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let mut waiting = self.0.lock();
        match waiting.over.take() {
            Some(Ok(result)) => Poll::Ready(result),
            Some(Err(panic)) => {
                drop(waiting);
                resume_unwind(panic)
            }
            None => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;
    use std::sync::{Barrier, mpsc};

    #[test]
    fn calls_run_beside_one_another_and_give_their_results() {
        let calls = Calls::default();
        let barrier = Arc::new(Barrier::new(THREADS_MAX));
        let started: Vec<_> = (0..THREADS_MAX)
            .map(|number| {
                let barrier = barrier.clone();
                calls.start(move || {
                    barrier.wait();
                    number
                })
            })
            .collect();
        for (number, call) in started.into_iter().enumerate() {
            assert_eq!(block_on(call), number);
        }
    }

    #[test]
    fn more_calls_than_threads_all_end() {
        let calls = Calls::default();
        let started: Vec<_> = (0..100).map(|number| calls.start(move || number)).collect();
        let sum: usize = started.into_iter().map(block_on).sum();
        assert_eq!(sum, 99 * 100 / 2);
    }

    #[test]
    fn of_two_calls_without_a_thread_none_is_lost() {
        let shared = Arc::new(Shared::default());
        let (ran, runs) = mpsc::channel();
        let job = |name| {
            let ran = ran.clone();
            Box::new(move || ran.send(name).unwrap())
        };
        assert!(shared.enqueue(job('a')), "a thread would start");
        assert!(shared.enqueue(job('b')), "another one");
        shared.miss_thread();
        assert_eq!(runs.try_iter().count(), 0, "the other thread may start");
        shared.miss_thread();
        assert_eq!(runs.try_iter().collect::<Vec<_>>(), ['a', 'b']);
    }

    #[test]
    fn calls_that_do_not_return_keep_no_other_waiting() {
        let calls = Calls::default();
        let end = Arc::new(Barrier::new(3 * THREADS_MAX + 1));
        let stuck: Vec<_> = (0..3 * THREADS_MAX)
            .map(|_| {
                let end = end.clone();
                calls.start(move || {
                    end.wait();
                })
            })
            .collect();
        assert_eq!(block_on(calls.start(|| 7)), 7);
        end.wait();
        stuck.into_iter().for_each(block_on);
    }

    #[test]
    fn a_panic_reaches_its_waiter_and_harms_no_other() {
        let calls = Calls::default();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let call = calls.start(|| panic!("enough"));
        let waited = catch_unwind(AssertUnwindSafe(|| block_on(call)));
        std::panic::set_hook(hook);
        assert!(waited.is_err());
        assert_eq!(block_on(calls.start(|| 1)), 1);
    }

    #[test]
    fn abandoned_results_are_dropped_and_calls_outlive_the_handle() {
        let (sender, receiver) = mpsc::channel();
        let calls = Calls::default();
        drop(calls.start(move || SendOnDrop(sender)));
        drop(calls);
        receiver.recv().unwrap();
    }

    struct SendOnDrop(mpsc::Sender<()>);

    impl Drop for SendOnDrop {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
}
