//! Direct transfers on the context's own queue, each as a single bio.

use super::{
    Submission,
    plan::{Facts, Plan},
};
use crate::{
    Command, Kind,
    cached::kernel_writes::{KernelWrite, Places},
    context::{Give, Submitters},
    hints::{Blocks, RememberedFile},
    order::FileState,
    request::{
        direct::{BLOCK, DirectRequest},
        event::EventTarget,
    },
    route::{Queue, Route},
};
use core::ops::ControlFlow;
use nowait_block::Refused;
use nowait_sys::{Errno, file::Stat};

impl<'a> Submission<'a> {
    /// Returns `Queue::None` if the context's queue cannot take this command.
    pub(super) fn own_queue(&self, command: &Command, target: &EventTarget) -> Queue {
        // The file system has refused direct requests of this descriptor with RWF_NOWAIT
        // (EOPNOTSUPP).
        let is_refused =
            command.is_direct() && self.context.hints.descriptors.always_waits(command.fd);
        let leaves = !command.is_direct() && self.is_crowded();
        match self.async_route(target) {
            Route::Own if !is_refused && !leaves => Queue::of(self.context.own.limits()),
            _ => Queue::None,
        }
    }

    /// Returns `true` if the driver's queue is cheaper than the own queue for a buffered read that
    /// missed. The kernel interrupts the thread that gave a buffered read to a ring, and that
    /// thread copies the bytes. If another thread takes the events, the copies cost more than the
    /// driver as soon as many requests are in flight (decision 44).
    fn is_crowded(&self) -> bool {
        let context = self.context;
        let in_flight = || context.io().outstanding();
        context.submitters == Submitters::Served && context.hints.depth.count(in_flight())
    }

    pub(super) fn way_to_own_queue(&self, facts: &Facts, may_block: bool) -> Give {
        match may_block {
            // If one call has several requests, the kernel sends none to the device until the last
            // one has its blocks allocated.
            true if self.is_lone || facts.finds_blocks() => Give::Waiting,
            false if self.is_lone && facts.own == Some(Queue::Aio) => Give::Now,
            _ => Give::Queue,
        }
    }

    /// Returns two facts about a direct transfer: whether the kernel can check it by the
    /// descriptor's number alone, and whether the file system may have to allocate blocks.
    pub(super) fn familiarity(&self, command: &Command) -> (bool, bool) {
        let engine = self.context.engine();
        if !self.is_lone || !command.is_direct() || command.done > 0 || command.is_append() {
            return (false, false);
        }
        let is_write = command.kind == Kind::Write;
        let end = (command.offset as u64).saturating_add(command.len);
        let (is_long, descriptors) = (command.len > BLOCK, &self.context.hints.descriptors);
        let needs_blocks = is_write || self.kernel_counter.is_some();
        let known = match (needs_blocks, is_long) {
            (true, _) => descriptors.blocks(command.fd),
            (false, true) => {
                let file = descriptors.file(command.fd);
                file.map(|file| Blocks { end: file.end, has_holes: false })
            }
            (false, false) => None,
        };
        let has_holes = match known.filter(|blocks| end <= blocks.end) {
            Some(blocks) => is_write && blocks.has_holes,
            None if needs_blocks || is_long => return (false, false),
            None => false,
        };
        let may_block = has_holes || self.kernel_counter.is_some();
        let is_familiar = match is_write || may_block {
            // The number may mean another open file by now. The open file's flags decide the order
            // of writes, and the file decides how long a request blocks.
            true => {
                engine.config().sees_closes
                    && engine.unordered.is_empty()
                    && engine.orders.is_empty()
            }
            false => !is_long || engine.config().sees_closes,
        };
        (is_familiar, has_holes)
    }

    pub(super) fn note_blocks(&self, command: &Command, stat: &Stat) {
        if command.is_direct() && stat.is_regular() {
            let (hints, end) = (&self.context.hints.descriptors, stat.size as u64);
            hints.has_blocks(command.fd, Blocks { end, has_holes: stat.may_have_holes() });
            if self.is_lone && command.kind == Kind::Read && command.len > BLOCK {
                hints.has_file(command.fd, RememberedFile { inode: (stat.dev, stat.ino), end });
            }
        }
    }

    /// Starts a transfer whose eventfd the kernel can signal; that number need not name an eventfd.
    /// Returns `false`, and starts nothing, if the kernel cannot signal the eventfd.
    ///
    /// # Errors
    /// The errors of [`Submission::start`].
    pub fn start_counted(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<bool, Errno> {
        let is_plain = command.is_direct() && command.rw_flags == 0;
        if !is_plain || self.context.engine().cached(command.fd).is_some() {
            return Ok(false);
        }
        self.commit_before(command, u64::MAX);
        self.kernel_counter = target.eventfd;
        let started = self.transfer(command, EventTarget { eventfd: None, ..target });
        self.kernel_counter = None;
        Ok(started?.is_some())
    }

    pub(super) fn is_signalled_by_kernel(&self, plan: Plan) -> bool {
        let looks = &self.context.looks;
        let holds = |number| looks.kernel_counter.hold(self.context, number).is_ok();
        let is_held = || self.kernel_counter.is_some_and(holds);
        plan.stays_with_kernel() && (matches!(plan, Plan::Look(_)) || is_held())
    }

    /// `write` counts the transfer if it is a write; the count is returned if the queue has no
    /// room.
    pub(super) fn give_transfer(
        &mut self,
        command: &Command,
        target: EventTarget,
        (file, write): (Option<FileState>, Option<KernelWrite<'a>>),
        give: Give,
    ) -> Result<ControlFlow<(), Option<KernelWrite<'a>>>, Errno> {
        let context = self.context;
        context.admit(command.len)?;
        let places = write.map(KernelWrite::forget);
        let given = self.give(command, target, (file, places), give);
        let refused = match given {
            // The kernel has refused the request, and has not signalled its eventfd.
            Some(refused) if self.kernel_counter.is_some() => refused.bios.first().copied(),
            Some(refused) => {
                self.carry_elsewhere(refused);
                None
            }
            None => {
                context.dismiss(1, command.len);
                let writes = &context.engine().user_files.writes;
                return Ok(ControlFlow::Continue(places.map(|places| writes.remember(places))));
            }
        };
        let Some((token, said)) = refused else { return Ok(ControlFlow::Break(())) };
        context.own.direct.take_back(token);
        context.dismiss(1, command.len);
        places.into_iter().for_each(|it| context.engine().user_files.writes.leave(it));
        Err(said.err().unwrap_or(Errno::AGAIN))
    }

    /// Gives a direct transfer to native AIO by its number alone. Returns `false`, with nothing in
    /// flight, if a fact is missing, the queue has no room, or the kernel refuses the transfer.
    pub(super) fn give_unseen(
        &mut self,
        command: &mut Command,
        target: EventTarget,
        may_block: bool,
    ) -> Result<bool, Errno> {
        let (context, is_write) = (self.context, command.kind == Kind::Write);
        let files = &context.engine().user_files;
        // The kernel may end a long read short. The rest is read only if the number means this file
        // then.
        let file = match is_write || command.len <= BLOCK {
            true => None,
            false => match context.hints.descriptors.file(command.fd) {
                Some(RememberedFile { inode, end }) => Some(FileState { key: inode, end }),
                None => return Ok(false),
            },
        };
        let begun = if is_write { files.begin_unknown(context) } else { None };
        if is_write && begun.is_none() {
            return Ok(false);
        }
        context.admit(command.len)?;
        let places = begun.map(KernelWrite::forget);
        let mut result = Ok(0);
        let give = if may_block { Give::Waiting } else { Give::Now };
        if let Some(refused) = self.give(command, target, (file, places), give) {
            let Some((token, said)) = refused.bios.first().copied() else {
                self.carry_elsewhere(refused);
                return Ok(true);
            };
            context.own.direct.take_back(token);
            result = said;
        }
        context.dismiss(1, command.len);
        places.into_iter().for_each(|places| files.writes.leave(places));
        // The kernel may have transferred a part, which must not be repeated on a stream.
        command.done += u64::from(result.unwrap_or(0));
        Ok(false)
    }

    /// Called after `admit`. Returns the requests that the kernel refused, or `None` if the queue
    /// has no room.
    fn give(
        &mut self,
        command: &Command,
        target: EventTarget,
        (file, places): (Option<FileState>, Option<Places>),
        give: Give,
    ) -> Option<Refused> {
        let context = self.context;
        let (counter, is_in_order) = (self.kernel_counter, context.own.keeps_order(command));
        let make = || DirectRequest {
            command: command.clone(),
            data: target.data,
            obj: target.obj,
            file,
            cancelled: false,
            counter,
            write: places,
            is_in_order,
            ticket: None,
        };
        let refused = context.own.give(context.engine(), command, (give, counter), make)?;
        context.io().stats().add(|c| &c.iterations, 1);
        self.batch.own_used = true;
        if give == Give::Queue {
            self.uncommitted.push(command, file);
        }
        Some(refused)
    }
}
