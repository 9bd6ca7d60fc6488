//! Claims on the waits of `reap` and their ends.

use super::{
    Claim, Fixture,
    completion::nothing_more,
    fixture::{OnDrop, bio},
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use nowait_block::{BioOp, Segments};
use nowait_sys::{Errno, time::Deadline};
use std::{
    io::{PipeReader, PipeWriter, Write, pipe},
    os::fd::AsRawFd,
};

pub(super) const CLAIMS: &[Claim] = &[
    ("reap_of_none_never_waits", reap_of_none_never_waits),
    ("deadline_ends_the_wait", deadline_ends_the_wait),
    ("wake_before_the_wait_is_kept", wake_before_the_wait_is_kept),
    ("wake_during_the_wait_ends_it", wake_during_the_wait_ends_it),
    ("wake_completes_nothing", wake_completes_nothing),
    ("wake_does_not_lose_completions", wake_does_not_lose_completions),
    ("poll_fires", poll_fires),
    ("poll_of_a_file_is_ready", poll_of_a_file_is_ready),
    ("cancelled_poll_completes_once", cancelled_poll_completes_once),
    ("poll_for_nothing_can_be_cancelled", poll_for_nothing_can_be_cancelled),
    ("cancel_of_unknown_is_ignored", cancel_of_unknown_is_ignored),
    ("waiting_for_more_than_come_ends_at_the_deadline", more_than_come),
];

const POLLIN: u16 = 1;
const POLLHUP: u32 = 0x10;
const MILLISECOND_NS: u64 = 1_000_000;

fn reap_of_none_never_waits(fixture: &Fixture) {
    let mut done = Vec::new();
    for deadline in [Deadline::NOW, Deadline::NEVER] {
        fixture.backend.reap(&mut done, 0, deadline).unwrap();
    }
    fixture.backend.reap(&mut done, 5, Deadline::NOW).unwrap();
    assert_eq!(done, []);
}

fn deadline_ends_the_wait(fixture: &Fixture) {
    let end = fixture.now_ns() + 3 * MILLISECOND_NS;
    let mut done = Vec::new();
    fixture.wait(&mut done, 1, Deadline::at_ns(end));
    assert!(
        fixture.now_ns() >= end,
        "nothing came and no thread called wake, but it returned early"
    );
    assert_eq!(done, []);
}

fn more_than_come(fixture: &Fixture) {
    let mut buffer = [0u8; 8];
    fixture.start(fixture.read(&mut buffer, 0, 1));
    let mut done = Vec::new();
    let end = fixture.now_ns() + 3 * MILLISECOND_NS;
    fixture.wait(&mut done, 2, Deadline::at_ns(end));
    // On a slow device the bio may end later.
    if done.is_empty() {
        done = fixture.reap(1);
    }
    assert_eq!((done.len(), done[0].result), (1, Ok(8)));
}

fn wake_before_the_wait_is_kept(fixture: &Fixture) {
    for _ in 0..3 {
        fixture.backend.wake();
        fixture.backend.wake();
        let mut done = Vec::new();
        // This reap does not wait, so it leaves the wake-up for the next reap that would wait.
        fixture.backend.reap(&mut done, 0, Deadline::NOW).unwrap();
        fixture.wait(&mut done, 1, Deadline::NEVER);
        assert_eq!(done, []);
    }
    deadline_ends_the_wait(fixture);
}

fn wake_during_the_wait_ends_it(fixture: &Fixture) {
    if !fixture.can("wake_during_the_wait_ends_it", fixture.lacks.threads) {
        return;
    }
    for _ in 0..50 {
        let returned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _returned = OnDrop(|| returned.store(true, SeqCst));
            scope.spawn(|| {
                while !returned.load(SeqCst) {
                    fixture.backend.wake();
                    std::thread::yield_now();
                }
            });
            let mut done = Vec::new();
            (0..20).for_each(|_| fixture.wait(&mut done, 1, Deadline::NEVER));
            assert_eq!(done, []);
        });
    }
}

fn wake_completes_nothing(fixture: &Fixture) {
    let mut done = Vec::new();
    for _ in 0..10 {
        fixture.backend.wake();
        fixture.wait(&mut done, 1, Deadline::NEVER);
    }
    assert_eq!((done.len(), fixture.backend.in_flight()), (0, 0));
    nothing_more(fixture);
}

fn wake_does_not_lose_completions(fixture: &Fixture) {
    let mut buffer = [0u8; 8];
    for token in 0..200 {
        fixture.start(fixture.read(&mut buffer, 0, token));
        fixture.backend.wake();
        assert_eq!(fixture.reap(1)[0].token, token);
    }
    nothing_more(fixture);
}

fn poll_pipe(fixture: &Fixture, claim: &str, events: u16) -> Option<(PipeReader, PipeWriter)> {
    if !fixture.can(claim, fixture.lacks.polls) {
        return None;
    }
    let (reader, writer) = pipe().expect("descriptors are left");
    fixture.start(bio(BioOp::Poll(events), reader.as_raw_fd(), Segments::NONE, 0, 42));
    Some((reader, writer))
}

fn poll_fires(fixture: &Fixture) {
    for hang_up in [false, true] {
        let Some((reader, mut writer)) = poll_pipe(fixture, "poll_fires", POLLIN) else { return };
        nothing_more(fixture);
        let expected = if hang_up {
            drop(writer);
            POLLHUP
        } else {
            writer.write_all(b"x").unwrap();
            u32::from(POLLIN)
        };
        let done = fixture.reap(1);
        assert_eq!((done[0].token, done[0].result), (42, Ok(expected)));
        drop(reader);
        nothing_more(fixture);
    }
}

fn poll_of_a_file_is_ready(fixture: &Fixture) {
    if fixture.can("poll_of_a_file_is_ready", fixture.lacks.descriptors) {
        let bio = bio(BioOp::Poll(POLLIN), fixture.fd, Segments::NONE, 0, 1);
        assert_eq!(fixture.run(bio), Ok(u32::from(POLLIN)));
    }
}

fn cancelled_poll_completes_once(fixture: &Fixture) {
    let claim = "cancelled_poll_completes_once";
    for _ in 0..20 {
        let Some((reader, mut writer)) = poll_pipe(fixture, claim, POLLIN) else { return };
        fixture.backend.cancel(42);
        fixture.backend.cancel(42);
        let done = fixture.reap(1);
        assert_eq!((done[0].token, done[0].result), (42, Err(Errno::CANCELED)));
        writer.write_all(b"x").unwrap();
        drop(reader);
        nothing_more(fixture);
    }
}

fn poll_for_nothing_can_be_cancelled(fixture: &Fixture) {
    let claim = "poll_for_nothing_can_be_cancelled";
    let Some((_reader, mut writer)) = poll_pipe(fixture, claim, 0) else { return };
    writer.write_all(b"x").unwrap();
    nothing_more(fixture);
    fixture.backend.cancel(42);
    assert_eq!(fixture.reap(1)[0].result, Err(Errno::CANCELED));
}

fn cancel_of_unknown_is_ignored(fixture: &Fixture) {
    fixture.backend.cancel(1);
    let mut buffer = [0u8; 8];
    for token in 0..50 {
        assert_eq!(fixture.run(fixture.read(&mut buffer, 0, token)), Ok(8));
        // The bio has ended, but the next bio may get its slot.
        fixture.backend.cancel(token);
    }
    nothing_more(fixture);
}
