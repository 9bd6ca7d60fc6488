//! The trace of a device: the last events, for printing, and a hash of all events.
//!
//! The trace names requests by the device's own numbers, not by token or address: those may differ
//! between two runs that are otherwise equal.

use crate::prng::mix;
use core::{
    fmt,
    hash::{Hash, Hasher},
};
use nowait_sys::Errno;
use std::collections::VecDeque;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The time of the event, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// The kind of the event.
    pub what: What,
}

/// The kind of an event. `request` counts from 0 in the order of acceptance, over all queues.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The device accepted a request.
    Queued {
        /// The request's number.
        request: u64,
        /// `read`, `write`, `fsync`, `fdatasync` or `poll`.
        op: &'static str,
        /// The request's descriptor.
        fd: i32,
        /// First byte.
        offset: i64,
        /// Length in bytes.
        len: usize,
    },
    /// A request completed.
    Completed {
        /// The request's number.
        request: u64,
        /// The result that the user of the request gets.
        result: Result<u32, Errno>,
        /// A hash of the data read or written; 0 if there is none.
        data: u64,
    },
    /// A fault hit a request.
    Fault {
        /// The request's number.
        request: u64,
        /// `error`, `short`, `stuck`, `partial` or `bad sector`, as in `faults.rs`; or `unstable`:
        /// the caller changed the data of a write between commit and completion.
        fault: &'static str,
    },
    /// The host changed a file.
    Host {
        /// `create`, `set_len` or `punch`.
        call: &'static str,
        /// The file's descriptor.
        fd: i32,
        /// First byte, or new size.
        from: u64,
        /// End of the range, or new size.
        to: u64,
    },
    /// The power failed.
    PowerCut,
}

/// The events of one device.
#[derive(Clone, Debug)]
pub struct Trace {
    events_max: usize,
    events: VecDeque<Event>,
    count: u64,
    hash: u64,
}

impl Trace {
    pub(crate) fn new(events_max: usize) -> Trace {
        Trace { events_max, events: VecDeque::new(), count: 0, hash: 0 }
    }

    pub(crate) fn note(&mut self, at_ns: u64, what: What) {
        let event = Event { at_ns, what };
        let mut fold = Fold(self.hash);
        event.hash(&mut fold);
        self.hash = fold.finish();
        self.count += 1;
        if self.events.len() == self.events_max {
            self.events.pop_front();
        }
        if self.events_max > 0 {
            self.events.push_back(event);
        }
    }

    /// Returns the last events, oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.events.iter()
    }

    /// Returns the number of events, including those no longer kept.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns a hash of all events, data included.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let earlier = self.count - self.events.len() as u64;
        if earlier > 0 {
            writeln!(f, "… {earlier} earlier events")?;
        }
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ns  ", self.at_ns)?;
        match &self.what {
            What::Queued { request, op, fd, offset, len } => {
                write!(f, "#{request} {op} of {len} bytes at {offset:#x} of fd {fd}")
            }
            What::Completed { request, result: Ok(count), data } => {
                write!(f, "#{request} = {count}, data {data:016x}")
            }
            What::Completed { request, result: Err(errno), .. } => {
                write!(f, "#{request} = {errno:?}")
            }
            What::Fault { request, fault } => write!(f, "#{request} fault: {fault}"),
            What::Host { call, fd, from, to } => write!(f, "{call} {from:#x} {to:#x} of fd {fd}"),
            What::PowerCut => f.write_str("power cut"),
        }
    }
}

pub(crate) fn data_hash(bytes: &[u8]) -> u64 {
    let mut fold = Fold(bytes.len() as u64);
    fold.write(bytes);
    fold.finish()
}

/// A hasher without random keys: two runs get equal hashes. It must not hash untrusted data.
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.0 = mix(self.0 ^ u64::from_le_bytes(*word)).wrapping_add(1);
        }
        for byte in rest {
            self.0 = mix(self.0 ^ u64::from(*byte)).wrapping_add(1);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_what_is_no_longer_kept() {
        let (mut a, mut b) = (Trace::new(1), Trace::new(1));
        a.note(1, What::PowerCut);
        for trace in [&mut a, &mut b] {
            trace.note(2, What::PowerCut);
        }
        assert!(a.events().eq(b.events()));
        assert_ne!(a.hash(), b.hash());
        assert_eq!(a.to_string(), "… 1 earlier events\n           2 ns  power cut\n");
    }

    #[test]
    fn data_of_another_length_has_another_hash() {
        assert_ne!(data_hash(&[0; 8]), data_hash(&[0; 9]));
        assert_ne!(data_hash(&[1, 0]), data_hash(&[0, 1]));
    }
}
