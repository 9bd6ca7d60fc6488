//! One thread at a time: which requests are granted, in which order.

use super::fixture::{Kicks, granted, waiting};
use super::*;
use proptest::prelude::*;

use Mode::{Exclusive, Shared};

fn lock(lock: &Arc<InodeLock>, range: Range<u64>, mode: Mode) -> (Outcome, Arc<Kicks>) {
    let kicks = Arc::new(Kicks::default());
    (lock.try_lock(range, mode, || kicks.entry()), kicks)
}

#[test]
fn only_overlapping_ranges_with_a_writer_conflict() {
    let inode = InodeLock::new();
    let held = [
        granted(lock(&inode, 0..100, Shared).0),
        granted(lock(&inode, 50..150, Shared).0),
        granted(lock(&inode, 150..200, Exclusive).0),
        granted(lock(&inode, 200..u64::MAX, Exclusive).0),
    ];
    let tickets = [
        waiting(lock(&inode, 149..150, Exclusive).0),
        waiting(lock(&inode, 150..151, Shared).0),
        waiting(lock(&inode, u64::MAX - 1..u64::MAX, Shared).0),
    ];
    assert_eq!(inode.counts(), (4, 3));
    drop(held);
    assert_eq!(inode.counts(), (3, 0));
    drop(tickets);
    assert_eq!(inode.counts(), (0, 0));
}

#[test]
fn a_waiting_writer_is_not_overtaken_by_readers_of_its_range() {
    let inode = InodeLock::new();
    let reader = granted(lock(&inode, 0..10, Shared).0);
    let (writer, kicks) = lock(&inode, 5..20, Exclusive);
    let (late, late_kicks) = lock(&inode, 15..16, Shared);
    let elsewhere = granted(lock(&inode, 30..40, Exclusive).0);
    let (writer, late) = (waiting(writer), waiting(late));
    let writer = writer.claim().unwrap_err();
    drop(reader);
    assert_eq!((kicks.count(), late_kicks.count()), (1, 0));
    let writer = writer.claim().unwrap();
    drop(writer);
    assert_eq!((kicks.count(), late_kicks.count()), (1, 1));
    drop((late.claim().unwrap(), elsewhere));
    assert_eq!(inode.counts(), (0, 0));
}

#[test]
fn cancelled_writer_lets_the_readers_behind_it_go() {
    let inode = InodeLock::new();
    let _reader = granted(lock(&inode, 0..10, Shared).0);
    let (writer, writer_kicks) = lock(&inode, 0..10, Exclusive);
    let (second, second_kicks) = lock(&inode, 0..10, Shared);
    drop(waiting(writer));
    assert_eq!((writer_kicks.count(), second_kicks.count()), (0, 1));
    assert!(waiting(second).claim().is_ok());
}

#[test]
fn a_grant_without_a_claim_is_given_back() {
    let inode = InodeLock::new();
    let first = granted(lock(&inode, 0..10, Exclusive).0);
    let second = waiting(lock(&inode, 0..10, Exclusive).0);
    let (third, kicks) = lock(&inode, 0..10, Exclusive);
    drop(first);
    assert_eq!(kicks.count(), 0, "it is the second's now");
    drop(second);
    assert_eq!(kicks.count(), 1);
    drop(third);
    assert_eq!(inode.counts(), (0, 0));
}

#[test]
fn no_entry_is_made_without_a_wait() {
    let inode = InodeLock::new();
    let guard = inode.try_lock(0..1, Exclusive, || unreachable!("it is free"));
    drop(granted(guard));
}

#[test]
#[should_panic(expected = "an empty range locks nothing")]
fn an_empty_range_is_refused() {
    drop(lock(&InodeLock::new(), 5..5, Shared));
}

/// The real figure: `BENCH=1 cargo test --release -p nowait-cache bench_ -- --nocapture`.
#[test]
fn bench_lock_and_unlock() {
    let rounds = if std::env::var_os("BENCH").is_some() { 4_000_000 } else { 1_000 };
    for (name, mode, others) in
        [("shared", Shared, 64), ("exclusive", Exclusive, 0), ("exclusive", Exclusive, 64)]
    {
        let inode = InodeLock::new();
        let _others: Vec<_> = (1..=others)
            .map(|n: u64| granted(lock(&inode, n << 20..(n << 20) + 4096, Shared).0))
            .collect();
        let start = std::time::Instant::now();
        for n in 0..rounds {
            let range = n % 256 * 4096..(n % 256 + 1) * 4096;
            drop(granted(inode.try_lock(range, mode, || unreachable!("no conflict"))));
        }
        let each = start.elapsed().as_nanos() / u128::from(rounds);
        println!("{name}, {others} others held: {each} ns to lock and unlock");
    }
}

/// The obvious way: all requests in order of arrival; one is granted if it conflicts with none
/// before it.
#[derive(Default)]
struct Model(Vec<(usize, Range<u64>, Mode)>);

impl Model {
    fn is_granted(&self, id: usize) -> bool {
        let place = self.0.iter().position(|one| one.0 == id).unwrap();
        let (_, range, mode) = &self.0[place];
        self.0[..place].iter().all(|(_, other, other_mode)| {
            let apart = other.end <= range.start || range.end <= other.start;
            apart || (*mode == Shared && *other_mode == Shared)
        })
    }
}

enum Held {
    Guard { _guard: Guard },
    Ticket(Ticket, Arc<Kicks>),
}

#[derive(Clone, Debug)]
enum Step {
    Lock(Range<u64>, Mode),
    Claim(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (prop_oneof![0..20u64, Just(u64::MAX - 8)], 1..8u64);
    let mode = prop_oneof![2 => Just(Shared), 1 => Just(Exclusive)];
    prop_oneof![
        3 => (range, mode).prop_map(|((start, len), mode)| Step::Lock(start..start + len, mode)),
        2 => any::<usize>().prop_map(Step::Claim),
        2 => any::<usize>().prop_map(Step::Drop),
    ]
}

/// Each is held if and only if the model says so, and was kicked once if it had to wait.
fn agrees(model: &Model, held: &[(usize, Held)]) {
    for (id, one) in held {
        let granted = model.is_granted(*id);
        match one {
            Held::Guard { .. } => assert!(granted, "held against a conflict"),
            Held::Ticket(_, kicks) => assert_eq!(kicks.count(), u32::from(granted)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn grants_agree_with_the_model(steps in prop::collection::vec(step(), 0..100)) {
        let inode = InodeLock::new();
        let (mut model, mut held) = (Model::default(), Vec::new());
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Lock(range, mode) => {
                    let (outcome, kicks) = lock(&inode, range.clone(), mode);
                    model.0.push((id, range, mode));
                    held.push((id, match outcome {
                        Outcome::Granted(guard) => Held::Guard { _guard: guard },
                        Outcome::Waiting(ticket) => {
                            prop_assert!(!model.is_granted(id), "waits for no other");
                            Held::Ticket(ticket, kicks)
                        }
                    }));
                }
                Step::Claim(n) if !held.is_empty() => {
                    let (id, one) = held.swap_remove(n % held.len());
                    held.push((id, match one {
                        Held::Ticket(ticket, kicks) => match ticket.claim() {
                            Ok(guard) => Held::Guard { _guard: guard },
                            Err(ticket) => Held::Ticket(ticket, kicks),
                        },
                        guard @ Held::Guard { .. } => guard,
                    }));
                }
                Step::Drop(n) if !held.is_empty() => {
                    let (id, _) = held.swap_remove(n % held.len());
                    model.0.retain(|one| one.0 != id);
                }
                Step::Claim(_) | Step::Drop(_) => {}
            }
            agrees(&model, &held);
        }
        drop(held);
        prop_assert_eq!(inode.counts(), (0, 0));
    }
}
