//! What one submission has found behind its descriptors.
//!
//! A descriptor is looked at once in every io_submit that names it: a number can be closed unseen
//! (by stdio, or the system call itself), and a request must never reach another file. Status
//! flags of transfers may be remembered longer (`Context::status_flags`).

use nowait_engine::{
    Context, Kind,
    command::{Flags, open_for},
};
use nowait_sys::{Errno, Fd};
use std::sync::Arc;

/// How many descriptors a call of submit reads the status flags of once. A database writes to a
/// data file and a log in turn.
const READ: usize = 8;

/// What one call of submit has found behind its descriptors.
pub struct Looks<'a> {
    context: &'a Context,
    is_lone: bool,
    /// Descriptors whose status flags were read, by their numbers.
    read: [Option<(i32, Flags)>; READ],
    /// Event counters by the application's numbers, which may mean other files by the time that a
    /// request has ended.
    counters: Vec<(i32, Fd)>,
}

impl<'a> Looks<'a> {
    /// Begins a submission to `context` of so many requests.
    pub fn new(context: &'a Arc<Context>, count: usize) -> Looks<'a> {
        Looks { context, is_lone: count == 1, read: [None; READ], counters: Vec::new() }
    }

    /// Returns `true` if the kernel may signal the event counter of the only request.
    pub fn counts_by_kernel(&self) -> bool {
        self.context.counts_by_kernel()
    }

    /// Returns the status flags of a descriptor for a request of this kind, read or remembered.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn status_flags(&mut self, kind: Kind, fd: i32) -> Result<Flags, Errno> {
        // Once in each call of submit.
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

    /// Holds the event counter that is behind `number` now, as the kernel does, whatever becomes of
    /// the number; returns one that is good as long as this lives. Once for each io_submit.
    ///
    /// # Errors
    /// `EBADF`: not open. `EINVAL`: something else.
    pub fn event_counter(&mut self, number: i32) -> Result<i32, Errno> {
        self.context.names_counter(number);
        if let Some((_, held)) = self.counters.iter().find(|(known, _)| *known == number) {
            return Ok(held.raw());
        }
        let held = match self.context.duplicate_high(number) {
            Err(Errno::BADF) => return Err(Errno::BADF),
            // The program has all descriptors that it may have: the number is all there is.
            Err(_) => return self.context.check_event_counter(number, number).map(|()| number),
            Ok(held) => held,
        };
        self.context.check_event_counter(number, held.raw())?;
        let raw = held.raw();
        self.counters.push((number, held));
        Ok(raw)
    }
}
