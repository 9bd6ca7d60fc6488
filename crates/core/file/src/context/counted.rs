//! Eventfds that the kernel signals at the end of direct requests on the context's own queue.
//!
//! The kernel signals the eventfd before the event is in the context's ring. A program that fetches
//! events by calls does not notice. For a program that reads the ring itself, such as QEMU, the
//! preload library sees the read of the eventfd and brings the events.
//!
//! If events stay unread while the program does not look for them, the driver signals the eventfd
//! once more. If the driver has to do so again and again, or if the program names several eventfds,
//! the driver carries the requests that name an eventfd from then on.

use crate::{Context, hold::Holds};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, eventfd, poll, thread};

/// A program is trusted if its events are late for at most one in so many of its looks: another
/// thread may have had its processor.
const LATE: u32 = 64;
/// The limit instead of [`LATE`] while the program has not reset its eventfd: the program may be
/// busy.
const BUSY: u32 = 4;
const LATENESS_MAX: u32 = 4 * LATE;

/// The value of `looker` when several threads have looked for events.
const SEVERAL: usize = usize::MAX;

#[derive(Default)]
pub(crate) struct KernelCounter {
    /// The eventfd that the engine holds for the driver. The upper half is its number in the
    /// application's table plus one, the lower half how often that number had been closed.
    held: AtomicU64,
    /// The mark of the only thread that has looked for events; 0: none has.
    looker: AtomicUsize,
    /// `true`: the kernel must not signal eventfds; the driver carries the requests that name one.
    is_distrusted: AtomicBool,
    /// The application's number of the eventfd that requests name, plus one.
    named: AtomicU32,
    /// `true`: the program reads the eventfd, which brings the events, before it looks at the ring.
    is_read: AtomicBool,
    /// Grows each time the driver brings events before a read of the eventfd, or signals the
    /// eventfd once more; shrinks with each look for events.
    lateness: AtomicU32,
}

impl KernelCounter {
    pub(super) fn note_look(&self) {
        let (known, mark) = (self.looker.load(Relaxed), thread::mark());
        if known != mark && known != SEVERAL {
            self.looker.store(if known == 0 { mark } else { SEVERAL }, Relaxed);
        }
        let lateness = self.lateness.load(Relaxed);
        if lateness > 0 {
            self.lateness.store(lateness - 1, Relaxed);
        }
    }

    /// Returns `true` if only the calling thread has looked for events, and the program is not
    /// distrusted. A second thread would find no events while the first is handling them.
    pub(super) fn is_trusted(&self) -> bool {
        self.looker.load(Relaxed) == thread::mark() && !self.is_distrusted.load(Relaxed)
    }

    /// Returns `false` if requests have named another eventfd: a read of this eventfd would not
    /// bring the events of that one.
    pub(super) fn note_name(&self, number: i32) -> bool {
        let named = (number as u32).wrapping_add(1);
        let known = match self.named.load(Relaxed) {
            // Two threads may each name an eventfd at the same time.
            0 => self.named.compare_exchange(0, named, Relaxed, Relaxed).unwrap_or_else(|it| it),
            known => known,
        };
        let is_only = known == 0 || known == named;
        if !is_only {
            self.is_distrusted.store(true, Relaxed);
        }
        is_only
    }

    pub(super) fn names(&self, number: i32) -> bool {
        self.named.load(Relaxed) == (number as u32).wrapping_add(1)
    }

    pub(super) fn note_read(&self) {
        self.note_look();
        if !self.is_read.load(Relaxed) {
            self.is_read.store(true, Relaxed);
        }
    }

    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Relaxed)
    }

    /// Returns `true` if the engine has held an eventfd that the kernel signals.
    pub(super) fn is_used(&self) -> bool {
        self.held.load(Relaxed) != 0
    }

    /// Holds the eventfd open for the driver, until the program closes it.
    pub(crate) fn hold(&self, context: &Context, number: i32) -> Result<(), Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let engine = context.engine();
        let state = || (number as u64 + 1) << 32 | u64::from(engine.closes().count(number));
        let before = state();
        if self.held.load(Relaxed) == before {
            return Ok(());
        }
        context.check_event_counter(number, number)?;
        engine.holds.hold_counter(number)?;
        if state() != before {
            engine.holds.forget(Some(number));
            return Err(Errno::BADF);
        }
        self.held.store(before, Relaxed);
        Ok(())
    }

    /// Signals the eventfd once more for a program that has left events in the ring since the tick
    /// before. Called by the driver only.
    pub(super) fn tell_again(&self, holds: &Holds) {
        const POLLIN: i16 = 1;
        let number = (self.held.load(Relaxed) >> 32) as i32 - 1;
        let Some(counter) = holds.counter(number) else { return };
        let Ok(number) = counter.number() else { return };
        if eventfd::is_eventfd(number) != Ok(true) {
            return;
        }
        let is_reset = poll::ready(number, POLLIN) == Ok(0);
        match is_reset {
            true => eventfd::count(number),
            false => eventfd::rouse(number),
        }
        self.add_lateness(if is_reset { LATE } else { BUSY });
    }

    /// Records that the driver has brought events before the program read the eventfd, if the
    /// program reads it at all. Called by the driver only.
    pub(super) fn note_late(&self) {
        if self.is_read() {
            self.add_lateness(LATE);
        }
    }

    fn add_lateness(&self, more: u32) {
        let lateness = self.lateness.load(Relaxed) + more;
        match lateness > LATENESS_MAX {
            true => self.is_distrusted.store(true, Relaxed),
            false => self.lateness.store(lateness, Relaxed),
        }
    }
}
