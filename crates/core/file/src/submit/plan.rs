//! The plan of a transfer, computed from the known facts without a system call.
//!
//! If a fact is needed and not known, the plan is to find it ([`Plan::Look`]), and then a new plan
//! is made. A new plan is also made after an attempt that did not complete the transfer. A cached
//! read is planned without a look at its file.

use super::Reason;
use crate::route::{Queue, Route};
use nowait_sys::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The submission finds this fact, and plans again.
    Look(Fact),
    /// The submission refuses the command, as io_submit(2) does.
    Refuse(Errno),
    /// The submission starts a transfer of a stream.
    Stream,
    /// The submission transfers the bytes that it can without blocking. `plain`: the file is in
    /// memory, and no call on it blocks.
    Attempt { plain: bool },
    /// The submission writes by one call, which may block.
    Write,
    /// Like `Write`, but the flags are only remembered: in the call, the kernel checks the
    /// descriptor.
    WriteUnseen,
    /// The submission gives the context's queue one bio, without making a request.
    Bio { may_block: bool },
    /// Like `Bio`, but the flags are only remembered: the kernel checks the descriptor.
    BioUnseen { may_block: bool },
    /// The submission makes a request.
    Request(Carry),
}

impl Plan {
    /// Returns `true` if the plan so far is one bio that stays with the kernel to its end.
    pub(crate) fn stays_with_kernel(self) -> bool {
        matches!(self, Plan::Look(_) | Plan::BioUnseen { .. } | Plan::Bio { may_block: true })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The status flags, which are only remembered.
    Flags,
    File,
    Memory,
    /// [`Facts::must_wait`].
    Order,
    Calm,
    /// [`Facts::is_worth_it`].
    History,
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carry {
    /// The route, unless a caller carries the request.
    pub(crate) route: Route,
    /// `true`: the thread that waits for the request carries it out.
    pub(crate) is_deferred: bool,
    /// `true`: a worker carries the request out after the earlier writes of its inode.
    pub(crate) in_turn: bool,
    /// `true`: the submitter gives the request to the driver's queue itself, and blocks until the
    /// file system has allocated its blocks.
    pub(crate) enters: bool,
    pub(crate) reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Stream,
    Folder,
    /// A file that shows the kernel's state, and whose driver knows plain calls only.
    Plain,
    /// A block device, or another file with offsets.
    Device,
    Regular {
        extends: bool,
        /// `true`: the file system may have to allocate blocks for the transfer.
        has_holes: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) is_write: bool,
    pub(crate) is_direct: bool,
    pub(crate) is_hinted: bool,
    pub(crate) wants_nowait: bool,
    pub(crate) is_durable: bool,
    pub(crate) is_empty: bool,
    /// `true`: longer than a block, so that the kernel may carry out only a part.
    pub(crate) is_long: bool,
    pub(crate) has_begun: bool,
    /// `true`: the kernel can check the direct transfer by its number alone. The transfer is the
    /// only one of its submission, and reads at most one block or does not go beyond the file's
    /// last known end.
    pub(crate) is_familiar: bool,
    /// `true`: the file system may have to allocate blocks for the direct write.
    pub(crate) finds_blocks: bool,
    pub(crate) is_linked: bool,
    /// `true`: the command begins after another request, so nothing is attempted now.
    pub(crate) begins_later: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// `true`: submit attempts nothing that may wait.
    pub(crate) offloads: bool,
    pub(crate) answers_as_aio: bool,
    /// `true`: threads come for events by calls that may block, and the request signals no eventfd.
    pub(crate) has_callers: bool,
    /// `true`: the kernel signals the request's eventfd, so the own queue must carry the request to
    /// its end.
    pub(crate) counts_by_kernel: bool,
    /// `true`: no other request of the context has a slot.
    pub(crate) is_alone: bool,
    pub(crate) has_budget: bool,
    pub(crate) driver: Queue,
}

/// The facts about a transfer. `None`: not known yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) ask: Ask,
    pub(crate) load: Load,
    pub(crate) file: Option<File>,
    pub(crate) in_memory: Option<bool>,
    /// `true`: the file was on a memory file system when a submission last checked.
    pub(crate) seems_in_memory: bool,
    pub(crate) must_wait: Option<bool>,
    pub(crate) is_calm: Option<bool>,
    /// `true`: attempts at transfers of this file have succeeded lately.
    pub(crate) is_worth_it: Option<bool>,
    /// The requests that the context's own queue carries; `Queue::None` if this command may not use
    /// it.
    pub(crate) own: Option<Queue>,
    pub(crate) missed: Option<Reason>,
}

pub(crate) fn plan(facts: &Facts) -> Plan {
    match (facts.ask.is_direct, facts.ask.is_write) {
        _ if facts.ask.begins_later => facts.request(Reason::Order),
        (true, _) => facts.direct(),
        (false, false) => facts.read(),
        (false, true) => facts.write(),
    }
}

impl Facts {
    fn read(&self) -> Plan {
        let Facts { ask, load, .. } = self;
        if let Some(reason) = self.missed {
            return self.request(reason);
        }
        if ask.is_empty && self.file.is_none() {
            return Plan::Look(Fact::File);
        }
        if let Some(plan) = self.special() {
            return plan;
        }
        let looks = load.offloads || self.seems_in_memory;
        if looks && self.in_memory.is_none() {
            return Plan::Look(Fact::Memory);
        }
        let plain = self.in_memory == Some(true) && !ask.wants_nowait;
        match self.tries(plain) {
            Tries::Unknown => Plan::Look(Fact::History),
            Tries::Not(reason) => self.request(reason),
            Tries::Yes => match self.must_wait {
                None => Plan::Look(Fact::Order),
                Some(true) => self.request(Reason::Order),
                Some(false) => Plan::Attempt { plain },
            },
        }
    }

    fn write(&self) -> Plan {
        let Facts { ask, load, .. } = self;
        if ask.is_hinted {
            return match (self.missed, self.file) {
                (None, None) => Plan::WriteUnseen,
                _ => Plan::Look(Fact::Flags),
            };
        }
        if let Some(reason) = self.missed {
            return self.request(reason);
        }
        if self.file.is_none() {
            return Plan::Look(Fact::File);
        }
        if let Some(plan) = self.special() {
            return plan;
        }
        let Some(in_memory) = self.in_memory else { return Plan::Look(Fact::Memory) };
        if ask.is_durable && !in_memory {
            return self.request(Reason::Sync);
        }
        match self.must_wait {
            None => return Plan::Look(Fact::Order),
            Some(true) => return self.request(Reason::Order),
            Some(false) => {}
        }
        let is_regular = matches!(self.file, Some(File::Regular { .. }));
        let may_block = is_regular && !in_memory && !ask.wants_nowait && !ask.has_begun;
        if may_block && load.answers_as_aio && !load.offloads {
            match self.is_calm {
                None => return Plan::Look(Fact::Calm),
                Some(true) => return Plan::Write,
                Some(false) => {}
            }
        }
        let plain = in_memory && !ask.wants_nowait;
        match self.tries(plain) {
            Tries::Unknown => Plan::Look(Fact::History),
            Tries::Not(_) => self.request(Reason::Write),
            Tries::Yes => Plan::Attempt { plain },
        }
    }

    fn direct(&self) -> Plan {
        let Facts { ask, load, .. } = self;
        if ask.is_hinted {
            let may_block = load.counts_by_kernel || ask.finds_blocks;
            return match (self.own, self.must_wait) {
                _ if !ask.is_familiar || self.missed.is_some() => Plan::Look(Fact::Flags),
                (None, _) => Plan::Look(Fact::Own),
                (Some(Queue::Aio), None) => Plan::Look(Fact::Order),
                (Some(Queue::Aio), Some(false)) => Plan::BioUnseen { may_block },
                _ => Plan::Look(Fact::Flags),
            };
        }
        match self.in_memory {
            None => return Plan::Look(Fact::Memory),
            // Direct I/O on a memory file system uses the page cache, too.
            Some(true) if ask.is_write => return self.write(),
            Some(true) => return self.read(),
            Some(false) => {}
        }
        let Some(own) = self.own else { return Plan::Look(Fact::Own) };
        let Some(must_wait) = self.must_wait else { return Plan::Look(Fact::Order) };
        // A read that native AIO refuses later finds its file again by the inode.
        let names_file = ask.is_write
            || load.counts_by_kernel
            || own == Queue::None
            || own == Queue::Aio && ask.is_long;
        if names_file && self.file.is_none() {
            return Plan::Look(Fact::File);
        }
        if self.file == Some(File::Stream) {
            return Plan::Stream; // a pipe in packet mode
        }
        let is_refused = self.missed.is_some();
        let is_free = own != Queue::None && !must_wait && !ask.is_linked && !is_refused;
        let may_block = is_free && load.answers_as_aio && !load.offloads;
        if let (true, Some(File::Regular { extends, has_holes })) = (ask.is_write, self.file) {
            // Writes that extend a file run one after another in the kernel, too, and block to
            // their end.
            if extends {
                return self.request(Reason::Extend);
            }
            if has_holes && own != Queue::Ring && !may_block {
                return self.request(Reason::Extend);
            }
        }
        // io_submit(2) also blocks until the blocks are allocated. With an eventfd, the request
        // must not be refused after it was accepted.
        let may_block = may_block && (self.finds_blocks() || load.counts_by_kernel);
        match must_wait {
            _ if is_free => Plan::Bio { may_block },
            true => self.request(Reason::Order),
            false => self.request(Reason::Driver),
        }
    }

    /// Returns `true` if native AIO may have to allocate blocks for the transfer.
    pub(super) fn finds_blocks(&self) -> bool {
        self.ask.is_write
            && self.own == Some(Queue::Aio)
            && matches!(self.file, Some(File::Regular { has_holes: true, .. }))
    }

    fn request(&self, reason: Reason) -> Plan {
        if self.ask.is_hinted {
            return Plan::Look(Fact::Flags);
        }
        if self.file.is_none() {
            return Plan::Look(Fact::File);
        }
        if let Some(plan) = self.special() {
            return plan;
        }
        match self.ask.is_write {
            true => self.request_of_write(reason),
            false => self.request_of_read(reason),
        }
    }

    fn request_of_read(&self, reason: Reason) -> Plan {
        let carry = |route, is_deferred| {
            Plan::Request(Carry { route, is_deferred, in_turn: false, enters: false, reason })
        };
        if self.is_direct() {
            return carry(self.route_of_direct(reason), false);
        }
        let by_threads = match self.load.driver {
            Queue::Ring => Route::Driver,
            Queue::Aio | Queue::None => Route::Workers,
        };
        // If the file system does not support the attempt, the kernel has started no read.
        if self.load.has_callers && reason != Reason::Unsupported {
            return carry(by_threads, true);
        }
        match self.own {
            _ if self.ask.begins_later => carry(by_threads, false),
            // The context's own ring would copy cached bytes inside submit, too.
            _ if reason == Reason::Large => carry(by_threads, false),
            None => Plan::Look(Fact::Own),
            Some(Queue::Ring) => carry(Route::Own, false),
            Some(_) => carry(by_threads, false),
        }
    }

    fn request_of_write(&self, reason: Reason) -> Plan {
        let Facts { ask, load, .. } = self;
        let is_copied = !ask.is_durable && !self.is_direct();
        let in_turn = is_copied || reason == Reason::Extend && self.extends();
        // A write into a hole is asynchronous: the kernel holds the file's lock only until blocks
        // are allocated. In a worker's call the kernel would hold the lock until the bytes are
        // written.
        let fills = self.is_direct() && reason == Reason::Extend && !self.extends();
        let enters = fills && load.driver == Queue::Aio && self.may_block_in_submit();
        let is_placed = self.is_direct() && reason != Reason::Extend && !ask.begins_later;
        let route = match is_placed {
            true => self.route_of_direct(reason),
            false if enters || fills && load.driver == Queue::Ring => Route::Driver,
            false => Route::Workers,
        };
        // Several requests that block for long run side by side, on the threads of the engine.
        let is_due = load.is_alone || is_copied;
        let is_deferred = load.has_callers && is_due && route == Route::Workers;
        Plan::Request(Carry { route, is_deferred, in_turn, enters, reason })
    }

    /// Returns `true` if the transfer may block inside submit, as in the kernel's AIO.
    fn may_block_in_submit(&self) -> bool {
        let Facts { ask, load, .. } = self;
        let is_free = self.must_wait == Some(false) && !ask.is_linked && self.missed.is_none();
        is_free && load.answers_as_aio && !load.offloads
    }

    fn route_of_direct(&self, reason: Reason) -> Route {
        match (reason, self.own) {
            (Reason::Driver, Some(Queue::Aio | Queue::Ring)) => Route::Own,
            _ if self.load.driver == Queue::None => Route::Workers,
            _ => Route::Driver,
        }
    }

    fn special(&self) -> Option<Plan> {
        match self.file? {
            File::Folder | File::Plain => Some(Plan::Refuse(Errno::INVAL)),
            File::Stream if self.ask.begins_later => Some(Plan::Refuse(Errno::OPNOTSUPP)),
            File::Stream => Some(Plan::Stream),
            File::Device | File::Regular { .. } => None,
        }
    }

    /// `plain`: no call on the file blocks.
    fn tries(&self, plain: bool) -> Tries {
        let Facts { ask, load, .. } = self;
        let is_worth_it = match self.is_worth_it {
            // An attempt at a read may start the read; the thread that waits for the request
            // transfers the rest.
            _ if load.has_callers && !ask.is_write => Some(true),
            is_worth_it => is_worth_it,
        };
        match is_worth_it {
            _ if ask.wants_nowait => Tries::Yes,
            _ if load.offloads && !plain => Tries::Not(Reason::Offload),
            _ if !load.has_budget => Tries::Not(Reason::Large),
            _ if plain => Tries::Yes,
            None => Tries::Unknown,
            Some(true) => Tries::Yes,
            Some(false) => Tries::Not(Reason::Offload),
        }
    }

    fn extends(&self) -> bool {
        matches!(self.file, Some(File::Regular { extends: true, .. }))
    }

    /// Returns `true` for a transfer of a direct file, unless the file is known to be in memory.
    fn is_direct(&self) -> bool {
        self.ask.is_direct && self.in_memory != Some(true)
    }
}

enum Tries {
    Unknown,
    Yes,
    Not(Reason),
}

#[cfg(test)]
mod tests;
