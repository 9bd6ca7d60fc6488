//! Carries out the plans of transfers, and starts syncs.

use super::{
    Reason, Started, Submission,
    attempt::Attempt,
    descriptor::Descriptor,
    plan::{Ask, Carry, Fact, Facts, File, Load, Plan, plan},
};
use crate::{
    Command, Kind, Opened, SubmitMode, UserFile,
    cached::kernel_writes::KernelWrite,
    hints::Device,
    order::{FileState, Reach},
    request::{Body, direct::BLOCK, event::EventTarget, kernel::KernelBody},
    route::{Queue, Route},
};
use core::ops::ControlFlow;
use nowait_sys::{
    Errno,
    file::{self, IoVec, Stat, rwf},
    mistake::{self, Mistake},
};
use std::sync::Arc;

impl<'a> Submission<'a> {
    /// Returns `None`, and starts nothing, if the kernel is to signal the eventfd but cannot.
    pub(super) fn transfer(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<Option<Started>, Errno> {
        let last = self.last_file.take().filter(|_| command.is_direct());
        let mut descriptor = Descriptor::new(command.fd, last);
        let mut facts = self.facts(command, &target);
        let mut write = None;
        loop {
            let plan = plan(&facts);
            if facts.load.counts_by_kernel && !self.is_signalled_by_kernel(plan) {
                return Ok(None);
            }
            let attempt = match plan {
                Plan::Look(fact) => {
                    self.look(fact, command, &target, &mut descriptor, &mut facts)?;
                    if fact == Fact::File {
                        match self.count(command, descriptor.stat()?) {
                            Ok(begun) => write = begun,
                            Err(_) if facts.load.counts_by_kernel => return Ok(None),
                            Err(file) => {
                                return self.start_cached(&file, command, &target).map(Some);
                            }
                        }
                    }
                    continue;
                }
                Plan::Refuse(errno) => return Err(errno),
                Plan::Stream => return self.stream(command, target, descriptor.stat()?).map(Some),
                Plan::Attempt { plain } if facts.ask.is_write => {
                    self.attempt_write(command, &mut descriptor, plain)?
                }
                Plan::Attempt { plain } => self.attempt_read(command, &mut descriptor, plain)?,
                Plan::Write => self.write_here(command, Device::of(descriptor.stat()?.dev)),
                Plan::WriteUnseen => self.write_unseen(command),
                Plan::Bio { may_block } => {
                    let file = descriptor.known.map(|stat| FileState::of(&stat));
                    let give = self.way_to_own_queue(&facts, may_block);
                    write = match self.give_transfer(command, target, (file, write), give)? {
                        ControlFlow::Break(()) => {
                            self.last_file = descriptor.known_file();
                            return Ok(Some(Started::Queued));
                        }
                        ControlFlow::Continue(write) => write,
                    };
                    facts.own = Some(Queue::None); // another thread took the last free slot
                    continue;
                }
                Plan::BioUnseen { may_block } => {
                    if self.give_unseen(command, target, may_block)? {
                        return Ok(Some(Started::Queued));
                    }
                    facts.missed = Some(Reason::Driver);
                    continue;
                }
                Plan::Request(carry) => {
                    let stat = descriptor.stat()?;
                    return self.kernel_request((command, stat), target, carry, write).map(Some);
                }
            };
            match attempt {
                Attempt::Done(Err(_)) | Attempt::Refused(_) if command.is_hinted() => {
                    self.look(Fact::Flags, command, &target, &mut descriptor, &mut facts)?;
                }
                Attempt::Stream => facts.file = Some(File::Stream),
                Attempt::Rest(reason) => facts.missed = Some(reason),
                Attempt::Done(result) => return Ok(Some(self.completed(command.work(), result))),
                Attempt::Refused(errno) => return self.refuse(command, errno).map(Some),
            }
        }
    }

    fn refuse(&self, command: &Command, errno: Errno) -> Result<Started, Errno> {
        // If the file system itself refuses a write, the kernel's AIO has accepted it already: the
        // error is the result.
        let is_write = command.kind == Kind::Write;
        match errno {
            Errno::OPNOTSUPP if is_write && is_refused_begun(command) => {
                Ok(self.completed(command.work(), Err(errno)))
            }
            errno => Err(errno),
        }
    }

    /// Makes only the first attempt at a read that [`Submission::start`] and
    /// [`Submission::start_on`] would make. Returns `None` if the read has to wait, or more facts
    /// are needed: then the caller must start the read.
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
        if command.is_direct() || self.context.engine().cached(command.fd).is_some() {
            return None;
        }
        let target = EventTarget { data: 0, obj: 0, eventfd: None };
        let mut descriptor = Descriptor::new(command.fd, None);
        let mut facts = self.facts(command, &target);
        loop {
            match plan(&facts) {
                // The request's file is looked up only to start it.
                Plan::Look(Fact::Flags | Fact::File) => return None,
                Plan::Look(fact) => {
                    self.look(fact, command, &target, &mut descriptor, &mut facts).ok()?;
                }
                Plan::Attempt { plain } => {
                    return match self.attempt_read(command, &mut descriptor, plain) {
                        Ok(Attempt::Done(result)) => {
                            Started::result(Ok(self.completed(command.work(), result)))
                        }
                        _ => None,
                    };
                }
                _ => return None,
            }
        }
    }

    pub(super) fn sync(
        &mut self,
        command: &Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        let stat = file::stat(command.fd)?;
        if !stat.has_offsets() && !stat.is_directory() {
            return Err(Errno::INVAL);
        }
        if self.shows_kernel(command, &stat)? {
            return Err(Errno::INVAL); // such files have no sync
        }
        if mistake::makes(Mistake::SyncAtOnce) {
            return Ok(Started::Completed(Ok(0)));
        }
        let body = Body::Kernel(KernelBody::on(Route::Workers, &stat));
        self.request(command, target, &stat, body, Reason::Fsync)
    }

    fn facts(&self, command: &Command, target: &EventTarget) -> Facts {
        let context = self.context;
        let seen = context.hints.descriptors.may_be_in_memory(command.fd);
        let in_memory = match seen {
            _ if command.is_in_memory() => Some(true),
            Some(true) if command.is_hinted() => Some(true),
            Some(false) => Some(false),
            _ => None,
        };
        let load = Load {
            offloads: context.mode == SubmitMode::Offload,
            answers_as_aio: context.answers_as_aio(),
            has_callers: context.defers(target),
            counts_by_kernel: self.kernel_counter.is_some(),
            is_alone: context.io().outstanding() == 1,
            has_budget: self.inline_left > 0,
            driver: context.engine().queues.driver_kind(),
        };
        let seems_in_memory = seen == Some(true);
        Facts { ask: self.ask(command), load, in_memory, seems_in_memory, ..Facts::default() }
    }

    fn ask(&self, command: &Command) -> Ask {
        let (is_familiar, finds_blocks) = self.familiarity(command);
        Ask {
            is_write: command.kind == Kind::Write,
            is_direct: command.is_direct(),
            is_hinted: command.is_hinted(),
            wants_nowait: command.wants_nowait(),
            is_durable: command.is_synchronous(),
            is_empty: command.len == 0,
            is_long: command.len > BLOCK,
            has_begun: command.done > 0,
            is_familiar,
            finds_blocks,
            is_linked: self.links.is_some(),
            begins_later: self.begins_later(),
        }
    }

    fn look(
        &self,
        fact: Fact,
        command: &mut Command,
        target: &EventTarget,
        descriptor: &mut Descriptor,
        facts: &mut Facts,
    ) -> Result<(), Errno> {
        let context = self.context;
        match fact {
            Fact::Flags => {
                if command.refresh()? {
                    context.hints.descriptors.remember_flags(command.fd, command.flags);
                }
                facts.ask = self.ask(command);
                if facts.ask.is_write || facts.missed.is_none() {
                    *facts = self.facts(command, target);
                }
            }
            Fact::File => facts.file = Some(self.file(command, descriptor.stat()?)?),
            Fact::Memory => facts.in_memory = Some(self.is_in_memory(descriptor)?),
            Fact::Order => facts.must_wait = Some(self.must_wait(command, descriptor)?),
            Fact::Calm => facts.is_calm = Some(self.is_calm(command, descriptor.stat()?)),
            Fact::History => {
                facts.is_worth_it = Some(context.hints.descriptors.favours_attempt(command.fd));
            }
            Fact::Own => facts.own = Some(self.own_queue(command, target)),
        }
        // A pipe in packet mode has the flag of direct files (O_DIRECT).
        if descriptor.known.is_some_and(|it| !it.has_offsets() && !it.is_directory()) {
            facts.file = Some(File::Stream);
        }
        Ok(())
    }

    fn file(&self, command: &Command, stat: &Stat) -> Result<File, Errno> {
        Ok(match stat {
            stat if stat.is_directory() => File::Folder,
            stat if !stat.has_offsets() => File::Stream,
            stat if self.shows_kernel(command, stat)?
                && self.refuses_plain_calls(command, stat) =>
            {
                File::Plain
            }
            stat if stat.is_regular() => {
                let end = command.offset.saturating_add(command.len as i64);
                let extends = end > stat.size || command.is_append();
                File::Regular { extends, has_holes: stat.may_have_holes() }
            }
            _ => File::Device,
        })
    }

    fn shows_kernel(&self, command: &Command, stat: &Stat) -> Result<bool, Errno> {
        // Files that show the kernel's state have no blocks.
        if stat.blocks != 0 || !stat.is_regular() || !self.context.answers_as_aio() {
            return Ok(false);
        }
        Ok(self.context.engine().filesystem(stat, command.fd)?.shows_kernel)
    }

    /// Returns the user file as the error if the engine has opened the file in its page cache
    /// meanwhile. Records the size of the file of a direct transfer, and whether it may have holes.
    fn count(
        &mut self,
        command: &Command,
        stat: &Stat,
    ) -> Result<Option<KernelWrite<'a>>, Arc<UserFile>> {
        self.note_blocks(command, stat);
        if command.kind != Kind::Write || !stat.has_offsets() {
            return Ok(None);
        }
        self.commit_before_end(command, stat);
        self.context.engine().user_files.begin_write((stat.dev, stat.ino)).map(Some)
    }

    fn kernel_request(
        &mut self,
        (command, stat): (&Command, &Stat),
        target: EventTarget,
        carry: Carry,
        write: Option<KernelWrite<'_>>,
    ) -> Result<Started, Errno> {
        let mut body = KernelBody::on(carry.route, stat);
        if let Some(write) = write {
            let range = Reach::of(command, stat.size as u64).range;
            let fs = self.context.engine().filesystem(stat, command.fd)?;
            body.credentials =
                if fs.credentials_matter(stat, &range) { self.credentials()? } else { None };
            body.write = Some(write.keep(self.context));
        }
        body.wants_lane = carry.in_turn;
        body.enters = carry.enters;
        if carry.is_deferred {
            if command.kind == Kind::Read && carry.reason == Reason::Miss {
                self.context.engine().known.begin_missed_read(command);
            }
            body.defer(self.context, command.fd);
        }
        self.request(command, target, stat, Body::Kernel(body), carry.reason)
    }
}

/// Returns `true` if the file system, and not the kernel before it, has refused a write with
/// RWF_NOWAIT. The kernel refuses it earlier if no request on the file may have that flag, or if
/// the file does not take another of the write's flags. A read at an offset without data shows
/// which; if the file is not open for reading, the answer is `true`.
fn is_refused_begun(command: &Command) -> bool {
    const NOWHERE: i64 = i64::MAX - 4097;
    if !command.wants_nowait() || command.rw_flags & (rwf::ATOMIC | rwf::DONTCACHE) != 0 {
        return false;
    }
    let mut byte = 0u8;
    let part = IoVec { base: &raw mut byte, len: 1 };
    // SAFETY: room for a byte.
    let asked = unsafe { file::preadv2(command.fd, &[part], NOWHERE, rwf::NOWAIT) };
    asked != Err(Errno::OPNOTSUPP)
}
