//! From a command to an event or a request: validation, the choice of a way and a route.
//!
//! Nothing here waits. A request is either refused with an errno, ended on the spot, or made
//! into a `FileOperation` that an own queue, the driver or a worker carries on.

mod buffered;
pub mod cached;
mod direct;
mod inline;
mod linked;
mod offload;
mod queue;
mod rights;
mod stream;

use crate::{
    Command, Context, Kind, Target, engine::section::Section, hold::BothTables, hold::HeldFd,
    route::Plug,
};
use linked::Native;
use nowait_retry::stats::{Counter, Counters};
use nowait_sys::{Errno, cred::Credentials};
use std::sync::Arc;

pub use crate::request::event::Reply;

/// Most bytes that one submit copies itself: a huge hit must not stall the caller either.
pub const INLINE_BYTES_MAX: usize = 256 << 10;

/// One call of submit: several commands, one hand-over at its end.
pub struct Submission<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) plug: Option<Box<Plug>>,
    /// Since there is a plug.
    pub(crate) section: Option<Section<'a>>,
    pub(crate) inline_left: usize,
    /// What the requests to user files on the plug move.
    pub(crate) plugged_bytes: usize,
    /// The last of them writes by the bio of the one before: a bio that is full ends that.
    pub(crate) joined: bool,
    /// The event counter of this submission's requests, as the engine's threads will know it.
    event_counter: Option<(i32, Arc<HeldFd>)>,
    /// The same for requests that end on any thread.
    pub(crate) counter_everywhere: Option<(i32, Arc<BothTables>)>,
    own_used: bool,
    /// One of them has a place in the order.
    own_ordered: bool,
    /// Direct requests were queued and wait for the commit.
    own_queued: bool,
    pub(crate) completed: bool,
    pub(crate) native: Native,
    /// Requests that ended in their first iteration, and are not counted yet.
    pub(crate) inline: u64,
    /// Reads of user files that found all, and that did not, not counted yet.
    pub(crate) user_reads: (u64, u64),
    /// The submitter's, once one of the requests needed them.
    pub(crate) rights: Option<Arc<Credentials>>,
}

pub(crate) type Reason = fn(&Counters) -> &Counter;

impl<'a> Submission<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Submission<'a> {
        Submission {
            context,
            plug: None,
            section: None,
            inline_left: INLINE_BYTES_MAX,
            plugged_bytes: 0,
            joined: false,
            event_counter: None,
            counter_everywhere: None,
            own_used: false,
            own_ordered: false,
            own_queued: false,
            completed: false,
            native: Native::default(),
            inline: 0,
            user_reads: (0, 0),
            rights: None,
        }
    }

    /// Starts a command for which the caller has reserved a slot.
    ///
    /// # Errors
    /// As io_submit(2): the command was refused, nothing was started, the slot is still the
    /// caller's. `EBADF`: not open, or not open for this. `EINVAL`: not possible on this kind of
    /// file. `EOPNOTSUPP`: unknown flags. `EAGAIN`: too many files are in flight.
    pub fn start(&mut self, mut command: Command, reply: Reply) -> Result<(), Errno> {
        if let Some(file) = self.context.engine().cached(command.fd) {
            command.refresh()?;
            return self.start_cached(&file, &command, &reply);
        }
        if self.native.is_later() {
            command.refresh()?;
            return self.start_later(&command, reply);
        }
        match self.decide(&mut command, reply) {
            // A caller that gets EAGAIN asks for the same bytes again; but an append is done.
            Err(Errno::AGAIN) if !command.is_append() => Err(Errno::AGAIN),
            // Bytes already transferred win over a later error, as in read(2).
            Err(_) if command.done > 0 => {
                self.end(&reply, Ok(command.transferred()));
                Ok(())
            }
            decided => decided,
        }
    }

    /// Hands over what was started; the last word of a submission, as dropping it is.
    pub fn finish(self) {}

    /// Chooses the way by the kind and the flags, for what is left of the command.
    fn decide(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        match command.kind {
            Kind::Poll(events) => self.poll(events, command, reply),
            Kind::Fsync | Kind::Fdatasync => self.sync(command, reply),
            Kind::Read if !command.is_direct() => self.buffered_read(command, reply),
            Kind::Write if !command.is_direct() => self.buffered_write(command, reply),
            _ => self.direct(command, reply),
        }
    }

    /// Decides by flags just read, where what followed from remembered ones is not all.
    fn decide_again(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        command.refresh()?;
        self.decide(command, reply)
    }

    pub(crate) fn end(&mut self, reply: &Reply, result: Result<u32, Errno>) {
        let stats = self.context.io().stats();
        stats.add(|c| &c.iterations, 1);
        stats.add(|c| &c.completed_inline, 1);
        self.deliver(reply, result);
    }

    /// Delivers the result of what was over at once.
    pub(crate) fn deliver(&mut self, reply: &Reply, result: Result<u32, Errno>) {
        if self.native.tells {
            self.native.told = Some(result);
            return;
        }
        Target::deliver_inline(self.context, reply, result);
        self.completed = true;
    }
}

/// A submission that returns early, with an error or in a panic, has started what it has started.
impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if self.own_queued
            && let Some(own) = self.context.own()
        {
            own.commit();
        }
        if let Some(mut plug) = self.plug.take() {
            plug.flush(Some(self.context));
            plug.run_kicked(Some(self.context));
            Plug::put_back(plug);
        }
        if self.own_used {
            self.context.own_started();
        }
        if self.own_ordered {
            self.context.own_ordered();
        }
        if self.completed {
            self.context.io().notify();
        }
        if self.inline > 0 {
            let stats = self.context.io().stats();
            stats.add(|c| &c.iterations, self.inline);
            stats.add(|c| &c.completed_inline, self.inline);
        }
        let (cached, missed) = self.user_reads;
        if let (true, Some(cache)) = (cached + missed > 0, self.context.engine().cache_in_use()) {
            cache.count_reads(cached, missed);
        }
    }
}
