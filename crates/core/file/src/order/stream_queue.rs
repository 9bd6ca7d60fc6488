//! Requests on one stream and in one direction take effect one after another, in the order of
//! submission.
//!
//! Only the first request of a line acts; its end kicks the next. To join or leave a line, even
//! from the middle, takes one look-up in a tree, however many requests wait.

use super::InodeKey;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use nowait_retry::WaitEntry;
use nowait_sys::mutex::Mutex;
use rustc_hash::FxHashMap;
use std::{collections::BTreeMap, sync::Arc};

struct Waiting {
    entry: WaitEntry,
    reached: Arc<AtomicBool>,
}

/// The requests on one stream and in one direction, by number; `None`: the request's turn has come.
type Line = BTreeMap<u64, Option<Waiting>>;

#[derive(Debug)]
pub(crate) struct StreamTicket {
    key: InodeKey,
    number: u64,
    /// Set when the request becomes the first; `None`: it was the first from the beginning.
    reached: Option<Arc<AtomicBool>>,
}

impl StreamTicket {
    pub(crate) fn is_blocked(&self) -> bool {
        self.reached.as_ref().is_some_and(|reached| !reached.load(Acquire))
    }
}

#[derive(Default)]
pub(crate) struct StreamQueues {
    lines: Mutex<FxHashMap<InodeKey, Line>>,
    count: AtomicUsize,
    next_number: AtomicU64,
}

impl StreamQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    pub(crate) fn is_taken(&self, key: InodeKey) -> bool {
        !self.is_empty() && self.lines.lock().contains_key(&key)
    }

    /// `entry` makes the wait entry that is kicked when the request's turn has come.
    pub(crate) fn enter(&self, key: InodeKey, entry: impl FnOnce() -> WaitEntry) -> StreamTicket {
        self.count.fetch_add(1, AcqRel);
        let mut lines = self.lines.lock();
        // Taken under the lock, so that the numbers of a line are in its order.
        let number = self.next_number.fetch_add(1, Relaxed);
        let line = lines.entry(key).or_default();
        let reached = (!line.is_empty()).then(Arc::default);
        let waiting = reached.clone().map(|reached| Waiting { entry: entry(), reached });
        line.insert(number, waiting);
        StreamTicket { key, number, reached }
    }

    pub(crate) fn leave(&self, turn: &StreamTicket) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&turn.key) else { return };
        let gone = line.remove(&turn.number);
        let next = line.first_entry().and_then(|mut first| first.get_mut().take());
        if line.is_empty() {
            lines.remove(&turn.key);
        }
        if let Some(next) = &next {
            next.reached.store(true, Release);
        }
        drop(lines);
        if gone.is_some() {
            self.count.fetch_sub(1, AcqRel);
        }
        // The wait entry of a cancelled request is dropped here, without the lock.
        drop(gone);
        if let Some(next) = next {
            next.entry.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Kicks(AtomicUsize);

    impl Wake for Kicks {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, AcqRel);
        }
    }

    fn entry(kicks: &Arc<Kicks>) -> WaitEntry {
        Waker::from(kicks.clone())
    }

    #[test]
    fn the_end_of_the_first_kicks_the_second_alone() {
        let (turns, kicks) = (StreamQueues::default(), Arc::new(Kicks::default()));
        let line: Vec<_> = (0..3).map(|_| turns.enter((1, 1), || entry(&kicks))).collect();
        let other = turns.enter((1, 2), || unreachable!("nothing is in its way"));
        let blocked = || line.iter().map(StreamTicket::is_blocked).collect::<Vec<_>>();
        assert_eq!((blocked(), other.is_blocked()), (vec![false, true, true], false));
        turns.leave(&line[0]);
        assert_eq!((blocked(), kicks.0.load(Acquire)), (vec![false, false, true], 1));
        turns.leave(&line[1]);
        turns.leave(&line[2]);
        assert!(turns.is_taken((1, 2)) && !turns.is_taken((1, 1)));
        turns.leave(&other);
        assert!(turns.is_empty());
    }

    /// An entry for each pair of waiting requests would be five thousand million entries.
    #[test]
    fn a_hundred_thousand_in_one_line_are_kicked_once_each() {
        let count = if cfg!(miri) { 100 } else { 100_000 };
        let (turns, kicks) = (StreamQueues::default(), Arc::new(Kicks::default()));
        let line: Vec<_> = (0..count).map(|_| turns.enter((1, 1), || entry(&kicks))).collect();
        // Every third request is cancelled while it waits, the last one first; no other request's
        // turn comes by that.
        line.iter().skip(1).step_by(3).rev().for_each(|turn| turns.leave(turn));
        assert_eq!(kicks.0.load(Acquire), 0);
        let rest = line.iter().enumerate().filter(|(index, _)| index % 3 != 1);
        for (gone, (_, turn)) in rest.enumerate() {
            assert_eq!((turn.is_blocked(), kicks.0.load(Acquire)), (false, gone));
            turns.leave(turn);
        }
        assert!(turns.is_empty());
    }

    #[test]
    fn turns_change_hands_between_threads() {
        const THREADS: u64 = 4;
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        let (turns, holder) = (StreamQueues::default(), AtomicU64::new(0));
        let one = |me: u64| {
            for _ in 0..rounds {
                let thread = std::thread::current();
                let woken = Arc::new(Unpark(thread, AtomicBool::new(false)));
                let turn = turns.enter((1, 1), || Waker::from(woken.clone()));
                while turn.is_blocked() {
                    std::thread::park();
                }
                assert_eq!(holder.swap(me, AcqRel), 0, "two at a time");
                assert_eq!(holder.swap(0, AcqRel), me);
                turns.leave(&turn);
            }
        };
        std::thread::scope(|scope| (1..=THREADS).for_each(|me| drop(scope.spawn(move || one(me)))));
        assert!(turns.is_empty());
    }

    struct Unpark(std::thread::Thread, AtomicBool);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            assert!(!self.1.swap(true, AcqRel), "kicked twice");
            self.0.unpark();
        }
    }

    proptest! {
        #[test]
        fn lines_agree_with_lists(
            steps in prop::collection::vec((0u64..3, any::<prop::sample::Index>(), 0u8..5), 0..150),
        ) {
            let (turns, kicks) = (StreamQueues::default(), Arc::new(Kicks::default()));
            let mut lists: [Vec<StreamTicket>; 3] = Default::default();
            let mut kicked = 0;
            for (stream, pick, step) in steps {
                let list = &mut lists[stream as usize];
                prop_assert_eq!(turns.is_taken((0, stream)), !list.is_empty());
                if step < 3 {
                    list.push(turns.enter((0, stream), || entry(&kicks)));
                } else if !list.is_empty() {
                    let index = pick.index(list.len());
                    turns.leave(&list.remove(index));
                    kicked += usize::from(index == 0 && !list.is_empty());
                }
                for (index, turn) in list.iter().enumerate() {
                    prop_assert_eq!(turn.is_blocked(), index > 0);
                }
                prop_assert_eq!(kicks.0.load(Acquire), kicked);
                prop_assert_eq!(turns.is_empty(), lists.iter().all(Vec::is_empty));
            }
        }
    }
}
