//! The attempt: what a request can transfer inside submit, without waiting.
//!
//! What was transferred is in the command itself, so that no way on from here, nor another look at
//! the descriptor, can transfer it again.

use super::{Reason, Submission};
use crate::{
    Command, Kind, SubmitMode,
    hints::filesystem::FileSystem,
    order::{Access, FileState, Reach},
};
use nowait_sys::{
    Errno,
    file::{self, Stat, rwf},
};

/// What an attempt came to, beside what it has added to the command's progress.
pub(crate) enum Attempt {
    /// Over, with this result.
    Done(Result<u32, Errno>),
    /// What is left needs a request, for this reason.
    Rest(Reason),
    /// The file is a stream: it has no offsets.
    Stream,
    /// The kernel would have refused the request at submission.
    Refused(Errno),
}

impl Submission<'_> {
    /// Decides whether a command is attempted inside submit.
    ///
    /// # Errors
    /// It is not, and its request is counted so.
    pub(crate) fn tries_inline(&self, command: &Command) -> Result<(), Reason> {
        if command.wants_nowait() {
            return Ok(());
        }
        match self.context.mode {
            SubmitMode::Offload => Err(Reason::Offload),
            _ if self.inline_left == 0 => Err(Reason::Large),
            SubmitMode::Inline => Ok(()),
            SubmitMode::Auto => {
                // The driver notices when a file has become cached; workers do not.
                let probe = !self.context.engine().queues_buffered_reads();
                // An attempt at a read starts it; the thread that waits for it goes on.
                let starts = command.kind == Kind::Read && self.context.has_callers();
                let is_worth_it = starts
                    || self.context.history.favours_inline(command.fd, probe)
                    || self.context.look_at_depth();
                if is_worth_it { Ok(()) } else { Err(Reason::Offload) }
            }
        }
    }

    /// Tells whether an earlier request on the same bytes is in flight.
    pub(crate) fn must_wait(
        &self,
        command: &Command,
        status: &mut LazyStat,
    ) -> Result<bool, Errno> {
        let orders = self.context.engine().orders();
        if orders.is_free_for(Access::of(command.kind)) {
            return Ok(false);
        }
        let file = FileState::of(status.stat()?);
        Ok(orders.conflicts(file.key, &Reach::of(command, file.end)))
    }

    pub(crate) fn is_in_memory(&self, status: &mut LazyStat) -> Result<bool, Errno> {
        let fd = status.fd;
        let history = &self.context.history;
        if history.may_be_in_memory(fd) == Some(false) {
            return Ok(false);
        }
        let stat = *status.stat()?;
        let fs = self.context.engine().filesystem(&stat, fd)?;
        // A device whose node lies in memory (devtmpfs) may wait all the same.
        if !stat.has_offsets() {
            return Ok(false);
        }
        history.is_in_memory(fd, fs.in_memory);
        Ok(fs.in_memory)
    }

    pub(crate) fn attempt_read(
        &mut self,
        command: &mut Command,
        status: &mut LazyStat,
    ) -> Result<Attempt, Errno> {
        let looks_so = self.context.history.may_be_in_memory(command.fd) == Some(true);
        let in_memory = !command.wants_nowait()
            && (command.is_in_memory()
                || looks_so && (command.is_hinted() || self.is_in_memory(status)?));
        let flags = if in_memory { 0 } else { rwf::NOWAIT };
        let attempt = self.transfer(command, flags);
        Ok(match attempt {
            Attempt::Refused(Errno::OPNOTSUPP) if !command.wants_nowait() => {
                if self.is_in_memory(status)? {
                    self.transfer(command, 0)
                } else {
                    self.context.history.miss(command.fd);
                    Attempt::Rest(Reason::Unsupported)
                }
            }
            // On a directory, and on what cannot be read at all, the kernel says so at once.
            Attempt::Done(Err(Errno::ISDIR)) => Attempt::Refused(Errno::INVAL),
            Attempt::Done(Err(Errno::INVAL)) if !status.stat()?.is_regular() => {
                Attempt::Refused(Errno::INVAL)
            }
            attempt => attempt,
        })
    }

    pub(crate) fn attempt_write(
        &mut self,
        command: &mut Command,
        stat: &Stat,
        fs: &FileSystem,
    ) -> Attempt {
        if fs.in_memory && !command.wants_nowait() {
            return self.transfer(command, 0);
        }
        // An append in parts would let others in between, and the kernel may move a part only.
        let held_up = !fs.may_write_nowait()
            || command.is_append()
            || self.context.engine().orders().has_writer((stat.dev, stat.ino));
        if held_up && !command.wants_nowait() {
            return Attempt::Rest(Reason::Write);
        }
        match self.transfer(command, rwf::NOWAIT) {
            Attempt::Refused(Errno::OPNOTSUPP) if !command.wants_nowait() => {
                fs.refuses_nowait_writes();
                Attempt::Rest(Reason::Unsupported)
            }
            attempt => attempt,
        }
    }

    /// Moves what can be moved now, within the bound on inline bytes.
    pub(crate) fn transfer(&mut self, command: &mut Command, flags: u32) -> Attempt {
        // An append in two parts would let another one in between; so may any write be one whose
        // flags are those of a while ago.
        let in_one_piece =
            command.kind == Kind::Write && (command.is_append() || command.is_hinted());
        loop {
            let left = (command.len - command.done) as usize;
            let limit = left.min(self.inline_left);
            let in_parts = limit < left || command.done > 0;
            if limit == 0 && left > 0 || in_one_piece && in_parts {
                return Attempt::Rest(Reason::Large);
            }
            match command.transfer(command.fd, limit, flags) {
                Ok(0) if flags & rwf::NOWAIT != 0 && !command.seems_over() => {
                    self.context.history.miss(command.fd);
                    return Attempt::Rest(Reason::Miss);
                }
                Ok(bytes) => {
                    command.done += bytes as u64;
                    self.copied(bytes);
                    if bytes == 0 || command.is_complete() || bytes < limit && command.is_at_end() {
                        self.context.history.hit(command.fd);
                        return Attempt::Done(Ok(command.transferred()));
                    }
                }
                Err(Errno::AGAIN) if !command.wants_nowait() => {
                    self.context.history.miss(command.fd);
                    return Attempt::Rest(Reason::Miss);
                }
                Err(_) if command.done > 0 => {
                    return Attempt::Done(Ok(command.transferred()));
                }
                Err(Errno::SPIPE) => return Attempt::Stream,
                // A seccomp filter may refuse the flags or the call; without them it will do.
                Err(Errno::PERM | Errno::NOSYS) if flags & rwf::NOWAIT != 0 => {
                    self.context.history.miss(command.fd);
                    return Attempt::Rest(Reason::Unsupported);
                }
                Err(errno @ (Errno::OPNOTSUPP | Errno::BADF)) => return Attempt::Refused(errno),
                Err(Errno::INTR) => {}
                Err(errno) => return Attempt::Done(Err(errno)),
            }
        }
    }
}

/// What is known of the file behind a descriptor; asked only when it matters.
pub(crate) struct LazyStat {
    pub(crate) fd: i32,
    stat: Option<Stat>,
}

impl LazyStat {
    pub(crate) fn new(fd: i32) -> LazyStat {
        LazyStat { fd, stat: None }
    }

    pub(crate) fn stat(&mut self) -> Result<&Stat, Errno> {
        if self.stat.is_none() {
            self.stat = Some(file::stat(self.fd)?);
        }
        self.stat.as_ref().ok_or(Errno::BADF)
    }

    /// Returns it if it was asked for.
    pub(crate) fn known(&self) -> Option<Stat> {
        self.stat
    }
}
