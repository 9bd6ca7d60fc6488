//! Requests that the waiting thread of the application carries out, by the application's descriptor
//! number.

use super::{Iteration, kernel::KernelBody};
use crate::{
    Kind,
    deferred::{Back, Turn},
};
use nowait_retry::Step;
use nowait_sys::{
    Errno,
    file::rwf,
    mistake::{self, Mistake},
};

enum Moved {
    All(Step),
    Part(Back),
    /// The number may mean another file now: the engine's threads, which hold the right one, must
    /// go on.
    NotHere,
}

impl KernelBody {
    pub(super) fn run_by_caller(&mut self, turn: Option<Turn>, it: &mut Iteration<'_, '_>) -> Step {
        match turn {
            // The request has waited for others, and by now no callers come to the context.
            None if !it.target.context.has_callers() => self.leave_caller(it),
            None => {
                it.plug.defer(it.wait.request());
                Step::Queued
            }
            Some(Turn::HandOver) => self.leave_caller(it),
            Some(turn) => match self.move_here(turn, it) {
                Moved::All(step) => {
                    if it.command.kind == Kind::Write && mistake::makes(Mistake::RunTwice) {
                        it.plug.goes_back(Back::Missed);
                    }
                    it.target.context.io().stats().add(|c| &c.by_caller, 1);
                    step
                }
                Moved::Part(why) => {
                    it.plug.goes_back(why);
                    Step::Queued
                }
                Moved::NotHere => self.leave_caller(it),
            },
        }
    }

    fn leave_caller(&mut self, it: &mut Iteration<'_, '_>) -> Step {
        self.deferred = None;
        it.target.context.io().stats().add(|c| &c.taken_over, 1);
        self.dispatch(it)
    }

    /// Makes the system calls on the application's number. The number may mean another file by now,
    /// even without a report of the close: after fclose(3), or a system call that the program makes
    /// itself.
    fn move_here(&self, turn: Turn, it: &mut Iteration<'_, '_>) -> Moved {
        if it.command.kind == Kind::Read {
            let done = it.command.done;
            let moved = read_here(turn, it);
            let is_untouched = matches!(moved, Moved::Part(_)) && it.command.done == done;
            if is_untouched || self.is_still_here(it) {
                return moved;
            }
            // If the read was of another file, the next read of the right file overwrites the
            // buffer.
            it.command.done = done;
            return Moved::NotHere;
        }
        if turn == Turn::Retry {
            return Moved::Part(Back::Untried);
        }
        let context = &it.target.context;
        let closes = context.engine().closes();
        let fd = it.command.fd;
        let in_use = self.deferred.and_then(|count| closes.begin_use(fd, count));
        let is_here = in_use.is_some()
            && self.carrier.recognize(fd, it.command, context.submitters.keep_files_open()).is_ok();
        if !is_here || self.acts_for_another(it) {
            return Moved::NotHere;
        }
        write_here(it)
    }

    /// Returns `true` if the application's number has meant the request's file all the time: it was
    /// not reported as closed, and means that file now.
    fn is_still_here(&self, it: &Iteration<'_, '_>) -> bool {
        let closes = it.target.context.engine().closes();
        let is_unclosed = self.deferred == Some(closes.count(it.command.fd));
        is_unclosed && self.carrier.is_still(it.command.fd)
    }

    fn acts_for_another(&self, it: &Iteration<'_, '_>) -> bool {
        let engine = it.target.context.engine();
        self.credentials.as_deref().is_some_and(|wanted| {
            engine.known.credentials_of_this_thread().ok().flatten().as_deref() != Some(wanted)
        })
    }
}

fn read_here(turn: Turn, it: &mut Iteration<'_, '_>) -> Moved {
    let (blocks, fd) = (turn == Turn::Run, it.command.fd);
    let flags = if blocks { 0 } else { rwf::NOWAIT };
    loop {
        match it.command.transfer(fd, usize::MAX, flags) {
            Ok(0) if !blocks && !it.command.seems_over() => return Moved::Part(Back::Missed),
            Ok(bytes) => {
                it.command.done += bytes as u64;
                if bytes == 0 || it.command.is_complete() {
                    return Moved::All(it.transferred());
                }
            }
            Err(Errno::INTR) => {}
            // The descriptor was open for reading at submission, so it has been closed since, and
            // perhaps opened again.
            Err(Errno::BADF) => return Moved::NotHere,
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if !blocks => return Moved::Part(Back::Missed),
            Err(errno) => return Moved::All(it.end(Err(errno))),
        }
    }
}

/// A short write ends the request, as in io_submit(2).
fn write_here(it: &mut Iteration<'_, '_>) -> Moved {
    let flags = it.target.context.engine().known.rw_flags(it.command);
    loop {
        match it.command.transfer(it.command.fd, usize::MAX, flags) {
            Ok(bytes) => {
                it.command.done += bytes as u64;
                return Moved::All(it.transferred());
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Moved::All(it.end(Err(errno))),
        }
    }
}
