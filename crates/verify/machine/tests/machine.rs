//! The machine itself: threads of std on it, and how it makes a run smaller.
#![cfg(simulated)]

use nowait_machine::{Machine, explain, step};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};

/// A run may be a process that is forked: what threads of other tests have locked would be locked
/// in it for ever.
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

/// Two threads with 20 steps each; `fails` looks at those that were taken.
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
