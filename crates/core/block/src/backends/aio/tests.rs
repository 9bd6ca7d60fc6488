//! Tests of the alarm of a native AIO context.

use super::*;
use crate::bio::Segments;
use std::{io::pipe, os::fd::AsRawFd};

/// A bio whose event does not come: nothing is written into the pipe.
fn silent(fd: i32) -> Bio {
    // SAFETY: a poll has no memory.
    unsafe { Bio::new(BioOp::Poll(1), fd, Segments::NONE, 0, 1) }
}

/// The kernel calls the thread that sleeps, but shows it an empty ring when another has taken the
/// event before it gets a processor. This test is both: it has announced a wait.
#[test]
fn an_alarm_that_another_thread_takes_sounds_again() {
    let Ok(kaio) = Kaio::new(4) else {
        return crate::conformance::note_skip_here("native AIO is refused");
    };
    let (reader, _writer) = pipe().unwrap();
    kaio.queue(silent(reader.as_raw_fd())).unwrap();
    kaio.commit();
    kaio.arm();
    assert!(kaio.gate.begin().is_some());
    assert!(!kaio.context.has_events(), "nothing has happened");

    // A thread of the kernel brings the event of a poll that is cancelled.
    let sound = || {
        kaio.nudge();
        while !kaio.context.has_events() {
            std::thread::yield_now();
        }
    };
    for _ in 0..3 {
        sound();
        let mut done = Vec::new();
        kaio.collect(&mut done);
        assert_eq!(done, [], "there was the alarm alone");
        assert!(kaio.context.has_events(), "the one that sleeps would sleep on");
        // As it does when it wakes.
        kaio.events(&mut done, 1, Deadline::NEVER).unwrap();
        assert!(!kaio.context.has_events());
        kaio.arm();
    }

    // No thread waits any more: an alarm that is left over is taken once.
    sound();
    kaio.gate.end();
    kaio.collect(&mut Vec::new());
    assert!(!kaio.context.has_events());
    kaio.cancel(1);
    kaio.reap(&mut Vec::new(), 1, Deadline::NEVER).unwrap();
}

/// Has a thread reap one completion, and returns when it sleeps, in the kernel or not.
fn reaper(kaio: &Arc<Kaio>, in_kernel: bool) -> std::thread::JoinHandle<Vec<Completion>> {
    let reaps = kaio.clone();
    let reaper = std::thread::spawn(move || {
        let mut done = Vec::new();
        reaps.reap(&mut done, 1, Deadline::NEVER).unwrap();
        done
    });
    while !kaio.gate.is_waiting() {
        std::thread::yield_now();
    }
    assert_eq!(
        (kaio.dozing.load(Acquire), kaio.sleeps_idle.load(Acquire)),
        (!in_kernel, in_kernel)
    );
    reaper
}

/// Something that the kernel ends at once.
fn submit_ready(kaio: &Kaio, fd: i32) {
    // SAFETY: a poll has no memory.
    let ready = unsafe { Bio::new(BioOp::Poll(POLLOUT), fd, Segments::NONE, 0, 7) };
    kaio.queue(ready).unwrap();
    kaio.commit();
}

#[test]
fn a_reaper_that_had_to_be_woken_for_a_submission_sleeps_in_the_kernel_from_then_on() {
    let Ok(kaio) = Kaio::new(4) else {
        return crate::conformance::note_skip_here("native AIO is refused");
    };
    let (kaio, (_reader, writer)) = (Arc::new(kaio), pipe().unwrap());
    let came = |reaper: std::thread::JoinHandle<Vec<Completion>>| reaper.join().unwrap().len();
    for _ in 0..2 {
        let first = reaper(&kaio, false);
        submit_ready(&kaio, writer.as_raw_fd());
        assert_eq!(came(first), 1);
        for _ in 0..2 {
            let next = reaper(&kaio, true);
            submit_ready(&kaio, writer.as_raw_fd());
            assert_eq!(came(next), 1);
        }
        // Woken from elsewhere, it sleeps where that costs less.
        let called = reaper(&kaio, true);
        kaio.wake();
        assert_eq!(came(called), 0);
    }
}
