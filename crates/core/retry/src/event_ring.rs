//! Completions on their way to the application.
//!
//! Threads that push and threads that consume take different locks. An application may instead read
//! the ring itself and advance `head`, as fio, QEMU and libaio do with the ring of the kernel's
//! AIO.

use crate::{
    primitives::{AtomicU32, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::Release},
    ring_memory::RingMemory,
};
use nowait_sys::{Errno, aio::IoEvent};

/// A ring of events in memory that the application sees.
pub struct EventRing {
    memory: RingMemory,
    tail: Mutex<u32>,
    consumers: Mutex<()>,
    /// The position of `head` after the last [`EventRing::consume`] that looked at events.
    taken_to: AtomicU32,
}

const NONE_TAKEN: u32 = u32::MAX;

/// Avoids a slow division, which only a wrong position, written by the application, needs.
fn place(position: u32, nr: u32) -> u32 {
    match position {
        position if position < nr => position,
        position if position == nr => 0,
        position => position % nr,
    }
}

fn distance(head: u32, tail: u32, nr: u32) -> u32 {
    if tail >= head { tail - head } else { tail + nr - head }
}

impl EventRing {
    /// Makes a ring of at least `nr_min` slots, one of which always stays free. The header shows
    /// `id`.
    ///
    /// # Errors
    /// `ENOMEM`: no memory or too many mappings.
    pub fn new(id: u32, nr_min: u32) -> Result<EventRing, Errno> {
        let memory = RingMemory::new(id, nr_min)?;
        let (tail, taken_to) = (Mutex::new(0), AtomicU32::new(NONE_TAKEN));
        Ok(EventRing { memory, tail, consumers: Mutex::new(()), taken_to })
    }

    /// Returns the ring's memory.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Returns the most events that can be unread: one slot always stays free.
    pub fn capacity(&self) -> usize {
        self.memory.nr() as usize - 1
    }

    /// Returns the number of unread events. The application may write any `head`; this function
    /// takes `head` modulo the ring's size, so no access is out of bounds.
    pub fn unread(&self) -> usize {
        let nr = self.memory.nr();
        let mut head = self.memory.head().load(Acquire);
        loop {
            let tail = place(self.memory.tail().load(Acquire), nr);
            // `head` and `tail` move meanwhile. A tail read before `head` passed it would look like
            // a full ring, and a submitter would get EAGAIN without need.
            let now = self.memory.head().load(Acquire);
            if now == head {
                return distance(place(head, nr), tail, nr) as usize;
            }
            head = now;
        }
    }

    /// Returns `true` if [`EventRing::consume`] moved `head` last: the application does not read
    /// the ring itself.
    pub fn is_read_by_calls(&self) -> bool {
        self.taken_to.load(Relaxed) == self.memory.head().load(Relaxed)
    }

    /// Adds events and publishes them in one step. The caller has reserved a slot for each.
    pub fn push(&self, events: &[IoEvent]) {
        let nr = self.memory.nr();
        let mut tail = self.tail.lock();
        for event in events {
            self.memory.write(*tail, *event);
            *tail = place(*tail + 1, nr);
        }
        // Release: a reader that sees the new tail sees the events below it.
        self.memory.tail().store(*tail, Release);
    }

    /// Takes up to `max` events, oldest first, and gives each to `sink`. Returns the number of
    /// events taken.
    ///
    /// # Errors
    /// The error of `sink` for the first event. An event that `sink` refuses stays in the ring,
    /// with all later ones.
    pub fn consume(
        &self,
        max: usize,
        mut sink: impl FnMut(usize, IoEvent) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        if max == 0 || self.unread() == 0 {
            return Ok(0);
        }
        let _one_at_a_time = self.consumers.lock();
        let nr = self.memory.nr();
        let mut head = place(self.memory.head().load(Relaxed), nr);
        let tail = place(self.memory.tail().load(Acquire), nr);
        let mut taken = 0;
        let mut outcome = Ok(());
        while head != tail && taken < max && outcome.is_ok() {
            outcome = sink(taken, self.memory.read(head));
            if outcome.is_ok() {
                head = place(head + 1, nr);
                taken += 1;
            }
        }
        // Release: a producer sees the free slot only after this thread has read the event.
        self.memory.head().store(head, Release);
        self.taken_to.store(head, Relaxed);
        if taken == 0 { outcome.map(|()| 0) } else { Ok(taken) }
    }
}

#[cfg(test)]
fn event(data: u64) -> IoEvent {
    IoEvent { data, ..IoEvent::default() }
}

#[cfg(test)]
impl EventRing {
    fn take(&self, max: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        let consumed = self.consume(max, |_, event| {
            taken.push(event.data);
            Ok(())
        });
        assert_eq!(consumed, Ok(taken.len()));
        taken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn sizes_are_those_of_the_kernel() {
        // With 8 processors io_setup(n) asks for max(n, 32) × 2 + 2 slots: here n is 1 to 32, then
        // 64, 128, 256 and 1024.
        for (asked, nr) in [(66, 127), (130, 255), (258, 383), (514, 639), (2050, 2175)] {
            assert_eq!(EventRing::new(0, asked).unwrap().memory().nr(), nr);
        }
    }

    #[test]
    fn an_event_that_cannot_be_delivered_stays() {
        let ring = EventRing::new(0, 8).unwrap();
        ring.push(&[event(1), event(2)]);
        assert_eq!(ring.consume(2, |_, _| Err(Errno::FAULT)), Err(Errno::FAULT));
        assert_eq!(ring.take(9), [1, 2]);
    }

    #[test]
    fn a_senseless_head_is_survived() {
        let ring = EventRing::new(0, 8).unwrap();
        ring.memory().head().store(u32::MAX, Relaxed);
        ring.push(&[event(1)]);
        assert!(ring.unread() <= ring.capacity());
        let _ = ring.take(1000);
        assert_eq!(ring.unread(), 0);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "too many steps")]
        fn behaves_like_a_queue(ops in prop::collection::vec((0usize..5, 0usize..5), 0..400)) {
            let ring = EventRing::new(0, 1).unwrap();
            let (mut model, mut next) = (VecDeque::new(), 0);
            for (pushes, takes) in ops {
                for _ in 0..pushes.min(ring.capacity() - model.len()) {
                    ring.push(&[event(next)]);
                    model.push_back(next);
                    next += 1;
                }
                prop_assert_eq!(ring.unread(), model.len());
                let expected: Vec<u64> = model.drain(..takes.min(model.len())).collect();
                prop_assert_eq!(ring.take(takes), expected);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::Arc;
    use loom::thread;

    #[test]
    fn loom_two_producers_two_reapers_lose_nothing() {
        loom::model(|| {
            let ring = Arc::new(EventRing::new(0, 4).unwrap());
            let producers: Vec<_> = (1..=2)
                .map(|data| {
                    let ring = ring.clone();
                    thread::spawn(move || ring.push(&[event(data)]))
                })
                .collect();
            let mut seen = ring.take(1);
            for producer in producers {
                producer.join().unwrap();
            }
            seen.extend(ring.take(4));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }

    fn look_while_an_event_passes(unread: fn(&EventRing) -> usize) {
        loom::model(move || {
            let ring = Arc::new(EventRing::new(0, 4).unwrap());
            let other = ring.clone();
            let other = thread::spawn(move || {
                other.push(&[event(1)]);
                assert_eq!(other.take(1), [1]);
            });
            assert!(unread(&ring) <= 1, "an empty ring looks full");
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_a_passing_event_counts_once_at_most() {
        look_while_an_event_passes(EventRing::unread);
    }

    #[test]
    #[should_panic(expected = "an empty ring looks full")]
    fn loom_canary_tail_before_head_is_caught() {
        look_while_an_event_passes(|ring| {
            let nr = ring.memory.nr();
            let tail = ring.memory.tail().load(Acquire);
            let head = ring.memory.head().load(Acquire);
            ((tail + nr - head) % nr) as usize
        });
    }

    fn userspace_take(ring: &EventRing) -> Option<u64> {
        let memory = ring.memory();
        let head = memory.head().load(Relaxed);
        if head == memory.tail().load(Acquire) {
            return None;
        }
        let event = memory.read(head);
        memory.head().store((head + 1) % memory.nr(), Release);
        Some(event.data)
    }

    #[test]
    fn loom_userspace_reader_sees_whole_events_in_order() {
        loom::model(|| {
            let ring = Arc::new(EventRing::new(0, 3).unwrap());
            let producer = ring.clone();
            let producer = thread::spawn(move || {
                producer.push(&[event(1)]);
                producer.push(&[event(2)]);
            });
            let mut seen: Vec<u64> = userspace_take(&ring).into_iter().collect();
            producer.join().unwrap();
            while let Some(data) = userspace_take(&ring) {
                seen.push(data);
            }
            assert_eq!(seen, [1, 2]);
        });
    }

    /// `push` without the release store.
    fn push_relaxed(ring: &EventRing, event: IoEvent) {
        ring.memory.write(0, event);
        ring.memory.tail().store(1, Relaxed);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_canary_unpublished_event_is_caught() {
        loom::model(|| {
            let ring = Arc::new(EventRing::new(0, 3).unwrap());
            let producer = ring.clone();
            let producer = thread::spawn(move || push_relaxed(&producer, event(1)));
            let _ = userspace_take(&ring);
            producer.join().unwrap();
        });
    }
}
