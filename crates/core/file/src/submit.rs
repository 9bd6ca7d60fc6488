//! From a command to an event or a request: validation, the choice of a way and a route.
//!
//! Nothing here waits for data or readiness (docs/internals/requests.md: where it may wait all the
//! same). A request is either refused with an errno, ended on the spot, or made
//! into a `FileOperation` that an own queue, the driver or a worker carries on.

mod attempt;
mod batch;
pub mod cached;
mod calm;
mod descriptor;
mod direct;
mod event_counter;
mod kept;
mod linked;
mod plan;
mod queue;
mod reason;
mod credentials;
mod stream;
mod transfer;
mod uncommitted;

use crate::{
    Command, Context, Kind, Target,
    order::{FileState, Links},
    route::own_queue,
};
use batch::Batch;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use descriptor::KnownFile;
use event_counter::EventCounter;
use nowait_block::Refused;
use nowait_retry::stats::{Server, Work};
use nowait_sys::{
    Errno,
    cred::Credentials,
    file::Stat,
    mistake::{self, Mistake},
};
use reason::Reason;
use std::sync::Arc;
use uncommitted::Uncommitted;

pub use crate::request::event::EventTarget;

/// The state of a command that was started.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The request was over at once: it has no event yet, and the slot is still the caller's.
    Completed(Result<u32, Errno>),
    /// The request is in flight, and its event will come.
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
    context: &'a Arc<Context>,
    /// The submission has one request only.
    is_lone: bool,
    /// The eventfd that the kernel signals at the end of the request that is being started.
    kernel_counter: Option<i32>,
    /// Direct transfers leave the size of their file alone, so the next one need not look at it.
    last_file: Option<KnownFile>,
    batch: Batch<'a>,
    /// Bytes that may still be copied inside submit.
    inline_left: usize,
    /// The eventfd, in the form that the engine's threads use.
    event_counter: EventCounter,
    /// The eventfd for requests that end on any thread.
    counter_everywhere: EventCounter,
    /// Direct requests that were queued and wait for the commit.
    uncommitted: Uncommitted,
    /// Links of the request that is being started.
    links: Option<Box<Links>>,
    /// Requests that ended in their first iteration, and are not counted yet.
    inline: u64,
    /// Reads of user files that found all, and that did not, not counted yet.
    user_reads: (u64, u64),
    /// The submitter's, once one of the requests needed them.
    credentials: Option<Arc<Credentials>>,
}

impl<'a> Submission<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Submission<'a> {
        Submission::of(context, usize::MAX)
    }

    /// Begins a submission of so many requests: one alone goes to the kernel at once.
    pub fn of(context: &'a Arc<Context>, count: usize) -> Submission<'a> {
        Submission {
            context,
            is_lone: count == 1,
            kernel_counter: None,
            last_file: None,
            batch: Batch::default(),
            inline_left: context.inline_left(),
            event_counter: EventCounter::default(),
            counter_everywhere: EventCounter::default(),
            uncommitted: Uncommitted::default(),
            links: None,
            inline: 0,
            user_reads: (0, 0),
            credentials: None,
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
        if mistake::makes(Mistake::CountTogether) {
            static STARTED: AtomicU64 = AtomicU64::new(0);
            STARTED.fetch_add(1, Relaxed);
        }
        self.commit_before(&command, u64::MAX);
        let is_poll = matches!(command.kind, Kind::Poll(_));
        if let Some(file) = self.context.engine().cached(command.fd).filter(|_| !is_poll) {
            command.refresh()?;
            return self.start_cached(&file, &command, &target);
        }
        if self.begins_later() {
            command.refresh()?;
        }
        match self.decide(&mut command, target) {
            // A caller that gets EAGAIN asks for the same bytes again; but an append is done.
            Err(Errno::AGAIN) if !command.is_append() => Err(Errno::AGAIN),
            // Bytes already transferred win over a later error, as in read(2).
            Err(_) if command.done > 0 => {
                Ok(self.completed(command.work(), Ok(command.transferred())))
            }
            decided => decided,
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
            self.batch.has_delivered = true;
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
        if let (true, Some(cache)) = (cached + missed > 0, self.context.engine().user_files.cache())
        {
            cache.count_reads(cached, missed);
        }
    }

    /// Chooses the way by the kind, for what is left of the command.
    fn decide(&mut self, command: &mut Command, target: EventTarget) -> Result<Started, Errno> {
        match command.kind {
            Kind::Poll(events) => self.poll(events, command, target),
            Kind::Fsync | Kind::Fdatasync => self.sync(command, target),
            Kind::Read | Kind::Write => self.transfer(command, target)?.ok_or(Errno::INVAL),
        }
    }

    /// Counts a command that is over at once.
    fn completed(&self, work: Work, result: Result<u32, Errno>) -> Started {
        let stats = self.context.io().stats();
        stats.serve(work, Server::Submit, 1);
        stats.add(|c| &c.iterations, 1);
        stats.add(|c| &c.completed_inline, 1);
        Started::Completed(result)
    }

    /// Counts bytes that were copied inside submit.
    pub(crate) fn copied(&mut self, bytes: usize) {
        self.inline_left = self.inline_left.saturating_sub(bytes);
        self.context.hints.burst.copied(bytes);
    }

    /// Hands over what was started since the last time.
    fn hand_over(&mut self) {
        if !self.uncommitted.is_empty() {
            self.commit_own();
        }
        self.batch.hand_over(self.context);
    }
}

impl Submission<'_> {
    /// Commits the direct requests of this submission that `command` must not overtake, and gives
    /// places in the order to those that the kernel may carry out after it. The file ends at `end`;
    /// `u64::MAX`: below that, as far as is known.
    fn commit_before(&mut self, command: &Command, end: u64) {
        if self.uncommitted.precede(command, end) {
            self.commit_own();
        }
        self.batch.take_places_before((command, end), self.context);
    }

    /// Does the same once more for a write that moves the end of the file: what requests find there
    /// must be what was there before.
    fn commit_before_end(&mut self, command: &Command, stat: &Stat) {
        let end = FileState::of(stat).end;
        if (command.offset as u64).saturating_add(command.len) > end {
            self.commit_before(command, end);
        }
    }

    /// Starts the direct requests. Those that the kernel refuses go on elsewhere, here and now:
    /// when submit has returned the application may close the files.
    fn commit_own(&mut self) {
        self.uncommitted.clear();
        self.carry_elsewhere(self.context.own.commit());
    }

    /// Moves requests that the own queue has refused to other routes.
    fn carry_elsewhere(&mut self, refused: Refused) {
        if refused.bios.is_empty() && refused.undecided.is_empty() {
            return;
        }
        let credentials = self.credentials();
        let plug = self.batch.plug(self.context.engine());
        own_queue::carry_elsewhere(self.context, refused, &credentials, plug);
    }
}

/// A caller that returns early, with an error or in a panic, has started what it has started.
impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}
