//! The machine itself: threads of std on it.
#![cfg(simulated)]

use nowait_machine::Machine;
use std::sync::{Arc, Condvar, Mutex, mpsc};

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
    let failure = Machine::run(1, || panic!("on purpose"));
    let message = failure.map(|_: ((), _)| ()).unwrap_err().message;
    assert!(message.starts_with("panic at ") && message.ends_with(": on purpose"), "{message}");
}
