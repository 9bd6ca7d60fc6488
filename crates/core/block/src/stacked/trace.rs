//! Records the calls to a backend and its completions.

use crate::{
    BlockBackend, Completion, Limits,
    bio::{Bio, BioOp},
};
use core::fmt;
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};
use std::collections::VecDeque;

/// One thing that happened, in the order it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A bio was accepted, or given back.
    Queued {
        /// The operation.
        op: BioOp,
        /// The bio's descriptor.
        fd: i32,
        /// The bio's first byte.
        offset: i64,
        /// The bio's length in bytes.
        len: usize,
        /// The bio's token.
        token: u64,
        /// False: it was given back.
        accepted: bool,
    },
    /// The queued bios were started.
    Committed,
    /// A bio came to its end.
    Completed(Completion),
    /// The cancellation of the bio with this token was requested.
    Cancelled(u64),
    /// The thread that reaps was woken.
    Woken,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Queued { op, fd, offset, len, token, accepted } => {
                let verdict = if *accepted { "" } else { ", given back" };
                write!(f, "queue    {token}: {op:?} fd {fd}, {len} bytes at {offset}{verdict}")
            }
            Event::Committed => f.write_str("commit"),
            Event::Completed(Completion { token, result: Ok(value) }) => {
                write!(f, "complete {token}: {value}")
            }
            Event::Completed(Completion { token, result: Err(errno) }) => {
                write!(f, "complete {token}: {}", errno.name())
            }
            Event::Cancelled(token) => write!(f, "cancel   {token}"),
            Event::Woken => f.write_str("wake"),
        }
    }
}

/// Records the last events of a backend.
pub struct Trace<B> {
    inner: B,
    events_max: usize,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    events: VecDeque<Event>,
    forgotten: u64,
}

impl<B: BlockBackend> Trace<B> {
    /// Remembers the last `events_max` events.
    pub fn new(inner: B, events_max: usize) -> Trace<B> {
        Trace { inner, events_max, log: Mutex::default() }
    }

    /// Returns the backend below.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns the recorded events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.log.lock().events.iter().copied().collect()
    }

    fn note(&self, events: impl IntoIterator<Item = Event>) {
        let mut log = self.log.lock();
        for event in events {
            if log.events.len() == self.events_max {
                log.events.pop_front();
                log.forgotten += 1;
            }
            log.events.push_back(event);
        }
    }
}

impl<B> fmt::Display for Trace<B> {
    /// Writes one event a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.log.lock();
        if log.forgotten > 0 {
            writeln!(f, "… {} events before", log.forgotten)?;
        }
        log.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl<B: BlockBackend> BlockBackend for Trace<B> {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let (op, fd, offset, token) = (bio.op, bio.fd, bio.offset, bio.token);
        let len = bio.segments.len();
        let queued = self.inner.queue(bio);
        self.note([Event::Queued { op, fd, offset, len, token, accepted: queued.is_ok() }]);
        queued
    }

    fn commit(&self) {
        self.note([Event::Committed]);
        self.inner.commit();
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        let result = self.inner.reap(done, min, deadline);
        self.note(done[before..].iter().map(|completion| Event::Completed(*completion)));
        result
    }

    fn wake(&self) {
        self.note([Event::Woken]);
        self.inner.wake();
    }

    fn cancel(&self, token: u64) {
        self.note([Event::Cancelled(token)]);
        self.inner.cancel(token);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacked::error::When;
    use crate::{Segments, backends::null::Null, stacked::error::Error, stacked::error::Fault};

    fn fsync(token: u64) -> Bio {
        // SAFETY: without segments no memory is involved.
        unsafe { Bio::new(BioOp::Fsync, 3, Segments::NONE, 0, token) }
    }

    #[test]
    fn events_read_like_a_protocol() {
        let rules = vec![(When::Nth(0), Fault::Fail(Errno::IO))];
        let trace = Trace::new(Error::new(Null::new(1), rules), 16);
        assert!(trace.queue(fsync(1)).is_ok());
        assert!(trace.queue(fsync(2)).is_err());
        trace.commit();
        trace.reap(&mut Vec::new(), 1, Deadline::NEVER).unwrap();
        let expected = "queue    1: Fsync fd 3, 0 bytes at 0\n\
                        queue    2: Fsync fd 3, 0 bytes at 0, given back\n\
                        commit\n\
                        complete 1: EIO\n";
        assert_eq!(trace.to_string(), expected);
    }

    #[test]
    fn buffer_is_bounded_and_says_what_is_missing() {
        let trace = Trace::new(Null::new(8), 2);
        (0..5).for_each(|token| trace.cancel(token));
        assert_eq!(trace.events(), [Event::Cancelled(3), Event::Cancelled(4)]);
        assert_eq!(trace.to_string(), "… 3 events before\ncancel   3\ncancel   4\n");
    }
}
