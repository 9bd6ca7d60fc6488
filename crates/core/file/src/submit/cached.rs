//! Starts a command on a cached file: copies the cached bytes, or makes a request.

use super::{Started, Submission};
use crate::{
    Command, Kind, UserFile,
    cached::{Opened, UserOperation},
    engine::section::Section,
    order::{Access, FileState, Reach},
    request::{Body, FileOperation, event::EventTarget},
    route::own_queue::REQUEST_BYTES,
};
use nowait_cache::{Ahead, FRAME_BYTES, copy::User};
use nowait_retry::Request;
use nowait_sys::{
    Errno, fd,
    mistake::{self, Mistake},
};
use smallvec::SmallVec;
use std::{ops::ControlFlow, sync::Arc};

/// [`Lookahead::step`] prefetches the bytes of the request this many positions later.
const AHEAD: usize = 2;

type Start = ControlFlow<u32, UserOperation>;

impl Submission<'_> {
    /// Starts a command on a cached file, by the rules of the kernel's AIO.
    ///
    /// # Errors
    /// As [`Submission::start_on`].
    pub fn start_cached(
        &mut self,
        file: &Arc<UserFile>,
        command: &Command,
        target: &EventTarget,
    ) -> Result<Started, Errno> {
        if command.kind == Kind::Write {
            if command.wants_nowait() {
                return Ok(Started::Completed(Err(Errno::OPNOTSUPP))); // as ext4 says
            }
            file.pin_writing(self.context.engine(), command.fd)?;
        }
        match self.start_on(file, command, target) {
            // The kernel may have transferred a part before the file was opened in the page cache.
            Ok(Started::Completed(Ok(bytes))) => {
                Ok(Started::Completed(Ok(command.transferred() + bytes)))
            }
            Err(Errno::AGAIN) if command.wants_nowait() => {
                Ok(Started::Completed(Err(Errno::AGAIN)))
            }
            started => started,
        }
    }

    /// Starts a command on a user file. The command's descriptor does not matter, and of its status
    /// flags only O_APPEND, O_SYNC, O_DSYNC and O_DIRECT do: with one of the last three, a write
    /// ends when its data have been written to the device.
    ///
    /// # Errors
    /// The errors of [`Submission::start`]. `EBADF`: a write to a file that is not open for
    /// writing. `EAGAIN` also: a read with RWF_NOWAIT of which no byte is cached, or that must wait
    /// for an earlier write.
    pub fn start_on<'a>(
        &mut self,
        opened: impl Into<Opened<'a>>,
        command: &Command,
        target: &EventTarget,
    ) -> Result<Started, Errno> {
        self.commit_before(command, u64::MAX);
        let opened = opened.into();
        let file = opened.file;
        let orders = &self.context.engine().orders;
        if command.kind == Kind::Write && !file.is_writable() {
            return Err(Errno::BADF);
        }
        let waits = self.begins_later() && !mistake::makes(Mistake::LinkNothing)
            || !orders.is_free_for(Access::of(command.kind))
                && orders.conflicts(file.key(), &reach_in(file, command));
        let operation = match command.kind {
            Kind::Read if !waits => match self.read_now(opened, command)? {
                Start::Break(bytes) => return Ok(Started::Completed(Ok(bytes))),
                Start::Continue(operation) => operation,
            },
            Kind::Read if command.wants_nowait() => return Err(Errno::AGAIN),
            // An append must run while no other write of the file does, so it takes a place in the
            // order.
            Kind::Write if !waits && !command.is_append() && command.durable().is_none() => {
                match self.write_now(file, command) {
                    Start::Break(bytes) => return Ok(Started::Completed(Ok(bytes))),
                    Start::Continue(operation) => operation,
                }
            }
            // SAFETY: the maker of the command promised that its segments live until the end.
            _ => unsafe { UserOperation::of(opened, command) }?,
        };
        self.user_request(file, command.clone(), operation, target)?;
        Ok(Started::Queued)
    }

    pub(super) fn read_cached_at_once(
        &mut self,
        opened: Opened<'_>,
        command: &Command,
    ) -> Option<Result<u32, Errno>> {
        let orders = &self.context.engine().orders;
        let file = opened.file;
        if !orders.is_free_for(Access::of(command.kind))
            && orders.conflicts(file.key(), &reach_in(file, command))
        {
            return None;
        }
        match self.read_now(opened, command) {
            Ok(Start::Break(bytes)) => Some(Ok(bytes)),
            _ => None,
        }
    }

    fn read_now(&mut self, opened: Opened<'_>, command: &Command) -> Result<Start, Errno> {
        let file = opened.file;
        // SAFETY: as above.
        let mut user = unsafe { User::new(command.segments.clone()) };
        let (offset, len) = (command.offset as u64, user.len());
        let done = file.cached().read_cached(offset, &mut user);
        if done == len || offset + done as u64 >= file.cached().size() {
            self.user_counts.completed += 1;
            self.user_counts.hits += 1;
            return Ok(Start::Break(done as u32));
        }
        self.user_counts.misses += 1;
        match command.wants_nowait() {
            true if done > 0 => Ok(Start::Break(done as u32)),
            true => Err(Errno::AGAIN),
            false => Ok(Start::Continue(UserOperation::rest_of_read(opened, offset, done, user))),
        }
    }

    fn write_now(&mut self, file: &Arc<UserFile>, command: &Command) -> Start {
        let (segments, offset) = command.rest();
        // SAFETY: as above.
        let mut user = unsafe { User::new(segments) };
        let len = user.len();
        let section = Section::enter(self.context.engine());
        let begun = file.cached().write_cached(offset, &mut user);
        drop(section);
        if begun.bytes > 0 {
            file.keep();
            self.context.engine().threads.driver.dirtied();
        }
        if begun.bytes < len {
            return Start::Continue(UserOperation::rest_of_write(file, offset, begun, user));
        }
        self.user_counts.completed += 1;
        Start::Break(begun.bytes as u32)
    }

    fn user_request(
        &mut self,
        file: &Arc<UserFile>,
        command: Command,
        user: UserOperation,
        target: &EventTarget,
    ) -> Result<(), Errno> {
        let context = self.context;
        let engine = context.engine();
        // A request that ends on a thread of the application signals the eventfd by a number in the
        // application's table.
        let hold = |number| {
            engine.drop_deferred();
            engine.in_both_tables(fd::duplicate_high(number)?, None)
        };
        let eventfd = self.counter_everywhere.held(target.eventfd, hold)?;
        context.admit(command.len)?;
        let cost = command.len as usize + REQUEST_BYTES;
        // A plain write is over when it is copied; another thread would not copy it sooner.
        let waits = command.kind == Kind::Read || command.durable().is_some();
        if command.kind == Kind::Write {
            engine.threads.driver.dirtied();
        }
        let state = FileState { key: file.key(), end: file.cached().size() };
        let body = Body::Cached(Box::new(user));
        let operation = FileOperation::new(command, context, target, eventfd, body);
        let operation = operation.with_links(self.links.take());
        let request = Request::new(operation, engine.threads.kicked.clone());
        request.prepare(|operation, wait| operation.take_cached_place(state, wait));
        context.register(&request, target.obj, false);
        let enough = self.inline_left == 0 && !self.batch.joins();
        if waits && enough && engine.queues.are_there() {
            context.io().stats().add(|c| &c.punt_large, 1);
            self.batch.plug(engine).hand_to_driver(request);
            return Ok(());
        }
        self.batch.run_joining(&request, cost, context);
        self.copied(cost);
        Ok(())
    }
}

fn reach_in(file: &UserFile, command: &Command) -> Reach {
    Reach::of(command, file.cached().size())
}

/// A transfer of a batch: its file, byte offset, and length.
pub type Transfer<'f> = (&'f UserFile, u64, usize);

/// Prefetches the cache lines that a batch of reads will copy, a few requests ahead.
///
/// `look` prefetches the headers of all requests of a batch, and each request's `step` prefetches
/// the bytes of a later request.
#[derive(Debug)]
pub struct Lookahead {
    folios: SmallVec<[u32; 32]>,
    what: Ahead,
}

impl Lookahead {
    /// Makes a look-ahead for batches whose bytes are copied, or lent, as `what` says.
    pub fn of(what: Ahead) -> Lookahead {
        Lookahead { folios: SmallVec::new(), what }
    }

    /// Prefetches the headers for all requests of a batch; `None` stands for requests that are not
    /// transfers of user files. Reuses the memory of the last batch.
    pub fn look<'f>(&mut self, transfers: impl Iterator<Item = Option<Transfer<'f>>>) {
        let look = |transfer: Option<Transfer<'_>>| match transfer {
            Some((file, at, _)) => file.cached().mapping().prefetch(at / FRAME_BYTES as u64),
            None => 0,
        };
        self.folios.clear();
        self.folios.extend(transfers.map(look));
    }

    /// Called before the request with this index: prefetches the bytes of a request some positions
    /// later. `at` returns the transfer by index.
    pub fn step<'f>(&self, index: usize, at: impl Fn(usize) -> Option<Transfer<'f>>) {
        let ahead = match index {
            0 => 0..AHEAD + 1,
            _ => index + AHEAD..index + AHEAD + 1,
        };
        for index in ahead {
            if let (Some(folio), Some((file, at, len))) = (self.folios.get(index), at(index)) {
                file.cached().mapping().prefetch_data(*folio, at, len, self.what);
            }
        }
    }
}
