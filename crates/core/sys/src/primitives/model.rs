//! The primitives of a model: loom's, and a futex on which loom's threads sleep.
//!
//! A thread that is not woken sleeps for ever, which loom reports as a deadlock: so a model fails
//! if the code forgets a wake-up. No deadline passes and no wake-up is spurious, because that would
//! hide a missed wake-up.

use crate::{Errno, time::Deadline};
use core::{cell::RefCell, sync::atomic::Ordering::Relaxed};
use loom::thread::{self, Thread, ThreadId};

pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};

std::thread_local! {
    /// The word's address and the thread of each sleeper, in the order of arrival. loom runs all
    /// threads of a model on one real thread.
    static ASLEEP: RefCell<Vec<(usize, Thread)>> = const { RefCell::new(Vec::new()) };
    /// The threads whose wake-ups wake no thread.
    static FORGETFUL: RefCell<Vec<ThreadId>> = const { RefCell::new(Vec::new()) };
}

/// loom's mutex with the interface of the real one.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes a mutex.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Locks the mutex.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// Sleeps until woken, if the word holds `expected`.
///
/// # Errors
/// `EAGAIN`: the word has another value.
pub fn futex_wait(word: &AtomicU32, expected: u32, _: Deadline) -> Result<(), Errno> {
    // Check and registration are one step: loom switches threads before an access, not after it. A
    // read-modify-write reads the newest value.
    if word.fetch_or(0, Relaxed) != expected {
        return Err(Errno::AGAIN);
    }
    let me = thread::current();
    let id = me.id();
    ASLEEP.with_borrow_mut(|asleep| asleep.push((address(word), me)));
    // `park` may return at once: a wake-up that loom sent for a join may be left over.
    while ASLEEP.with_borrow(|asleep| asleep.iter().any(|(_, thread)| thread.id() == id)) {
        thread::park();
    }
    Ok(())
}

/// Wakes up to `count` threads that sleep on the word, in the order of their arrival.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    if FORGETFUL.with_borrow(|forgetful| forgetful.contains(&thread::current().id())) {
        return;
    }
    // Makes loom try both orders of a `futex_wake` and a `futex_wait`.
    word.fetch_or(0, Relaxed);
    let woken: Vec<Thread> = ASLEEP.with_borrow_mut(|asleep| {
        let on_word = asleep.extract_if(.., |(other, _)| *other == address(word));
        on_word.take(count as usize).map(|(_, thread)| thread).collect()
    });
    woken.iter().for_each(Thread::unpark);
}

/// Runs a part of a canary in which the calling thread's wake-ups wake no thread.
pub fn forgetting_wakes<T>(part: impl FnOnce() -> T) -> T {
    let me = thread::current().id();
    FORGETFUL.with_borrow_mut(|forgetful| forgetful.push(me));
    let result = part();
    FORGETFUL.with_borrow_mut(|forgetful| forgetful.retain(|id| *id != me));
    result
}

fn address(word: &AtomicU32) -> usize {
    core::ptr::from_ref(word) as usize
}
