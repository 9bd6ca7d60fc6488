//! From a command to an event or a request: validation, the choice of a way and a route.
//!
//! Nothing here waits for data or readiness (docs/internals/requests.md: where it may wait all the
//! same). A request is either refused with an errno, ended on the spot, or made
//! into a `FileOperation` that an own queue, the driver or a worker carries on.

mod buffered;
pub mod cached;
mod calm;
mod direct;
mod inline;
mod kept;
mod linked;
mod offload;
mod queue;
mod reason;
mod rights;
mod stream;
mod uncommitted;

use crate::{
    Command, Context, Kind, Opened, Target,
    engine::section::Section,
    hold::BothTables,
    hold::HeldFd,
    order::{FileState, Links},
    route::{Place, Plug, own_queue},
};
use core::mem::take;
use inline::{Attempt, LazyStat};
use nowait_sys::{Errno, cred::Credentials, file::Stat};
use reason::Reason;
use std::sync::Arc;
use uncommitted::Uncommitted;

pub use crate::request::event::EventTarget;

/// What has come of a command that was started.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It was over at once: it has no event yet, and the slot is still the caller's.
    Completed(Result<u32, Errno>),
    /// It is in flight, and its event will come.
    Queued,
}

impl Started {
    /// Returns the result of a command that is over, or was refused; `None`: its event will come.
    pub fn result(started: Result<Started, Errno>) -> Option<Result<u32, Errno>> {
        match started {
            Ok(Started::Queued) => None,
            Ok(Started::Completed(result)) => Some(result),
            Err(errno) => Some(Err(errno)),
        }
    }
}

/// One call of submit: several commands, one hand-over at its end.
pub struct Submission<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) plug: Option<Box<Plug>>,
    /// Since there is a plug.
    pub(crate) section: Option<Section<'a>>,
    /// Bytes that may still be copied inside submit.
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
    /// Contexts in which others have taken one.
    ordered: Vec<Arc<Context>>,
    /// Direct requests that were queued and wait for the commit.
    uncommitted: Uncommitted,
    has_delivered: bool,
    /// Those of the request that is being started.
    links: Option<Box<Links>>,
    /// Requests that ended in their first iteration, and are not counted yet.
    pub(crate) inline: u64,
    /// Reads of user files that found all, and that did not, not counted yet.
    pub(crate) user_reads: (u64, u64),
    /// The submitter's, once one of the requests needed them.
    pub(crate) rights: Option<Arc<Credentials>>,
}

impl<'a> Submission<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Submission<'a> {
        Submission {
            context,
            plug: None,
            section: None,
            inline_left: context.inline_left(),
            plugged_bytes: 0,
            joined: false,
            event_counter: None,
            counter_everywhere: None,
            own_used: false,
            own_ordered: false,
            ordered: Vec::new(),
            uncommitted: Uncommitted::default(),
            has_delivered: false,
            links: None,
            inline: 0,
            user_reads: (0, 0),
            rights: None,
        }
    }

    /// Starts a command for which the caller has reserved a slot.
    ///
    /// # Errors
    /// As io_submit(2): the command was refused, nothing is in flight, the slot is still the
    /// caller's. `EBADF`: not open, or not open for this. `EINVAL`: not possible on this kind of
    /// file. `EOPNOTSUPP`: unknown flags. `EAGAIN`: too many files or requests are in flight, to be
    /// asked for again; the first bytes of a write that is no append may be in the file by then.
    pub fn start(&mut self, mut command: Command, target: EventTarget) -> Result<Started, Errno> {
        self.commit_before(&command, u64::MAX);
        let is_poll = matches!(command.kind, Kind::Poll(_));
        if let Some(file) = self.context.engine().cached(command.fd).filter(|_| !is_poll) {
            command.refresh()?;
            return self.start_cached(&file, &command, &target);
        }
        if self.begins_later() {
            command.refresh()?;
            return self.start_later(&command, target);
        }
        match self.decide(&mut command, target) {
            // A caller that gets EAGAIN asks for the same bytes again; but an append is done.
            Err(Errno::AGAIN) if !command.is_append() => Err(Errno::AGAIN),
            // Bytes already transferred win over a later error, as in read(2).
            Err(_) if command.done > 0 => Ok(self.completed(Ok(command.transferred()))),
            decided => decided,
        }
    }

    /// Makes the attempt at a read of a file, as [`Submission::start`] and [`Submission::start_on`]
    /// do first, and nothing else. `None`: there is something to wait for, or to look at first; it
    /// is to be started.
    pub fn read_at_once(
        &mut self,
        opened: Option<Opened<'_>>,
        command: &mut Command,
    ) -> Option<Result<u32, Errno>> {
        if command.len > self.inline_left as u64 {
            return None;
        }
        self.commit_before(command, u64::MAX);
        if let Some(opened) = opened {
            return self.read_cached_at_once(opened, command);
        }
        let mut status = LazyStat::new(command.fd);
        let is_plain = !command.is_direct()
            && self.context.engine().cached(command.fd).is_none()
            && self.tries_inline(command).is_ok()
            && self.is_stream_still(&mut status) == Ok(false)
            && self.must_wait(command, &mut status) == Ok(false);
        match is_plain.then(|| self.attempt_read(command, &mut status))? {
            Ok(Attempt::Done(result)) => Started::result(Ok(self.completed(result))),
            _ => None,
        }
    }

    /// Starts a command as [`Submission::start`] does, and delivers the event of one that is over
    /// at once, too.
    ///
    /// # Errors
    /// As [`Submission::start`].
    pub fn submit(&mut self, command: Command, target: EventTarget) -> Result<(), Errno> {
        self.start(command, target).map(|started| self.deliver(&target, started))
    }

    /// Delivers the event of a command that was over at once.
    pub fn deliver(&mut self, target: &EventTarget, started: Started) {
        if let Started::Completed(result) = started {
            Target::deliver_inline(self.context, target, result);
            self.has_delivered = true;
        }
    }

    /// Hands over what was started, and counts what was over at once.
    pub fn finish(mut self) {
        self.hand_over();
        let stats = self.context.io().stats();
        if self.inline > 0 {
            stats.add(|c| &c.iterations, self.inline);
            stats.add(|c| &c.completed_inline, self.inline);
        }
        let (cached, missed) = self.user_reads;
        if let (true, Some(cache)) = (cached + missed > 0, self.context.engine().cache_in_use()) {
            cache.count_reads(cached, missed);
        }
    }

    /// Chooses the way by the kind and the flags, for what is left of the command.
    fn decide(&mut self, command: &mut Command, target: EventTarget) -> Result<Started, Errno> {
        match command.kind {
            Kind::Poll(events) => self.poll(events, command, target),
            Kind::Fsync | Kind::Fdatasync => self.sync(command, target),
            Kind::Read if !command.is_direct() => self.buffered_read(command, target),
            Kind::Write if !command.is_direct() => self.buffered_write(command, target),
            _ => self.direct(command, target),
        }
    }

    /// Decides by flags just read, where what followed from remembered ones is not all.
    fn decide_again(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        command.refresh()?;
        self.decide(command, target)
    }

    /// Counts a command that is over at once.
    fn completed(&self, result: Result<u32, Errno>) -> Started {
        let stats = self.context.io().stats();
        stats.add(|c| &c.iterations, 1);
        stats.add(|c| &c.completed_inline, 1);
        Started::Completed(result)
    }

    /// Counts bytes that were copied inside submit.
    pub(crate) fn copied(&mut self, bytes: usize) {
        self.inline_left = self.inline_left.saturating_sub(bytes);
        self.context.burst.copied(bytes);
    }

    /// Hands over what was started since the last time.
    fn hand_over(&mut self) {
        if !self.uncommitted.is_empty() {
            self.commit_own();
        }
        if let Some(mut plug) = self.plug.take() {
            plug.flush(Some(self.context));
            plug.run_kicked(Some(self.context));
            Plug::put_back(plug);
        }
        if take(&mut self.own_used) {
            self.context.own_started();
        }
        if take(&mut self.own_ordered) {
            self.context.own_ordered();
        }
        take(&mut self.ordered).iter().for_each(|context| context.own_ordered());
        if take(&mut self.has_delivered) {
            self.context.io().notify();
        }
    }
}

impl Submission<'_> {
    /// Has the kernel take the direct requests of this submission that `command` must not overtake,
    /// and gives those that the kernel may carry out after it their places in the order. The file
    /// ends at `end`; `u64::MAX`: below that, as far as is known.
    fn commit_before(&mut self, command: &Command, end: u64) {
        if self.uncommitted.precede(command, end) {
            self.commit_own();
        }
        let unordered = &self.context.engine().unordered;
        unordered.take_places_before((command, end), self.context, &mut self.ordered);
    }

    /// Does the same once more for a write that moves the end of the file: what requests find there
    /// must be what was there before.
    fn commit_before_end(&mut self, command: &Command, stat: &Stat) {
        let end = FileState::of(stat).end;
        if (command.offset as u64).saturating_add(command.len) > end {
            self.commit_before(command, end);
        }
    }

    /// Starts the direct requests. What the kernel refuses goes on elsewhere, here and now: when
    /// submit has returned the application may close the files.
    fn commit_own(&mut self) {
        self.uncommitted.clear();
        let Some(own) = self.context.own() else { return };
        let refused = own.commit_or_refuse();
        if refused.bios.is_empty() && refused.undecided.is_empty() {
            return;
        }
        let rights = self.rights();
        self.section.get_or_insert_with(|| Section::enter(self.context.engine()));
        let plug =
            self.plug.get_or_insert_with(|| Plug::take(self.context.engine(), Place::Caller));
        own_queue::carry_elsewhere(self.context, refused, &rights, plug);
    }
}

/// A caller that returns early, with an error or in a panic, has started what it has started.
impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}
