//! Flushes and durable writes of one image. If one fails, each client whose data may be lost gets
//! an error. The durable writes here are those of blocking tasks, and with `Cache::Host` all.
//!
//! If the kernel could not write data, only one flush or durable write of each open file returns an
//! error (errseq, mm/filemap.c). By then the kernel has dropped the data, as many disks do, so the
//! next flush succeeds.
//!
//! ```text
//!  client 1    flush A ├──────────┤ EIO: the data are lost
//!  client 1    flush B    ├────┤ ok ·····▶ held until A has ended, then EIO as well
//!  client 2    flush C                        ├──┤ ok ▶ EIO: the client had not been told
//! ```
//! So the end of a successful flush or durable write is held until the flushes and durable writes
//! that were in flight at this end have ended too, or one of them has failed. A flush or write that
//! begins after this end does not delay it. If a flush or durable write fails, all that overlap
//! with it fail. The next flush of each client that is connected then fails as well, unless a flush
//! of this client has already reported the failure.

use crate::{Mailbox, RequestEnd};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nowait::Errno;
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Flushes(Mutex<State>);

/// The number of failures that one client need not be told of: those before the client connected,
/// and those that the client's flushes have reported.
#[derive(Clone, Debug)]
pub struct KnownFailures(Arc<AtomicU64>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    in_flight: Vec<u64>,
    held: Vec<Held>,
    failures: u64,
    failure: Option<Errno>,
}

/// The end of a flush or durable write, held until all flushes and writes with numbers below
/// `until` have ended, or one that overlaps has failed.
#[derive(Debug)]
struct Held {
    until: u64,
    ended: RequestEnd,
    told: Option<KnownFailures>,
    mailbox: Arc<Mailbox>,
}

/// A flush or durable write in flight. Dropping this value without [`Flush::end`] counts as a
/// failure, because the result is unknown: all overlapping flushes and durable writes fail.
#[derive(Debug)]
pub(crate) struct Flush {
    flushes: Arc<Flushes>,
    number: u64,
    /// The number of failures that a flush's client knows, or that had happened when a durable
    /// write began: the flush or write fails if there are more at its end.
    known: u64,
    /// The client of a flush; `None` for a durable write.
    told: Option<KnownFailures>,
    has_ended: bool,
}

impl Flushes {
    pub(crate) fn join(&self) -> KnownFailures {
        KnownFailures(Arc::new(AtomicU64::new(self.failures())))
    }

    pub(crate) fn failures(&self) -> u64 {
        self.0.lock().failures
    }

    pub(crate) fn begin(self: &Arc<Self>, told: &KnownFailures) -> Flush {
        self.start(told.0.load(Relaxed), Some(told.clone()))
    }

    /// Begins a durable write, or the part of it that makes its data durable. `known` is the number
    /// of failures when the write began: later failures may have lost the write's data.
    pub(crate) fn begin_write(self: &Arc<Self>, known: u64) -> Flush {
        self.start(known, None)
    }

    fn start(self: &Arc<Self>, known: u64, told: Option<KnownFailures>) -> Flush {
        let mut state = self.0.lock();
        let number = state.begun;
        state.begun += 1;
        state.in_flight.push(number);
        Flush { flushes: self.clone(), number, known, told, has_ended: false }
    }
}

impl Flush {
    /// Returns `ended`, with an error if an overlapping flush or write has failed, or the client
    /// must learn of an earlier failure. `None`: others are in flight, and `ended` comes into
    /// `mailbox` later.
    pub(crate) fn end(
        mut self,
        mut ended: RequestEnd,
        mailbox: &Arc<Mailbox>,
    ) -> Option<RequestEnd> {
        self.has_ended = true;
        let mut state = self.flushes.0.lock();
        match (ended.result, state.failure) {
            (Err(errno), _) => state.fail(self.number, errno),
            (Ok(()), Some(errno)) if state.failures > self.known => ended.result = Err(errno),
            (Ok(()), _) => {}
        }
        if ended.result.is_err() || state.in_flight.len() == 1 {
            state.tell(&ended, self.told.as_ref());
            return Some(ended);
        }
        let (until, told, mailbox) = (state.begun, self.told.clone(), mailbox.clone());
        state.held.push(Held { until, ended, told, mailbox });
        None
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let mut state = self.flushes.0.lock();
        if !self.has_ended {
            state.fail(self.number, Errno::IO);
        }
        state.leave(self.number);
    }
}

impl State {
    /// All flushes and durable writes that overlap with `number` fail: held ones that have ended
    /// since `number` began fail now, those in flight fail at their end.
    fn fail(&mut self, number: u64, errno: Errno) {
        self.failures += 1;
        self.failure = Some(errno);
        let overlap = self.held.iter_mut().filter(|held| held.until > number);
        overlap.for_each(|held| held.ended.result = Err(errno));
    }

    /// If the client's flush has failed, marks all failures so far as known to the client.
    fn tell(&self, ended: &RequestEnd, told: Option<&KnownFailures>) {
        if let (Err(_), Some(KnownFailures(told))) = (ended.result, told) {
            told.store(self.failures, Relaxed);
        }
    }

    fn leave(&mut self, number: u64) {
        self.in_flight.retain(|it| *it != number);
        let first = self.in_flight.iter().copied().min().unwrap_or(u64::MAX);
        let is_free = |held: &mut Held| held.until <= first || held.ended.result.is_err();
        let free: Vec<Held> = self.held.extract_if(.., is_free).collect();
        for Held { ended, told, mailbox, .. } in free {
            self.tell(&ended, told.as_ref());
            mailbox.put(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;
    use std::collections::VecDeque;

    const LOST: Result<(), Errno> = Err(Errno::IO);

    struct Rig {
        flushes: Arc<Flushes>,
        told: KnownFailures,
        mailbox: Arc<Mailbox>,
        running: Vec<(u32, Flush)>,
    }

    impl Rig {
        fn new() -> Rig {
            let flushes = Arc::<Flushes>::default();
            let (told, mailbox) = (flushes.join(), Mailbox::new().unwrap());
            Rig { flushes, told, mailbox, running: Vec::new() }
        }

        fn begin(&mut self, slot: u32) {
            self.running.push((slot, self.flushes.begin(&self.told)));
        }

        fn begin_write(&mut self, slot: u32) {
            let known = self.flushes.failures();
            self.running.push((slot, self.flushes.begin_write(known)));
        }

        fn flush_of(
            &mut self,
            told: &KnownFailures,
            result: Result<(), Errno>,
        ) -> Result<(), Errno> {
            self.running.push((99, self.flushes.begin(told)));
            let [(99, result)] = self.end(99, result)[..] else { panic!("held") };
            result
        }

        fn take(&mut self, slot: u32) -> Flush {
            let at = self.running.iter().position(|(it, _)| *it == slot).unwrap();
            self.running.remove(at).1
        }

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
    fn a_flush_that_never_ends_fails_the_others_once_dropped() {
        let mut rig = Rig::new();
        rig.begin(1);
        rig.begin(2);
        assert_eq!(rig.end(2, Ok(())), []);
        drop(rig.take(1));
        let mut came = VecDeque::new();
        rig.mailbox.empty(&mut came);
        assert_eq!(came.iter().map(|it| it.result).collect::<Vec<_>>(), [LOST]);
    }

    #[test]
    fn each_client_is_told_of_a_failure_once() {
        let mut rig = Rig::new();
        let (one, other) = (rig.flushes.join(), rig.flushes.join());
        assert_eq!(rig.flush_of(&one, LOST), LOST);
        assert_eq!(rig.flush_of(&one, Ok(())), Ok(()));
        let later = rig.flushes.join();
        assert_eq!(rig.flush_of(&later, Ok(())), Ok(()), "it has written nothing before");
        assert_eq!(rig.flush_of(&other, Ok(())), LOST, "its data may be lost as well");
        assert_eq!(rig.flush_of(&other, Ok(())), Ok(()));
    }

    #[test]
    fn a_held_flush_that_fails_tells_its_client() {
        let mut rig = Rig::new();
        let other = rig.flushes.join();
        rig.begin(1);
        rig.running.push((2, rig.flushes.begin(&other)));
        assert_eq!(rig.end(2, Ok(())), []);
        assert_eq!(rig.end(1, LOST), [(1, LOST), (2, LOST)]);
        assert_eq!(rig.flush_of(&other, Ok(())), Ok(()));
    }

    #[test]
    fn a_failed_durable_write_fails_the_next_flush_of_each_client() {
        let mut rig = Rig::new();
        let (one, other) = (rig.flushes.join(), rig.flushes.join());
        rig.begin_write(1);
        assert_eq!(rig.end(1, LOST), [(1, LOST)]);
        rig.begin_write(2);
        assert_eq!(rig.end(2, Ok(())), [(2, Ok(()))], "its data were written later");
        for told in [&one, &other] {
            assert_eq!(rig.flush_of(told, Ok(())), LOST);
            assert_eq!(rig.flush_of(told, Ok(())), Ok(()));
        }
    }

    #[test]
    fn a_durable_write_that_overlaps_with_a_failure_fails() {
        for writes_first in [true, false] {
            let mut rig = Rig::new();
            rig.begin(1);
            rig.begin_write(2);
            if writes_first {
                assert_eq!(rig.end(2, Ok(())), []);
                assert_eq!(rig.end(1, LOST), [(1, LOST), (2, LOST)]);
            } else {
                assert_eq!(rig.end(1, LOST), [(1, LOST)]);
                assert_eq!(rig.end(2, Ok(())), [(2, LOST)]);
            }
        }
    }

    #[test]
    fn a_write_that_is_made_durable_later_fails_if_a_flush_has_failed_since_it_began() {
        let mut rig = Rig::new();
        let known = rig.flushes.failures();
        rig.begin(1);
        assert_eq!(rig.end(1, LOST), [(1, LOST)]);
        rig.running.push((2, rig.flushes.begin_write(known)));
        assert_eq!(rig.end(2, Ok(())), [(2, LOST)]);
    }
}
