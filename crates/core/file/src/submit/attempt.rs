//! The attempt: transfers what a request can transfer inside submit without waiting.
//!
//! The command itself counts the bytes transferred. So neither a later step nor another check of
//! the descriptor can transfer them again.

use super::{Reason, Submission, descriptor::Descriptor};
use crate::{
    Command, Kind,
    order::{Access, FileState, Reach},
};
use nowait_sys::{Errno, file::rwf};

pub(crate) enum Attempt {
    Done(Result<u32, Errno>),
    Rest(Reason),
    Stream,
    /// The kernel would have refused the request at submission.
    Refused(Errno),
}

impl Submission<'_> {
    pub(super) fn must_wait(
        &self,
        command: &Command,
        descriptor: &mut Descriptor,
    ) -> Result<bool, Errno> {
        let orders = &self.context.engine().orders;
        if orders.is_free_for(Access::of(command.kind)) {
            return Ok(false);
        }
        let file = FileState::of(descriptor.stat()?);
        Ok(orders.conflicts(file.key, &Reach::of(command, file.end)))
    }

    pub(super) fn is_in_memory(&self, descriptor: &mut Descriptor) -> Result<bool, Errno> {
        let fd = descriptor.fd;
        let history = &self.context.hints.descriptors;
        if history.may_be_in_memory(fd) == Some(false) {
            return Ok(false);
        }
        let stat = *descriptor.stat()?;
        let fs = self.context.engine().filesystem(&stat, fd)?;
        // A device node on a memory file system (devtmpfs) may still have to wait for its device.
        if !stat.has_offsets() {
            return Ok(false);
        }
        history.is_in_memory(fd, fs.in_memory);
        Ok(fs.in_memory)
    }

    /// `plain`: no call on this file waits.
    pub(super) fn attempt_read(
        &mut self,
        command: &mut Command,
        descriptor: &mut Descriptor,
        plain: bool,
    ) -> Result<Attempt, Errno> {
        let attempt = self.move_now(command, if plain { 0 } else { rwf::NOWAIT });
        Ok(match attempt {
            Attempt::Refused(Errno::OPNOTSUPP) if !command.wants_nowait() => {
                if self.is_in_memory(descriptor)? {
                    self.move_now(command, 0)
                } else {
                    self.context.hints.descriptors.miss(command.fd);
                    Attempt::Rest(Reason::Unsupported)
                }
            }
            // For a directory, or a file that cannot be read at all, the kernel's AIO refuses the
            // request at submission.
            Attempt::Done(Err(Errno::ISDIR)) => Attempt::Refused(Errno::INVAL),
            Attempt::Done(Err(Errno::INVAL)) if !descriptor.stat()?.is_regular() => {
                Attempt::Refused(Errno::INVAL)
            }
            attempt => attempt,
        })
    }

    /// `plain`: no call on this file waits.
    pub(super) fn attempt_write(
        &mut self,
        command: &mut Command,
        descriptor: &mut Descriptor,
        plain: bool,
    ) -> Result<Attempt, Errno> {
        if plain {
            return Ok(self.move_now(command, 0));
        }
        let (engine, stat) = (self.context.engine(), *descriptor.stat()?);
        let fs = engine.filesystem(&stat, command.fd)?;
        // The kernel may transfer only a part of an append; another append could come before the
        // rest.
        let held_up = !fs.may_write_nowait()
            || command.is_append()
            || engine.orders.has_writer((stat.dev, stat.ino));
        if held_up && !command.wants_nowait() {
            return Ok(Attempt::Rest(Reason::Write));
        }
        Ok(match self.move_now(command, rwf::NOWAIT) {
            Attempt::Refused(Errno::OPNOTSUPP) if !command.wants_nowait() => {
                fs.refuses_nowait_writes();
                Attempt::Rest(Reason::Unsupported)
            }
            attempt => attempt,
        })
    }

    pub(super) fn move_now(&mut self, command: &mut Command, flags: u32) -> Attempt {
        // Between two parts of an append another append could come. A write whose flags are only
        // remembered may be an append.
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
                    self.context.hints.descriptors.miss(command.fd);
                    return Attempt::Rest(Reason::Miss);
                }
                Ok(bytes) => {
                    command.done += bytes as u64;
                    self.copied(bytes);
                    if bytes == 0 || command.is_complete() || bytes < limit && command.is_at_end() {
                        self.context.hints.descriptors.hit(command.fd);
                        return Attempt::Done(Ok(command.transferred()));
                    }
                }
                Err(Errno::AGAIN) if !command.wants_nowait() => {
                    self.context.hints.descriptors.miss(command.fd);
                    return Attempt::Rest(Reason::Miss);
                }
                Err(_) if command.done > 0 => {
                    return Attempt::Done(Ok(command.transferred()));
                }
                Err(Errno::SPIPE) => return Attempt::Stream,
                // A seccomp filter may refuse the flags or the call; a request without the flags
                // will work.
                Err(Errno::PERM | Errno::NOSYS) if flags & rwf::NOWAIT != 0 => {
                    self.context.hints.descriptors.miss(command.fd);
                    return Attempt::Rest(Reason::Unsupported);
                }
                Err(errno @ (Errno::OPNOTSUPP | Errno::BADF)) => return Attempt::Refused(errno),
                Err(Errno::INTR) => {}
                Err(errno) => return Attempt::Done(Err(errno)),
            }
        }
    }
}
