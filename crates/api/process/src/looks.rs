//! What one submission has found behind its descriptors.
//!
//! A descriptor is looked at once in every io_submit that names it: a number can be closed unseen
//! (by stdio, or the system call itself), and a request must never reach another file. Where files
//! are not cached, status flags may be remembered longer (`Context::status_flags`).

use crate::{cached::CachedDescriptors, memory, process::Process};
use nowait::{
    Command, Context, Engine, EventTarget, Kind, Started, Submission, UserFile,
    command::{Flags, open_for},
};
use nowait_sys::{Errno, Fd};
use std::sync::Arc;

/// Nothing is written from this byte on by way of the cache.
const WRITE_END: i64 = 1 << 40;

/// How many descriptors a call of submit reads the status flags of once. A database writes to a
/// data file and a log in turn.
const READ: usize = 8;

/// What one call of submit has found behind its descriptors.
pub struct Looks<'a> {
    context: &'a Context,
    cached: Option<(&'a CachedDescriptors, &'a Arc<Engine>)>,
    seen: Vec<Look>,
    last: Option<Look>,
    /// Descriptors whose status flags were read, where files are not cached, by their numbers.
    read: [Option<(i32, Flags)>; READ],
    /// Event counters by the application's numbers, which may mean other files by the time that a
    /// request has ended.
    counters: Vec<(i32, Fd)>,
}

#[derive(Clone)]
struct Look {
    fd: i32,
    flags: Flags,
    file: Option<Arc<UserFile>>,
}

impl<'a> Looks<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Looks<'a> {
        let files = Process::existing().and_then(Process::cached_descriptors);
        let cached = files.map(|files| (files, context.engine()));
        Looks {
            context,
            cached,
            seen: Vec::new(),
            last: None,
            read: [None; READ],
            counters: Vec::new(),
        }
    }

    /// Returns the status flags of a descriptor for a request of this kind, read or remembered.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn status_flags(&mut self, kind: Kind, fd: i32) -> Result<Flags, Errno> {
        if self.cached.is_none() {
            // Once in each call of submit.
            let read = fd as usize % READ;
            if let Some((_, flags)) = self.read[read].filter(|(known, _)| *known == fd) {
                return Ok(flags);
            }
            let flags = match kind {
                Kind::Read | Kind::Write => self.context.status_flags(kind, fd)?,
                _ => open_for(fd)?,
            };
            if matches!(flags, Flags::Read(_)) {
                self.read[read] = Some((fd, flags));
            }
            return Ok(flags);
        }
        self.look(fd).map(|look| look.flags)
    }

    /// Holds the event counter that is behind `number` now, as the kernel does, whatever becomes of
    /// the number; returns one that is good as long as this lives. Once for each io_submit.
    ///
    /// # Errors
    /// `EBADF`: not open. `EINVAL`: something else.
    pub fn event_counter(&mut self, number: i32) -> Result<i32, Errno> {
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

    /// Returns the file through which a request goes, if that is cached.
    pub fn file(&mut self, command: &Command) -> Option<Arc<UserFile>> {
        let (_, engine) = self.cached?;
        let file = self.look(command.fd).ok()?.file.clone()?;
        if command.kind == Kind::Write && command.offset >= WRITE_END {
            // How long a file may be is known to its file system: EFBIG is for that to say.
            let _ = file.give_up(engine);
            return None;
        }
        Some(file)
    }

    fn look(&mut self, fd: i32) -> Result<&Look, Errno> {
        if self.last.as_ref().is_none_or(|last| last.fd != fd) {
            let known = self.seen.iter().find(|look| look.fd == fd).cloned();
            let look = if let Some(look) = known {
                look
            } else {
                let flags = open_for(fd)?;
                let find =
                    |(files, engine): (&CachedDescriptors, _)| files.find(engine, fd, flags.bits());
                Look { fd, flags, file: self.cached.and_then(find) }
            };
            self.seen.extend(self.last.replace(look).filter(|last| last.fd != fd));
        }
        self.last.as_ref().ok_or(Errno::BADF)
    }
}

/// Starts a request on a cached file, as far as the program's memory is there: it is used here and
/// not in the kernel. As with the kernel's AIO the request comes short at memory that is not there,
/// and ends with EFAULT if nothing is before that, or if it is direct.
///
/// # Errors
/// As [`Submission::start_cached`].
pub fn start_cached(
    submission: &mut Submission<'_>,
    file: &Arc<UserFile>,
    mut command: Command,
    target: &EventTarget,
) -> Result<Started, Errno> {
    let writable = command.kind == Kind::Read;
    match memory::before_bad(command.segments.as_slice(), writable) {
        None => {}
        Some(bytes) if bytes > 0 && !command.is_direct() => command.shorten(bytes),
        Some(_) => return Ok(Started::Completed(Err(Errno::FAULT))),
    }
    submission.start_cached(file, &command, target)
}
