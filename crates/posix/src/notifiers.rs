//! Threads that call the application's functions (SIGEV_THREAD).
//!
//! They are made by C code in posix.c, on threads of the application: those of the engine have
//! another descriptor table, which a new thread would inherit. A function may block for ever or end
//! its thread, so one thread always stands by: who takes a call away from the last one makes
//! another first. While functions return quickly, two threads do all of them.

use crate::notice::Call;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

/// Threads that stand by at most; more go away when they come back.
const STANDING_BY_MAX: usize = 4;

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
    /// A thread has been promised, and has not come yet.
    is_coming: bool,
}

/// A call taken by a thread.
#[repr(C)]
#[derive(Debug)]
pub struct Taken {
    /// What to call.
    pub call: Call,
    /// Another thread must be made first: nobody stands by.
    pub makes_another: bool,
}

impl Notifiers {
    /// Adds a call, on any thread.
    pub fn push(&self, call: Call) {
        self.book.lock().calls.push_back(call);
        self.news.notify_one();
    }

    /// Tells whether a thread must be made, because nobody stands by: then the caller has promised
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
    /// stand by, and this one ends.
    pub fn take(&self, is_new: bool) -> Option<Taken> {
        let mut book = self.book.lock();
        if is_new {
            book.is_coming = false;
        }
        if book.calls.is_empty() && book.standing_by >= STANDING_BY_MAX {
            return None;
        }
        book.standing_by += 1;
        while book.calls.is_empty() {
            self.news.wait(&mut book);
        }
        book.standing_by -= 1;
        let call = book.calls.pop_front()?;
        let makes_another = book.standing_by == 0 && !book.is_coming;
        book.is_coming |= makes_another;
        Some(Taken { call, makes_another })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(value: usize) -> Call {
        Call { function: 1, value, attributes: 0 }
    }

    #[test]
    fn who_leaves_nobody_behind_makes_another() {
        let notifiers = Notifiers::default();
        assert!(notifiers.must_come());
        assert!(!notifiers.must_come(), "one is on its way");
        notifiers.push(call(1));
        notifiers.push(call(2));
        let first = notifiers.take(true).unwrap();
        assert_eq!((first.call.value, first.makes_another), (1, true));
        let second = notifiers.take(false).unwrap();
        assert_eq!((second.call.value, second.makes_another), (2, false), "it is on its way");
        notifiers.comes_not();
        assert!(notifiers.must_come(), "it could not be made");
    }

    #[test]
    fn every_call_is_taken_once() {
        let notifiers = Notifiers::default();
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(it) = notifiers.take(true).filter(|it| it.call.function != 0) {
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
    }
}
