//! Tests of native AIO: the alarm, submission inside the call, and shared tags.

use super::*;
use crate::bio::Segments;
use nowait_sys::file::IoVec;
use std::{io::pipe, os::fd::AsRawFd, sync::Arc};

fn silent(fd: i32) -> Bio {
    // SAFETY: a poll has no memory.
    unsafe { Bio::new(BioOp::Poll(1), fd, Segments::NONE, 0, 1) }
}

/// If another thread takes the alarm's event first, the woken thread finds an empty ring and would
/// sleep on.
#[test]
fn an_alarm_that_another_thread_takes_sounds_again() {
    let Ok(kaio) = Kaio::new(4) else {
        return crate::skip::note_skip_here("native AIO is refused");
    };
    let (reader, _writer) = pipe().unwrap();
    kaio.queue(silent(reader.as_raw_fd())).unwrap();
    kaio.commit();
    kaio.arm();
    assert!(kaio.gate.begin().is_some());
    assert!(!kaio.context.has_events(), "nothing has happened");

    // A thread of the kernel delivers the event of a cancelled poll.
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
        kaio.events(&mut done, 1, Deadline::NEVER).unwrap();
        assert!(!kaio.context.has_events());
        kaio.arm();
    }

    sound();
    kaio.gate.end();
    kaio.collect(&mut Vec::new());
    assert!(!kaio.context.has_events());
    kaio.cancel(1);
    kaio.reap(&mut Vec::new(), 1, Deadline::NEVER).unwrap();
}

/// Returns when the thread has announced its wait in the kernel (`in_kernel`) or on the gate.
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

fn submit_ready(kaio: &Kaio, fd: i32) {
    // SAFETY: a poll has no memory.
    let ready = unsafe { Bio::new(BioOp::Poll(POLLOUT), fd, Segments::NONE, 0, 7) };
    kaio.queue(ready).unwrap();
    kaio.commit();
}

#[test]
fn a_reaper_that_had_to_be_woken_for_a_submission_sleeps_in_the_kernel_from_then_on() {
    let Ok(kaio) = Kaio::new(4) else {
        return crate::skip::note_skip_here("native AIO is refused");
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
        let called = reaper(&kaio, true);
        kaio.wake();
        assert_eq!(came(called), 0);
    }
}

/// With RWF_NOWAIT the kernel may refuse this write: the file has no O_DIRECT.
fn buffered_write(fd: i32, memory: &mut [u8], offset: i64, token: u64) -> Bio {
    let segment = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
    // SAFETY: the tests reap before the memory is freed.
    unsafe { Bio::new(BioOp::Write, fd, Segments::One(segment), offset, token) }
}

#[test]
fn what_may_wait_is_submitted_apart_from_all_that_others_have_queued() {
    let Ok(kaio) = Kaio::new(4).map(Kaio::without_waiting) else {
        return crate::skip::note_skip_here("native AIO is refused");
    };
    let (reader, _writer) = pipe().unwrap();
    // In a worker's descriptor table, the number of this bio would mean another file.
    std::thread::scope(|scope| scope.spawn(|| kaio.queue(silent(reader.as_raw_fd()))).join())
        .unwrap()
        .unwrap();
    let (file, mut memory) = (tempfile::tempfile_in("/var/tmp").unwrap(), *b"abcde");
    let write = |(index, byte): (usize, &mut u8)| {
        let memory = core::slice::from_mut(byte);
        buffered_write(file.as_raw_fd(), memory, index as i64, 10 + index as u64)
    };
    let bios: Vec<Bio> = memory.iter_mut().enumerate().map(write).collect();
    let left = bios.into_iter().filter_map(|bio| kaio.submit_now(bio, true).err());
    let left: Vec<u64> = left.map(|bio| bio.token).collect();
    assert_eq!(left, [13, 14], "there was room for three");
    let mut done = Vec::new();
    kaio.reap(&mut done, 3, Deadline::NEVER).unwrap();
    assert!(done.iter().all(|it| it.result == Ok(1) && it.token < 13), "{done:?}");
    assert_eq!(std::io::read_to_string(&file).unwrap(), "abc");
    assert_eq!(
        kaio.book.lock().pending.len(),
        1,
        "what another thread queued waits for its commit"
    );

    let nothing = buffered_write(-1, &mut memory, 0, 20);
    assert_eq!(kaio.submit_now(nothing, true).unwrap().bios, [(20, Err(Errno::BADF))]);
    assert_eq!(kaio.in_flight(), 1);
    // With RWF_NOWAIT the kernel refuses a write beyond the end of the file, or the write succeeds.
    let end = buffered_write(file.as_raw_fd(), &mut memory, 1 << 20, 21);
    let refused = kaio.submit_now(end, false).unwrap();
    let waits = refused.bios.iter().all(|(token, result)| {
        *token == 21 && matches!(result, Err(Errno::AGAIN | Errno::OPNOTSUPP))
    });
    assert!(waits && kaio.in_flight() + refused.bios.len() == 2, "{refused:?}");
    kaio.cancel(1);
    kaio.reap(&mut done, 1, Deadline::NEVER).unwrap();
}

#[test]
fn queues_that_share_tags_have_room_together() {
    let tags = Arc::new(crate::Tags::default());
    tags.note_device(1);
    tags.look(|dev| Some(crate::Disk { dev, tags: 256 }));
    let queue = || Some(Kaio::new(192).ok()?.sharing(tags.share(crate::Submitter::Callers)));
    let (Some(one), Some(other)) = (queue(), queue()) else {
        return crate::skip::note_skip_here("native AIO is refused");
    };
    let (reader, _writer) = pipe().unwrap();
    let queue = |of: &Kaio, count| {
        (0..count).for_each(|_| of.queue(silent(reader.as_raw_fd())).unwrap());
    };
    queue(&other, 1);
    other.commit();
    queue(&one, 100);
    assert!(one.has_room(91) && !one.has_room(92), "what is not committed counts for itself");
    one.commit();
    assert!(other.has_room(91) && !other.has_room(92), "and then for all");
    queue(&other, 99);
    other.commit();
    assert!(!one.has_room(1) && !other.has_room(1), "it was given more than there are");
    (0..50).for_each(|_| one.cancel(1));
    let mut done = Vec::new();
    one.reap(&mut done, 50, Deadline::NEVER).unwrap();
    assert!(other.has_room(42) && !other.has_room(43), "what has ended is given back");
    drop(one);
    assert!(other.has_room(92), "and what a queue that is gone had");
}

#[test]
fn a_bio_with_an_eventfd_that_io_submit_refuses_is_given_back() {
    let Ok(kaio) = Kaio::new(4).map(Kaio::without_waiting) else {
        return crate::skip::note_skip_here("native AIO is refused");
    };
    let (file, counter) = (tempfile::tempfile().unwrap(), EventFd::new().unwrap());
    let mut memory = [0; 2];
    let bios = [(file.as_raw_fd(), 1), (-1, 2)].map(|(fd, token)| {
        let part = IoVec { base: &raw mut memory[token as usize - 1], len: 1 };
        // SAFETY: the bios have ended before the memory is freed.
        let bio = unsafe { Bio::new(BioOp::Read, fd, Segments::One(part), 0, token) };
        Bio { counter: Some(counter.raw()), ..bio }
    });
    bios.into_iter().for_each(|bio| kaio.queue(bio).unwrap());
    assert_eq!(kaio.commit_or_refuse().bios, [(2, Err(Errno::BADF))]);
    let mut done = Vec::new();
    kaio.reap(&mut done, 1, Deadline::NEVER).unwrap();
    assert_eq!(done, [Completion { token: 1, result: Ok(0) }]);
    assert_eq!((counter.drain(), kaio.in_flight()), (1, 0));
}
