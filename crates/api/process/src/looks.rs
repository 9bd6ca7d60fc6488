//! The state of the descriptors during one submission.
//!
//! Each submission looks anew at the descriptors that its requests name: the library does not see
//! when a program closes a number through stdio or by its own system call instruction, and a
//! request must never reach another file. Only status flags of transfers may be remembered longer
//! (`Context::status_flags`).

use crate::named_counters::NAMED;
use nowait_engine::{
    Context, Kind,
    command::{Flags, open_for},
};
use nowait_sys::{Errno, Fd};
use std::sync::Arc;

/// A submission remembers the flags of several descriptors, because a database alternates between a
/// data file and a log.
const READ: usize = 8;

/// The state of the descriptors during one call of submit.
pub struct Looks<'a> {
    context: &'a Context,
    is_lone: bool,
    read: [Option<(i32, Flags)>; READ],
    /// Duplicates of eventfds, by the application's numbers: when a request ends, the number may
    /// name another file.
    counters: Vec<(i32, Fd)>,
}

impl<'a> Looks<'a> {
    /// Begins a submission of up to `count` requests to `context`.
    pub fn new(context: &'a Arc<Context>, count: usize) -> Looks<'a> {
        Looks { context, is_lone: count == 1, read: [None; READ], counters: Vec::new() }
    }

    /// Returns `true` if the kernel may signal the eventfds of requests.
    pub fn counts_by_kernel(&self) -> bool {
        self.context.counts_by_kernel()
    }

    /// Notes that a request names the eventfd `number`. Returns `false` if requests of the context
    /// have named another eventfd: the kernel must then signal neither.
    pub fn may_count(&self, number: i32) -> bool {
        self.note_counter(number)
    }

    /// Returns the status flags of a descriptor for a request of this kind. This submission or the
    /// engine may remember them from an earlier request.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn status_flags(&mut self, kind: Kind, fd: i32) -> Result<Flags, Errno> {
        let read = fd as usize % READ;
        if let Some((_, flags)) = self.read[read].filter(|(known, _)| *known == fd) {
            return Ok(flags);
        }
        let flags = match kind {
            Kind::Read | Kind::Write => self.context.status_flags(kind, fd, self.is_lone)?,
            _ => open_for(fd)?,
        };
        if matches!(flags, Flags::Read(_)) {
            self.read[read] = Some((fd, flags));
        }
        Ok(flags)
    }

    fn note_counter(&self, number: i32) -> bool {
        NAMED.note(number, self.context);
        self.context.note_counter(number)
    }

    /// References the eventfd that `number` names now, as the kernel does, so that the program may
    /// close the number afterwards. Returns the number of a duplicate, valid as long as `self`
    /// lives, or `number` itself if no duplicate can be made. A second call with the same number
    /// returns the same duplicate.
    ///
    /// # Errors
    /// `EBADF`: not open. `EINVAL`: another kind of file.
    pub fn event_counter(&mut self, number: i32) -> Result<i32, Errno> {
        if let Some((_, held)) = self.counters.iter().find(|(known, _)| *known == number) {
            return Ok(held.raw());
        }
        // The close of a duplicate of a regular file would release the process's POSIX locks on it.
        if !self.context.may_be_event_counter(number) {
            return self.context.check_event_counter(number, number).map(|()| number);
        }
        let held = match self.context.duplicate_high(number) {
            Err(Errno::BADF) => return Err(Errno::BADF),
            // The program has used up its descriptors: only the number itself can be kept.
            Err(_) => return self.context.check_event_counter(number, number).map(|()| number),
            Ok(held) => held,
        };
        self.context.check_event_counter(number, held.raw())?;
        self.note_counter(number);
        let raw = held.raw();
        self.counters.push((number, held));
        Ok(raw)
    }
}
