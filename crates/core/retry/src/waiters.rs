//! Threads that wait for completions: exclusive, last in first out.
//!
//! At most one thread is the *poller*: it waits in the context's own queue and runs the requests
//! that complete there. The others sleep on a futex word or in ppoll(2). A completion from
//! elsewhere (a worker, the engine's driver) wakes a sleeping thread, or interrupts the poller
//! through its queue.

use crate::primitives::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence, futex_wait, futex_wake,
};
use nowait_sys::{Errno, eventfd::EventFd, poll, time::Deadline};

/// A value of a waiter's word: the thread checks the ring again.
const WOKEN: u32 = 1;
/// A value of a waiter's word: the thread also becomes the poller, or calls another.
const CALLED_TO_POLL: u32 = 2;

/// A thread that waits for `need` events.
pub struct Waiter {
    /// 0 until another thread takes the waiter off the list. Written under the list's lock, so that
    /// the thread knows after [`Waiters::remove`] why it was woken.
    word: AtomicU32,
    /// For a poller, the smallest number of any thread on the list when the poller joined.
    need: usize,
    polls: bool,
    mask: Option<Mask>,
}

/// A signal mask that ppoll(2) swaps in atomically while a thread sleeps.
pub struct Mask {
    /// The signal mask in the kernel's layout.
    pub signals: u64,
    /// Ends the ppoll early. Without a notifier the thread checks again every millisecond.
    pub notifier: Option<Arc<Notifier>>,
}

/// Wakes a thread that sleeps in ppoll(2), or in an event loop of its own.
pub struct Notifier {
    eventfd: EventFd,
    signal: Box<dyn Fn() + Send + Sync>,
    /// Counted before the eventfd is written, so that `drain` resets an eventfd that is readable.
    signalled: AtomicU64,
    drained: AtomicU64,
}

impl Notifier {
    /// Makes a notifier of an eventfd and a function that signals it. The function works in any
    /// thread and with either descriptor table.
    pub fn new(eventfd: EventFd, signal: Box<dyn Fn() + Send + Sync>) -> Notifier {
        Notifier { eventfd, signal, signalled: AtomicU64::new(0), drained: AtomicU64::new(0) }
    }

    /// Returns the eventfd's descriptor, to poll.
    pub fn raw(&self) -> i32 {
        self.eventfd.raw()
    }

    /// Makes the eventfd readable.
    pub fn notify(&self) {
        self.signalled.fetch_add(1, Relaxed);
        (self.signal)();
    }

    /// Makes the eventfd unreadable, without a system call if no thread has signalled it since the
    /// last `drain`. Only one thread at a time may call it.
    pub fn drain(&self) {
        let drained = self.drained.load(Relaxed);
        if self.signalled.load(Relaxed) != drained {
            self.drained.store(drained + self.eventfd.drain(), Relaxed);
        }
    }
}

impl Mask {
    fn sleep(&self, deadline: Deadline) -> Result<(), Errno> {
        const POLLIN: i16 = 1;
        const SLICE_NS: u64 = 1_000_000;
        let (fd, until) = match &self.notifier {
            Some(notifier) => (notifier.raw(), deadline),
            None => (-1, deadline.min(Deadline::after_ns(SLICE_NS))),
        };
        poll::ppoll(fd, POLLIN, until, Some(&self.signals)).map(drop)
    }
}

impl Waiter {
    /// Returns the number of events that the thread waits for.
    pub fn need(&self) -> usize {
        self.need
    }

    /// Returns `true` if another thread has called this one to poll. Known for certain only after
    /// [`Waiters::remove`].
    pub fn is_called_to_poll(&self) -> bool {
        self.word.load(Relaxed) == CALLED_TO_POLL
    }

    fn signal(&self) {
        match &self.mask {
            Some(Mask { notifier, .. }) => notifier.iter().for_each(|notifier| notifier.notify()),
            None => futex_wake(&self.word, 1),
        }
    }

    /// Sleeps until signalled or until the deadline, with the waiter's mask in force. May return
    /// earlier.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran, or has to run, and no thread has signalled the waiter.
    pub fn sleep(&self, deadline: Deadline) -> Result<(), Errno> {
        let slept = match &self.mask {
            Some(mask) => mask.sleep(deadline),
            None if self.word.load(Acquire) != 0 => Ok(()),
            None => futex_wait(&self.word, 0, deadline),
        };
        match slept {
            Err(Errno::INTR) if self.word.load(Acquire) == 0 => Err(Errno::INTR),
            _ => Ok(()),
        }
    }
}

/// The waiting threads of a context.
pub struct Waiters {
    list: Mutex<Vec<Arc<Waiter>>>,
    count: AtomicUsize,
    poller: AtomicBool,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters {
            list: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            poller: AtomicBool::new(false),
        }
    }
}

impl Waiters {
    /// Tries to become the poller. Returns `false` if there is a poller already.
    pub fn try_become_poller(&self) -> bool {
        !self.poller.swap(true, SeqCst)
    }

    /// Stops being the poller.
    pub fn stop_polling(&self) {
        // A swap: loom orders it with the failed swaps of `try_become_poller`.
        self.poller.swap(false, SeqCst);
    }

    /// Returns `true` if a thread is the poller.
    pub fn has_poller(&self) -> bool {
        self.poller.load(SeqCst)
    }

    /// Adds the calling thread as a waiter for `need` events. The thread must check the ring again
    /// before it sleeps, and call [`Waiters::remove`] afterwards.
    pub fn add(&self, need: usize, mask: Option<Mask>, interrupt_poller: impl Fn()) -> Arc<Waiter> {
        let mut polled_for_more = false;
        let waiter = self.push(|list| {
            polled_for_more = list.iter().any(|other| other.polls && other.need > need);
            Waiter { word: AtomicU32::new(0), need, polls: false, mask }
        });
        if polled_for_more {
            // The poller waits for more events than this thread, and would leave this thread's
            // events in the own queue.
            interrupt_poller();
        }
        waiter
    }

    /// Adds the calling thread as the poller, with the smallest `need` of all waiters. Otherwise as
    /// [`Waiters::add`].
    pub fn add_poller(&self, need: usize) -> Arc<Waiter> {
        self.push(|list| {
            let need = list.iter().map(|other| other.need).fold(need, usize::min);
            Waiter { word: AtomicU32::new(0), need, polls: true, mask: None }
        })
    }

    fn push(&self, make: impl FnOnce(&[Arc<Waiter>]) -> Waiter) -> Arc<Waiter> {
        let mut list = self.list.lock();
        let waiter = Arc::new(make(&list));
        list.push(waiter.clone());
        self.count.store(list.len(), Relaxed);
        drop(list);
        // Pairs with the fence in `notify`: either `notify` sees this waiter, or this thread sees
        // the event when it checks again.
        fence(SeqCst);
        waiter
    }

    /// Takes the waiter off the list, unless a wake-up has done so.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        let mut list = self.list.lock();
        list.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(list.len(), Relaxed);
    }

    /// Wakes the youngest waiter that is the poller, or for which the events are enough. The caller
    /// has pushed an event. A poller is interrupted even if it needs more events, and counts them
    /// itself.
    pub fn notify(&self, available: impl Fn() -> usize, interrupt_poller: impl Fn()) {
        fence(SeqCst);
        if self.count.load(Relaxed) != 0 {
            let available = available();
            self.wake(WOKEN, |waiter| waiter.polls || waiter.need <= available, interrupt_poller);
        }
    }

    /// Wakes the youngest sleeping waiter to become the poller, unless there is a poller. A thread
    /// with a signal mask never polls. Returns `true` if it woke a waiter.
    pub fn call_for_poller(&self) -> bool {
        fence(SeqCst);
        let is_wanted = self.count.load(Relaxed) != 0 && !self.has_poller();
        let can_poll = |waiter: &Waiter| !waiter.polls && waiter.mask.is_none();
        is_wanted && self.wake(CALLED_TO_POLL, can_poll, || {})
    }

    /// Wakes the youngest waiter, to run deferred requests; interrupts it if it is the poller.
    pub fn call_for_runner(&self, interrupt_poller: impl Fn()) {
        fence(SeqCst);
        if self.count.load(Relaxed) != 0 {
            self.wake(WOKEN, |_| true, interrupt_poller);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Returns `true` if a poller waits for several events, some of which may have come.
    pub fn poller_may_hold_back(&self) -> bool {
        self.list.lock().iter().any(|waiter| waiter.polls && waiter.need > 1)
    }

    /// Wakes all waiters.
    pub fn wake_all(&self, interrupt_poller: impl Fn()) {
        fence(SeqCst);
        if self.count.load(Relaxed) != 0 {
            while self.wake(WOKEN, |_| true, &interrupt_poller) {}
        }
    }

    fn wake(
        &self,
        cause: u32,
        fits: impl Fn(&Waiter) -> bool,
        interrupt_poller: impl Fn(),
    ) -> bool {
        let mut list = self.list.lock();
        let Some(index) = list.iter().rposition(|waiter| fits(waiter)) else { return false };
        let waiter = list.remove(index);
        self.count.store(list.len(), Relaxed);
        waiter.word.swap(cause, Release);
        drop(list);
        if waiter.polls {
            interrupt_poller();
        } else {
            waiter.signal();
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sleeps in a system call")]
    fn the_youngest_waiter_that_has_enough_is_woken_alone() {
        let waiters = Waiters::default();
        let woken = |waiter: &Waiter| waiter.word.load(Acquire) != 0;
        let all: Vec<_> = [1, 3, 1, 2].map(|need| waiters.add(need, None, || ())).into();
        let state = || all.iter().map(|waiter| woken(waiter)).collect::<Vec<_>>();
        waiters.notify(|| 1, || panic!("no thread polls"));
        assert_eq!(state(), [false, false, true, false], "the last one needs two");
        waiters.notify(|| 1, || panic!("no thread polls"));
        assert_eq!(state(), [true, false, true, false]);
        waiters.notify(|| 1, || panic!("no thread polls"));
        assert_eq!(
            state(),
            [true, false, true, false],
            "one event, and no waiter that it satisfies"
        );
        waiters.notify(|| 3, || panic!("no thread polls"));
        assert_eq!(state(), [true, false, true, true], "in order of age, the youngest first");
    }

    #[test]
    #[cfg_attr(miri, ignore = "wakes by a system call")]
    fn only_a_thread_that_can_poll_is_called_to_poll() {
        let waiters = Waiters::default();
        let mask = || Some(Mask { signals: 0, notifier: None });
        let all = [None, mask(), None].map(|mask| waiters.add(1, mask, || ()));
        let called = || all.each_ref().map(|waiter| waiter.is_called_to_poll());
        waiters.notify(|| 1, || panic!("no thread polls"));
        assert_eq!(called(), [false; 3], "the youngest is woken for an event");
        assert!(waiters.call_for_poller());
        assert_eq!(called(), [true, false, false]);
        assert!(!waiters.call_for_poller(), "only the thread with a mask is left");
    }

    #[test]
    fn a_poller_polls_for_the_thread_that_waits_for_the_fewest() {
        let waiters = Waiters::default();
        let interrupts = core::cell::Cell::new(0);
        let add = |need| waiters.add(need, None, || interrupts.set(interrupts.get() + 1));
        let _three = add(3);
        assert_eq!(interrupts.get(), 0, "no thread polls");
        let poller = waiters.add_poller(5);
        assert_eq!(poller.need(), 3);
        let _as_many = add(3);
        assert_eq!(interrupts.get(), 0, "it polls for as few");
        let _fewer = add(2);
        assert_eq!(interrupts.get(), 1);
    }
}
