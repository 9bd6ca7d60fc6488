//! Threads that call the application's functions (SIGEV_THREAD).
//!
//! C code in posix.c makes these threads, on threads of the application: a new thread shares its
//! maker's descriptor table, and the engine's threads have another table. A function may block for
//! ever or end its thread. So the last thread that stands by makes another thread before it makes a
//! call. A function with thread attributes gets a thread of its own, if that thread can be made.

use crate::notice::Call;
use core::time::Duration;
use nowait_engine::Engine;
use nowait_sys::{
    mutex::{Condvar, Mutex, MutexGuard},
    own_thread::OwnThread,
};
use std::{collections::VecDeque, thread};

/// A thread ends instead of waiting for a call if this many threads stand by already.
const STANDING_BY_MAX: usize = 4;

const FAILED_PAUSE: Duration = Duration::from_millis(1);

/// The calls to be made, and the threads that stand by.
#[derive(Default)]
pub struct Notifiers {
    book: Mutex<Book>,
    news: Condvar,
}

#[derive(Default)]
struct Book {
    calls: VecDeque<Call>,
    standing_by: usize,
    /// The threads that stand by and have no call to take: they do not keep the process alive.
    idle: Vec<OwnThread>,
    /// `true`: a caller has promised to make a thread, which has not started yet.
    is_coming: bool,
}

struct StandbyGuard<'a>(MutexGuard<'a, Book>);

impl Book {
    /// A thread that is to take a waiting call is not idle.
    fn count_idle(&mut self) {
        let idle = self.standing_by.saturating_sub(self.calls.len());
        self.idle.resize_with(idle, OwnThread::standing_by);
    }
}

impl<'a> StandbyGuard<'a> {
    fn begin(mut book: MutexGuard<'a, Book>) -> StandbyGuard<'a> {
        book.standing_by += 1;
        book.count_idle();
        StandbyGuard(book)
    }
}

impl Drop for StandbyGuard<'_> {
    fn drop(&mut self) {
        self.0.standing_by -= 1;
        self.0.count_idle();
    }
}

/// A call that a thread has taken.
#[repr(C)]
#[derive(Debug)]
pub struct TakenCall {
    /// The call to make.
    pub call: Call,
    /// `true`: no other thread stands by or is coming, so the caller must make one before it makes
    /// the call.
    pub makes_another: bool,
}

impl Notifiers {
    /// Adds a call. Any thread may call this function.
    pub fn push(&self, call: Call) {
        let mut book = self.book.lock();
        book.calls.push_back(call);
        book.count_idle();
        drop(book);
        self.news.notify_one();
    }

    /// Returns `true` if no thread stands by and none is coming, so that a thread must be made: the
    /// caller then promises to make it.
    pub fn must_come(&self) -> bool {
        let mut book = self.book.lock();
        let must = book.standing_by == 0 && !book.is_coming;
        book.is_coming |= must;
        must
    }

    /// Withdraws a promise: the thread could not be made.
    pub fn comes_not(&self) {
        self.book.lock().is_coming = false;
    }

    /// Waits for a call. The caller is a thread made for calls; `is_new`: this is its first wait.
    /// `None`: enough threads stand by, and the caller must end. After a panic, which is an
    /// internal error, the thread waits again, because perhaps no other thread stands by.
    pub fn take(&self, is_new: bool, engine: &Engine) -> Option<TakenCall> {
        let mut is_new = is_new;
        loop {
            match engine.caught("as it waited for calls to make", || self.take_now(is_new)) {
                Some(taken) => return taken,
                None => thread::sleep(FAILED_PAUSE), // it may fail again
            }
            is_new = false;
        }
    }

    fn take_now(&self, is_new: bool) -> Option<TakenCall> {
        let mut book = self.book.lock();
        if is_new {
            book.is_coming = false;
        }
        if book.calls.is_empty() && book.standing_by >= STANDING_BY_MAX {
            return None;
        }
        let mut waiting = StandbyGuard::begin(book);
        while waiting.0.calls.is_empty() {
            self.news.wait(&mut waiting.0);
            #[cfg(test)]
            tests::inject(&waiting.0.calls);
        }
        let book = &mut *waiting.0;
        let call = book.calls.pop_front()?;
        // This thread still counts as standing by.
        let makes_another = book.standing_by == 1 && !book.is_coming;
        book.is_coming |= makes_another;
        Some(TakenCall { call, makes_another })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::Arc;

    /// The argument of the call for which a thread panics, once.
    static WANTED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn inject(calls: &VecDeque<Call>) {
        let Some(value) = calls.front().map(|call| call.value) else { return };
        let fails = value != 0 && WANTED.compare_exchange(value, 0, SeqCst, SeqCst).is_ok();
        assert!(!fails, "injected");
    }

    fn engine() -> Arc<Engine> {
        nowait_engine::start_engine(&nowait_engine::Config::default()).unwrap().0
    }

    #[test]
    fn a_thread_that_fails_stands_by_again_and_no_call_is_lost() {
        const VALUE: usize = 0xfa11;
        let (notifiers, engine) = (Notifiers::default(), engine());
        thread::scope(|scope| {
            let taken = scope.spawn(|| notifiers.take(true, &engine));
            while notifiers.book.lock().standing_by == 0 {
                thread::yield_now();
            }
            WANTED.store(VALUE, SeqCst);
            notifiers.push(call(VALUE));
            let taken = taken.join().unwrap().unwrap();
            assert_eq!((taken.call.value, taken.makes_another), (VALUE, true));
        });
        assert_eq!((notifiers.book.lock().standing_by, engine.failures()), (0, 1));
        engine.shutdown();
    }

    fn call(value: usize) -> Call {
        Call { function: 1, value, attributes: 0 }
    }

    #[test]
    fn a_thread_that_leaves_none_behind_makes_another() {
        let (notifiers, engine) = (Notifiers::default(), engine());
        assert!(notifiers.must_come());
        assert!(!notifiers.must_come(), "one is on its way");
        notifiers.push(call(1));
        notifiers.push(call(2));
        let first = notifiers.take(true, &engine).unwrap();
        assert_eq!((first.call.value, first.makes_another), (1, true));
        let second = notifiers.take(false, &engine).unwrap();
        assert_eq!((second.call.value, second.makes_another), (2, false), "it is on its way");
        notifiers.comes_not();
        assert!(notifiers.must_come(), "it could not be made");
        engine.shutdown();
    }

    #[test]
    fn every_call_is_taken_once() {
        let (notifiers, engine) = (Notifiers::default(), engine());
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let take = || notifiers.take(true, &engine);
                    while let Some(it) = take().filter(|it| it.call.function != 0) {
                        taken.lock().push(it.call.value);
                    }
                });
            }
            (0..300).for_each(|value| notifiers.push(call(value)));
            (0..3).for_each(|_| notifiers.push(Call { function: 0, ..call(0) }));
        });
        let mut taken = taken.into_inner();
        taken.sort_unstable();
        assert_eq!(taken, (0..300).collect::<Vec<_>>());
        engine.shutdown();
    }
}
