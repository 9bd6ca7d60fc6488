//! The ways in which a program fetches the events of a context: by calls, in event loops of its
//! own, by an eventfd that it polls, or by reading the ring.

use super::{Context, counted::KernelCounter};
use crate::hold;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nowait_block::bio::Descriptor;
use nowait_retry::{
    WaitOptions,
    waiters::{Mask, Notifier},
};
use nowait_sys::{
    Errno,
    aio::IoEvent,
    eventfd::{self, EventFd},
    mutex::Mutex,
    time::Deadline,
};
use std::{
    cell::OnceCell,
    sync::{Arc, OnceLock},
};

#[derive(Default)]
pub(crate) struct Looks {
    /// `true`: no caller reaps the own queue, because the program reads the ring directly or waits
    /// with a signal mask. So the driver must bring the events.
    engine_driven: AtomicBool,
    count: AtomicU64,
    /// Signalled whenever there are events, for a thread that polls its eventfd.
    counter: OnceLock<Arc<Notifier>>,
    loop_notifier: OnceLock<Arc<Notifier>>,
    /// `true`: a caller that sleeps in its own event loop cannot poll the own queue for
    /// completions.
    own_is_silent: AtomicBool,
    masked: Notifiers,
    pub(crate) kernel_counter: KernelCounter,
}

impl Looks {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(super) fn set_engine_driven(&self, is_driven: bool) {
        if self.engine_driven.load(Relaxed) != is_driven {
            self.engine_driven.store(is_driven, Relaxed);
        }
    }

    pub(crate) fn are_by_calls(&self) -> bool {
        let elsewhere = self.counter.get().is_some() || self.loop_notifier.get().is_some();
        !elsewhere && !self.engine_driven.load(Relaxed)
    }
}

impl Context {
    /// Returns the descriptors of this context in the application's table, except the eventfd for
    /// an event loop.
    pub fn descriptors(&self) -> Vec<i32> {
        let own = self.own.queue.as_ref().map(|own| own.descriptors()).unwrap_or_default();
        let counter = self.looks.counter.get().map(|notifier| notifier.raw());
        own.into_iter().chain(counter).chain(self.looks.masked.descriptors()).collect()
    }

    /// Counts a look by the program for events of its requests. If completions go to a sink,
    /// the sink's owner calls this.
    pub fn looked_for_events(&self) {
        self.looks.count.store(self.looks.count().wrapping_add(1), Relaxed);
    }

    /// Returns `true` if the own queue should be used: a caller will come for its completions.
    pub(crate) fn is_caller_driven(&self) -> bool {
        let looks = &self.looks;
        let leads = !looks.engine_driven.load(Relaxed) && !looks.own_is_silent.load(Relaxed);
        self.own.queue.is_some() && leads && looks.counter.get().is_none()
    }

    /// Asks the driver to check the requests in flight at its next tick; the requests must be
    /// visible to the driver by now.
    pub(crate) fn look_after(self: &Arc<Self>) {
        self.look_after_own();
        self.watch_closely();
    }

    /// Asks the driver to check the requests in flight in the own queue, unless a caller polls the
    /// queue in an event loop; they must be visible to the driver by now.
    pub(crate) fn look_after_own(self: &Arc<Self>) {
        if self.looks.loop_notifier.get().is_none() {
            self.have_watched();
        }
    }

    /// Asks the driver to check a context whose caller may be asleep outside its event loop.
    pub(crate) fn look_after_loop(self: &Arc<Self>) {
        if self.own.in_flight() > 0 {
            self.have_watched();
        }
    }

    fn have_watched(self: &Arc<Self>) {
        if self.checks.watch.started() {
            self.engine.threads.driver.watch(Arc::downgrade(self));
        }
    }

    /// Takes events, see [`IoContext::wait_events`](nowait_retry::IoContext::wait_events).
    ///
    /// With `min` = 0 and a timeout, the call waits for one event if requests are in flight that
    /// the kernel would have completed inside io_submit. Programs that give a timeout but no
    /// minimum, such as libaio's own tests, rely on this wait.
    ///
    /// # Errors
    /// The errors of [`IoContext::wait_events`](nowait_retry::IoContext::wait_events).
    pub fn wait_events(
        &self,
        min: usize,
        max: usize,
        deadline: Deadline,
        sigmask: Option<u64>,
        sink: impl FnMut(usize, IoEvent) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        self.looked_for_events();
        self.looks.kernel_counter.note_look();
        // A caller with a signal mask sleeps in ppoll(2) and cannot reap the own queue.
        self.looks.set_engine_driven(sigmask.is_some());
        if sigmask.is_some() {
            self.watch_closely();
        }
        let timed = !deadline.is_now() && deadline != Deadline::NEVER;
        if min > 0 && sigmask.is_none() {
            self.deferred.has_caller(deadline);
        }
        let (masked, notifier) = (&self.looks.masked, OnceCell::new());
        let mask = |signals| {
            let notifier: &Option<_> =
                notifier.get_or_init(|| masked.take(|| self.new_notifier()).ok());
            // Drained before the waiter is registered: later signals are for this waiter.
            notifier.iter().for_each(|notifier| notifier.drain());
            Mask { signals, notifier: notifier.clone() }
        };
        let make = sigmask.map(|signals| move || mask(signals));
        let wanted = WaitOptions {
            min,
            max,
            deadline,
            patient: min == 0 && max > 0 && timed,
            mask: make.as_ref().map(|make| make as &dyn Fn() -> Mask),
            dedicated: false,
        };
        let taken = self.io.wait_events(&wanted, sink);
        notifier.into_inner().flatten().iter().for_each(|notifier| masked.give_back(notifier));
        taken
    }

    /// Returns the number of an eventfd in the application's table that becomes readable when there
    /// are events: for epoll, poll or select. The first call makes the eventfd; from then on the
    /// engine completes requests without a caller.
    ///
    /// The context closes the eventfd; the caller must not. A caller misses no event if it first
    /// resets the eventfd ([`Context::reset_event_counter`]) and then takes all events without
    /// waiting.
    /// # Errors
    /// `EMFILE`, `ENFILE`: there is no descriptor. `EAGAIN`: too many files are on their way to the
    /// engine's threads.
    pub fn event_counter(self: &Arc<Self>) -> Result<i32, Errno> {
        if let Some(notifier) = self.looks.counter.get() {
            return Ok(notifier.raw());
        }
        let notifier = Arc::new(self.new_notifier()?);
        let number = self.looks.counter.get_or_init(|| {
            // A weak reference: the thread that signals has the context too, and the context's own
            // reference must be the last, because its drop is deferred.
            let rings = Arc::downgrade(&notifier);
            self.io.set_on_event(Box::new(move || {
                rings.upgrade().iter().for_each(|notifier| notifier.notify());
            }));
            notifier
        });
        // First report events that are in the ring already. Then have the driver reap requests of
        // the own queue, which only callers have reaped until now.
        self.io.notify();
        if self.own.queue.as_ref().is_some_and(|own| own.in_flight() > 0) {
            self.have_watched();
        }
        Ok(number.raw())
    }

    /// Makes the eventfd unreadable until the next event, without a system call if it was not
    /// readable. Only one thread at a time may call this.
    pub fn reset_event_counter(&self) {
        self.looks.counter.get().iter().for_each(|notifier| notifier.drain());
    }

    /// Makes the eventfd readable, for a request that has ended without an event.
    pub fn ring_event_counter(&self) {
        self.looks.counter.get().iter().for_each(|notifier| notifier.notify());
    }

    /// Takes events, and waits for one until the deadline, as [`Context::wait_events`] does. For a
    /// thread that does nothing else and need not be woken when a request starts.
    ///
    /// # Errors
    /// The errors of [`Context::wait_events`].
    pub fn serve(
        &self,
        deadline: Deadline,
        sink: impl FnMut(usize, IoEvent) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        self.looked_for_events();
        self.looks.set_engine_driven(false);
        let wanted = WaitOptions { dedicated: true, ..WaitOptions::new(1, usize::MAX, deadline) };
        self.io.wait_events(&wanted, sink)
    }

    /// Prepares the context for a caller that waits in an event loop of its own. Returns the
    /// descriptors that become readable when the caller must come back, see
    /// [`Context::sleep_outside`].
    ///
    /// From then on an own queue that has no such descriptor is not used.
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left.
    pub fn loop_descriptors(self: &Arc<Self>) -> Result<Vec<i32>, Errno> {
        let notifier = if let Some(notifier) = self.looks.loop_notifier.get() {
            notifier
        } else {
            let notifier = Arc::new(self.new_notifier()?);
            self.engine.threads.add_loop(self);
            self.looks.loop_notifier.get_or_init(|| notifier)
        };
        let readable = self.own.queue.as_ref().and_then(|own| own.readable());
        self.looks.own_is_silent.store(self.own.queue.is_some() && readable.is_none(), Relaxed);
        Ok(core::iter::once(notifier.raw()).chain(readable).collect())
    }

    /// Calls `sleep`, unless there is an event. `sleep` must return when one of
    /// [`Context::loop_descriptors`] is readable.
    pub fn sleep_outside(&self, sleep: impl FnOnce()) {
        let Some(notifier) = self.looks.loop_notifier.get() else { return sleep() };
        if self.own.has_unrun() {
            return; // completions that have left the own queue do not make it readable
        }
        self.looked_for_events();
        self.io.sleep_outside(notifier, sleep);
        notifier.drain();
    }

    /// Handles the completions in the context's queue, for a caller without requests in flight.
    /// The completions may bring pages read ahead, for which requests of other contexts wait. Does
    /// not wait.
    pub fn serve_others(&self) {
        self.io.poll_pump();
    }

    fn new_notifier(&self) -> Result<Notifier, Errno> {
        let eventfd = EventFd::new()?;
        let number = eventfd.raw();
        let held = self.engine.hold_for_good(number, None)?;
        let ring = move || match hold::in_engine_table() {
            true => held.number().map_or((), eventfd::signal),
            false => eventfd::signal(number),
        };
        Ok(Notifier::new(eventfd, Box::new(ring)))
    }
}

/// The notifiers of a context, one for each caller that sleeps with a mask at the same time.
///
/// The context owns the notifiers and reuses them. A thread that signals one has a reference that
/// may outlast the caller's, but must not be the last: if a thread of the engine dropped the
/// notifier, it would close the eventfd's number in the wrong descriptor table.
#[derive(Default)]
pub(crate) struct Notifiers(Mutex<Vec<Place>>);

struct Place {
    notifier: Arc<Notifier>,
    taken: bool,
}

impl Notifiers {
    pub(crate) fn take(
        &self,
        make: impl FnOnce() -> Result<Notifier, Errno>,
    ) -> Result<Arc<Notifier>, Errno> {
        if let Some(place) = self.0.lock().iter_mut().find(|place| !place.taken) {
            place.taken = true;
            return Ok(place.notifier.clone());
        }
        let notifier = Arc::new(make()?);
        self.0.lock().push(Place { notifier: notifier.clone(), taken: true });
        Ok(notifier)
    }

    /// A late signal for the caller that had the notifier may still come.
    pub(crate) fn give_back(&self, notifier: &Arc<Notifier>) {
        let mut places = self.0.lock();
        if let Some(place) = places.iter_mut().find(|place| Arc::ptr_eq(&place.notifier, notifier))
        {
            place.taken = false;
        }
    }

    pub(crate) fn descriptors(&self) -> Vec<i32> {
        self.0.lock().iter().map(|place| place.notifier.raw()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make() -> Result<Notifier, Errno> {
        Ok(Notifier::new(EventFd::new()?, Box::new(|| {})))
    }

    #[test]
    fn a_bell_is_used_again_and_by_one_at_a_time() {
        let notifiers = Notifiers::default();
        let (first, second) = (notifiers.take(make).unwrap(), notifiers.take(make).unwrap());
        assert!(!Arc::ptr_eq(&first, &second));
        notifiers.give_back(&first);
        let again = notifiers.take(|| unreachable!("one is free")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(notifiers.descriptors(), [first.raw(), second.raw()]);
    }

    #[test]
    fn a_late_notification_does_not_have_the_last_reference() {
        let notifiers = Notifiers::default();
        let notifier = notifiers.take(make).unwrap();
        let rings = notifier.clone();
        notifiers.give_back(&notifier);
        drop(notifier);
        rings.notify();
        assert_eq!(Arc::strong_count(&rings), 2, "the context's, too");
    }
}
