//! From a command to an event or a request: validation, and the choice of the route.
//!
//! Nothing in this module waits for data or readiness; docs/internals/requests.md lists the
//! exceptions. A command is either refused with an errno, or completed at once, or goes on as a
//! direct request on the own queue or as a `FileOperation`.

mod attempt;
mod batch;
pub mod cached;
mod calm;
mod credentials;
mod descriptor;
mod direct;
mod event_counter;
mod kept;
mod linked;
mod plan;
mod queue;
mod reason;
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

/// The state of a command that was accepted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The command was completed at once: it has no event yet, and the caller still has the slot.
    Completed(Result<u32, Errno>),
    /// The request is in flight, and its event will come.
    Queued,
}

impl Started {
    /// Returns the result of a command that was completed or refused; `None`: its event will come.
    pub fn result(started: Result<Started, Errno>) -> Option<Result<u32, Errno>> {
        match started {
            Ok(Started::Queued) => None,
            Ok(Started::Completed(result)) => Some(result),
            Err(errno) => Some(Err(errno)),
        }
    }
}

/// One call of submit: several commands, which are handed over together at its end.
pub struct Submission<'a> {
    context: &'a Arc<Context>,
    is_lone: bool,
    /// The eventfd that the kernel signals at the end of the request that is being started.
    kernel_counter: Option<i32>,
    /// The file of the last direct transfer. Such transfers do not change the file's size, so the
    /// next transfer need not call fstat(2).
    last_file: Option<KnownFile>,
    batch: Batch<'a>,
    inline_left: usize,
    /// The eventfd in the form for requests that end on the engine's threads.
    event_counter: EventCounter,
    /// The eventfd in the form for requests that may end on any thread.
    counter_everywhere: EventCounter,
    uncommitted: Uncommitted,
    links: Option<Box<Links>>,
    user_counts: UserCounts,
    credentials: Option<Arc<Credentials>>,
}

/// Commands on user files that are not yet in the statistics.
#[derive(Clone, Copy, Default)]
struct UserCounts {
    /// Commands that were completed at once.
    completed: u64,
    /// Reads that found all bytes cached.
    hits: u64,
    /// Reads that did not.
    misses: u64,
}

impl<'a> Submission<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Submission<'a> {
        Submission::of(context, usize::MAX)
    }

    /// Begins a submission of `count` requests. Native AIO gets a single direct request at once.
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
            user_counts: UserCounts::default(),
            credentials: None,
        }
    }

    /// Starts a command for which the caller has reserved a slot.
    ///
    /// # Errors
    /// As for io_submit(2): the command was refused, nothing is in flight, and the caller still has
    /// the slot. `EBADF`: the descriptor is not open, or not open for this kind of request.
    /// `EINVAL`: the file does not support the request. `EOPNOTSUPP`: unknown flags. `EAGAIN`: too
    /// many files or requests are in flight, and the caller may try again; the first bytes of a
    /// write that is not an append may be in the file by then.
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
            // A caller that gets EAGAIN repeats the same write; that would be wrong for an append.
            Err(Errno::AGAIN) if !command.is_append() => Err(Errno::AGAIN),
            // If bytes have been transferred, they are the result, not a later error, as in
            // read(2).
            Err(_) if command.done > 0 => {
                Ok(self.completed(command.work(), Ok(command.transferred())))
            }
            decided => decided,
        }
    }

    /// Starts a command as [`Submission::start`] does, and delivers the event if the command was
    /// completed at once.
    ///
    /// # Errors
    /// The errors of [`Submission::start`].
    pub fn submit(&mut self, command: Command, target: EventTarget) -> Result<(), Errno> {
        self.start(command, target).map(|started| self.deliver(&target, started))
    }

    /// Delivers the event of a command that was completed at once.
    pub fn deliver(&mut self, target: &EventTarget, started: Started) {
        if let Started::Completed(result) = started {
            Target::deliver_inline(self.context, target, result);
            self.batch.has_delivered = true;
        }
    }

    /// Hands over the requests that were started, and adds the completed ones to the statistics.
    pub fn finish(mut self) {
        self.hand_over();
        let stats = self.context.io().stats();
        let UserCounts { completed, hits, misses } = self.user_counts;
        if completed > 0 {
            stats.add(|c| &c.iterations, completed);
            stats.add(|c| &c.completed_inline, completed);
        }
        if let (true, Some(cache)) = (hits + misses > 0, self.context.engine().user_files.cache()) {
            cache.count_reads(hits, misses);
        }
    }

    fn decide(&mut self, command: &mut Command, target: EventTarget) -> Result<Started, Errno> {
        match command.kind {
            Kind::Poll(events) => self.poll(events, command, target),
            Kind::Fsync | Kind::Fdatasync => self.sync(command, target),
            Kind::Read | Kind::Write => self.transfer(command, target)?.ok_or(Errno::INVAL),
        }
    }

    fn completed(&self, work: Work, result: Result<u32, Errno>) -> Started {
        let stats = self.context.io().stats();
        stats.serve(work, Server::Submit, 1);
        stats.add(|c| &c.iterations, 1);
        stats.add(|c| &c.completed_inline, 1);
        Started::Completed(result)
    }

    pub(crate) fn copied(&mut self, bytes: usize) {
        self.inline_left = self.inline_left.saturating_sub(bytes);
        self.context.hints.burst.copied(bytes);
    }

    fn hand_over(&mut self) {
        if !self.uncommitted.is_empty() {
            self.commit_own();
        }
        self.batch.hand_over(self.context);
    }
}

impl Submission<'_> {
    /// Commits the direct requests of this submission that `command` must not overtake, and gives
    /// places in the order to earlier requests that the kernel may carry out after `command`. `end`
    /// is the end of the file; with `u64::MAX`, `command` is taken not to move the end.
    fn commit_before(&mut self, command: &Command, end: u64) {
        if self.uncommitted.precede(command, end) {
            self.commit_own();
        }
        self.batch.take_places_before((command, end), self.context);
    }

    /// Calls `commit_before` again for a write that moves the end of the file: earlier requests
    /// must find the old end.
    fn commit_before_end(&mut self, command: &Command, stat: &Stat) {
        let end = FileState::of(stat).end;
        if (command.offset as u64).saturating_add(command.len) > end {
            self.commit_before(command, end);
        }
    }

    /// Starts the queued direct requests. Refused ones move to other routes, still inside submit:
    /// afterwards the application may close their files.
    fn commit_own(&mut self) {
        self.uncommitted.clear();
        self.carry_elsewhere(self.context.own.commit());
    }

    fn carry_elsewhere(&mut self, refused: Refused) {
        if refused.bios.is_empty() && refused.undecided.is_empty() {
            return;
        }
        let credentials = self.credentials();
        let plug = self.batch.plug(self.context.engine());
        own_queue::carry_elsewhere(self.context, refused, &credentials, plug);
    }
}

/// If the caller returns early, by an error or a panic, its started requests are still handed over.
impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}
