//! From a command to what a user file does with it: the copy of what is cached, or a request.

use crate::{
    Command, Kind, Target, UserFile,
    context::{REQUEST_BYTES, RUN_BYTES_MAX},
    operation::{FileOperation, Route},
    order::Access,
    plug::{Place, Plug},
    submit::{Reply, Submission, reach},
    user::{BothTables, UserOperation},
};
use nowait_block::bio::Descriptor;
use nowait_cache::{FRAME_BYTES, copy::User};
use nowait_retry::Request;
use nowait_sys::{Errno, fd};
use std::sync::Arc;

/// How many requests before its own the bytes of a request are asked for.
const AHEAD: usize = 4;

impl Submission<'_> {
    /// Starts a command on a user file, with an event for each, also for those over at once.
    ///
    /// # Errors
    /// As [`Submission::start_on`]. `EOPNOTSUPP`: a write that must not wait.
    pub fn start_cached(
        &mut self,
        file: &Arc<UserFile>,
        command: Command,
        reply: &Reply,
    ) -> Result<(), Errno> {
        if command.wants_nowait() && command.kind == Kind::Write {
            return Err(Errno::OPNOTSUPP); // as ext4 says
        }
        let nowait = command.wants_nowait();
        let result = match self.start_on(file, command, reply) {
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) => Ok(bytes),
            Err(Errno::AGAIN) if nowait => Err(Errno::AGAIN),
            Err(errno) => return Err(errno),
        };
        Target::deliver_inline(self.context, reply, result);
        self.completed = true;
        Ok(())
    }

    /// Starts a command on a user file, whose descriptor and status flags other than O_DSYNC and
    /// O_DIRECT (a write is on disk when it ends) do not matter. `Some`: it was over at once, there
    /// will be no event, and the slot is still the caller's.
    ///
    /// # Errors
    /// As [`Submission::start`]. `EBADF`: a write to a file that could not be opened for that.
    /// `EAGAIN` also: a read that must not wait, and nothing of it is cached.
    pub fn start_on(
        &mut self,
        file: &Arc<UserFile>,
        command: Command,
        reply: &Reply,
    ) -> Result<Option<u32>, Errno> {
        let key = file.key();
        let orders = self.context.engine().orders();
        let (range, access) = reach(&command);
        if access == Access::Write && !file.is_writable() {
            return Err(Errno::BADF);
        }
        let waits = !orders.is_empty() && orders.conflicts(key, &range, access);
        let operation = match command.kind {
            Kind::Read if !waits => {
                // SAFETY: whoever made the command promised that its segments live until the end.
                let mut user = unsafe { User::new(command.segments.clone()) };
                let (offset, len) = (command.offset as u64, user.len());
                let done = file.cached().read_cached(offset, &mut user);
                if done == len || offset + done as u64 >= file.cached().size() {
                    self.count_inline();
                    return Ok(Some(done as u32));
                }
                if command.wants_nowait() {
                    return if done > 0 { Ok(Some(done as u32)) } else { Err(Errno::AGAIN) };
                }
                UserOperation::rest_of_read(file, offset, done, user)
            }
            Kind::Read if command.wants_nowait() => return Err(Errno::AGAIN),
            _ => {
                // SAFETY: as above.
                let mut operation = unsafe { UserOperation::of(file, &command) }?;
                if !waits && let Some(result) = operation.try_now() {
                    self.context.engine().dirtied();
                    self.context.engine().run_kicked();
                    self.count_inline();
                    return result.map(Some);
                }
                operation
            }
        };
        self.user_request(file, command, operation, reply)?;
        Ok(None)
    }

    /// Holds the event counter for the engine's threads, and keeps a number of it in the
    /// application's table for the requests that end in one of its calls.
    fn event_counter_everywhere(
        &mut self,
        reply: &Reply,
    ) -> Result<Option<Arc<BothTables>>, Errno> {
        let Some(number) = reply.eventfd else { return Ok(None) };
        if let Some((known, both)) = &self.counter_everywhere
            && *known == number
        {
            return Ok(Some(both.clone()));
        }
        let engine = self.context.engine();
        engine.users().graves.clear();
        let both = BothTables::new(engine, fd::duplicate(number, fd::high_floor())?)?;
        self.counter_everywhere = Some((number, both.clone()));
        Ok(Some(both))
    }

    fn count_inline(&self) {
        let stats = self.context.io().stats();
        stats.add(|c| &c.iterations, 1);
        stats.add(|c| &c.completed_inline, 1);
    }

    fn user_request(
        &mut self,
        file: &Arc<UserFile>,
        command: Command,
        user: UserOperation,
        reply: &Reply,
    ) -> Result<(), Errno> {
        let eventfd = self.event_counter_everywhere(reply)?;
        let cost = command.len as usize + REQUEST_BYTES;
        // A plain write is over when it is copied: nobody else would be quicker.
        let waits = command.kind == Kind::Read || command.durable().is_some();
        let (context, (range, access)) = (self.context, reach(&command));
        let engine = context.engine();
        if access == Access::Write {
            engine.dirtied();
        }
        let place = (reply.data, reply.obj);
        let mut operation = FileOperation::new(command, context, place, Route::Own);
        operation.target.eventfd = eventfd.map(|both| both as Arc<dyn Descriptor>);
        operation.user = Some(Box::new(user));
        let request = Request::new(operation, engine.kicked().clone());
        request.prepare(|operation, wait| {
            let (ticket, _) = engine.orders().enter(file.key(), range, access, || wait.entry());
            operation.ticket = Some(ticket);
            if access != Access::Sync {
                context.io().promise();
                operation.promised = true;
            }
        });
        let plug = self.plug.get_or_insert_with(|| Plug::take(engine, Place::Caller));
        if waits && self.inline_left == 0 && engine.driver().is_some() {
            context.io().stats().add(|c| &c.punt_large, 1);
            plug.hand_to_driver(request);
            return Ok(());
        }
        self.inline_left = self.inline_left.saturating_sub(cost);
        request.run(plug, None);
        // The device works while the next ones are made.
        self.plugged_bytes += cost;
        if self.plugged_bytes >= RUN_BYTES_MAX {
            self.plugged_bytes = 0;
            plug.flush(Some(context));
        }
        Ok(())
    }
}

/// Asks the processor for what a batch of reads will copy, a few requests ahead of each.
///
/// Memory is slower than a look-up: the lines of all headers are asked for at once, those of the
/// bytes just before their turn.
#[derive(Debug, Default)]
pub struct Lookahead {
    /// Folio numbers by the request's index.
    folios: Vec<u32>,
}

impl Lookahead {
    /// Looks at all requests of a batch: file and byte offset of each, `None` for those that are
    /// no transfers of user files. The memory of the last batch serves again.
    pub fn look<'f>(&mut self, reads: impl Iterator<Item = Option<(&'f UserFile, u64)>>) {
        let look = |read: Option<(&UserFile, u64)>| match read {
            Some((file, at)) => file.cached().mapping().prefetch(at / FRAME_BYTES as u64),
            None => 0,
        };
        self.folios.clear();
        self.folios.extend(reads.map(look));
    }

    /// Before the request with this index: asks for the bytes of one some requests later. `at`
    /// gives file and offset by index.
    pub fn step<'f>(&self, index: usize, at: impl Fn(usize) -> Option<(&'f UserFile, u64)>) {
        let ahead = match index {
            0 => 0..AHEAD + 1,
            _ => index + AHEAD..index + AHEAD + 1,
        };
        for index in ahead {
            if let (Some(folio), Some((file, at))) = (self.folios.get(index), at(index)) {
                file.cached().mapping().prefetch_data(*folio, at as usize % FRAME_BYTES);
            }
        }
    }
}
