//! A context: its slots, events, hints, and own queue if it has one.

mod checks;
mod counted;
mod looks;
mod make;
mod own;

use crate::{
    Engine, Kind, SubmitMode,
    command::{Flags, open_for},
    deferred::{DeferredRequests, Look},
    engine::section::Section,
    hints::Hints,
    hold,
    limits::ContextThrottle,
    request::{FileOperation, in_flight::InFlight},
};
use checks::Checks;
use looks::Looks;
pub(crate) use make::Submitters;
use nowait_retry::{IoContext, Request};
use nowait_sys::{
    Errno, Fd, eventfd, fd,
    file::{self, O_DIRECT},
    mistake::{self, Mistake},
};
pub(crate) use own::Give;
use own::OwnQueue;
use std::sync::Arc;

/// A context: programs submit requests to it, and reap their events from it.
pub struct Context {
    io: IoContext,
    engine: Arc<Engine>,
    /// The number of the context in its engine. Numbers that differ modulo 64 use different cache
    /// lines.
    pub(crate) number: usize,
    pub(crate) own: OwnQueue,
    pub(crate) hints: Hints,
    pub(crate) mode: SubmitMode,
    pub(crate) submitters: Submitters,
    pub(crate) in_flight: InFlight,
    pub(crate) deferred: DeferredRequests,
    throttle: ContextThrottle,
    pub(crate) checks: Checks,
    pub(crate) looks: Looks,
}

impl core::fmt::Debug for Context {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Context at {:#x}", self.address())
    }
}

impl Context {
    pub(crate) fn answers_as_aio(&self) -> bool {
        self.engine.config().answers_as_aio && self.io.face().is_none()
    }

    /// Returns the part with the slots, the ring and the waiters.
    pub fn io(&self) -> &IoContext {
        &self.io
    }

    /// Returns the engine that serves this context.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the address at which the ring is mapped for the application.
    pub fn address(&self) -> usize {
        self.io.ring().memory().address()
    }

    /// Returns the status flags of the file behind `fd` for a request of this `kind`. The flags may
    /// be remembered ones if the request can begin with a system call that checks the descriptor
    /// itself. `is_lone`: the submission has no other request.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn status_flags(&self, kind: Kind, fd: i32, is_lone: bool) -> Result<Flags, Errno> {
        let hints = &self.hints.descriptors;
        let may_guess = match kind {
            Kind::Read => true,
            // A write without one of these hints needs flags that were just read.
            Kind::Write => {
                hints.may_be_in_memory(fd) == Some(true)
                    || self.is_calm_for(fd)
                    || hints.blocks(fd).is_some()
            }
            _ => false,
        };
        // If remembered flags are out of date, the kernel may refuse a direct request after later
        // requests of its batch have started.
        let serves = |flags: &Flags| is_lone || flags.bits() & O_DIRECT == 0;
        if may_guess && let Some(flags) = hints.status_flags(fd).filter(serves) {
            return Ok(flags);
        }
        let flags = open_for(fd)?;
        hints.remember_flags(fd, flags);
        Ok(flags)
    }

    fn is_calm_for(&self, fd: i32) -> bool {
        let is_calm =
            |device| self.engine.known.calm.is_calm(device, || self.engine.clock().now_ns());
        self.hints.descriptors.written(fd).is_some_and(is_calm)
    }

    /// Duplicates the application's descriptor `number` to a high number, where the engine's
    /// descriptors are.
    ///
    /// # Errors
    /// `EBADF`: the descriptor is not open. `EMFILE`, `EINVAL`: there is no free number for the
    /// duplicate.
    pub fn duplicate_high(&self, number: i32) -> Result<Fd, Errno> {
        fd::duplicate(number, self.engine.holds.local_fd())
    }

    /// Returns `false` if `number` is certainly no eventfd. Makes no system call for the eventfd
    /// that [`Context::check_event_counter`] has found last.
    pub fn may_be_event_counter(&self, number: i32) -> bool {
        self.hints.descriptors.is_known_counter(number)
            || file::stat(number).is_ok_and(|stat| stat.file_type() == 0)
    }

    /// Checks that `held`, a duplicate of the application's `number`, is an eventfd.
    ///
    /// # Errors
    /// `EBADF`: the descriptor was opened with O_PATH. `EINVAL`: it is something else than an
    /// eventfd.
    pub fn check_event_counter(&self, number: i32, held: i32) -> Result<(), Errno> {
        // A file without a file type is an anonymous inode; to find out which kind takes longer.
        let is_anonymous = file::stat(held)?.file_type() == 0;
        let is_known =
            || self.hints.descriptors.is_known_counter(number) && eventfd::looks_like_eventfd(held);
        if is_anonymous && !is_known() {
            if !eventfd::is_eventfd(held)? {
                return Err(Errno::INVAL);
            }
            self.hints.descriptors.remember_counter(number);
        }
        match is_anonymous {
            true => Ok(()),
            // A descriptor opened with O_PATH, of whatever kind, counts as not open.
            false => open_for(held).and(Err(Errno::INVAL)),
        }
    }

    pub(crate) fn inline_left(&self) -> usize {
        let looks = self.looks.count();
        match self.io.face() {
            // A program that reads the ring directly empties it without a call.
            None => self.hints.burst.left(looks, self.io.ring().unread() == 0),
            Some(_) => self.hints.burst.left_at(looks, self.engine.clock().now_ns()),
        }
    }

    /// Returns `true` if the kernel may signal the eventfds of requests on the context's own queue:
    /// the program then fetches the events by calls, or reads the eventfd first.
    pub fn counts_by_kernel(&self) -> bool {
        self.mode == SubmitMode::Auto
            && self.answers_as_aio()
            && self.engine.config().sees_closes
            && self.is_caller_driven()
            && self.looks.are_by_calls()
            && self.looks.kernel_counter.is_trusted()
            && (self.io.ring().is_read_by_calls() || self.looks.kernel_counter.is_read())
            && !self.own.limits().writes
    }

    /// Records that a request names this eventfd of the application. Returns `false` if requests
    /// have named another eventfd: then the kernel must signal no eventfd for this context.
    pub fn note_counter(&self, number: i32) -> bool {
        let is_only = self.looks.kernel_counter.note_name(number);
        if !is_only {
            self.watch_closely();
        }
        is_only
    }

    /// Returns `true` if requests name this eventfd.
    pub fn names_counter(&self, number: i32) -> bool {
        self.looks.kernel_counter.names(number)
    }

    /// Puts the events of requests that have ended in the own queue into the ring, if requests name
    /// the eventfd `number`, which the calling thread has just read. Waits while the driver is
    /// doing so.
    pub fn counter_was_read(&self, number: i32) {
        if self.names_counter(number) {
            self.looked_for_events();
            self.looks.set_engine_driven(false);
            self.looks.kernel_counter.note_read();
            self.collect_own();
            self.io.await_passers();
        }
    }

    /// Returns `true` if there were completions; does nothing while a caller reaps the queue.
    fn collect_own(&self) -> bool {
        let before = self.own.in_flight();
        self.io.pass_by();
        while self.own.has_unrun() && !self.io.has_poller() {
            self.io.pass_by();
        }
        self.own.in_flight() < before
    }

    /// Called after requests went into the own queue: the driver reaps them if no caller does, and
    /// a caller that waits elsewhere is woken to poll the queue.
    pub(crate) fn own_started(self: &Arc<Self>) {
        self.look_after_own();
        self.io.pump_started();
    }

    pub(crate) fn watch_closely(&self) {
        if self.checks.end() {
            self.engine.threads.driver.hasten();
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.checks.is_long()
    }

    /// Makes the driver check the context at each tick, and wakes a polling thread, which may wait
    /// for several completions at once: requests in the own queue now have a place in an order, so
    /// each completion must be handled as it comes.
    pub(crate) fn own_ordered(&self) {
        self.watch_closely();
        if self.io.has_poller() {
            self.own.queue.iter().for_each(|own| own.wake());
        }
    }

    /// Counts a request that will not end inside submit.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), Errno> {
        self.throttle.enter(&self.engine.throttle, bytes)
    }

    /// Subtracts requests that have ended from the counts, before their events are visible.
    pub(crate) fn dismiss(&self, requests: usize, bytes: u64) {
        self.throttle.leave(&self.engine.throttle, requests, bytes);
    }

    /// Returns how many requests are in flight, without those that end inside submit.
    pub fn requests(&self) -> usize {
        self.throttle.requests()
    }

    pub(crate) fn register(&self, request: &Arc<Request<FileOperation>>, obj: u64, endless: bool) {
        if endless {
            self.io.may_be_endless();
        }
        self.in_flight.add(request, obj, endless);
        // Checked after `add`: the thread that destroys the context marks it dead first, and then
        // looks for endless requests once. So either that thread finds this request, or this thread
        // sees the mark.
        if endless && self.io.is_dead() && !mistake::makes(Mistake::RegisterTooLate) {
            request.cancel();
        }
    }

    /// Asks for the end of the request named `obj`, see [`EventTarget::obj`]; of several with that
    /// name, one that was not cancelled yet. Does not wait.
    ///
    /// The request's event comes in any case, once. The event has ECANCELED if the request had not
    /// begun, or was waiting for another request, for readiness or for a page of the cache. Such a
    /// request may have transferred a part of its bytes. With `Config::answers_as_aio`, a cancelled
    /// poll has 0 instead. A request that the device or a blocking call is carrying out ends as if
    /// it had not been cancelled. A stream request that has transferred bytes ends with their
    /// number.
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
        self.own.cancel(obj)
    }

    fn cancel_request(&self, request: &Arc<Request<FileOperation>>) {
        let _section = Section::enter(&self.engine);
        request.cancel();
        if self.end_deferred(request) {
            return;
        }
        let token = Arc::as_ptr(request) as u64;
        self.own.cancel_bio(token);
        self.engine.threads.cancel_bio(token);
    }

    /// Ends the context, see [`IoContext::destroy`]. Polls and waiting streams are cancelled.
    ///
    /// # Errors
    /// `EINVAL`: the context is being destroyed already.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.engine.drop_deferred();
        self.io.destroy(|| {
            for request in self.in_flight.endless() {
                self.cancel_request(&request);
            }
        })?;
        // The own queue may hold reads ahead for the page cache, for which requests of other
        // contexts wait.
        self.io.drain_pump();
        Ok(())
    }

    /// Hands over late deferred requests, and reaps the own queue if no caller does. The driver
    /// calls this on its tick, with the state at the last one; `hurries`: the process waits for all
    /// requests in flight. Returns `None` if for a while no request was deferred or in the own
    /// queue: the driver then stops watching the context.
    pub(crate) fn tick(self: &Arc<Self>, before: LastTick, hurries: bool) -> Option<LastTick> {
        let is_idle = || self.own.in_flight() == 0 && self.deferred.len() == 0;
        let waits = self.looks.count();
        let is_unread = self.io.ring().unread() > 0;
        if before.is_unread && before.waits == Some(waits) && is_unread {
            self.looks.kernel_counter.tell_again(&self.engine.holds);
        }
        let deferred = if hurries { Look::EVERYTHING } else { before.deferred };
        let mut brought = false;
        self.hand_over_late(deferred);
        let mut idle_ticks = 0;
        if is_idle() {
            idle_ticks = before.idle_ticks + 1;
            if self.io.poller_may_hold_back() {
                // The polling thread may hold events back while it waits for more events than will
                // come.
                self.io.hurry_poller();
                idle_ticks = 0;
            } else if idle_ticks > IDLE_TICKS && self.checks.watch.ends(is_idle) {
                return None;
            }
        } else if hurries {
            // The polling thread may sleep until there are more events than will come.
            match self.io.has_poller() {
                true => self.io.hurry_poller(),
                false => self.io.pass_by(),
            }
        } else if before.waits == Some(waits) && !self.io.has_poller() {
            brought = self.collect_own();
            if brought {
                self.looks.kernel_counter.note_late();
                self.looks.set_engine_driven(true);
            }
        }
        let deferred = self.deferred.look();
        let is_first = before.waits.is_none();
        let is_late = brought || hurries || !is_first && before.deferred != deferred;
        let is_served = is_idle() || before.waits != Some(waits) || self.io.has_poller();
        self.checks.tick(is_served && !is_late && self.is_by_calls());
        // The program may have looked during this tick, and have seen only some of the events.
        let is_unread = self.leaves_unread(brought || before.is_unread);
        Some(LastTick { waits: Some(waits), idle_ticks, is_unread, deferred })
    }

    fn leaves_unread(&self, brought: bool) -> bool {
        (brought || self.looks.kernel_counter.is_read()) && self.io.ring().unread() > 0
    }

    pub(crate) fn calm_pause_ns(&self) -> u64 {
        if self.looks.kernel_counter.is_used() { CALM_COUNTED_NS } else { CALM_NS }
    }

    /// Returns `true` if a drop-in library's program has looked for events at least 64 times, and
    /// needs no driver to bring them. The program takes events by calls, or reads the eventfd
    /// before it looks at the ring.
    fn is_by_calls(&self) -> bool {
        const LOOKS: u64 = 64;
        let is_read = self.io.ring().is_read_by_calls() || self.looks.kernel_counter.is_read();
        is_read && self.answers_as_aio() && self.looks.are_by_calls() && self.looks.count() >= LOOKS
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.throttle.end(&self.engine.throttle);
        let own = self.own.queue.take();
        if own.is_some() {
            self.engine.queues.own_queue_dropped();
        }
        // A request that ends on a thread of the engine may have the last reference; but the
        // descriptors of the queue and the eventfds are in the application's table.
        if hold::in_engine_table() {
            // The pump has a reference to the queue, too. If a thread dropped the deferred values
            // first, the pump would close the queue here, in the wrong table.
            drop(self.io.take_pump());
            debug_assert!(own.as_ref().is_none_or(|own| Arc::strong_count(own) == 1));
            self.engine.defer_drop((own, core::mem::take(&mut self.looks)));
        }
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct LastTick {
    /// How often the program had looked for events; `None`: there was no tick yet.
    waits: Option<u64>,
    idle_ticks: u32,
    is_unread: bool,
    deferred: Look,
}

/// The time between two checks of a calm context, in nanoseconds. Below, the shorter time for a
/// context whose eventfd the kernel signals: if the program missed the signal, the driver repeats
/// it after the second check.
const CALM_NS: u64 = 1_000_000_000;
const CALM_COUNTED_NS: u64 = 100_000_000;

/// The driver stops watching a context after more than so many ticks without a request that is
/// deferred or in the own queue. The submitter of the next request then has to wake the driver,
/// which may take the submitter's processor.
const IDLE_TICKS: u32 = 20;

/// Returns how many slots the kernel makes for `nr` requests (`ioctx_alloc`, fs/aio.c).
fn slots(nr: u32, cpus: u32) -> u32 {
    nr.max(cpus * 4) * 2 + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Config};
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use nowait_retry::Pump;
    use nowait_sys::{aio::IoEvent, time::Deadline};
    use std::sync::Weak;

    /// The context is dropped on a thread of the engine: the deferred value must hold the last
    /// reference to the context's queue.
    #[test]
    fn a_context_that_ends_in_the_engine_defers_the_drop_of_all_of_its_queue() {
        for backend in [BackendChoice::Kaio, BackendChoice::Uring] {
            let config = Config { backend, ..Config::default() };
            let Ok(engine) = Engine::on_machine(config, "test".to_owned()) else { continue };
            let context = Context::new(&engine, 0, 1).unwrap();
            let queue = Arc::downgrade(context.own.queue.as_ref().unwrap());
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

    const IDLE: u32 = 0;
    const ENTERED: u32 = 1;
    const LOOKED: u32 = 2;

    /// An own queue that brings an event when another thread has looked for it, or after a while.
    struct SlowQueue(Weak<Context>, Arc<AtomicU32>);

    impl Pump for SlowQueue {
        fn is_busy(&self) -> bool {
            self.1.load(SeqCst) != LOOKED
        }

        fn wait(&self, _: usize, _: Deadline) -> Result<(), Errno> {
            self.1.store(ENTERED, SeqCst);
            let mut moments = (0..100_000).inspect(|_| std::thread::yield_now());
            moments.any(|_| self.1.load(SeqCst) == LOOKED);
            Ok(())
        }

        fn run(&self) {
            self.0.upgrade().unwrap().io().complete_batch(&[IoEvent::default()]);
        }

        fn interrupt(&self) {}
    }

    /// The kernel signals the eventfd before the driver has brought the event; without the wait the
    /// program would sleep on the eventfd once more.
    #[test]
    fn a_read_of_the_eventfd_waits_for_events_that_the_driver_has_in_hand() {
        let config = Config { backend: BackendChoice::Threads, ..Config::default() };
        let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
        let context = Context::new(&engine, 0, 1).unwrap();
        let state = Arc::new(AtomicU32::new(IDLE));
        context.io().set_pump(Box::new(SlowQueue(Arc::downgrade(&context), state.clone())));
        context.io().reserve(1).unwrap();
        assert!(context.note_counter(7));
        std::thread::scope(|scope| {
            let driver = scope.spawn(|| context.io().pass_by());
            while state.load(SeqCst) != ENTERED {
                std::thread::yield_now();
            }
            context.counter_was_read(7);
            let unread = context.io().ring().unread();
            state.store(LOOKED, SeqCst);
            driver.join().unwrap();
            assert_eq!(unread, 1);
        });
        context.destroy().unwrap();
        engine.shutdown();
    }
}
