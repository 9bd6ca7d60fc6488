//! Limits of the requests in flight, for each event loop and for the process. Further requests wait
//! in their loop's line.
//!
//! **No loop waits for another loop**, which may have ended: each loop may have one request in
//! flight, whatever the limit of the process. Loops with a line share the process's limit equally.

use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use nowait::Limits;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) requests: usize,
    pub(crate) bytes: u64,
}

impl Amount {
    fn with(self, bytes: u64) -> Amount {
        Amount { requests: self.requests + 1, bytes: self.bytes.saturating_add(bytes) }
    }

    fn is_within(self, limit: Amount) -> bool {
        self.requests <= limit.requests && self.bytes <= limit.bytes
    }
}

#[derive(Default)]
struct Shared {
    requests: AtomicUsize,
    bytes: AtomicU64,
}

impl Shared {
    fn get(&self) -> Amount {
        Amount { requests: self.requests.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    fn set(&self, amount: Amount) {
        self.requests.store(amount.requests, Relaxed);
        self.bytes.store(amount.bytes, Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Load {
    of_process: Shared,
    of_loop: Shared,
    used: Shared,
    /// Number of loops with requests in their line.
    lines: AtomicUsize,
}

impl Load {
    pub(crate) fn new((of_process, of_loop): (Amount, Amount)) -> Load {
        let load = Load::default();
        load.set_limits((of_process, of_loop));
        load
    }

    pub(crate) fn limits(&self) -> (Amount, Amount) {
        (self.of_process.get(), self.of_loop.get())
    }

    pub(crate) fn set_limits(&self, (of_process, of_loop): (Amount, Amount)) {
        self.of_process.set(of_process);
        self.of_loop.set(of_loop);
    }

    /// Counts a request of a loop that has `mine` in flight, and returns `true` if it may begin;
    /// otherwise counts nothing.
    pub(crate) fn enter(&self, mine: &mut Amount, bytes: u64, is_in_line: bool) -> bool {
        let with = mine.with(bytes);
        let before = Amount {
            requests: self.used.requests.fetch_add(1, SeqCst),
            bytes: self.used.bytes.fetch_add(bytes, SeqCst),
        };
        let is_alone = mine.requests == 0;
        let may_begin = is_alone
            || with.is_within(self.of_loop.get())
                && before.with(bytes).is_within(self.of_process.get())
                && with.is_within(self.part(is_in_line));
        match may_begin {
            true => *mine = with,
            false => self.subtract(bytes),
        }
        may_begin
    }

    pub(crate) fn leave(&self, mine: &mut Amount, bytes: u64) {
        mine.requests -= 1;
        mine.bytes -= bytes;
        self.subtract(bytes);
    }

    pub(crate) fn has_line(&self, has: bool) {
        match has {
            true => self.lines.fetch_add(1, SeqCst),
            false => self.lines.fetch_sub(1, SeqCst),
        };
    }

    fn subtract(&self, bytes: u64) {
        self.used.requests.fetch_sub(1, SeqCst);
        self.used.bytes.fetch_sub(bytes, SeqCst);
    }

    fn part(&self, is_in_line: bool) -> Amount {
        let loops = (self.lines.load(SeqCst) + usize::from(!is_in_line)).max(1);
        let Amount { requests, bytes } = self.of_process.get();
        Amount { requests: requests / loops, bytes: bytes / loops as u64 }
    }
}

impl From<Limits> for Amount {
    fn from(limits: Limits) -> Amount {
        Amount { requests: limits.requests, bytes: limits.bytes }
    }
}
