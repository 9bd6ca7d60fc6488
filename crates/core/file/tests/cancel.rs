//! Cancellation: a request's event comes once, with ECANCELED if the request could be cancelled.

mod common;

use common::*;
use nowait_block::skip::note_skip_here;
use nowait_file::{Context, Kind, SubmitMode, UserFile, submit::EventTarget};
use nowait_sys::{Errno, eventfd::EventFd, time::Deadline};
use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::fd::AsRawFd,
};

const POLLIN: u16 = 1;
const BLOCK: usize = 4096;

#[test]
fn a_cancelled_poll_ends_once_and_cannot_be_cancelled_again() {
    on_every_backend(|engine| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        for round in 0..50 {
            submit(&context, 7, poll(&reader, POLLIN)).unwrap();
            assert_eq!(context.cancel(8), Err(Errno::INVAL), "no request has this name");
            assert_eq!(context.cancel(7), Ok(()), "round {round}");
            assert_eq!(context.cancel(7), Err(Errno::INVAL), "twice, round {round}");
            assert_eq!(reap(&context, 1), [(7, failed(Errno::CANCELED))]);
        }
        assert!(!has_event(&context));
        context.destroy().unwrap();
    });
}

/// A program may reuse an iocb before its event has come.
#[test]
fn requests_of_one_name_are_cancelled_one_by_one() {
    on_every_backend(|engine| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let context = Context::new(engine, 0, 16).unwrap();
        for name in [7, 8, 7, 7] {
            submit(&context, name, poll(&reader, POLLIN)).unwrap();
        }
        (0..3).for_each(|_| context.cancel(7).unwrap());
        assert_eq!(context.cancel(7), Err(Errno::INVAL), "there were three");
        assert_eq!(reap(&context, 3), [(7, failed(Errno::CANCELED)); 3]);
        context.cancel(8).unwrap();
        assert_eq!(reap(&context, 1), [(8, failed(Errno::CANCELED))]);
        context.destroy().unwrap();
    });
}

#[test]
fn a_cancelled_read_of_a_pipe_leaves_the_data_to_the_next() {
    on_every_backend(|engine| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        let memory = leaked(4, 0);
        for _ in 0..50 {
            submit(&context, 1, command(Kind::Read, &reader, memory, 0)).unwrap();
            context.cancel(1).unwrap();
            assert_eq!(reap(&context, 1), [(1, failed(Errno::CANCELED))]);
            writer.write_all(b"data").unwrap();
            let mut seen = [0; 4];
            (&reader).read_exact(&mut seen).unwrap();
            assert_eq!((&seen, bytes(memory)), (b"data", &[0; 4][..]));
        }
        context.destroy().unwrap();
    });
}

/// The eventfd's number is valid in the engine's table only, and the cancelled requests end on the
/// thread that cancels them.
#[test]
fn what_is_cancelled_behind_another_signals_its_event_counter() {
    on_every_backend(|engine| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let (context, counter) = (Context::new(engine, 0, 8).unwrap(), EventFd::new().unwrap());
        let signalled = |wanted: u64| {
            let (mut sum, limit) = (0, Deadline::after_ns(60_000_000_000));
            while sum < wanted && !limit.has_passed() {
                sum += counter.drain();
                std::thread::yield_now();
            }
            assert_eq!(sum, wanted, "{}", engine.backend());
        };
        for name in [1, 2, 3] {
            let target = EventTarget { data: name, obj: name, eventfd: Some(counter.raw()) };
            let read = command(Kind::Read, &reader, leaked(4, 0), 0);
            submit_to(&context, target, read).unwrap();
        }
        [3, 2].into_iter().for_each(|name| context.cancel(name).unwrap());
        let cancelled = failed(Errno::CANCELED);
        assert_eq!(reap(&context, 2), [(2, cancelled), (3, cancelled)]);
        signalled(2);
        context.destroy().unwrap();
        signalled(1);
    });
}

#[test]
fn what_has_ended_cannot_be_cancelled() {
    on_every_backend(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; BLOCK]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        submit(&context, 1, command(Kind::Read, &file, leaked(BLOCK, 0), 0)).unwrap();
        assert_eq!(reap(&context, 1), [(1, BLOCK as i64)]);
        assert_eq!(context.cancel(1), Err(Errno::INVAL));
        context.destroy().unwrap();
    });
}

#[test]
fn a_copy_that_waits_for_the_driver_can_be_cancelled() {
    const LARGE: usize = 256 << 10;
    const COPIES: u64 = 32;
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        return note_skip_here("no /dev/shm");
    };
    file.set_len(LARGE as u64).unwrap();
    let memories: Vec<_> = (0..COPIES).map(|_| leaked(LARGE, 1)).collect();
    on_every_backend(|engine| {
        let driven = engine.config().submit == SubmitMode::Offload && engine.backend() != "threads";
        let context = Context::new(engine, 0, 256).unwrap();
        let mut cancelled = 0;
        // Repeated until a cancellation comes before the driver has begun to copy.
        for _ in 0..if driven { 1000 } else { 1 } {
            for (name, memory) in memories.iter().enumerate() {
                submit(&context, name as u64, command(Kind::Read, &file, *memory, 0)).unwrap();
            }
            let found = context.cancel(COPIES - 1);
            assert!(matches!(found, Ok(()) | Err(Errno::INVAL)), "{found:?}");
            for (index, (name, res)) in reap(&context, COPIES as usize).into_iter().enumerate() {
                assert_eq!(name, index as u64, "each once");
                let early = name == COPIES - 1 && res == failed(Errno::CANCELED);
                assert!(early && found.is_ok() || res == LARGE as i64, "{name}: {res}");
                cancelled += u32::from(early);
            }
            if cancelled > 0 {
                break;
            }
        }
        assert!(!driven || cancelled > 0, "none was ever found");
        context.destroy().unwrap();
    });
}

fn cancelled_writes(engine: &std::sync::Arc<nowait_file::Engine>, cached: bool) {
    const WRITES: u64 = 64;
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("file");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let user = cached.then(|| UserFile::open(engine, file.as_raw_fd()).unwrap());
    let context = Context::new(engine, 0, 256).unwrap();
    for round in 0..5 {
        for name in 0..WRITES {
            let memory = leaked(16 * BLOCK, name as u8 + 1);
            let mut write = command(Kind::Write, &file, memory, 0);
            write.rw_flags = nowait_sys::file::rwf::DSYNC;
            submit(&context, name, write).unwrap();
        }
        let asked = |name: u64| name % 3 != round % 3;
        for name in (0..WRITES).rev().filter(|name| asked(*name)) {
            let _ = context.cancel(name);
        }
        let events = reap(&context, WRITES as usize);
        for (index, (name, res)) in events.iter().enumerate() {
            assert_eq!(*name, index as u64, "each once");
            let whole = *res == 16 * BLOCK as i64;
            assert!(whole || (asked(*name) && *res == failed(Errno::CANCELED)), "{name}: {res}");
        }
        let last = events.iter().rfind(|(_, res)| *res > 0).unwrap().0;
        let memory = leaked(BLOCK, 0);
        submit(&context, 99, command(Kind::Read, &file, memory, 0)).unwrap();
        assert_eq!(reap(&context, 1), [(99, BLOCK as i64)]);
        let seen = u64::from(bytes(memory)[0]) - 1;
        // A cancelled write may have begun.
        assert!(seen == last || (seen > last && asked(seen)), "{seen} instead of {last}");
    }
    context.destroy().unwrap();
    drop(user);
}

#[test]
fn cancelled_writes_end_once_and_the_others_keep_their_order() {
    on_every_backend(|engine| cancelled_writes(engine, false));
}

#[test]
fn cancelled_writes_of_cached_files_end_once_and_the_others_keep_their_order() {
    on_every_backend(|engine| cancelled_writes(engine, true));
}
