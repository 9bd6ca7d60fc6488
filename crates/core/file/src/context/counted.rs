//! Event counters that the kernel signals at the end of direct requests on the own queue.
//!
//! The kernel signals before the event is in the context's ring. A program that fetches events by
//! calls does not notice: the call brings them. One that looks at the ring first, and makes no
//! call if that is empty, would never be told again. So the driver, which brings what no call
//! has come for, tells it once more, and from then on requests of the context with an event counter
//! are the driver's.

use crate::{Engine, hold::HeldFd};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, eventfd, mutex::Mutex, poll, thread};
use std::sync::Arc;

/// Several threads have looked for events.
const SEVERAL: usize = usize::MAX;

/// A counter in the engine's table of descriptors.
struct Held {
    /// The application's number, and how often that had been closed.
    number: (i32, u32),
    counter: Arc<HeldFd>,
}

/// The event counter of a context that the kernel signals itself, and who looks for its events.
#[derive(Default)]
pub(crate) struct KernelCounter {
    held: Mutex<Option<Held>>,
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

    /// Holds the event counter open for the driver; `number` is the application's descriptor of it.
    ///
    /// # Errors
    /// Those of [`Holds::hold_afresh`](crate::hold::Holds::hold_afresh).
    pub(crate) fn hold(&self, engine: &Engine, number: i32) -> Result<(), Errno> {
        let number = (number, engine.closes().count(number));
        let mut held = self.held.lock();
        if held.as_ref().is_none_or(|it| it.number != number) {
            *held = None;
            *held = Some(Held { number, counter: engine.holds.hold_afresh(number.0)? });
        }
        Ok(())
    }

    /// Tells a program that has reset its counter, and made no call for the events that were there.
    /// On the driver.
    pub(super) fn tell_again(&self) {
        const POLLIN: i16 = 1;
        let counter = self.held.lock().as_ref().map(|it| it.counter.clone());
        let Some(Ok(number)) = counter.map(|it| it.number()) else { return };
        let is_reset = poll::ready(number, POLLIN) == Ok(0);
        let is_counter = || eventfd::is_eventfd(number) == Ok(true);
        if is_reset && is_counter() && !self.is_distrusted.swap(true, Relaxed) {
            eventfd::signal(number);
        }
    }
}
