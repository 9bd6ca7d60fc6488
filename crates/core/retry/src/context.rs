//! A context (the kernel's kioctx): slots, completions, waiting, destruction.

use crate::{
    deferred::{Deferred, may_block},
    event_ring::EventRing,
    hint::Hint,
    presence::Presence,
    primitives::{Arc, AtomicUsize, Ordering::SeqCst},
    stats::Stats,
    waiters::{Mask, Notifier, Waiters},
};
use core::cell::Cell;
use nowait_sys::{Errno, aio::IoEvent, inside, time::Deadline};
use std::sync::OnceLock;

/// A context's own queue, such as an io_uring. Threads that wait for events reap it themselves,
/// which saves a thread switch.
pub trait Pump: Send + Sync {
    /// Returns `true` if the queue has requests in flight or completions that no thread has run.
    fn is_busy(&self) -> bool;
    /// Collects completions. Returns when `need` of them have come, at the deadline, after
    /// [`Pump::interrupt`], or earlier.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran.
    fn wait(&self, need: usize, deadline: Deadline) -> Result<(), Errno>;
    /// Runs requests whose completions were collected.
    fn run(&self);
    /// Makes the current `wait` return, or else the next one.
    fn interrupt(&self);
}

/// A bit of `outstanding`: the context refuses new requests.
const DEAD: usize = 1 << (usize::BITS - 1);
/// The unit in which `outstanding` counts the requests that may never end by themselves.
const ENDLESS: usize = 1 << (usize::BITS / 2);
const COUNT: usize = ENDLESS - 1;

/// Takes the events of a context, in place of its ring.
pub struct Sink {
    /// The name of the context's requests in reports.
    pub face: &'static str,
    /// The most requests in flight.
    pub limit: usize,
    /// Called once for each request, on the thread that ends it. Must neither wait nor submit.
    pub deliver: Box<dyn Fn(IoEvent) + Send + Sync>,
}

/// The calling thread, which has become the poller, stops polling when this value is dropped. A
/// panic drops the value, too.
struct Polling<'a>(&'a IoContext);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.stop_polling();
    }
}

/// Passes the duties of a thread that stops waiting to another thread, on drop. If deferred
/// requests are left, no thread was woken for them while this thread ran the list.
struct Leaving<'a> {
    context: &'a IoContext,
    /// `true`: another thread called this one to poll, and this one has not polled since.
    is_called_to_poll: Cell<bool>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.context.deferred().is_some() {
            self.context.deferred_started();
        }
        if self.is_called_to_poll.get() && self.context.pump_is_busy() {
            self.context.waiters.call_for_poller();
        }
    }
}

/// A context: accepts requests, takes their completions, and lets callers wait for them.
///
/// A request keeps its slot until its event has been read from the ring, or the sink has returned.
pub struct IoContext {
    ring: EventRing,
    sink: Option<Sink>,
    waiters: Waiters,
    /// Counts the requests that hold a slot and have not completed, counts the endless ones in
    /// units of [`ENDLESS`], and has the bit [`DEAD`]. In one word, so that a thread always sees
    /// the three together.
    outstanding: AtomicUsize,
    synchronous: AtomicUsize,
    pump: OnceLock<Box<dyn Pump>>,
    deferred: OnceLock<Box<dyn Deferred>>,
    /// A start that has to wake a thread to poll sets it; an event that interrupts the poller
    /// clears it. While it is set, a poller that waits for one event stays in the own queue, even
    /// if nothing is in flight there.
    lingers: Hint,
    /// Threads that collect events and do not wait for them.
    passers: Presence,
    on_event: OnceLock<Box<dyn Fn() + Send + Sync>>,
    stats: Stats,
}

/// The options of [`IoContext::wait_events`].
pub struct WaitOptions<'a> {
    /// The fewest events to wait for.
    pub min: usize,
    /// The most events to take.
    pub max: usize,
    /// The latest time at which the wait ends.
    pub deadline: Deadline,
    /// If `min` is 0, waits for one event while kernel-synchronous requests are in flight.
    pub patient: bool,
    /// Makes the signal mask that is in force while the caller sleeps.
    pub mask: Option<&'a dyn Fn() -> Mask>,
    /// Waits in the own queue also while nothing is in flight there. For a thread that does nothing
    /// else: it need not be woken when a request starts there.
    pub dedicated: bool,
}

impl WaitOptions<'_> {
    /// Makes options without a mask.
    pub fn new(min: usize, max: usize, deadline: Deadline) -> WaitOptions<'static> {
        WaitOptions { min, max, deadline, patient: false, mask: None, dedicated: false }
    }
}

impl IoContext {
    /// Makes a context. The ring's header shows `id`. The ring has at least `nr_min` slots, one of
    /// which always stays free.
    ///
    /// # Errors
    /// `ENOMEM`: no memory or too many mappings.
    pub fn new(id: u32, nr_min: u32, stats: Stats) -> Result<IoContext, Errno> {
        IoContext::make(id, nr_min, stats, None)
    }

    /// Makes a context that gives its events to `sink`, not to the ring.
    ///
    /// # Errors
    /// As for [`IoContext::new`].
    pub fn with_sink(id: u32, stats: Stats, sink: Sink) -> Result<IoContext, Errno> {
        IoContext::make(id, 1, stats, Some(sink))
    }

    fn make(id: u32, nr_min: u32, stats: Stats, sink: Option<Sink>) -> Result<IoContext, Errno> {
        Ok(IoContext {
            ring: EventRing::new(id, nr_min)?,
            sink,
            waiters: Waiters::default(),
            outstanding: AtomicUsize::new(0),
            synchronous: AtomicUsize::new(0),
            pump: OnceLock::new(),
            deferred: OnceLock::new(),
            lingers: Hint::default(),
            passers: Presence::default(),
            on_event: OnceLock::new(),
            stats,
        })
    }

    /// Sets the context's own queue. Later calls change nothing.
    pub fn set_pump(&self, pump: Box<dyn Pump>) {
        let _ = self.pump.set(pump);
    }

    /// Sets the list of deferred requests. Later calls change nothing.
    pub fn set_deferred(&self, deferred: Box<dyn Deferred>) {
        let _ = self.deferred.set(deferred);
    }

    /// Wakes a waiting thread, if there is one, to run deferred requests.
    pub fn deferred_started(&self) {
        self.waiters.call_for_runner(|| self.interrupt_pump());
    }

    /// Takes the own queue out, so that the caller decides where it is dropped.
    pub fn take_pump(&mut self) -> Option<Box<dyn Pump>> {
        self.pump.take()
    }

    /// Makes [`IoContext::notify`] call `on_event` if the ring has events then. Later calls of this
    /// function change nothing.
    pub fn set_on_event(&self, on_event: Box<dyn Fn() + Send + Sync>) {
        let _ = self.on_event.set(on_event);
    }

    /// Returns the event ring.
    pub fn ring(&self) -> &EventRing {
        &self.ring
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the limit of requests in flight and events not taken, together.
    pub fn capacity(&self) -> usize {
        self.sink.as_ref().map_or(self.ring.capacity(), |sink| sink.limit)
    }

    /// Returns the name of the requests in reports, if the context has a sink.
    pub fn face(&self) -> Option<&'static str> {
        self.sink.as_ref().map(|sink| sink.face)
    }

    /// Returns the number of slots reserved for requests that have not completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(SeqCst) & COUNT
    }

    /// Returns how many of the [`IoContext::outstanding`] requests end by themselves.
    pub fn owed(&self) -> usize {
        let word = self.outstanding.load(SeqCst) & !DEAD;
        (word & COUNT).saturating_sub(word / ENDLESS)
    }

    /// Returns how many of the [`IoContext::outstanding`] requests may never end by themselves.
    pub fn endless(&self) -> usize {
        (self.outstanding.load(SeqCst) & !DEAD) / ENDLESS
    }

    /// Counts a request in flight that may never end by itself.
    pub fn may_be_endless(&self) {
        self.outstanding.fetch_add(ENDLESS, SeqCst);
    }

    /// Stops counting a request as endless, before its event is delivered.
    pub fn is_not_endless(&self) {
        self.outstanding.fetch_sub(ENDLESS, SeqCst);
    }

    /// Reserves up to `count` slots, and returns their number.
    ///
    /// # Errors
    /// `EAGAIN`: no slot is free. `EINVAL`: the context is being destroyed.
    pub fn reserve(&self, count: usize) -> Result<usize, Errno> {
        let before = self.outstanding.fetch_add(count, SeqCst);
        if before & DEAD != 0 {
            self.release(count);
            return Err(Errno::INVAL);
        }
        // This thread read `before` first, so an event that moved to the ring meanwhile counts
        // twice: too few slots may be reserved, never too many.
        let free = self.capacity().saturating_sub((before & COUNT) + self.ring.unread());
        if count <= free {
            return Ok(count);
        }
        self.release(count - free);
        if free == 0 { Err(Errno::AGAIN) } else { Ok(free) }
    }

    /// Stops counting requests that have not started, or whose events were delivered. An unread
    /// event in the ring keeps its slot.
    pub fn release(&self, count: usize) {
        if self.outstanding.fetch_sub(count, SeqCst) == count | DEAD {
            self.wake_all(); // the thread in `destroy` waits for that
        }
    }

    /// Delivers an event without waking a waiting thread: the caller calls [`IoContext::notify`]
    /// after the last of a batch. `announce` signals the event by other means. `announce` runs
    /// while the request still counts as outstanding, so [`IoContext::destroy`] waits for its end.
    pub fn complete_quietly(&self, event: IoEvent, announce: impl FnOnce()) {
        self.stats.add(|c| &c.completions, 1);
        self.publish(&[event]);
        announce();
        self.release(1);
    }

    fn publish(&self, events: &[IoEvent]) {
        match &self.sink {
            Some(sink) => events.iter().for_each(|event| (sink.deliver)(*event)),
            None => self.ring.push(events),
        }
    }

    /// Delivers the events of requests, stops counting these requests as outstanding, and calls
    /// [`IoContext::notify`].
    pub fn complete_batch(&self, events: &[IoEvent]) {
        if events.is_empty() {
            return;
        }
        self.stats.add(|c| &c.completions, events.len() as u64);
        self.publish(events);
        self.release(events.len());
        self.notify();
    }

    /// Counts a kernel-synchronous request: the kernel's AIO would have completed it inside
    /// io_submit, and callers may regard it as completed (see [`WaitOptions::patient`]).
    pub fn synchronous_begins(&self) {
        self.synchronous.fetch_add(1, SeqCst);
    }

    /// Stops counting a kernel-synchronous request, after its event was delivered.
    pub fn synchronous_ends(&self) {
        if self.synchronous.fetch_sub(1, SeqCst) == 1 {
            // A patient thread whose event another thread took must not wait for more.
            self.wake_all();
        }
    }

    /// Wakes a waiting thread for which the ring has enough events, or interrupts the poller. Then
    /// calls `on_event` if the ring has events.
    pub fn notify(&self) {
        self.wake_a_waiter();
        if let Some(on_event) = self.on_event.get()
            && self.ring.unread() > 0
        {
            on_event();
        }
    }

    fn wake_a_waiter(&self) {
        let interrupt = || {
            // The event came from outside the own queue. A thread that sleeps on its own word is
            // cheaper to wake than the poller.
            self.lingers.set(false);
            self.interrupt_pump();
        };
        self.waiters.notify(|| self.ring.unread(), interrupt);
    }

    fn interrupt_pump(&self) {
        if let Some(pump) = self.pump.get() {
            pump.interrupt();
        }
    }

    /// Called after requests were started in the own queue. Wakes a waiting thread to become the
    /// poller, unless there is a poller.
    pub fn pump_started(&self) {
        if self.waiters.call_for_poller() {
            self.lingers.set(true);
        }
    }

    /// Returns `true` if a thread is the poller.
    pub fn has_poller(&self) -> bool {
        self.waiters.has_poller()
    }

    /// Returns `true` if a poller waits for several events, some of which may have come.
    pub fn poller_may_hold_back(&self) -> bool {
        self.waiters.poller_may_hold_back()
    }

    /// Makes the poller run the requests that it has collected, and check again.
    pub fn hurry_poller(&self) {
        self.interrupt_pump();
    }

    /// Collects the completions of the own queue, unless there is a poller. Then waits until no
    /// thread is inside [`IoContext::pass_by`]: the kernel may have announced that thread's events
    /// to the caller.
    pub fn poll_pump(&self) {
        self.collect();
        self.await_passers();
    }

    /// Waits until the events that other threads collect in [`IoContext::pass_by`] are in the ring.
    pub fn await_passers(&self) {
        self.passers.wait();
    }

    /// Collects the completions of the own queue, on a thread that does not wait for events. Does
    /// nothing if there is a poller.
    pub fn pass_by(&self) {
        let _passes = self.passers.enter();
        self.collect();
    }

    fn collect(&self) {
        let Some(pump) = self.pump.get().filter(|pump| pump.is_busy()) else { return };
        if self.waiters.try_become_poller() {
            let _polls = Polling(self);
            let _ = pump.wait(0, Deadline::NOW);
            pump.run();
        }
    }

    fn stop_polling(&self) {
        self.waiters.stop_polling();
        if self.pump_is_busy() {
            self.waiters.call_for_poller();
        } else if self.is_dead() {
            // The thread in `destroy` may wait for this.
            self.wake_all();
        }
    }

    fn pump_is_busy(&self) -> bool {
        self.pump.get().is_some_and(|pump| pump.is_busy())
    }

    fn wake_all(&self) {
        self.waiters.wake_all(|| self.interrupt_pump());
    }

    /// Takes events as `wanted` says and gives each to `sink`. Waits for the minimum until the
    /// deadline, and then takes fewer.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran, or has to run. `EINVAL`: the context was destroyed. In both
    /// cases nothing was taken. If `sink` fails for the first event, its error.
    pub fn wait_events(
        &self,
        wanted: &WaitOptions<'_>,
        mut sink: impl FnMut(usize, IoEvent) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let leaving = Leaving { context: self, is_called_to_poll: Cell::new(false) };
        let mut taken = 0;
        let mut slept = false;
        let mut end = None;
        if !self.collects_in_sleep(wanted) {
            self.poll_pump();
        }
        if wanted.min == 0 || self.ring.unread() > 0 {
            self.retry_deferred(); // otherwise the caller runs them before it sleeps
        }
        loop {
            // Read before the ring: a synchronous request ends after its event is in the ring.
            let expected = wanted.patient && self.synchronous.load(SeqCst) > 0;
            let min = wanted.min.max(usize::from(expected));
            // After a sleep the thread takes fewer events than its minimum only at the end of its
            // wait: these few events may be enough for another thread. The kernel's AIO does the
            // same. If the minimum exceeds the ring's capacity, the thread takes the events in
            // parts.
            let need = |taken| min.saturating_sub(taken).min(self.ring.capacity());
            let is_enough = self.ring.unread() >= need(taken);
            if is_enough || !slept || end.is_some() || self.is_dead() {
                let put = |index, event| sink(taken + index, event);
                match self.ring.consume(wanted.max - taken, put) {
                    Ok(count) => taken += count,
                    Err(errno) if taken == 0 => return Err(errno),
                    Err(_) => return Ok(taken),
                }
            }
            match end {
                _ if taken >= min => break,
                Some(Err(errno)) if taken == 0 => return Err(errno),
                Some(_) => break,
                None if self.is_dead() => {
                    return if taken == 0 { Err(Errno::INVAL) } else { Ok(taken) };
                }
                None => {}
            }
            if wanted.deadline.has_passed() {
                self.poll_pump();
                self.retry_deferred();
                end = Some(Ok(()));
            } else {
                slept = true;
                end = self.serve_or_sleep(need(taken), wanted, &leaving).err().map(Err);
            }
        }
        if self.ring.unread() > 0 {
            self.notify(); // the remaining events may satisfy another waiter
        }
        if taken == 0 && self.has_poller() && self.poller_may_hold_back() {
            self.hurry_poller(); // the caller's next look finds what the poller has collected
        }
        Ok(taken)
    }

    /// Returns `true` if the caller would next sleep in the own queue and reap it there.
    fn collects_in_sleep(&self, wanted: &WaitOptions<'_>) -> bool {
        let sleeps_here = wanted.min > 0 && wanted.mask.is_none() && self.deferred().is_none();
        sleeps_here && self.ring.unread() == 0
    }

    /// Calls `sleep`, unless the ring has an event or the context is being destroyed. A thread that
    /// wakes this caller signals `notifier`. If there is no poller, the caller counts as the poller
    /// meanwhile, so `sleep` must also end when the own queue has completions.
    pub fn sleep_outside(&self, notifier: &Arc<Notifier>, sleep: impl FnOnce()) {
        let _polls = self.waiters.try_become_poller().then(|| Polling(self));
        let mask = Mask { signals: 0, notifier: Some(notifier.clone()) };
        let waiter = self.waiters.add(1, Some(mask), || self.interrupt_pump());
        if self.ring.unread() == 0 && !self.is_dead() {
            sleep();
        }
        self.waiters.remove(&waiter);
    }

    fn deferred(&self) -> Option<&dyn Deferred> {
        self.deferred.get().map(AsRef::as_ref).filter(|deferred| !deferred.is_empty())
    }

    fn retry_deferred(&self) {
        self.deferred().into_iter().for_each(Deferred::retry);
    }

    /// Runs a deferred request. If there is none, or the caller may not block, sleeps instead;
    /// before that it hands deferred requests to the engine's threads.
    ///
    /// # Errors
    /// `EINTR`: a signal handler has to run.
    fn serve_or_sleep(
        &self,
        need: usize,
        wanted: &WaitOptions<'_>,
        leaving: &Leaving<'_>,
    ) -> Result<(), Errno> {
        if let Some(deferred) = self.deferred() {
            if inside::is_handler_due() {
                return Err(Errno::INTR);
            }
            if wanted.mask.is_none() && may_block(wanted.deadline) {
                deferred.run();
                self.poll_pump();
                return Ok(());
            }
            deferred.hand_over();
        }
        inside::interruptible(|| self.sleep(need, wanted, leaving))
    }

    fn sleep(
        &self,
        need: usize,
        wanted: &WaitOptions<'_>,
        leaving: &Leaving<'_>,
    ) -> Result<(), Errno> {
        let pump = self.pump.get();
        let lingers = || need == 1 && self.lingers.is_yes();
        let serves = |pump: &dyn Pump| wanted.dedicated || pump.is_busy() || lingers();
        match pump.filter(|pump| wanted.mask.is_none() && serves(pump.as_ref())) {
            Some(pump) if self.waiters.try_become_poller() => {
                let _polling = Polling(self);
                leaving.is_called_to_poll.set(false);
                let leaves = || wanted.deadline.has_passed() || !serves(pump.as_ref());
                let over = || self.is_over(need, wanted);
                // Polls again until `is_over`: if another thread became the poller, it would have
                // to wake this thread.
                loop {
                    let polled = self.poll_once(pump.as_ref(), need, wanted.deadline, over);
                    if over() {
                        return polled;
                    }
                    // The event that ended the wait may be enough for another thread.
                    self.wake_a_waiter();
                    if polled.is_err() || leaves() {
                        return polled;
                    }
                }
            }
            _ => {
                let no_poller = || wanted.mask.is_none() && self.needs_poller();
                let over = || self.is_over(need, wanted) || no_poller();
                let mask = wanted.mask.map(|make| make());
                let (slept, is_called) = self.sleep_until_woken(need, wanted.deadline, mask, over);
                leaving.is_called_to_poll.set(is_called);
                slept
            }
        }
    }

    fn needs_poller(&self) -> bool {
        !self.waiters.has_poller() && self.pump_is_busy()
    }

    /// Returns `true` if the caller need not sleep. Events that came before the caller joined the
    /// waiters did not wake it.
    fn is_over(&self, need: usize, wanted: &WaitOptions<'_>) -> bool {
        // Another thread may have taken the event of the synchronous request.
        let patience_ended = wanted.min == 0 && self.synchronous.load(SeqCst) == 0;
        let has_deferred = self.deferred().is_some();
        self.ring.unread() >= need || self.is_dead() || patience_ended || has_deferred
    }

    /// Only the poller may call this.
    fn poll_once(
        &self,
        pump: &dyn Pump,
        need: usize,
        deadline: Deadline,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let waiter = self.waiters.add_poller(need);
        // Subtracts the events that came from elsewhere before this thread was on the list: they
        // interrupted no poller.
        let missing = waiter.need().saturating_sub(self.ring.unread()).max(1);
        let outcome = if is_over() { Ok(()) } else { pump.wait(missing, deadline) };
        // This thread leaves the list before it runs requests: it need not be woken.
        self.waiters.remove(&waiter);
        pump.run();
        outcome
    }

    /// Also returns `true` if another thread has called this one to poll.
    fn sleep_until_woken(
        &self,
        need: usize,
        deadline: Deadline,
        mask: Option<Mask>,
        is_over: impl Fn() -> bool,
    ) -> (Result<(), Errno>, bool) {
        let waiter = self.waiters.add(need, mask, || self.interrupt_pump());
        let slept = if is_over() { Ok(()) } else { waiter.sleep(deadline) };
        self.waiters.remove(&waiter);
        (slept, waiter.is_called_to_poll())
    }

    /// Returns `true` if [`IoContext::destroy`] was called.
    pub fn is_dead(&self) -> bool {
        self.outstanding.load(SeqCst) & DEAD != 0
    }

    /// Refuses new requests, and wakes all waiting threads, which return EINVAL if they have taken
    /// no event. Then waits until every accepted request has completed.
    ///
    /// `cancel` ends the registered requests that would never complete by themselves. A thread that
    /// reserved a slot before may register its request later. It must then check
    /// [`IoContext::is_dead`], and cancel the request itself.
    ///
    /// # Errors
    /// `EINVAL`: the context is already being destroyed.
    pub fn destroy(&self, cancel: impl FnOnce()) -> Result<(), Errno> {
        if self.outstanding.fetch_or(DEAD, SeqCst) & DEAD != 0 {
            return Err(Errno::INVAL);
        }
        cancel();
        self.wake_all();
        self.drain_until(|| self.outstanding() == 0);
        Ok(())
    }

    /// Waits until nothing is in flight in the own queue, including transfers that belong to no
    /// request. The context was destroyed before.
    pub fn drain_pump(&self) {
        self.drain_until(|| !self.pump_is_busy());
    }

    /// The thread that makes `is_over` true must wake all waiters.
    fn drain_until(&self, is_over: impl Fn() -> bool) {
        while !is_over() {
            if let Some(deferred) = self.deferred() {
                deferred.run();
                continue;
            }
            let over = || is_over() || self.deferred().is_some();
            // EINTR only makes the loop check again.
            let _ = match self.pump.get() {
                Some(pump) if pump.is_busy() && self.waiters.try_become_poller() => {
                    let _polling = Polling(self);
                    self.poll_once(pump.as_ref(), 1, Deadline::NEVER, over)
                }
                // Only `wake_all` and the calls for a poller or a runner wake this waiter.
                _ => {
                    let over = || over() || self.needs_poller();
                    self.sleep_until_woken(usize::MAX, Deadline::NEVER, None, over).0
                }
            };
        }
    }
}

#[cfg(test)]
impl IoContext {
    fn complete(&self, event: IoEvent) {
        self.complete_quietly(event, || {});
        self.notify();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
