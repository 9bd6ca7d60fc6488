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
