//! Threads that wait for completions: exclusive, last in first out.
//!
//! At most one of them *leads*: it waits in the context's own queue and runs what comes out of
//! it. The others sleep on a word of memory. A completion from elsewhere (a worker, the engine's
//! driver) interrupts the leader through its queue.

use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence, futex_wait, futex_wake,
};
use nowait_sys::{Errno, eventfd::EventFd, poll, time::Deadline};

/// One thread that waits for `need` events.
pub struct Waiter {
    word: AtomicU32,
    need: usize,
    leads: bool,
    mask: Option<Mask>,
}

/// A signal mask to be swapped in atomically while a thread sleeps: only ppoll(2) does that.
pub struct Mask {
    /// The mask, as the kernel's 8 bytes.
    pub signals: u64,
    /// What ends the ppoll early; without one the thread looks again every millisecond.
    pub bell: Option<Arc<Bell>>,
}

/// Wakes a thread that sleeps in ppoll(2), or in an event loop of its own.
pub struct Bell {
    eventfd: EventFd,
    signal: Box<dyn Fn() + Send + Sync>,
    /// How often it was rung, counted before the counter is signalled.
    rung: AtomicU64,
    /// What was read from the counter.
    heard: AtomicU64,
}

impl Bell {
    /// Makes a bell of the event counter that is polled, and of how to signal it from whatever
    /// thread and descriptor table.
    pub fn new(eventfd: EventFd, signal: Box<dyn Fn() + Send + Sync>) -> Bell {
        Bell { eventfd, signal, rung: AtomicU64::new(0), heard: AtomicU64::new(0) }
    }

    /// Returns the descriptor to poll.
    pub fn raw(&self) -> i32 {
        self.eventfd.raw()
    }

    /// Makes what it polls readable.
    pub fn ring(&self) {
        self.rung.fetch_add(1, Relaxed);
        (self.signal)();
    }

    /// Stops it sounding. No system call if it was not rung since; by one thread at a time.
    pub fn quiet(&self) {
        let heard = self.heard.load(Relaxed);
        if self.rung.load(Relaxed) != heard {
            self.heard.store(heard + self.eventfd.drain(), Relaxed);
        }
    }
}

impl Mask {
    fn sleep(&self, deadline: Deadline) -> Result<(), Errno> {
        const POLLIN: i16 = 1;
        const SLICE_NS: u64 = 1_000_000;
        let (fd, until) = match &self.bell {
            Some(bell) => (bell.raw(), deadline),
            None => (-1, deadline.min(Deadline::after_ns(SLICE_NS))),
        };
        poll::ppoll(fd, POLLIN, until, Some(&self.signals)).map(drop)
    }
}

impl Waiter {
    fn signal(&self) {
        self.word.store(1, Release);
        match &self.mask {
            Some(Mask { bell, .. }) => bell.iter().for_each(|bell| bell.ring()),
            None => futex_wake(&self.word, 1),
        }
    }

    /// Sleeps until signalled or the deadline, with the mask it was made with in force.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran, or has to.
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
        // A swap costs what the store costs, and loom orders it with the swaps of those who failed
        // to lead.
        self.leader.swap(false, SeqCst);
    }

    /// Tells whether somebody leads.
    pub fn has_leader(&self) -> bool {
        self.leader.load(SeqCst)
    }

    /// Registers the calling thread as a waiter for `need` events. It must look at the ring once
    /// more before it sleeps, and [`Waiters::remove`] itself afterwards.
    pub fn add(&self, need: usize, leads: bool, mask: Option<Mask>) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter { word: AtomicU32::new(0), need, leads, mask });
        let mut list = self.list.lock();
        list.push(waiter.clone());
        self.count.store(list.len(), Relaxed);
        drop(list);
        // Pairs with the fence in `notify`: either the pusher sees this waiter, or this waiter
        // sees the event when it looks again.
        fence(SeqCst);
        waiter
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

    /// Wakes everybody, to look again.
    pub fn wake_all_if_any(&self, interrupt_leader: impl Fn()) {
        fence(SeqCst);
        if self.count.load(Relaxed) != 0 {
            self.wake_all(interrupt_leader);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sleeps in a system call")]
    fn the_youngest_waiter_that_has_enough_is_woken_alone() {
        let waiters = Waiters::default();
        let woken = |waiter: &Waiter| waiter.word.load(Acquire) != 0;
        let all: Vec<_> = [1, 3, 1, 2].map(|need| waiters.add(need, false, None)).into();
        let state = || all.iter().map(|waiter| woken(waiter)).collect::<Vec<_>>();
        waiters.notify(|| 1, || panic!("nobody leads"));
        assert_eq!(state(), [false, false, true, false], "the last one needs two");
        waiters.notify(|| 1, || panic!("nobody leads"));
        assert_eq!(state(), [true, false, true, false]);
        waiters.notify(|| 1, || panic!("nobody leads"));
        assert_eq!(state(), [true, false, true, false], "one event, and nobody it is enough for");
        waiters.notify(|| 3, || panic!("nobody leads"));
        assert_eq!(state(), [true, false, true, true], "in order of age, the youngest first");
    }
}
