//! Threads that wait for completions: exclusive, last in first out.
//!
//! At most one of them *leads*: it waits in the context's own queue and runs what comes out of
//! it. The others sleep on a word of memory. A completion from elsewhere (a worker, the engine's
//! driver) interrupts the leader through its queue.

use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicUsize, Mutex,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence, futex_wait, futex_wake,
};
use nowait_sys::{Errno, eventfd::EventFd, poll, time::Deadline};

/// One thread that waits for `need` events.
pub struct Waiter {
    word: AtomicU32,
    need: usize,
    leads: bool,
    /// Where a signal mask must be swapped atomically, the thread waits in ppoll(2) on this.
    eventfd: Option<EventFd>,
}

impl Waiter {
    fn signal(&self) {
        self.word.store(1, Release);
        match &self.eventfd {
            Some(eventfd) => eventfd.signal(),
            None => futex_wake(&self.word, 1),
        }
    }

    /// Sleeps until signalled or the deadline. With `sigmask` (and the waiter made for one) that
    /// mask is in force meanwhile.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran.
    pub fn sleep(&self, deadline: Deadline, sigmask: Option<&u64>) -> Result<(), Errno> {
        let slept = match &self.eventfd {
            Some(eventfd) => poll::ppoll(eventfd.raw(), libc_pollin(), deadline, sigmask).map(drop),
            None if self.word.load(Acquire) != 0 => Ok(()),
            None => futex_wait(&self.word, 0, deadline),
        };
        match slept {
            Err(Errno::INTR) if self.word.load(Acquire) == 0 => Err(Errno::INTR),
            _ => Ok(()),
        }
    }
}

const fn libc_pollin() -> i16 {
    1 // POLLIN
}

/// The waiting threads of a context.
pub struct Waiters {
    list: Mutex<Vec<Arc<Waiter>>>,
    count: AtomicUsize,
    leader: AtomicBool,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters {
            list: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            leader: AtomicBool::new(false),
        }
    }
}

impl Waiters {
    /// Tries to become the leader.
    pub fn try_lead(&self) -> bool {
        !self.leader.swap(true, SeqCst)
    }

    /// Gives up leading.
    pub fn stop_leading(&self) {
        self.leader.store(false, SeqCst);
    }

    /// Tells whether somebody leads.
    pub fn has_leader(&self) -> bool {
        self.leader.load(SeqCst)
    }

    /// Registers the calling thread as a waiter for `need` events. It must look at the ring once
    /// more before it sleeps, and [`Waiters::remove`] itself afterwards.
    ///
    /// # Errors
    /// `EMFILE` and the like, when a waiter with a signal mask gets no descriptor.
    pub fn add(&self, need: usize, leads: bool, with_mask: bool) -> Result<Arc<Waiter>, Errno> {
        let eventfd = if with_mask { Some(EventFd::new()?) } else { None };
        let waiter = Arc::new(Waiter { word: AtomicU32::new(0), need, leads, eventfd });
        let mut list = self.list.lock();
        list.push(waiter.clone());
        self.count.store(list.len(), Relaxed);
        drop(list);
        // Pairs with the fence in `notify`: either the pusher sees this waiter, or this waiter
        // sees the event when it looks again.
        fence(SeqCst);
        Ok(waiter)
    }

    /// Takes the waiter off the list, if a wake-up has not done so.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        let mut list = self.list.lock();
        list.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(list.len(), Relaxed);
    }

    /// Wakes the youngest waiter that `available` events satisfy, after an event was pushed.
    /// The leader is interrupted in any case, so that it counts again.
    pub fn notify(&self, available: impl Fn() -> usize, interrupt_leader: impl Fn()) {
        fence(SeqCst);
        if self.count.load(Relaxed) != 0 {
            let available = available();
            self.wake(|waiter| waiter.leads || waiter.need <= available, interrupt_leader);
        }
    }

    /// Wakes the youngest sleeping waiter that does not lead, to take up the lead.
    pub fn call_for_leader(&self) {
        fence(SeqCst);
        if self.count.load(Relaxed) != 0 && !self.has_leader() {
            self.wake(|waiter| !waiter.leads, || {});
        }
    }

    /// Wakes everybody: the context is going away.
    pub fn wake_all(&self, interrupt_leader: impl Fn()) {
        while self.wake(|_| true, &interrupt_leader) {}
    }

    fn wake(&self, fits: impl Fn(&Waiter) -> bool, interrupt_leader: impl Fn()) -> bool {
        let mut list = self.list.lock();
        let Some(index) = list.iter().rposition(|waiter| fits(waiter)) else { return false };
        let waiter = list.remove(index);
        self.count.store(list.len(), Relaxed);
        drop(list);
        if waiter.leads {
            interrupt_leader();
        } else {
            waiter.signal();
        }
        true
    }
}
