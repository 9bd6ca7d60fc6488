//! Threads that call the application's functions (SIGEV_THREAD).
//!
//! They are made by C code in posix.c, on threads of the application: those of the engine have
//! another descriptor table, which a new thread would inherit. A function may block for ever or end
//! its thread, so one thread always stands by: a thread that takes a call as the last one makes
//! another first. While functions return quickly, two threads do all of them.

use crate::notice::Call;
use core::time::Duration;
use nowait_engine::Engine;
use nowait_sys::{
    mutex::{Condvar, Mutex, MutexGuard},
    own_thread::OwnThread,
};
use std::{collections::VecDeque, thread};

/// Threads that stand by at most; more go away when they come back.
const STANDING_BY_MAX: usize = 4;

/// How long a thread rests after it has failed.
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
    /// Of these, the threads that have no call to make: the process does not go on for them.
    idle: Vec<OwnThread>,
    /// A thread has been promised, and has not come yet.
    is_coming: bool,
}

/// A thread that stands by, until it is dropped.
struct StandbyGuard<'a>(MutexGuard<'a, Book>);

impl Book {
    /// After every change: a call that waits is the program's, and so is the thread that will
    /// take it.
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

/// A call taken by a thread.
#[repr(C)]
#[derive(Debug)]
pub struct TakenCall {
    /// What to call.
    pub call: Call,
    /// Another thread must be made first: no thread stands by.
    pub makes_another: bool,
}

impl Notifiers {
    /// Adds a call, on any thread.
    pub fn push(&self, call: Call) {
        let mut book = self.book.lock();
        book.calls.push_back(call);
        book.count_idle();
        drop(book);
        self.news.notify_one();
    }

    /// Tells whether a thread must be made, because none stands by: then the caller has promised
    /// one.
    pub fn must_come(&self) -> bool {
        let mut book = self.book.lock();
        let must = book.standing_by == 0 && !book.is_coming;
        book.is_coming |= must;
        must
    }

    /// Takes a promise back: no thread could be made.
    pub fn comes_not(&self) {
        self.book.lock().is_coming = false;
    }

    /// Waits for a call, on a thread made for it; `is_new` at its first. `None`: enough threads
    /// stand by, and this one ends. A panic, which is a mistake of ours, does not end it: there may
    /// be no other.
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
        // It counts itself still.
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

    /// The value of a call at whose sight a thread panics, once.
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
