//! All interleavings of two or three requests.

use super::fixture::{Kicks, granted, waiting};
use super::*;
use core::mem::ManuallyDrop;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use nowait_sys::sync::forgetting_wakes;

impl InodeLock {
    /// The mistake that `try_lock` warns of: judged first, queued later.
    fn try_lock_in_two_steps(
        self: &Arc<InodeLock>,
        range: Range<u64>,
        mode: Mode,
        make_entry: impl FnOnce() -> WaitEntry,
    ) -> Outcome {
        if !self.state.lock().must_wait(&range, mode) {
            return self.try_lock(range, mode, make_entry);
        }
        let (start, end, stage) = (range.start, range.end, Stage::Waiting(make_entry()));
        let slot = self.state.lock().add(Slot { start, end, mode, stage });
        Outcome::Waiting(Ticket(Guard { lock: self.clone(), slot }))
    }
}

type TryLock = fn(&Arc<InodeLock>, Range<u64>, Mode, Arc<Kicks>) -> Outcome;

fn try_lock(inode: &Arc<InodeLock>, range: Range<u64>, mode: Mode, kicks: Arc<Kicks>) -> Outcome {
    inode.try_lock(range, mode, || kicks.entry())
}

fn two_steps(inode: &Arc<InodeLock>, range: Range<u64>, mode: Mode, kicks: Arc<Kicks>) -> Outcome {
    inode.try_lock_in_two_steps(range, mode, || kicks.entry())
}

/// One request meets the release of a conflicting one: it holds the lock, or was kicked.
fn release_against_lock(try_lock: TryLock) {
    loom::model(move || {
        let inode = InodeLock::new();
        let kicks = Arc::new(Kicks::default());
        let first = granted(inode.try_lock(0..10, Mode::Exclusive, || unreachable!()));
        let releaser = thread::spawn(move || drop(first));
        let outcome = try_lock(&inode, 5..15, Mode::Shared, kicks.clone());
        releaser.join().unwrap();
        let waited = matches!(outcome, Outcome::Waiting(_));
        assert_eq!(kicks.count(), u32::from(waited), "free, and no release will grant it");
        if waited {
            assert!(waiting(outcome).claim().is_ok(), "kicked without the lock");
        }
    });
}

#[test]
fn loom_release_against_lock_loses_no_grant() {
    release_against_lock(try_lock);
}

#[test]
#[should_panic(expected = "no release will grant it")]
fn loom_canary_judged_and_queued_in_two_steps_loses_a_grant() {
    release_against_lock(two_steps);
}

/// Two requests of ranges that conflict, each of which waits its turn.
fn two_conflict(release: fn(Guard)) {
    loom::model(move || {
        let inode = InodeLock::new();
        let inside = Arc::new(AtomicU32::new(0));
        let run = move |inode: Arc<InodeLock>, inside: Arc<AtomicU32>, range: Range<u64>| {
            let kicks = Arc::new(Kicks::default());
            let guard = match try_lock(&inode, range, Mode::Exclusive, kicks.clone()) {
                Outcome::Granted(guard) => guard,
                Outcome::Waiting(ticket) => {
                    // A thread of a canary sleeps for ever, and drops nothing.
                    let ticket = ManuallyDrop::new(ticket);
                    kicks.sleep();
                    ManuallyDrop::into_inner(ticket).claim().expect("kicked without the lock")
                }
            };
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "two writers at once");
            inside.fetch_sub(1, Relaxed);
            release(guard);
        };
        let (other, others) = (inode.clone(), inside.clone());
        let other = thread::spawn(move || run(other, others, 0..10));
        run(inode.clone(), inside, 5..15);
        other.join().unwrap();
        assert_eq!(inode.counts(), (0, 0));
    });
}

#[test]
fn loom_conflicting_ranges_are_never_held_together() {
    two_conflict(drop);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_lock_that_is_never_given_back() {
    two_conflict(core::mem::forget);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_grant_without_a_kick() {
    two_conflict(|guard| forgetting_wakes(|| drop(guard)));
}

#[test]
fn loom_cancel_against_release_hands_the_grant_on() {
    loom::model(|| {
        let inode = InodeLock::new();
        let first = granted(inode.try_lock(0..10, Mode::Exclusive, || unreachable!()));
        let (second_kicks, third_kicks) = (Arc::new(Kicks::default()), Arc::new(Kicks::default()));
        let second = waiting(try_lock(&inode, 0..10, Mode::Exclusive, second_kicks.clone()));
        let third = waiting(try_lock(&inode, 0..10, Mode::Exclusive, third_kicks.clone()));
        let canceller = thread::spawn(move || drop(second));
        drop(first);
        canceller.join().unwrap();
        assert!(second_kicks.count() <= 1);
        assert_eq!(third_kicks.count(), 1, "the grant was lost, or told twice");
        assert!(third.claim().is_ok());
    });
}
