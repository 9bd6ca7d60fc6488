//! A request in flight: iterations until everything is transferred, then one event.
//!
//! | outcome of an iteration | when |
//! |---|---|
//! | `Retry` | the request waits for an earlier request (order, link), or for a page of the cache |
//! | `Queued` | a bio for the rest is in flight, or the driver or a caller will run the request |
//! | `Done` | all is transferred, the file has ended, an error occurred, or it was cancelled |
//!
//! [`FileOperation`] has the state of a request; the operation's body makes the iterations:
//!
//! * `kernel`: a file with offsets, through the kernel, carried by bios
//! * `stream`: a file without offsets, or a poll, which waits for readiness
//! * [`UserOperation`]: a file in the engine's own page cache
//!
//! `carrier` brings the bios of the first two bodies to a queue. With `caller`, the thread that
//! waits for the request carries it out instead. [`event`] delivers the result. `direct` has
//! requests of a single bio, which become an operation only if that bio does not complete them.

mod caller;
mod carrier;
pub(crate) mod direct;
pub mod event;
pub(crate) mod in_flight;
pub(crate) mod kernel;
pub(crate) mod stream;
pub(crate) mod unordered;

use crate::{
    Command, Context, Engine, Kind, Target, UserOperation, hold,
    order::{self, Access, FileState, Links, Reach, StreamTicket, Ticket},
    route::Plug,
};
pub(crate) use carrier::Carrier;
use event::EventTarget;
use in_flight::Key as InFlightKey;
use kernel::KernelBody;
use nowait_block::bio::Descriptor;
use nowait_retry::{
    Operation, Step,
    stats::{Server, Work},
    wait::Wait,
};
use nowait_sys::{
    Errno,
    mistake::{self, Mistake},
};
use std::sync::Arc;
use stream::StreamBody;

/// A request in flight, with all of its progress.
pub struct FileOperation {
    pub(crate) command: Command,
    pub(crate) target: Target,
    pub(crate) body: Body,
    place: OrderPlace,
    /// `true`: the last iteration found an earlier request in the way.
    waited_for_order: bool,
    /// `true`: the kernel's AIO would have completed the request inside io_submit.
    is_synchronous: bool,
    in_flight: Option<InFlightKey>,
    links: Option<Box<Links>>,
    /// `true`: the request is over, and a worker ends it.
    over: bool,
}

pub(crate) enum Body {
    Kernel(KernelBody),
    Stream(StreamBody),
    Cached(Box<UserOperation>),
    /// The request has ended and dropped its body.
    Ended,
}

enum OrderPlace {
    None,
    Overlap(Ticket),
    /// The kernel was carrying the request out when it took its place, so it waits for no request.
    Begun(Ticket),
    Stream(StreamTicket),
}

pub(crate) struct Iteration<'a, 'w> {
    command: &'a mut Command,
    target: &'a Target,
    plug: &'a mut Plug,
    wait: &'a Wait<'w, FileOperation>,
}

impl Iteration<'_, '_> {
    /// Ends the request. If bytes have been transferred, they are the result, not a later error, as
    /// in read(2).
    fn end(&self, result: Result<u32, Errno>) -> Step {
        match result {
            Err(_) if self.command.done > 0 => self.transferred(),
            result => Step::Done(result),
        }
    }

    fn transferred(&self) -> Step {
        Step::Done(Ok(self.command.transferred()))
    }
}

impl Body {
    pub(crate) fn carrier(&mut self) -> Option<&mut Carrier> {
        match self {
            Body::Kernel(kernel) => Some(&mut kernel.carrier),
            Body::Stream(stream) => Some(&mut stream.carrier),
            Body::Cached(_) | Body::Ended => None,
        }
    }

    /// Returns `true` if the request waits for readiness, perhaps for ever.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Body::Stream(_))
    }

    pub(crate) fn registers(&self) -> bool {
        match self {
            Body::Kernel(_) | Body::Cached(_) => true,
            Body::Stream(stream) => stream.queue.is_some(),
            Body::Ended => false,
        }
    }

    fn holds_file(&mut self) -> bool {
        self.carrier().is_some_and(|carrier| carrier.held.is_some())
    }
}

impl FileOperation {
    /// The context has counted the request's bytes ([`Context::admit`]); the end of the request
    /// subtracts them.
    pub(crate) fn new(
        command: Command,
        context: &Arc<Context>,
        target: &EventTarget,
        eventfd: Option<Arc<dyn Descriptor>>,
        body: Body,
    ) -> FileOperation {
        let EventTarget { data, obj, .. } = *target;
        let target = Target { context: context.clone(), data, obj, eventfd };
        FileOperation {
            command,
            target,
            body,
            place: OrderPlace::None,
            waited_for_order: false,
            is_synchronous: false,
            in_flight: None,
            links: None,
            over: false,
        }
    }

    pub(crate) fn with_links(mut self, links: Option<Box<Links>>) -> FileOperation {
        self.links = links;
        self
    }

    pub(crate) fn take_cached_place(&mut self, file: FileState, wait: &Wait<'_, Self>) {
        let reach = Reach::of(&self.command, file.end);
        let orders = &self.target.context.engine().orders;
        let (ticket, _) = orders.enter(file.key, reach, || wait.entry());
        self.place = OrderPlace::Overlap(ticket);
        self.note_synchronous();
    }

    pub(crate) fn take_place(&mut self, wait: &Wait<'_, Self>) {
        let engine = self.target.context.engine();
        match &mut self.body {
            Body::Stream(StreamBody { queue: Some(stream), .. }) => {
                let ticket = engine.stream_queues.enter(*stream, || wait.entry());
                self.place = OrderPlace::Stream(ticket);
            }
            Body::Kernel(kernel) => {
                let Some(file) = kernel.carrier.file else { return };
                let (way, reach) = (order::Way::Kernel, Reach::of(&self.command, file.end));
                let entry = || wait.entry();
                let (ticket, lane) = engine.orders.enter_by(way, file.key, reach, entry);
                if kernel.wants_lane {
                    kernel.lane = Some(lane);
                }
                self.place = OrderPlace::Overlap(ticket);
            }
            _ => {}
        }
    }

    /// Registers a request that the own queue has refused or ended short. The request keeps the
    /// place that it took while the kernel carried it out, if it took one.
    pub(crate) fn take_place_late(&mut self, ticket: Option<Ticket>, wait: &Wait<'_, Self>) {
        match ticket {
            Some(ticket) => self.place = OrderPlace::Begun(ticket),
            None if mistake::makes(Mistake::RefuseOutOfOrder) => {}
            None => self.take_place(wait),
        }
    }

    /// Returns `true` if an earlier request is in the way; the end of that request kicks this one.
    pub(crate) fn is_blocked(&self) -> bool {
        match &self.place {
            OrderPlace::None | OrderPlace::Begun(_) => false,
            OrderPlace::Overlap(ticket) => ticket.is_blocked(),
            OrderPlace::Stream(ticket) => ticket.is_blocked(),
        }
    }

    pub(crate) fn leave_place(&mut self, engine: &Engine) {
        match core::mem::replace(&mut self.place, OrderPlace::None) {
            OrderPlace::None => {}
            OrderPlace::Overlap(ticket) | OrderPlace::Begun(ticket) => {
                engine.orders.leave(&ticket);
            }
            OrderPlace::Stream(ticket) => engine.stream_queues.leave(&ticket),
        }
    }

    /// Informs the context that the event will come soon, if the kernel's AIO would have completed
    /// the request inside io_submit.
    pub(crate) fn note_synchronous(&mut self) {
        if !self.body.is_endless() && Access::of(self.command.kind) != Access::Sync {
            self.target.context.io().synchronous_begins();
            self.is_synchronous = true;
        }
    }

    fn stats(&self) -> &nowait_retry::stats::Stats {
        self.target.context.io().stats()
    }

    fn iterate_body(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        let FileOperation { command, target, body, .. } = self;
        let mut it = Iteration { command, target, plug, wait };
        match body {
            Body::Kernel(kernel) => kernel.dispatch(&mut it),
            Body::Stream(stream) => stream.dispatch(&mut it),
            Body::Cached(cached) => {
                let step = cached.iterate(&mut it.plug.cache_bios, &|| wait.entry());
                if step == Step::Retry {
                    target.context.io().stats().add(|c| &c.retries, 1);
                }
                step
            }
            Body::Ended => Step::Done(Err(Errno::CANCELED)),
        }
    }

    fn iterate_now(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        #[cfg(test)]
        crate::failure::inject(self.command.fd, crate::failure::At::Iterate);
        self.stats().add(|c| &c.iterations, 1);
        if let Some(links) = &mut self.links
            && let Some(after) = &links.after
        {
            match after.look(|| wait.entry()) {
                Some(true) => links.after = None,
                Some(false) if mistake::makes(Mistake::RunAfterFailure) => links.after = None,
                Some(false) => return Step::Done(Err(Errno::CANCELED)),
                None => {
                    self.stats().add(|c| &c.retries, 1);
                    return Step::Retry;
                }
            }
        }
        self.iterate_in_turn(plug, wait)
    }

    fn iterate_in_turn(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        if self.is_blocked() {
            self.stats().add(|c| &c.retries, 1);
            if self.waited_for_order {
                self.stats().add(|c| &c.spurious, 1);
            }
            self.waited_for_order = true;
            return Step::Retry;
        }
        if self.waited_for_order {
            self.stats().add(|c| &c.kicks, 1);
            self.waited_for_order = false;
        }
        self.iterate_body(plug, wait)
    }

    fn complete_now(
        &mut self,
        plug: &mut Plug,
        wait: &Wait<'_, Self>,
        result: Result<u32, Errno>,
    ) -> Step {
        #[cfg(test)]
        crate::failure::inject(self.command.fd, crate::failure::At::Complete);
        self.stats().add(|c| &c.iterations, 1);
        if !wait.is_cancelled() && self.resumes_elsewhere(result, &plug.engine) {
            return self.iterate_in_turn(plug, wait);
        }
        let FileOperation { command, target, body, .. } = self;
        let mut it = Iteration { command, target, plug, wait };
        match body {
            Body::Kernel(kernel) => kernel.complete(&mut it, result),
            Body::Stream(stream) => stream.complete(&mut it, result),
            Body::Cached(_) | Body::Ended => Step::Done(result),
        }
    }

    /// Moves the request to another route if the own queue gave up or refused the request. Returns
    /// `false` if the queue did neither, or the request cannot be moved: then `result` is the
    /// request's result.
    fn resumes_elsewhere(&mut self, result: Result<u32, Errno>, engine: &Engine) -> bool {
        let endless = self.body.is_endless();
        let Some(carrier) = self.body.carrier() else { return false };
        let refused = !endless && carrier.was_refused(result, &self.command);
        let route = if carrier.was_given_up(result) {
            engine.queues.route_off_own_queue(endless)
        } else if refused {
            engine.queues.route_of_refused()
        } else {
            return false;
        };
        let context = &self.target.context;
        if !carrier.hold_late(&mut self.command, context) {
            return false;
        }
        carrier.route = route;
        true
    }

    /// Returns `true` if only a thread with the engine's descriptor table can end the request. Such
    /// a thread must close the file, if no other request holds it, before the event is visible: the
    /// application may unmount then. Such a thread must also signal the eventfd of a request that
    /// holds a file, because the eventfd's number is in that table.
    ///
    /// Without an eventfd, releases a file that other requests hold, too, or that is still on its
    /// way to the engine.
    fn needs_engine_table(&mut self) -> bool {
        let signals = self.target.eventfd.is_some();
        if !signals && let Some(carrier) = self.body.carrier() {
            carrier.give_up();
        }
        self.body.holds_file()
    }

    fn served(&self) -> Option<(Work, Server)> {
        Some(match &self.body {
            Body::Kernel(kernel) => (self.command.work(), kernel.server()),
            Body::Stream(stream) => (Work::Stream, stream.carrier.route.server()),
            Body::Cached(_) | Body::Ended => return None,
        })
    }

    fn cancelled(&self, engine: &Engine) -> Result<u32, Errno> {
        match self.command.kind {
            Kind::Poll(_) if engine.config().answers_as_aio => Ok(0),
            // Bytes of a stream cannot be taken back.
            _ if self.body.is_endless() && self.command.done > 0 => Ok(self.command.transferred()),
            _ => Err(Errno::CANCELED),
        }
    }

    fn release(&mut self, engine: &Engine, result: Result<u32, Errno>) {
        #[cfg(test)]
        crate::failure::inject(self.command.fd, crate::failure::At::Finish);
        let context = &self.target.context;
        if let Some(key) = self.in_flight.take() {
            context.in_flight.remove(key);
            if self.body.is_endless() {
                context.io().is_not_endless();
            }
        }
        if result != Err(Errno::CANCELED) || !mistake::makes(Mistake::KeepSlot) {
            context.dismiss(1, self.command.len);
        }
        match &mut self.body {
            Body::Kernel(kernel) => kernel.lane = None,
            Body::Cached(cached) if cached.is_write() => {
                self.body = Body::Ended;
                engine.threads.driver.dirtied();
            }
            _ => {}
        }
    }

    fn deliver(&mut self, engine: &Engine, result: Result<u32, Errno>) {
        let deliver = || {
            self.target.deliver(result);
            #[cfg(test)]
            crate::failure::inject(self.command.fd, crate::failure::At::Deliver);
        };
        engine.failures.caught("as it delivered an event", deliver);
        if let Some(end) = self.links.take().and_then(|links| links.end) {
            end.end(result);
        }
        if self.is_synchronous {
            self.target.context.io().synchronous_ends();
        }
    }
}

impl Operation for FileOperation {
    type Plug = Plug;

    fn iterate(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        let engine = plug.engine.clone();
        engine.failures.iteration(|| self.iterate_now(plug, wait))
    }

    fn complete(
        &mut self,
        plug: &mut Plug,
        wait: &Wait<'_, Self>,
        result: Result<u32, Errno>,
    ) -> Step {
        if self.over {
            return Step::Done(result);
        }
        let engine = plug.engine.clone();
        engine.failures.iteration(|| self.complete_now(plug, wait, result))
    }

    fn finish(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>, result: Result<u32, Errno>) {
        if !hold::in_engine_table() && self.needs_engine_table() {
            self.over = true;
            return plug.end_on_worker(wait.token(), result);
        }
        let engine = plug.engine.clone();
        let result = match result {
            Err(Errno::CANCELED) => self.cancelled(&engine),
            result => result,
        };
        if let Some((work, by)) = self.served() {
            self.stats().serve(work, by, 1);
        }
        // After a panic here the event still comes, and waiting requests still get their turn.
        engine.failures.caught("at the end of a request", || self.release(&engine, result));
        // Closed before the event is visible: a program that sees the event may unmount.
        if let Some(carrier) = self.body.carrier() {
            carrier.held = None;
        }
        engine.failures.caught("as others got their turn", || self.leave_place(&engine));
        self.body = Body::Ended;
        self.deliver(&engine, result);
    }
}
