//! The iterations of a request that was not done inline.
//!
//! | outcome | when |
//! |---|---|
//! | `Retry` | an earlier request is in the way (order), the stream is not ready yet |
//! | `Queued` | a bio for what is left is on its way, or the driver will run the request |
//! | `Done` | everything transferred, end of file, or an error |

pub(crate) mod copy;
pub(crate) mod direct;
pub mod event;
pub(crate) mod in_flight;
pub(crate) mod stream;

use crate::{
    Command, Context, Engine, Kind, Target, UserOperation,
    cached::kernel_writes::KeptWrite,
    command::open_for,
    hold::{self, HeldFd},
    order::{self, Access, InodeKey, Links, StreamTicket, Ticket, reach},
    route::{Place, Plug, Route},
};
use in_flight::Key as InFlightKey;
use nowait_block::{Bio, BioOp, Lane, Segments, bio::Descriptor};
use nowait_retry::{Operation, Step, wait::Wait};
use nowait_sys::{Errno, cred::Credentials, file};
use std::sync::Arc;
use stream::{Attempt, StreamWait};

/// What the file behind a request is, as far as its iterations differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Has offsets and an end; a short transfer is continued.
    Seekable,
    /// Pipe, socket, terminal…: a short transfer is the result.
    Stream,
}

/// A request under way: progress is here, so any iteration can be the last.
pub struct FileOperation {
    pub(crate) command: Command,
    pub(crate) target: Target,
    pub(crate) route: Route,
    pub(crate) kind: FileKind,
    /// The iterations of a request to a user file, which has nothing of what follows.
    pub(crate) user: Option<Box<UserOperation>>,
    /// It is over, and a worker brings it to its end.
    over: bool,
    pub(crate) held: Option<Arc<HeldFd>>,
    /// The inode, where it was looked up.
    pub(crate) inode: Option<InodeKey>,
    pub(crate) ticket: Option<Ticket>,
    /// It writes past the page cache, and an open in that waits for its end.
    pub(crate) write: Option<KeptWrite>,
    pub(crate) lane: Option<Arc<Lane>>,
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// How a stream is waited for.
    pub(crate) way: StreamWait,
    /// By what a request on a stream takes its turn, and its place in that line.
    pub(crate) stream: Option<InodeKey>,
    turn: Option<StreamTicket>,
    /// The bio under way asks whether the stream is ready.
    asks: bool,
    pub(crate) waited_for_order: bool,
    /// Takes a place in the order of requests on its inode.
    pub(crate) registers: bool,
    /// Runs after one another with the other writes of its inode.
    pub(crate) wants_lane: bool,
    /// The kernel's AIO would have completed it inside io_submit.
    pub(crate) promised: bool,
    /// Takes its place in the order on the driver, see `copies.rs`.
    pub(crate) enters_late: bool,
    /// In memory, and small: the driver copies it itself.
    pub(crate) copies: bool,
    /// The driver's pass in which its bio was queued: a completion in the same pass did not
    /// wait for anything.
    queued_in_pass: u64,
    /// Counts as under way ([`Context::admit`]).
    pub(crate) admitted: bool,
    /// Its key among the context's requests.
    pub(crate) in_flight: Option<InFlightKey>,
    /// Requests it begins after, and that begin after it.
    pub(crate) links: Option<Box<Links>>,
}

impl FileOperation {
    /// Makes an operation at its beginning, on a file with offsets, without a held file; its event
    /// will carry `data` and `obj`.
    pub(crate) fn new(
        command: Command,
        context: &Arc<Context>,
        (data, obj): (u64, u64),
        route: Route,
    ) -> FileOperation {
        let target = Target { context: context.clone(), data, obj, eventfd: None };
        FileOperation {
            command,
            target,
            route,
            kind: FileKind::Seekable,
            user: None,
            over: false,
            held: None,
            inode: None,
            ticket: None,
            write: None,
            lane: None,
            credentials: None,
            way: StreamWait::Ready,
            stream: None,
            turn: None,
            asks: false,
            waited_for_order: false,
            registers: false,
            wants_lane: false,
            promised: false,
            enters_late: false,
            copies: false,
            queued_in_pass: 0,
            admitted: false,
            in_flight: None,
            links: None,
        }
    }

    /// Holds the file, which has this `stat` now.
    pub(crate) fn hold(&mut self, engine: &Engine, stat: &file::Stat) -> Result<(), Errno> {
        let (number, flags) = (self.command.fd, self.command.flags);
        let held = match stat.names_one_file() {
            true => engine.holds().hold(number, stat, flags)?,
            // The inode does not tell whether the number still means the file it meant before.
            false => engine.holds().hold_afresh(number)?,
        };
        self.held = Some(held);
        Ok(())
    }

    /// Registers the request in the order of its inode, or of its stream.
    pub(crate) fn take_place(&mut self, wait: &Wait<'_, Self>) {
        let engine = self.target.context.engine();
        if let Some(stream) = self.stream {
            self.turn = Some(engine.stream_queues().enter(stream, || wait.entry()));
            return;
        }
        let ((range, access), Some(key)) = (reach(&self.command), self.inode) else { return };
        let orders = engine.orders();
        let place = (range, access);
        let (ticket, lane) = orders.enter_by(order::Way::Kernel, key, place, || wait.entry());
        self.ticket = Some(ticket);
        self.lane = self.wants_lane.then_some(lane);
    }

    /// Tells whether an earlier request is in the way; the end of that kicks this one.
    pub(crate) fn is_blocked(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::is_blocked)
            || self.turn.as_ref().is_some_and(StreamTicket::is_blocked)
    }

    /// Lets go of what a request holds that is over, but of its file and its place.
    fn let_go(&mut self, engine: &Engine) {
        #[cfg(test)]
        crate::failure::inject(self.command.fd, crate::failure::At::Finish);
        if let Some(key) = self.in_flight.take() {
            self.target.context.in_flight.remove(key);
            if self.is_endless() {
                self.target.context.io().is_not_endless();
            }
        }
        if core::mem::take(&mut self.admitted) {
            self.target.context.dismiss(1, self.command.len);
        }
        if let Some(user) = self.user.take().filter(|user| user.is_write()) {
            drop(user);
            engine.dirtied();
        }
        self.lane = None;
    }

    /// Gives up its place in the order, and kicks those that waited for it.
    pub(crate) fn leave_place(&mut self, engine: &Engine) {
        if let Some(ticket) = self.ticket.take() {
            engine.orders().leave(&ticket);
        }
        if let Some(turn) = self.turn.take() {
            engine.stream_queues().leave(&turn);
        }
    }

    /// Promises the event soon, as the kernel's AIO has it at once.
    pub(crate) fn promise(&mut self) {
        if self.stream.is_none() && reach(&self.command).1 != Access::Sync {
            self.target.context.io().promise();
            self.promised = true;
        }
    }

    fn stats(&self) -> &nowait_retry::stats::Stats {
        self.target.context.io().stats()
    }

    fn bio(&self, fd: i32, wait: &Wait<'_, Self>) -> Bio {
        let mut bio = self.command.bio(fd, wait.token());
        if self.kind == FileKind::Stream {
            self.adapt_to_stream(&mut bio);
        }
        bio.rw_flags = self.rw_flags();
        bio.flow = Arc::as_ptr(&self.target.context) as u64;
        bio.hints.credentials.clone_from(&self.credentials);
        bio.hints.lane.clone_from(&self.lane);
        bio.hints.upfront = self.command.kind == Kind::Read && self.kind == FileKind::Seekable;
        bio
    }

    /// Returns the flags of its transfers.
    pub(crate) fn rw_flags(&self) -> u32 {
        match self.kind {
            FileKind::Seekable => self.target.context.engine().rw_flags(&self.command),
            FileKind::Stream => self.command.rw_flags,
        }
    }

    fn adapt_to_stream(&self, bio: &mut Bio) {
        bio.offset = -1;
        if self.asks {
            bio.op = BioOp::Poll(match self.command.kind {
                Kind::Write => POLLOUT,
                _ => POLLIN,
            });
            bio.segments = Segments::NONE;
        } else if self.way == StreamWait::Worker && self.command.kind == Kind::Write {
            bio.segments = bio.segments.first(stream::BLOCKING_WRITE_MAX);
        }
    }

    /// Puts the bio of the next step on the plug, or the request on the driver's list.
    fn dispatch(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        self.dispatch_by(self.route, plug, wait)
    }

    fn dispatch_by(&mut self, route: Route, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        if wait.is_cancelled() {
            return Step::Done(Err(Errno::CANCELED)); // a part is done: no more of it
        }
        if route == Route::Driver && plug.place() != Place::Driver {
            plug.hand_to_driver(wait.request());
            return Step::Queued;
        }
        let fd = match (&self.held, route) {
            (Some(held), Route::Driver) => held.number(),
            _ => Ok(self.command.fd),
        };
        let fd = match fd {
            Ok(fd) => fd,
            Err(errno) => return self.end(Err(errno)),
        };
        if self.copies && route == Route::Driver {
            return self.copy(fd);
        }
        let mut bio = self.bio(fd, wait);
        if route == Route::Workers {
            bio.file = self.held.clone().map(|held| held as Arc<dyn Descriptor>);
        }
        if bio.is_endless() {
            plug.watch_cancel(wait.request(), bio.token);
        }
        match route {
            Route::Own => plug.queue_own(bio),
            Route::Driver => {
                self.queued_in_pass = plug.pass();
                plug.queue_driver(bio);
            }
            Route::Workers => plug.queue_worker(bio),
        }
        Step::Queued
    }

    /// Goes on with a stream that had to be waited for.
    fn stream_complete(
        &mut self,
        plug: &mut Plug,
        wait: &Wait<'_, Self>,
        result: Result<u32, Errno>,
    ) -> Step {
        let asked = core::mem::take(&mut self.asks);
        match result {
            Ok(ready) if asked => self.stream_is_ready(ready, plug, wait),
            Ok(bytes) => {
                self.command.done += u64::from(bytes);
                let over = self.command.kind == Kind::Read || bytes == 0;
                if over || self.command.is_complete() {
                    return Step::Done(Ok(self.command.transferred()));
                }
                self.wait_for_stream(plug, wait)
            }
            // A ring that does not wait for this file.
            Err(Errno::AGAIN) if self.way == StreamWait::Ring && self.held.is_some() => {
                self.way = StreamWait::Ready;
                self.wait_for_stream(plug, wait)
            }
            result => self.end(result),
        }
    }

    /// Begins to wait for a stream, or goes on waiting.
    fn wait_for_stream(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        self.asks = self.way != StreamWait::Ring;
        self.dispatch(plug, wait)
    }

    /// Attempts what a stream says it is ready for.
    fn stream_is_ready(&mut self, ready: u32, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        if self.way == StreamWait::Ready {
            let number = self.held.as_ref().map_or(Ok(self.command.fd), |held| held.number());
            let attempt = match number {
                Ok(fd) => stream::attempt(&mut self.command, fd),
                Err(errno) => return self.end(Err(errno)),
            };
            match attempt {
                Attempt::Over(result) => return Step::Done(result),
                // Somebody else was faster.
                Attempt::Waits if ready & u32::from(POLLIN | POLLOUT) != 0 => {
                    return self.wait_for_stream(plug, wait);
                }
                // In error, but not for this request: asking again would never wait.
                Attempt::Waits | Attempt::Impossible => {}
            }
        }
        self.dispatch_by(Route::Workers, plug, wait)
    }

    pub(crate) fn end(&self, result: Result<u32, Errno>) -> Step {
        match result {
            // Bytes already transferred win over a later error, as in read(2).
            Err(_) if self.command.done > 0 => Step::Done(Ok(self.command.transferred())),
            result => Step::Done(result),
        }
    }

    fn transferred(&mut self, bytes: u32, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        self.command.done += u64::from(bytes);
        let is_read = self.command.kind == Kind::Read && !self.command.is_direct();
        if self.route == Route::Driver && is_read {
            let history = &self.target.context.history;
            match self.queued_in_pass == plug.pass() {
                true => history.hit(self.command.fd),
                false => history.waited(self.command.fd),
            }
        }
        // The rest of an append would be another append: others may have come in between.
        let over = bytes == 0 || self.command.is_complete() || self.command.is_append();
        if over || self.kind != FileKind::Seekable {
            return Step::Done(Ok(self.command.transferred()));
        }
        if self.held.is_none() {
            if !self.hold_late(plug) {
                return Step::Done(Ok(self.command.transferred()));
            }
            self.route = plug.engine().async_route();
        }
        self.dispatch(plug, wait)
    }

    /// Waits for somebody else's doing.
    pub(crate) fn is_endless(&self) -> bool {
        self.kind == FileKind::Stream || matches!(self.command.kind, Kind::Poll(_))
    }

    /// Returns where it goes when it must leave the own queue.
    pub(crate) fn other_route(&self, engine: &Engine) -> Route {
        if self.is_endless() { engine.stream_route() } else { engine.async_route() }
    }

    /// Tells whether a request on the own queue was given up because the thread that had entered
    /// the ring is gone. The kernel has moved nothing then: of what was moved it tells the count.
    fn was_given_up(&self, result: Result<u32, Errno>) -> bool {
        let given_up = matches!(result, Err(Errno::CANCELED | Errno::FAULT | Errno::INTR));
        given_up && self.route == Route::Own
    }

    /// Returns the result of a cancelled request.
    fn cancelled(&self, engine: &Engine) -> Result<u32, Errno> {
        match self.command.kind {
            Kind::Poll(_) if engine.config().cancelled_polls_are_zero => Ok(0),
            // What a stream has taken or given cannot be asked of it again.
            _ if self.kind == FileKind::Stream && self.command.done > 0 => {
                Ok(self.command.transferred())
            }
            _ => Err(Errno::CANCELED),
        }
    }

    /// Holds the file of a request on the own queue, which had only needed the number, to
    /// continue it elsewhere. False: the application has closed or reused the number meanwhile,
    /// and the result so far is the result.
    fn hold_late(&mut self, plug: &Plug) -> bool {
        let engine = plug.engine();
        let held = match engine.holds().is_elsewhere() {
            // A thread of the engine has brought the completion: its table has other numbers.
            true => engine.holds().fetch(self.command.fd).and_then(|held| {
                self.recognize(held.number()?)?;
                self.held = Some(held);
                Ok(())
            }),
            false => self.recognize(self.command.fd).and_then(|stat| self.hold(engine, &stat)),
        };
        held.is_ok()
    }

    /// Looks whether `fd` is the file of this request, opened as it was.
    fn recognize(&mut self, fd: i32) -> Result<file::Stat, Errno> {
        let stat = file::stat(fd)?;
        let flags = open_for(fd)?;
        let is_same = self.inode == Some((stat.dev, stat.ino));
        if !is_same || flags.bits() != self.command.flags.bits() {
            return Err(Errno::BADF);
        }
        self.command.flags = flags;
        Ok(stat)
    }

    /// See [`Operation::iterate`].
    fn iterate_now(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        #[cfg(test)]
        crate::failure::inject(self.command.fd, crate::failure::At::Iterate);
        if self.enters_late {
            if plug.place() != Place::Driver {
                plug.hand_to_driver(wait.request());
                return Step::Queued;
            }
            self.enters_late = false;
            self.enter_on_driver(plug, wait);
        }
        self.stats().add(|c| &c.iterations, 1);
        if let Some(links) = &mut self.links
            && let Some(after) = &links.after
        {
            match after.look(|| wait.entry()) {
                Some(true) => links.after = None,
                Some(false) => return Step::Done(Err(Errno::CANCELED)),
                None => {
                    self.stats().add(|c| &c.retries, 1);
                    return Step::Retry;
                }
            }
        }
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
        if let Some(user) = &mut self.user {
            let step = user.iterate(plug.cache_bios(), &|| wait.entry());
            if step == Step::Retry {
                self.stats().add(|c| &c.retries, 1);
            }
            return match step {
                // The kernel had a part before the file was opened in the page cache.
                Step::Done(Ok(bytes)) => Step::Done(Ok(self.command.transferred() + bytes)),
                Step::Done(error) => self.end(error),
                step => step,
            };
        }
        match self.kind {
            FileKind::Seekable => self.dispatch(plug, wait),
            FileKind::Stream => self.wait_for_stream(plug, wait),
        }
    }

    /// See [`Operation::complete`].
    fn complete_now(
        &mut self,
        plug: &mut Plug,
        wait: &Wait<'_, Self>,
        result: Result<u32, Errno>,
    ) -> Step {
        #[cfg(test)]
        crate::failure::inject(self.command.fd, crate::failure::At::Complete);
        self.stats().add(|c| &c.iterations, 1);
        if self.was_given_up(result) && !wait.is_cancelled() && self.hold_late(plug) {
            self.route = self.other_route(plug.engine());
            return self.dispatch(plug, wait);
        }
        if self.kind == FileKind::Stream {
            return self.stream_complete(plug, wait, result);
        }
        match (self.command.kind, result) {
            (Kind::Read | Kind::Write, Ok(bytes)) => self.transferred(bytes, plug, wait),
            (_, result) => self.end(result),
        }
    }
}

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;

impl Operation for FileOperation {
    type Plug = Plug;

    fn iterate(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>) -> Step {
        let engine = plug.engine().clone();
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
        let engine = plug.engine().clone();
        engine.failures.iteration(|| self.complete_now(plug, wait, result))
    }

    fn finish(&mut self, plug: &mut Plug, wait: &Wait<'_, Self>, result: Result<u32, Errno>) {
        if self.held.is_some() && !hold::in_engine_table() {
            // Only a thread that has the table of the file can close it before the event is
            // visible: then the application may unmount.
            self.over = true;
            return plug.end_on_worker(wait.token(), result);
        }
        let engine = plug.engine().clone();
        let result = match result {
            Err(Errno::CANCELED) => self.cancelled(&engine),
            result => result,
        };
        // Whatever fails here, the event comes, and others get their turn.
        engine.failures.caught("at the end of a request", || self.let_go(&engine));
        // Before the event is visible: whoever sees it may close the file and unmount.
        self.held = None;
        engine.failures.caught("as others got their turn", || self.leave_place(&engine));
        self.write = None;
        let alone = self.target.eventfd.is_some() || !self.promised;
        if self.copies && !alone && plug.place() == Place::Driver {
            return plug.end_copy(&self.target, result);
        }
        let deliver = || {
            self.target.deliver(result);
            #[cfg(test)]
            crate::failure::inject(self.command.fd, crate::failure::At::Deliver);
        };
        engine.failures.caught("as it delivered an event", deliver);
        if let Some(end) = self.links.take().and_then(|links| links.end) {
            end.end(result);
        }
        if self.promised {
            self.target.context.io().keep_promise();
        }
    }
}
