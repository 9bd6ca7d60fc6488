//! The machine itself: threads of std on it, and the shortening of runs.
#![cfg(simulated)]

use nowait_machine::{
    Machine, explain, longest_ns, start_no_read, step, throttle, transfers_awaited,
};
use nowait_sys::{
    Errno,
    file::{self, IoVec, rwf},
    inspect::{self, O_CREAT, O_RDWR},
    thread::times_slept,
};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant},
};

/// One test runs at a time: a forked run would inherit locks that threads of other tests hold.
static ONE_TEST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work() -> Vec<u32> {
    let (send, receive) = mpsc::channel();
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (send, gate) = (send.clone(), gate.clone());
            std::thread::spawn(move || {
                let mut arrived = gate.0.lock().unwrap();
                *arrived += 1;
                gate.1.notify_all();
                while *arrived < 4 {
                    arrived = gate.1.wait(arrived).unwrap();
                }
                drop(arrived);
                send.send(number).unwrap();
            })
        })
        .collect();
    drop(send);
    let order = receive.iter().collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    order
}

#[test]
fn a_seed_repeats_and_others_differ() {
    let _alone = alone();
    let run = |seed| Machine::run(seed, work).unwrap();
    let orders: std::collections::HashSet<Vec<u32>> = (0..40).map(|seed| run(seed).0).collect();
    assert!(orders.len() > 4, "{orders:?}");
    for seed in 0..20 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn threads_that_wait_for_each_other_hang() {
    let _alone = alone();
    let failure = Machine::run(1, || {
        let (send, receive) = mpsc::channel::<()>();
        receive.recv().unwrap();
        drop(send);
    });
    let message = failure.unwrap_err().message;
    assert!(message.starts_with("hangs") && message.contains("main in futex"), "{message}");
}

#[test]
fn a_panic_fails_the_run() {
    let _alone = alone();
    let failure = Machine::run(1, || panic!("on purpose"));
    let message = failure.map(|_: ((), _)| ()).unwrap_err().message;
    assert!(message.starts_with("panic at ") && message.ends_with(": on purpose"), "{message}");
}

fn steps(fails: fn(&[(u32, u32)])) -> impl Fn() + Clone + Send + 'static {
    move || {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let act = |thread: u32| {
            let taken = taken.clone();
            let work = move || {
                for number in 0..20 {
                    if step(|| format!("the step {number}")) {
                        taken.lock().unwrap().push((thread, number));
                        fails(&taken.lock().unwrap());
                    }
                }
            };
            std::thread::Builder::new().name(format!("actor {thread}")).spawn(work).unwrap()
        };
        [act(0), act(1)].into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn of_a_run_that_fails_only_the_steps_are_left_that_it_needs() {
    let _alone = alone();
    let program = steps(|taken| {
        assert!(!(taken.contains(&(0, 7)) && taken.contains(&(1, 3))), "both");
    });
    let smallest = explain(1, program).unwrap_err();
    let left: Vec<_> = smallest.steps.iter().map(|it| (&it.thread[..], it.number)).collect();
    assert!(left.contains(&("actor 0", 7)) && left.contains(&("actor 1", 3)), "{smallest}");
    assert!(left.len() == 2 && smallest.failure.message.ends_with("both"), "{smallest}");
    assert!(smallest.steps.iter().any(|it| it.text == "the step 7"), "{smallest}");
}

#[test]
fn a_run_that_ends_its_process_is_made_smaller_too() {
    let _alone = alone();
    let program = steps(|taken| {
        if taken.len() > 4 {
            std::process::abort();
        }
    });
    let smallest = explain(1, program).unwrap_err();
    assert_eq!(smallest.steps.len(), 5, "{smallest}");
}

#[test]
fn a_run_in_which_nothing_fails_is_left_alone() {
    let _alone = alone();
    assert!(explain(1, steps(|_| ())).is_ok());
}

const PAGE: usize = 4096;

fn read(fd: i32, page: usize, flags: u32) -> Result<usize, Errno> {
    let mut memory = [0; PAGE];
    let part = IoVec { base: memory.as_mut_ptr(), len: PAGE };
    // SAFETY: room for a page.
    unsafe { file::preadv2(fd, &[part], (page * PAGE) as i64, flags) }
}

/// Reads 64 pages, each first by an attempt with RWF_NOWAIT. Counts failed attempts, pages that a
/// later attempt finds, and pages whose blocking read sleeps.
fn attempts(starts: bool) -> (usize, usize, usize) {
    if !starts {
        start_no_read();
    }
    let open = inspect::open(c"/file", O_RDWR | O_CREAT, 0o600).unwrap();
    file::set_len(open.raw(), 64 * PAGE as u64).unwrap();
    let transfer = Duration::from_nanos(longest_ns().0);
    let (mut missing, mut there, mut sleeps) = (0, 0, 0);
    for page in 0..64 {
        let slept = transfers_awaited();
        if read(open.raw(), page, rwf::NOWAIT) == Ok(PAGE) {
            continue;
        }
        assert_eq!(transfers_awaited(), slept, "an attempt does not wait");
        missing += 1;
        if page % 2 == 0 {
            let until = Instant::now() + transfer;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(left);
            }
            there += usize::from(read(open.raw(), page, rwf::NOWAIT) == Ok(PAGE));
        }
        assert_eq!(read(open.raw(), page, 0), Ok(PAGE));
        sleeps += usize::from(transfers_awaited() > slept);
    }
    (missing, there, sleeps)
}

#[test]
fn an_attempt_at_a_page_that_is_missing_starts_its_read() {
    let _alone = alone();
    let run = |starts| {
        let runs = (0..40).map(|seed| Machine::run(seed, move || attempts(starts)).unwrap().0);
        runs.fold((0, 0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1, sum.2 + it.2))
    };
    let (missing, there, sleeps) = run(true);
    assert!(missing > 500 && there * 2 >= missing - 40, "{there} of {missing}");
    assert!(sleeps < missing, "{sleeps} of {missing}");
    let (missing, there, sleeps) = run(false);
    assert!(there * 3 < missing && sleeps * 3 > missing, "{there} and {sleeps} of {missing}");
}

#[test]
fn a_throttled_write_keeps_others_waiting() {
    let _alone = alone();
    let held_up = |ns| {
        let run = move || {
            throttle(if ns > 0 { 1_000_000 } else { 0 }, ns);
            let open = inspect::open(c"/file", O_RDWR | O_CREAT, 0o600).unwrap().into_raw();
            let write = move |page: usize| {
                let mut memory = [1; PAGE];
                let part = IoVec { base: memory.as_mut_ptr(), len: PAGE };
                let (begun, slept) = (Instant::now(), times_slept());
                // SAFETY: a page of bytes.
                let moved = unsafe { file::pwritev2(open, &[part], (page * PAGE) as i64, 0) };
                assert_eq!(moved, Ok(PAGE));
                assert!(ns == 0 || times_slept() > slept);
                begun.elapsed()
            };
            let other = std::thread::spawn(move || write(0));
            let took = write(1);
            took.max(other.join().unwrap())
        };
        (0..20).map(move |seed| Machine::run(seed, run).unwrap().0)
    };
    assert!(held_up(0).all(|took| took < Duration::from_millis(1)));
    assert!(held_up(8_000_000).all(|took| took >= Duration::from_millis(2)));
    assert!(held_up(8_000_000).any(|took| took > Duration::from_millis(8)), "one after the other");
}
