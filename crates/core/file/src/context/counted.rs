//! Eventfds that the kernel signals at the end of direct requests on the context's own queue.
//!
//! The kernel signals the eventfd before the event is in the context's ring. A program that fetches
//! events by calls does not notice: the call brings them. A program that looks at the ring itself,
//! as QEMU does, reads the eventfd first; the preload library sees that read and brings the events.
//!
//! A program may do neither: it resets the eventfd by a call that the library does not see, or
//! looks at the ring before it reads the eventfd. The driver, which brings what no call has come
//! for, signals the eventfd once more for the first; both are distrusted, and the driver then
//! carries the requests of their context that name an eventfd.

use crate::{Engine, hold::Holds};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, eventfd, poll, thread};

/// A program that is late once in so many reads of its eventfd is trusted: another thread had its
/// processor. One that looks at the ring first is late nearly each time.
const LATE: u32 = 64;
const LATENESS_MAX: u32 = 4 * LATE;

/// Several threads have looked for events.
const SEVERAL: usize = usize::MAX;

/// The event counter of a context that the kernel signals itself, and who looks for its events.
#[derive(Default)]
pub(crate) struct KernelCounter {
    /// The counter that the engine holds for the driver: the application's number of it, plus one,
    /// and how often that had been closed.
    held: AtomicU64,
    /// The mark of the only thread that has looked for events; 0: none has.
    looker: AtomicUsize,
    /// The program has looked at the ring, and not called.
    is_distrusted: AtomicBool,
    /// The application's number of the event counter that requests name, plus one.
    named: AtomicU32,
    /// The program reads the counter, which brings the events, before it looks at the ring.
    is_read: AtomicBool,
    /// Grows with each time that the driver has brought events before such a read, and shrinks with
    /// each read that has brought some.
    lateness: AtomicU32,
}

impl KernelCounter {
    /// Says that the calling thread looks for events.
    pub(super) fn is_looked_for(&self) {
        let (known, mark) = (self.looker.load(Relaxed), thread::mark());
        if known != mark && known != SEVERAL {
            self.looker.store(if known == 0 { mark } else { SEVERAL }, Relaxed);
        }
    }

    /// Returns `true` if only the calling thread looks for events, and does so by calls. Another
    /// would find none while this one has them in hand.
    pub(super) fn is_trusted(&self) -> bool {
        self.looker.load(Relaxed) == thread::mark() && !self.is_distrusted.load(Relaxed)
    }

    /// Says that requests name this event counter.
    pub(super) fn is_named(&self, number: i32) {
        let named = (number + 1) as u32;
        if self.named.load(Relaxed) != named {
            self.named.store(named, Relaxed);
        }
    }

    /// Returns `true` if requests name this event counter.
    pub(super) fn names(&self, number: i32) -> bool {
        self.named.load(Relaxed) == (number + 1) as u32
    }

    /// Says that the calling thread has read the counter; `brought`: that has brought events.
    pub(super) fn has_been_read(&self, brought: bool) {
        self.is_looked_for();
        if !self.is_read.load(Relaxed) {
            self.is_read.store(true, Relaxed);
        }
        let lateness = self.lateness.load(Relaxed);
        if brought && lateness > 0 {
            self.lateness.store(lateness - 1, Relaxed);
        }
    }

    /// Says that the driver has brought events which the program was told of. On the driver.
    pub(super) fn is_late(&self) {
        if !self.is_read() {
            return;
        }
        let lateness = self.lateness.load(Relaxed) + LATE;
        match lateness > LATENESS_MAX {
            true => self.is_distrusted.store(true, Relaxed),
            false => self.lateness.store(lateness, Relaxed),
        }
    }

    /// Returns `true` if the program reads the counter before it looks at the ring.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Relaxed)
    }

    /// Holds the event counter open for the driver, until the program closes it; `number` is the
    /// application's descriptor of it.
    ///
    /// # Errors
    /// The errors of [`Holds::hold`]. `EBADF`: the program closes it meanwhile.
    pub(crate) fn hold(&self, engine: &Engine, number: i32) -> Result<(), Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let state = || (number as u64 + 1) << 32 | u64::from(engine.closes().count(number));
        let before = state();
        if self.held.load(Relaxed) == before {
            return Ok(());
        }
        engine.holds.hold_counter(number)?;
        if state() != before {
            engine.holds.forget(Some(number));
            return Err(Errno::BADF);
        }
        self.held.store(before, Relaxed);
        Ok(())
    }

    /// Signals the counter once more for a program that has reset it, and made no call for the
    /// events that were there. On the driver.
    pub(super) fn tell_again(&self, holds: &Holds) {
        const POLLIN: i16 = 1;
        let number = (self.held.load(Relaxed) >> 32) as i32 - 1;
        let Some(counter) = holds.counter(number) else { return };
        let Ok(number) = counter.number() else { return };
        let is_reset = poll::ready(number, POLLIN) == Ok(0);
        let is_counter = || eventfd::is_eventfd(number) == Ok(true);
        if is_reset && is_counter() && !self.is_distrusted.swap(true, Relaxed) {
            eventfd::signal(number);
        }
    }
}
