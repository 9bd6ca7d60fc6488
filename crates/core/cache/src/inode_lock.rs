//! The lock of an inode's bytes: direct against cached requests, truncate and extension against
//! requests in flight. It is waited for by a kick, never by a thread.
//!
//! ```text
//!   try_lock ─► Granted(Guard) ───────────────────────────► drop: followers are granted
//!          └──► Waiting(Ticket) ··· kick ··· claim ─► Guard
//!                              └ drop: cancelled
//! ```
//!
//! Ranges that do not overlap, and shared ones, do not conflict. A request waits for those granted
//! and for those *waiting before it* that it conflicts with: first come, first served among those
//! that conflict, so a writer cannot starve, and a request elsewhere in the file passes.
//!
//! A grant belongs to the ticket before its entry is kicked. So a kick is never in vain and comes
//! once, and no request can slip in between.

use core::ops::Range;
use nowait_retry::sync::{Arc, Mutex};
use nowait_retry::wait::WaitEntry;
use std::collections::VecDeque;

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Together with other shared ones.
    Shared,
    /// Alone.
    Exclusive,
}

/// What became of a request for the lock.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// It is held until the guard is dropped.
    Granted(Guard),
    /// The entry will be kicked once, when the ticket can be claimed.
    Waiting(Ticket),
}

/// A reader–writer lock on ranges of bytes.
///
/// Costs one short mutex; allocates only when more are held or waiting than ever before. A request
/// is compared with each one granted, unless all those are shared and it is too.
#[derive(Debug)]
pub struct InodeLock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    /// Slots that are free.
    free: Vec<u32>,
    /// Slots that wait, in order of arrival.
    waiting: VecDeque<u32>,
    exclusive_granted: u32,
}

#[derive(Debug)]
struct Slot {
    start: u64,
    end: u64,
    mode: Mode,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Free,
    Granted,
    Waiting(WaitEntry),
}

impl InodeLock {
    /// Makes a lock without holders.
    pub fn new() -> Arc<InodeLock> {
        let state = State {
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            exclusive_granted: 0,
        };
        Arc::new(InodeLock { state: Mutex::new(state) })
    }

    /// Locks the bytes `range`, or queues for them; never blocks. An end of `u64::MAX` is the end
    /// of all files. `make_entry` is called only to wait, with the mutex held: it must not use
    /// this lock.
    ///
    /// # Panics
    /// The range is empty.
    pub fn try_lock(
        self: &Arc<InodeLock>,
        range: Range<u64>,
        mode: Mode,
        make_entry: impl FnOnce() -> WaitEntry,
    ) -> Outcome {
        assert!(range.start < range.end, "an empty range locks nothing");
        let mut state = self.state.lock();
        // The conflict is judged and the request queued under one lock: a release in between would
        // find no request to grant (see the canary below).
        let wait = state.must_wait(&range, mode);
        let stage = if wait { Stage::Waiting(make_entry()) } else { Stage::Granted };
        let slot = state.add(Slot { start: range.start, end: range.end, mode, stage });
        drop(state);
        let guard = Guard { lock: self.clone(), slot };
        if wait { Outcome::Waiting(Ticket(guard)) } else { Outcome::Granted(guard) }
    }

    /// Returns how many requests hold the lock, and how many wait for it.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let used = state.slots.len() - state.free.len();
        (used - state.waiting.len(), state.waiting.len())
    }

    /// Gives a slot up, granted or waiting, and kicks the requests that this grants.
    fn release(&self, slot: u32) {
        let mut state = self.state.lock();
        let gone = state.remove(slot);
        let granted = state.grant(&gone);
        drop(state);
        // Both may run what belongs to others: an entry's drop may end a request.
        drop(gone);
        granted.into_iter().for_each(WaitEntry::kick);
    }
}

impl State {
    fn must_wait(&self, range: &Range<u64>, mode: Mode) -> bool {
        self.waits_behind(range, mode, self.waiting.len()) || self.is_held(range, mode)
    }

    /// Tells whether one that was granted conflicts.
    fn is_held(&self, range: &Range<u64>, mode: Mode) -> bool {
        if mode == Mode::Shared && self.exclusive_granted == 0 {
            return false;
        }
        let mut granted = self.slots.iter().filter(|slot| matches!(slot.stage, Stage::Granted));
        granted.any(|slot| slot.conflicts(range, mode))
    }

    /// Tells whether one of the first `count` that wait conflicts.
    fn waits_behind(&self, range: &Range<u64>, mode: Mode, count: usize) -> bool {
        let mut before = self.waiting.iter().take(count);
        before.any(|slot| self.slots[*slot as usize].conflicts(range, mode))
    }

    fn add(&mut self, slot: Slot) -> u32 {
        let exclusive = slot.mode == Mode::Exclusive;
        let waits = matches!(slot.stage, Stage::Waiting(_));
        let index = if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            index
        } else {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        };
        if waits {
            self.waiting.push_back(index);
        } else {
            self.exclusive_granted += u32::from(exclusive);
        }
        index
    }

    fn remove(&mut self, index: u32) -> Slot {
        let slot = &mut self.slots[index as usize];
        let Slot { start, end, mode, .. } = *slot;
        let stage = core::mem::replace(&mut slot.stage, Stage::Free);
        match stage {
            Stage::Granted => self.exclusive_granted -= u32::from(mode == Mode::Exclusive),
            Stage::Waiting(_) => self.waiting.retain(|waiting| *waiting != index),
            Stage::Free => unreachable!("a slot is given up once"),
        }
        self.free.push(index);
        Slot { start, end, mode, stage }
    }

    /// Grants, in order, those that waited for `gone` and conflict with none before them any more:
    /// a grant makes no other free. Returns their entries, to be kicked without the mutex.
    fn grant(&mut self, gone: &Slot) -> Vec<WaitEntry> {
        let mut entries = Vec::new();
        let mut place = 0;
        while place < self.waiting.len() {
            let index = self.waiting[place];
            let slot = &self.slots[index as usize];
            let (range, mode) = (slot.start..slot.end, slot.mode);
            if !gone.conflicts(&range, mode)
                || self.waits_behind(&range, mode, place)
                || self.is_held(&range, mode)
            {
                place += 1;
                continue;
            }
            self.waiting.remove(place);
            self.exclusive_granted += u32::from(mode == Mode::Exclusive);
            let stage = &mut self.slots[index as usize].stage;
            if let Stage::Waiting(entry) = core::mem::replace(stage, Stage::Granted) {
                entries.push(entry);
            }
        }
        entries
    }
}

impl Slot {
    fn conflicts(&self, range: &Range<u64>, mode: Mode) -> bool {
        let overlap = self.start < range.end && range.start < self.end;
        overlap && (self.mode == Mode::Exclusive || mode == Mode::Exclusive)
    }
}

/// A range that is locked. Dropping it unlocks, and kicks the requests that this grants.
#[derive(Debug)]
#[must_use]
pub struct Guard {
    lock: Arc<InodeLock>,
    slot: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.lock.release(self.slot);
    }
}

/// A place in the queue. Dropping it cancels: a kick that is already on its way may still come,
/// and what was granted meanwhile is given back.
#[derive(Debug)]
#[must_use]
pub struct Ticket(Guard);

impl Ticket {
    /// Takes the lock if it was granted; else gives the ticket back. After the kick it succeeds.
    ///
    /// # Errors
    /// The ticket: the lock was not granted yet.
    pub fn claim(self) -> Result<Guard, Ticket> {
        let granted = {
            let state = self.0.lock.state.lock();
            matches!(state.slots[self.0.slot as usize].stage, Stage::Granted)
        };
        if granted { Ok(self.0) } else { Err(self) }
    }
}

#[cfg(test)]
mod fixture {
    use super::*;
    use crate::sync::{AtomicU32, Relaxed};
    use nowait_retry::wait::Kickable;
    use nowait_sys::sync::futex_wake;
    #[cfg(loom)]
    use nowait_sys::{sync::futex_wait, time::Deadline};

    /// Counts kicks.
    #[derive(Default)]
    pub(super) struct Kicks(AtomicU32);

    impl Kickable for Kicks {
        fn kick(self: Arc<Kicks>) {
            self.0.fetch_add(1, Relaxed);
            futex_wake(&self.0, 1);
        }
    }

    impl Kicks {
        pub(super) fn count(&self) -> u32 {
            self.0.load(Relaxed)
        }

        /// Sleeps until kicked.
        #[cfg(loom)]
        pub(super) fn sleep(&self) {
            while self.count() == 0 {
                let _ = futex_wait(&self.0, 0, Deadline::NEVER);
            }
        }

        pub(super) fn entry(self: &Arc<Kicks>) -> WaitEntry {
            WaitEntry::Request(self.clone())
        }
    }

    pub(super) fn granted(outcome: Outcome) -> Guard {
        match outcome {
            Outcome::Granted(guard) => guard,
            Outcome::Waiting(_) => panic!("waits"),
        }
    }

    pub(super) fn waiting(outcome: Outcome) -> Ticket {
        match outcome {
            Outcome::Waiting(ticket) => ticket,
            Outcome::Granted(_) => panic!("was granted"),
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "inode_lock/tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "inode_lock/loom_tests.rs"]
mod loom_tests;
