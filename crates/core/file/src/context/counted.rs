//! Event counters that the kernel signals at the end of direct requests on the own queue.
//!
//! The kernel signals before the event is in the context's ring. A program that fetches events by
//! calls does not notice: the call brings them. One that looks at the ring first, and makes no
//! call if that is empty, would never be told again. So the driver, which brings what no call
//! has come for, tells it once more, and from then on requests of the context with an event counter
//! are the driver's.

use crate::{Engine, hold::Holds};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, eventfd, poll, thread};

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
