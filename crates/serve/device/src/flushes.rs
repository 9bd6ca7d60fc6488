//! Flushes of one image that overlap in time.
//!
//! The kernel reports data that it could not write to one flush only (errseq, mm/filemap.c). It has
//! dropped the data by then, as many disks do, and the next flush succeeds.
//!
//! ```text
//!  flush A ├──────────┤ EIO: the data are lost
//!  flush B    ├────┤ ok ·····▶ held until A has ended, then EIO as well
//! ```
//! So a flush that succeeds is held until the flushes that are in flight at its end have ended. All
//! flushes that overlap with a failed one fail. They hold up each other only: a flush that begins
//! later delays none.

use crate::{Mailbox, RequestEnd};
use nowait::Errno;
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The flushes of one image.
#[derive(Debug, Default)]
pub(crate) struct Flushes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    in_flight: Vec<InFlight>,
    held: Vec<Held>,
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    /// An overlapping flush has failed so.
    failed: Option<Errno>,
}

/// The end of a flush that waits for those with lower numbers than `until`.
#[derive(Debug)]
struct Held {
    until: u64,
    ended: RequestEnd,
    mailbox: Arc<Mailbox>,
}

/// A flush in flight. Dropping it ends it for the others.
#[derive(Debug)]
pub(crate) struct Flush {
    flushes: Arc<Flushes>,
    number: u64,
}

impl Flushes {
    /// Begins a flush.
    pub(crate) fn begin(self: &Arc<Self>) -> Flush {
        let mut state = self.0.lock();
        let number = state.begun;
        state.begun += 1;
        state.in_flight.push(InFlight { number, failed: None });
        Flush { flushes: self.clone(), number }
    }
}

impl Flush {
    /// Returns the end of this flush, corrected, or `None`: it waits for other flushes, and then
    /// comes into `mailbox`.
    pub(crate) fn end(self, mut ended: RequestEnd, mailbox: &Arc<Mailbox>) -> Option<RequestEnd> {
        let mut state = self.flushes.0.lock();
        match ended.result {
            Err(errno) => state.fail(self.number, errno),
            Ok(()) => ended.result = state.failed(self.number).map_or(Ok(()), Err),
        }
        let waits = state.in_flight.len() > 1 && ended.result.is_ok();
        if !waits {
            return Some(ended);
        }
        let until = state.begun;
        state.held.push(Held { until, ended, mailbox: mailbox.clone() });
        None
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.flushes.0.lock().leave(self.number);
    }
}

impl State {
    fn failed(&self, number: u64) -> Option<Errno> {
        self.in_flight.iter().find(|it| it.number == number)?.failed
    }

    /// Fails all flushes that overlap with flush `number`, which has failed: those in flight, and
    /// those that have ended since it began.
    fn fail(&mut self, number: u64, errno: Errno) {
        self.in_flight.iter_mut().for_each(|it| _ = it.failed.get_or_insert(errno));
        let overlap = self.held.iter_mut().filter(|held| held.until > number);
        overlap.for_each(|held| held.ended.result = Err(errno));
    }

    fn leave(&mut self, number: u64) {
        self.in_flight.retain(|it| it.number != number);
        let first = self.in_flight.iter().map(|it| it.number).min().unwrap_or(u64::MAX);
        for held in
            self.held.extract_if(.., |held| held.until <= first || held.ended.result.is_err())
        {
            held.mailbox.put(held.ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;
    use std::collections::VecDeque;

    const LOST: Result<(), Errno> = Err(Errno::IO);

    /// Flushes by name.
    struct Rig {
        flushes: Arc<Flushes>,
        mailbox: Arc<Mailbox>,
        running: Vec<(u32, Flush)>,
    }

    impl Rig {
        fn new() -> Rig {
            let (flushes, mailbox) = (Arc::default(), Mailbox::new().unwrap());
            Rig { flushes, mailbox, running: Vec::new() }
        }

        fn begin(&mut self, slot: u32) {
            self.running.push((slot, self.flushes.begin()));
        }

        fn take(&mut self, slot: u32) -> Flush {
            let at = self.running.iter().position(|(it, _)| *it == slot).unwrap();
            self.running.remove(at).1
        }

        /// Ends a flush; returns what has come by then, each once.
        fn end(&mut self, slot: u32, result: Result<(), Errno>) -> Vec<(u32, Result<(), Errno>)> {
            let tag = Tag { owner: 0, slot, part: 0 };
            let ended = self.take(slot).end(RequestEnd::plain(tag, result), &self.mailbox);
            let mut all: VecDeque<_> = ended.into_iter().collect();
            self.mailbox.empty(&mut all);
            all.iter().map(|it| (it.tag.slot, it.result)).collect()
        }
    }

    #[test]
    fn a_flush_alone_is_not_held() {
        let mut rig = Rig::new();
        for result in [Ok(()), LOST, Ok(())] {
            rig.begin(1);
            assert_eq!(rig.end(1, result), [(1, result)]);
        }
    }

    #[test]
    fn a_flush_that_ends_while_another_fails_fails() {
        let mut rig = Rig::new();
        rig.begin(1);
        rig.begin(2);
        assert_eq!(rig.end(2, Ok(())), []);
        assert_eq!(rig.end(1, LOST), [(1, LOST), (2, LOST)]);
    }

    #[test]
    fn a_flush_in_flight_while_another_fails_fails() {
        let mut rig = Rig::new();
        rig.begin(1);
        rig.begin(2);
        assert_eq!(rig.end(1, LOST), [(1, LOST)]);
        rig.begin(3);
        assert_eq!(rig.end(3, Ok(())), [], "2 may fail yet");
        assert_eq!(rig.end(2, Ok(())), [(2, LOST), (3, Ok(()))], "3 began later");
    }

    #[test]
    fn a_flush_that_begins_later_holds_none_up() {
        let mut rig = Rig::new();
        rig.begin(1);
        rig.begin(2);
        assert_eq!(rig.end(1, Ok(())), []);
        rig.begin(3);
        assert_eq!(rig.end(2, Ok(())), [(1, Ok(()))]);
        assert_eq!(rig.end(3, Ok(())), [(3, Ok(())), (2, Ok(()))]);
    }

    #[test]
    fn a_flush_that_begins_later_and_fails_fails_none_that_has_ended_before() {
        let mut rig = Rig::new();
        rig.begin(1);
        rig.begin(2);
        assert_eq!(rig.end(1, Ok(())), []);
        rig.begin(3);
        assert_eq!(rig.end(3, LOST), [(3, LOST)]);
        assert_eq!(rig.end(2, Ok(())), [(2, LOST), (1, Ok(()))]);
    }

    #[test]
    fn a_flush_that_never_ends_holds_none_up_once_dropped() {
        let mut rig = Rig::new();
        rig.begin(1);
        rig.begin(2);
        assert_eq!(rig.end(2, Ok(())), []);
        drop(rig.take(1));
        let mut came = VecDeque::new();
        rig.mailbox.empty(&mut came);
        assert_eq!(came.len(), 1);
    }
}
