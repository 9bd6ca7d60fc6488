//! A context with a queue of its own.

mod make;
mod notifiers;

use crate::{
    Command, Engine, Kind, SubmitMode,
    command::{Flags, open_for},
    deferred::{DeferredRequests, Look},
    engine::{NO_QUEUES, section::Section},
    hints::{Burst, Depth, DescriptorHints},
    hold,
    limits::Throttle,
    request::{
        FileOperation,
        direct::{BLOCK, DirectRequest, DirectRequests},
        in_flight::InFlight,
    },
    route::own_queue::Submissions,
};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use notifiers::Notifiers;
use nowait_block::{BlockBackend, Limits, bio::Descriptor};
use nowait_retry::{
    IoContext, Request, WaitOptions,
    context::BLOCKS_NS,
    waiters::{Mask, Notifier},
    watch::Watch,
};
use nowait_sys::{
    Errno, Fd,
    aio::IoEvent,
    eventfd::{self, EventFd},
    fd,
    file::{self, O_DIRECT},
    mistake::{self, Mistake},
    thread,
    time::Deadline,
};
use std::{
    cell::OnceCell,
    sync::{Arc, OnceLock},
};

/// What a program submits to and reaps from.
pub struct Context {
    io: IoContext,
    engine: Arc<Engine>,
    /// Served by a caller in [`Context::wait_events`]; `None` when the machine or the number of
    /// contexts does not allow one.
    own: Option<Arc<dyn BlockBackend>>,
    /// Completions of the own queue that were collected and not yet run.
    pub(crate) unrun: Arc<AtomicUsize>,
    /// What workers submit to the own queue, in order.
    pub(crate) submissions: Arc<Submissions>,
    pub(crate) direct: DirectRequests,
    pub(crate) history: DescriptorHints,
    depth: Depth,
    pub(crate) burst: Burst,
    pub(crate) mode: SubmitMode,
    /// The number of a request in flight means its file.
    pub(crate) files_stay_open: bool,
    pub(crate) in_flight: InFlight,
    pub(crate) deferred: DeferredRequests,
    throttle: Throttle,
    /// No caller takes the events (the ring is read directly): the driver must bring them.
    engine_driven: AtomicBool,
    pub(crate) watch: Watch,
    waits: AtomicU64,
    /// Signals a thread that polls one descriptor, whenever there are events.
    counter: OnceLock<Arc<Notifier>>,
    /// Rings for a caller that sleeps in an event loop of its own.
    loop_notifier: OnceLock<Arc<Notifier>>,
    /// Ring for callers that sleep with a signal mask.
    masked: Notifiers,
    /// Such a caller cannot see the completions of the own queue.
    own_is_silent: AtomicBool,
    /// Requests may be in flight that the driver copies itself.
    copying: AtomicBool,
}

impl core::fmt::Debug for Context {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Context at {:#x}", self.address())
    }
}

impl Context {
    /// Tells whether it is one of the kernel's AIO to the program: its answers are the same.
    pub(crate) fn answers_as_aio(&self) -> bool {
        self.engine.config().answers_as_aio && self.io.face().is_none()
    }

    /// Returns the slots, the ring and the waiters.
    pub fn io(&self) -> &IoContext {
        &self.io
    }

    /// Returns the engine that serves this context.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the address of the ring as it was mapped for the application.
    pub fn address(&self) -> usize {
        self.io.ring().memory().address()
    }

    /// Returns the status flags of the file behind `fd` for a request of this `kind`: remembered
    /// ones where the request can begin by a system call that looks at the descriptor itself.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn status_flags(&self, kind: Kind, fd: i32) -> Result<Flags, Errno> {
        let may_guess = match kind {
            Kind::Read => true,
            // Others are made into requests, which only flags just read can decide.
            Kind::Write => self.history.may_be_in_memory(fd) == Some(true) || self.is_calm_for(fd),
            _ => false,
        };
        if may_guess && let Some(flags) = self.history.status_flags(fd) {
            return Ok(flags);
        }
        let flags = open_for(fd)?;
        // A direct request is checked when the device's queue takes it in: too late to refuse it.
        if flags.bits() & O_DIRECT == 0 {
            self.history.remember_flags(fd, flags);
        }
        Ok(flags)
    }

    /// Returns `true` if a buffered write of `fd` went to a device lately that is calm.
    fn is_calm_for(&self, fd: i32) -> bool {
        let is_calm = |device| self.engine.calm.is_calm(device, || self.engine.clock().now_ns());
        self.history.written(fd).is_some_and(is_calm)
    }

    /// Duplicates the application's `number` to where our own descriptors are.
    ///
    /// # Errors
    /// `EBADF`: not open. `EMFILE`, `EINVAL`: there is no number for it.
    pub fn duplicate_high(&self, number: i32) -> Result<Fd, Errno> {
        fd::duplicate(number, self.engine.holds().local_fd())
    }

    /// Checks that `held`, a duplicate of the application's `number`, is an event counter.
    ///
    /// # Errors
    /// `EBADF`: only open as a name. `EINVAL`: something else.
    pub fn check_event_counter(&self, number: i32, held: i32) -> Result<(), Errno> {
        // A stream without a file type is an anonymous inode; which kind takes longer to find out.
        let is_anonymous = file::stat(held)?.file_type() == 0;
        let is_known =
            || self.history.is_known_counter(number) && eventfd::looks_like_eventfd(held);
        if is_anonymous && !is_known() {
            if !eventfd::is_eventfd(held)? {
                return Err(Errno::INVAL);
            }
            self.history.remember_counter(number);
        }
        match is_anonymous {
            true => Ok(()),
            // Only a name, of whatever kind, is not open.
            false => open_for(held).and(Err(Errno::INVAL)),
        }
    }

    /// Returns the descriptors this context has in the application's table.
    pub fn descriptors(&self) -> Vec<i32> {
        let own = self.own.as_ref().map(|own| own.descriptors()).unwrap_or_default();
        let counter = self.counter.get().map(|notifier| notifier.raw());
        own.into_iter().chain(counter).chain(self.masked.descriptors()).collect()
    }

    pub(crate) fn own(&self) -> Option<&Arc<dyn BlockBackend>> {
        self.own.as_ref()
    }

    /// Queues the direct request of `command` on the own queue; the caller commits. False: it is
    /// full.
    pub(crate) fn queue_direct(&self, command: &Command, request: DirectRequest) -> bool {
        let what = (command, self.engine.rw_flags(command));
        self.own.as_ref().is_some_and(|own| self.direct.queue(own.as_ref(), what, request))
    }

    /// Returns what the own queue can take.
    pub(crate) fn own_limits(&self) -> Limits {
        self.own.as_ref().map_or(NO_QUEUES, |own| own.limits())
    }

    /// Returns `true` if the own queue may refuse a part of the request when another part is in
    /// flight already: after submit has returned.
    pub(crate) fn may_refuse_late(&self, command: &Command) -> bool {
        command.len > BLOCK && !self.own_limits().writes
    }

    /// Returns `true` if the own queue carries out a direct request before all those that are
    /// committed later: not where a thread of the kernel may, nor where the kernel may refuse it
    /// when others have been committed.
    pub(crate) fn own_keeps_order(&self, command: &Command) -> bool {
        let refuses_late = command.kind == Kind::Read && self.may_refuse_late(command);
        !self.own_limits().writes && !refuses_late
    }

    pub(crate) fn own_has_room(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.has_room(1))
    }

    /// Looks how many requests the submitter keeps in flight, and counts the look. True: so few
    /// that it waits for each.
    pub(crate) fn look_at_depth(&self) -> bool {
        self.depth.look(self.io.outstanding())
    }

    /// Says that the program looks for the ends of its requests; where they have a sink, the face
    /// says so.
    pub fn looked_for_events(&self) {
        self.waits.store(self.waits.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns how many bytes submit may still copy itself before the program looks for events.
    pub(crate) fn inline_left(&self) -> usize {
        let looks = self.waits.load(Relaxed);
        match self.io.face() {
            // A ring that is read directly is emptied without a call.
            None => self.burst.left(looks, self.io.ring().unread() == 0),
            Some(_) => self.burst.left_at(looks, self.engine.clock().now_ns()),
        }
    }

    /// Tells whether the own queue should be used: some caller will come for its completions.
    pub(crate) fn is_caller_driven(&self) -> bool {
        let leads = !self.engine_driven.load(Relaxed) && !self.own_is_silent.load(Relaxed);
        self.own.is_some() && leads && self.counter.get().is_none()
    }

    /// Returns `true` if callers fetch the events by calls, and sleep in them.
    pub(crate) fn is_polled_by_calls(&self) -> bool {
        let elsewhere = self.counter.get().is_some() || self.loop_notifier.get().is_some();
        !elsewhere && !self.engine_driven.load(Relaxed)
    }

    /// Says that requests went into the own queue: the driver looks after them if no caller
    /// does, and a caller that waits elsewhere is woken to poll.
    pub(crate) fn own_started(self: &Arc<Self>) {
        self.look_after();
        self.io.pump_started();
    }

    /// Asks the driver to look after what is in flight, which must be visible.
    pub(crate) fn look_after(self: &Arc<Self>) {
        // An event loop comes for what its own queue completes, however long that takes it.
        let comes = self.loop_notifier.get().is_some();
        if !comes {
            self.have_watched();
        }
    }

    /// The same for one whose caller may be asleep elsewhere than in its event loop.
    pub(crate) fn look_after_loop(self: &Arc<Self>) {
        let in_flight = self.own.as_ref().map_or(0, |own| own.in_flight());
        if in_flight + self.unrun.load(Relaxed) > 0 {
            self.have_watched();
        }
    }

    /// Has the driver bring what the own queue completes, if no caller does.
    fn have_watched(self: &Arc<Self>) {
        if self.watch.started() {
            self.engine.watch(self);
        }
    }

    /// Says that some of them have a place in the order: a thread that waits for several
    /// completions at once must now look at each.
    pub(crate) fn own_ordered(&self) {
        if self.io.has_poller()
            && let Some(own) = &self.own
        {
            own.wake();
        }
    }

    /// Takes events, see [`IoContext::wait_events`].
    ///
    /// With `min` = 0 and a timeout it waits for one event if requests are in flight that the
    /// kernel would have completed inside io_submit: programs that give a timeout but no minimum
    /// (libaio's own tests) rely on it.
    ///
    /// # Errors
    /// Those of [`IoContext::wait_events`].
    pub fn wait_events(
        &self,
        min: usize,
        max: usize,
        deadline: Deadline,
        sigmask: Option<u64>,
        sink: impl FnMut(usize, IoEvent) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        self.looked_for_events();
        // A caller with a mask sleeps in ppoll(2) and cannot serve the own queue.
        if self.engine_driven.load(Relaxed) != sigmask.is_some() {
            self.engine_driven.store(sigmask.is_some(), Relaxed);
        }
        let timed = !deadline.is_now() && deadline != Deadline::NEVER;
        let may_block = || deadline > Deadline::after_ns(BLOCKS_NS);
        if min > 0 && sigmask.is_none() && (deadline == Deadline::NEVER || timed && may_block()) {
            self.deferred.has_caller();
        }
        let notifier = OnceCell::new();
        let mask = |signals| {
            let notifier: &Option<_> =
                notifier.get_or_init(|| self.masked.take(|| self.new_notifier()).ok());
            // Before the waiter is registered: what rings from then on is for it.
            notifier.iter().for_each(|notifier| notifier.drain());
            Mask { signals, notifier: notifier.clone() }
        };
        let make = sigmask.map(|signals| move || mask(signals));
        if self.copying.load(Relaxed) && !deadline.is_now() {
            self.await_copies(min);
        }
        let wanted = WaitOptions {
            min,
            max,
            deadline,
            patient: min == 0 && max > 0 && timed,
            mask: make.as_ref().map(|make| make as &dyn Fn() -> Mask),
            dedicated: false,
        };
        let taken = self.io.wait_events(&wanted, sink);
        notifier.into_inner().flatten().iter().for_each(|notifier| self.masked.give_back(notifier));
        taken
    }

    /// Returns the number of an event counter in the application's table that becomes readable when
    /// events are there: for epoll, poll or select. Made by the first call; from then on requests
    /// do not wait for a caller to bring them on.
    ///
    /// The counter belongs to the context. Reset it first ([`Context::reset_event_counter`]), take
    /// all events then without waiting, and none is missed.
    /// # Errors
    /// `EMFILE`, `ENFILE`, `EAGAIN`: no descriptor, or too many files are in flight.
    pub fn event_counter(self: &Arc<Self>) -> Result<i32, Errno> {
        if let Some(notifier) = self.counter.get() {
            return Ok(notifier.raw());
        }
        let notifier = Arc::new(self.new_notifier()?);
        let number = self.counter.get_or_init(|| {
            // The signalling thread has the context; the last reference is the one that is
            // deferred.
            let rings = Arc::downgrade(&notifier);
            self.io.set_on_event(Box::new(move || {
                rings.upgrade().iter().for_each(|notifier| notifier.notify());
            }));
            notifier
        });
        // What is there already, and what a poller had to bring so far.
        self.io.notify();
        if self.own.as_ref().is_some_and(|own| own.in_flight() > 0) {
            self.have_watched();
        }
        Ok(number.raw())
    }

    /// Makes the counter unreadable until the next event; no system call if it was not readable.
    /// One thread at a time.
    pub fn reset_event_counter(&self) {
        if let Some(notifier) = self.counter.get() {
            notifier.drain();
        }
    }

    /// Makes the counter readable: the caller knows of an end that has no event.
    pub fn ring_event_counter(&self) {
        if let Some(notifier) = self.counter.get() {
            notifier.notify();
        }
    }

    /// Takes events, and waits for one until the deadline, as [`Context::wait_events`] does; for a
    /// thread that does nothing else, and need not be woken when a request starts.
    ///
    /// # Errors
    /// Those of [`IoContext::wait_events`].
    pub fn serve(
        &self,
        deadline: Deadline,
        sink: impl FnMut(usize, IoEvent) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        self.looked_for_events();
        self.engine_driven.store(false, Relaxed);
        let wanted = WaitOptions { dedicated: true, ..WaitOptions::new(1, usize::MAX, deadline) };
        self.io.wait_events(&wanted, sink)
    }

    /// Prepares the context for a caller that waits in an event loop of its own. Returns the
    /// descriptors that become readable when it must come back, see [`Context::sleep_outside`].
    ///
    /// An own queue without such a descriptor is not used from then on.
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left.
    pub fn loop_descriptors(self: &Arc<Self>) -> Result<Vec<i32>, Errno> {
        let notifier = if let Some(notifier) = self.loop_notifier.get() {
            notifier
        } else {
            let notifier = Arc::new(self.new_notifier()?);
            self.engine.add_loop(self);
            self.loop_notifier.get_or_init(|| notifier)
        };
        let readable = self.own.as_ref().and_then(|own| own.readable());
        self.own_is_silent.store(self.own.is_some() && readable.is_none(), Relaxed);
        Ok(core::iter::once(notifier.raw()).chain(readable).collect())
    }

    /// Calls `sleep`, unless an event is there; it must return when one of
    /// [`Context::loop_descriptors`] is readable.
    pub fn sleep_outside(&self, sleep: impl FnOnce()) {
        let Some(notifier) = self.loop_notifier.get() else { return sleep() };
        if self.unrun.load(Relaxed) > 0 {
            return; // taken from the own queue, which is not readable for them any more
        }
        self.looked_for_events();
        self.io.sleep_outside(notifier, sleep);
        notifier.drain();
    }

    /// Runs what the own queue has brought, for a caller that has nothing in flight itself: pages
    /// read ahead, which requests of others may wait for. Does not wait.
    pub fn serve_others(&self) {
        self.io.poll_pump();
    }

    /// Says that the driver is asked for a copy.
    pub(crate) fn copy_started(&self) {
        // A line of memory that others only read stays in their caches.
        if !self.copying.load(Relaxed) && self.engine.cpus() > 1 {
            self.copying.store(true, Relaxed);
        }
    }

    /// Stays awake for a moment while the driver copies: that takes it a microsecond, and to
    /// wake a sleeper would take it longer.
    fn await_copies(&self, min: usize) {
        let until = Deadline::after_ns(AWAIT_COPIES_NS);
        while self.io.ring().unread() < min {
            if until.has_passed() {
                return self.copying.store(false, Relaxed);
            }
            (0..16).for_each(|_| core::hint::spin_loop());
        }
    }

    /// Makes a notifier that can be signalled from both descriptor tables.
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

    /// Counts a request that will not end inside submit and uses `bytes` of the program's memory.
    ///
    /// # Errors
    /// `EAGAIN`: so much may not be in flight, in this context or the engine.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), Errno> {
        self.throttle.enter(bytes)?;
        self.engine.throttle.enter(bytes).inspect_err(|_| self.throttle.leave(1, bytes))
    }

    /// Counts requests that have ended, before their events are visible.
    pub(crate) fn dismiss(&self, requests: usize, bytes: u64) {
        self.throttle.leave(requests, bytes);
        self.engine.throttle.leave(requests, bytes);
    }

    /// Takes in a request that is about to begin, so that it can be cancelled.
    pub(crate) fn register(&self, request: &Arc<Request<FileOperation>>, obj: u64, endless: bool) {
        if endless {
            self.io.may_be_endless();
        }
        self.in_flight.add(request, obj, endless);
        // Here, not before: the thread that destroys the context looks for such requests once,
        // and either finds this one or has said before that it will not.
        if endless && self.io.is_dead() && !mistake::makes(Mistake::RegisterTooLate) {
            request.cancel();
        }
    }

    /// Asks for the end of the request named `obj`, see [`EventTarget::obj`], one of several with
    /// that name that was not cancelled yet. Does not wait.
    ///
    /// Its event comes in any case, once. It says ECANCELED if the request had not begun, waits
    /// for another request, for readiness or for a page of the cache; of a file it may then have
    /// transferred a part. What the device or a blocking call has in hand ends as if nothing had
    /// been said, and of a stream the bytes that were transferred are the result.
    ///
    /// [`EventTarget::obj`]: crate::request::event::EventTarget::obj
    ///
    /// # Errors
    /// `EINVAL`: no such request is in flight, or it was cancelled before.
    pub fn cancel(&self, obj: u64) -> Result<(), Errno> {
        if let Some(request) = self.in_flight.find(obj) {
            self.cancel_request(&request);
            return Ok(());
        }
        if self.mode == SubmitMode::Offload
            && let Some(copy) = self.engine.driver().and_then(|it| it.find_copy(self, obj))
        {
            copy.cancel(); // the driver finds that out when it comes to it
            return Ok(());
        }
        let own = self.own.as_ref().ok_or(Errno::INVAL)?;
        own.cancel(self.direct.cancel(obj).ok_or(Errno::INVAL)?);
        Ok(())
    }

    fn cancel_request(&self, request: &Arc<Request<FileOperation>>) {
        let _section = Section::enter(&self.engine);
        request.cancel();
        if self.end_deferred(request) {
            return;
        }
        self.engine.cancel_bio(self.own.as_deref(), Arc::as_ptr(request) as u64);
    }

    /// Ends the context, see [`IoContext::destroy`]. Polls and waiting streams are cancelled.
    ///
    /// # Errors
    /// `EINVAL`: it is being destroyed already.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.engine.drop_deferred();
        self.io.destroy(|| {
            for request in self.in_flight.endless() {
                self.cancel_request(&request);
            }
        })?;
        // Pages that the page cache reads ahead in the own queue: others may wait for them.
        self.io.drain_pump();
        Ok(())
    }

    /// Looks after the own queue when no caller does; called by the driver on its tick with what
    /// it saw at the last one; `hurries` while the process waits for all that is in flight. `None`:
    /// nothing has been in flight for a while, the watch is over.
    pub(crate) fn tick(self: &Arc<Self>, before: LastTick, hurries: bool) -> Option<LastTick> {
        let in_own =
            || self.own.as_ref().map_or(0, |own| own.in_flight()) + self.unrun.load(Relaxed);
        let is_idle = || in_own() == 0 && self.deferred.len() == 0;
        let waits = self.waits.load(Relaxed);
        let deferred = if hurries { Look::EVERYTHING } else { before.deferred };
        self.hand_over_late(deferred);
        let mut idle_ticks = 0;
        if is_idle() {
            idle_ticks = before.idle_ticks + 1;
            if self.io.poller_may_hold_back() {
                // It waits for more than will come, with what has come in its hands.
                self.io.hurry_poller();
                idle_ticks = 0;
            } else if idle_ticks > IDLE_TICKS && self.watch.ends(is_idle) {
                return None;
            }
        } else if hurries {
            // The poller may sleep until there is more than will come.
            match self.io.has_poller() {
                true => self.io.hurry_poller(),
                false => self.io.poll_pump(),
            }
        } else if before.waits == Some(waits) && !self.io.has_poller() {
            let before = in_own();
            self.io.poll_pump();
            while self.unrun.load(Relaxed) > 0 && !self.io.has_poller() {
                self.io.poll_pump();
            }
            if in_own() < before {
                self.engine_driven.store(true, Relaxed);
                // A thread that reads the ring directly spins: on a busy machine a polite driver
                // would get its turn milliseconds later, for every request.
                thread::preempt_on_wakeup();
            }
        }
        Some(LastTick { waits: Some(waits), idle_ticks, deferred: self.deferred.look() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let own = self.own.take();
        if own.is_some() {
            self.engine.own_queue_dropped();
        }
        // The last reference may be that of a request which ends on a thread of the engine; the
        // descriptors of queue and counters are in the application's table.
        if hold::in_engine_table() {
            // The pump has the queue too, and would be the last to drop it, here, if a thread
            // dropped what is deferred before it goes.
            drop(self.io.take_pump());
            debug_assert!(own.as_ref().is_none_or(|own| Arc::strong_count(own) == 1));
            let notifiers =
                (self.counter.take(), self.loop_notifier.take(), self.masked.take_all());
            self.engine.defer_drop((own, notifiers));
        }
    }
}

/// What the driver saw of a context at its last tick.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastTick {
    /// How often the program had looked for events; `None`: it was not looked at yet.
    waits: Option<u64>,
    /// At how many ticks in a row nothing was in flight.
    idle_ticks: u32,
    deferred: Look,
}

/// After so many ticks with nothing in flight the watch ends: the submitter of the next request has
/// to wake the driver, which may take its processor.
const IDLE_TICKS: u32 = 20;

/// How long a caller stays awake for copies by the driver, in nanoseconds.
const AWAIT_COPIES_NS: u64 = 20_000;

/// Returns how many slots the kernel makes for `nr` requests (`ioctx_alloc`, fs/aio.c).
fn slots(nr: u32, cpus: u32) -> u32 {
    nr.max(cpus * 4) * 2 + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Config};

    /// On a thread of the engine: the last of a context's queue must be what is deferred.
    #[test]
    fn a_context_that_ends_in_the_engine_defers_the_drop_of_all_of_its_queue() {
        for backend in [BackendChoice::Kaio, BackendChoice::Uring] {
            let config = Config { backend, ..Config::default() };
            let Ok(engine) = Engine::on_machine(config, "test".to_owned()) else { continue };
            let context = Context::new(&engine, 0, 1).unwrap();
            let queue = Arc::downgrade(context.own().unwrap());
            let ended = std::thread::spawn(move || {
                hold::enter_engine_table();
                drop(context);
            });
            ended.join().unwrap();
            assert_eq!(queue.strong_count(), 1, "deferred");
            engine.drop_deferred();
            assert_eq!(queue.strong_count(), 0);
            engine.shutdown();
        }
    }
}
