//! Completes every bio at `commit` without doing it, so that a measurement shows the cost of
//! everything else.

use crate::{BlockBackend, Completion, Limits, bio::Bio, bio::BioOp, inbox::Inbox};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};

/// Reads and writes succeed in full and touch no memory; polls report all requested events as
/// ready.
#[derive(Debug)]
pub struct Null {
    queued: Mutex<Vec<Completion>>,
    inbox: Inbox,
    depth: usize,
}

impl Null {
    /// Makes a backend for up to `depth` bios in flight.
    pub fn new(depth: usize) -> Null {
        Null { queued: Mutex::default(), inbox: Inbox::default(), depth }
    }
}

impl BlockBackend for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn limits(&self) -> Limits {
        Limits::of_all_kinds(self.depth)
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let mut queued = self.queued.lock();
        if queued.len() + self.inbox.len() >= self.depth {
            return Err(bio);
        }
        let result = match bio.op {
            BioOp::Read | BioOp::Write => bio.segments.len() as u32,
            BioOp::Fsync | BioOp::Fdatasync => 0,
            BioOp::Poll(events) => u32::from(events),
        };
        queued.push(Completion { token: bio.token, result: Ok(result) });
        Ok(())
    }

    fn commit(&self) {
        self.inbox.add(&mut self.queued.lock());
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.inbox.reap(done, min, deadline)
    }

    fn wake(&self) {
        self.inbox.wake();
    }

    fn cancel(&self, _token: u64) {}

    fn in_flight(&self) -> usize {
        self.queued.lock().len() + self.inbox.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segments;

    #[test]
    fn everything_succeeds_and_nothing_is_done() {
        let null = Null::new(2);
        // SAFETY: the backend never touches memory.
        let bio = |token| unsafe { Bio::new(BioOp::Fsync, -1, Segments::NONE, 0, token) };
        assert!(null.queue(bio(1)).is_ok() && null.queue(bio(2)).is_ok());
        assert!(null.queue(bio(3)).is_err(), "full");
        null.commit();
        let mut done = Vec::new();
        null.reap(&mut done, 2, Deadline::NEVER).unwrap();
        assert_eq!((done.len(), done[0].result, null.in_flight()), (2, Ok(0), 0));
    }
}
