//! Requests that the thread which waits for them carries out, by the application's number.

use super::{Iteration, kernel::KernelBody};
use crate::{Command, Kind, deferred::Turn};
use nowait_retry::Step;
use nowait_sys::{
    Errno,
    file::{self, rwf},
    mistake::{self, Mistake},
};

/// How a transfer by the calling thread has ended.
enum Moved {
    /// The request is over.
    All(Step),
    /// The rest would block.
    Part,
    /// The number may mean another file now: the engine's threads have the right one.
    NotHere,
}

impl KernelBody {
    /// Takes the request's turn if it has one, or defers it.
    pub(super) fn run_by_caller(&mut self, turn: Option<Turn>, it: &mut Iteration<'_, '_>) -> Step {
        match turn {
            // It has waited for others meanwhile, and no caller came for those.
            None if !it.target.context.has_callers() => self.leave_caller(it),
            None => {
                it.plug.defer(it.wait.request());
                Step::Queued
            }
            Some(Turn::HandOver) => self.leave_caller(it),
            Some(turn) => match self.move_here(turn, it) {
                Moved::All(step) => {
                    if it.command.kind == Kind::Write && mistake::makes(Mistake::RunTwice) {
                        it.plug.goes_back();
                    }
                    it.target.context.io().stats().add(|c| &c.by_caller, 1);
                    step
                }
                Moved::Part => {
                    it.plug.goes_back();
                    Step::Queued
                }
                Moved::NotHere => self.leave_caller(it),
            },
        }
    }

    /// Continues the request on the threads of the engine.
    fn leave_caller(&mut self, it: &mut Iteration<'_, '_>) -> Step {
        self.deferred = None;
        it.target.context.io().stats().add(|c| &c.taken_over, 1);
        self.dispatch(it)
    }

    /// Makes the system calls of the request, on the application's number.
    fn move_here(&self, turn: Turn, it: &mut Iteration<'_, '_>) -> Moved {
        let context = it.target.context.clone();
        let engine = context.engine();
        let is_read = it.command.kind == Kind::Read;
        if turn == Turn::Retry && !is_read {
            return Moved::Part;
        }
        let (fd, closes) = (it.command.fd, self.deferred.unwrap_or_default());
        if engine.config().sees_closes {
            let Some(_in_use) = engine.closes().begin_use(fd, closes) else {
                return Moved::NotHere;
            };
            return match it.command.kind {
                Kind::Read => read_here(turn, it),
                _ if self.acts_for_another(it) => Moved::NotHere,
                Kind::Write => write_here(it),
                Kind::Fsync => Moved::All(it.end(file::fsync(fd).map(|()| 0))),
                _ => Moved::All(it.end(file::fdatasync(fd).map(|()| 0))),
            };
        }
        // What a read of another file has left in the buffer is read over.
        let is_here = |command: &Command| {
            self.carrier.recognize(fd, command, context.files_stay_open).is_ok()
        };
        if !is_read || !is_here(it.command) {
            return Moved::NotHere;
        }
        let done = it.command.done;
        let moved = read_here(turn, it);
        if is_here(it.command) {
            return moved;
        }
        it.command.done = done;
        Moved::NotHere
    }

    /// Returns `true` if the calling thread has not the rights that the request acts with.
    fn acts_for_another(&self, it: &Iteration<'_, '_>) -> bool {
        let engine = it.target.context.engine();
        self.credentials.as_deref().is_some_and(|wanted| {
            engine.rights_of_this_thread().ok().flatten().as_deref() != Some(wanted)
        })
    }
}

/// Reads what is left, or what is there.
fn read_here(turn: Turn, it: &mut Iteration<'_, '_>) -> Moved {
    let (blocks, fd) = (turn == Turn::Run, it.command.fd);
    let flags = if blocks { 0 } else { rwf::NOWAIT };
    loop {
        match it.command.transfer(fd, usize::MAX, flags) {
            Ok(0) if !blocks && !it.command.seems_over() => return Moved::Part,
            Ok(bytes) => {
                it.command.done += bytes as u64;
                if bytes == 0 || it.command.is_complete() {
                    return Moved::All(it.transferred());
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if !blocks => return Moved::Part,
            Err(errno) => return Moved::All(it.end(Err(errno))),
        }
    }
}

/// Writes what is left, by one call: one that comes short is over, as in io_submit(2).
fn write_here(it: &mut Iteration<'_, '_>) -> Moved {
    let flags = it.target.context.engine().rw_flags(it.command);
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
