//! A thread ends right after its submission; every request still completes, as with the kernel's
//! AIO.
//!
//! io_uring has worker threads for each thread that entered the ring. Requests that cannot begin
//! without waiting need these worker threads: here another thread holds the file's lock nearly all
//! the time. When the submitting thread ends, its workers complete requests on files, and give up
//! requests that wait for a pipe or a socket. The engine begins the given-up requests again.

mod common;

use common::*;
use nowait_file::{
    Context, Kind,
    submit::{EventTarget, Submission},
};
use nowait_sys::file::O_DIRECT;
use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

const BLOCK: usize = 64 << 10;
const REQUESTS: u64 = 64;

struct Memory(*mut [u8]);
// SAFETY: the memory is used by requests only, until their events.
unsafe impl Send for Memory {}

fn rounds() -> usize {
    if std::env::var_os("NOWAIT_FULL").is_some() { 1_000 } else { 10 }
}

fn create(folder: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    options.open(folder.join("file")).unwrap()
}

fn blocks(byte: u8) -> *mut [u8] {
    let len = REQUESTS as usize * BLOCK;
    let whole = leaked(len + BLOCK, byte);
    let skip = whole.cast::<u8>().align_offset(BLOCK);
    // SAFETY: what is skipped is less than a block.
    unsafe { core::ptr::slice_from_raw_parts_mut(whole.cast::<u8>().add(skip), len) }
}

fn part(memory: *mut [u8], name: u64) -> *mut [u8] {
    // SAFETY: `blocks` has one for each request.
    let start = unsafe { memory.cast::<u8>().add(name as usize * BLOCK) };
    core::ptr::slice_from_raw_parts_mut(start, BLOCK)
}

/// The descriptor is closed at once, too, because a request holds its file.
fn all_are_done(context: &Arc<Context>, kind: Kind, file: &File, memory: *mut [u8]) {
    let (memory, other) = (Memory(memory), file.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let memory = &memory;
            assert_eq!(context.io().reserve(REQUESTS as usize), Ok(REQUESTS as usize));
            let mut submission = Submission::new(context);
            for name in 0..REQUESTS {
                let command = command(kind, &other, part(memory.0, name), name * BLOCK as u64);
                let target = EventTarget { data: name, obj: name, eventfd: None };
                submission.submit(command, target).unwrap();
            }
            submission.finish();
            drop(other);
        });
    });
    let expected: Vec<_> = (0..REQUESTS).map(|name| (name, BLOCK as i64)).collect();
    assert_eq!(reap(context, REQUESTS as usize), expected, "{kind:?}");
}

/// Holds the file's lock nearly all the time, by writes behind the bytes of the requests.
fn hold_lock(file: &File, stop: &AtomicBool) {
    let data = vec![1; 4 << 20];
    while !stop.load(Relaxed) {
        file.write_all_at(&data, REQUESTS * BLOCK as u64).unwrap();
    }
}

fn survive(flags: i32) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    on_every_backend(|engine| {
        let file = create(folder.path(), flags);
        let plain = OpenOptions::new().write(true).open(folder.path().join("file")).unwrap();
        plain.write_all_at(&vec![9; REQUESTS as usize * BLOCK], 0).unwrap();
        plain.sync_all().unwrap();
        let context = Context::new(engine, 0, 128).unwrap();
        let (written, read) = (blocks(7), blocks(0));
        for round in 0..rounds() {
            // SAFETY: no request uses the memory now.
            unsafe { written.cast::<u8>().write_bytes(round as u8 + 1, written.len()) };
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| hold_lock(&plain, &stop));
                all_are_done(&context, Kind::Write, &file, written);
                all_are_done(&context, Kind::Read, &file, read);
                stop.store(true, Relaxed);
            });
            assert_eq!(bytes(read), bytes(written), "round {round}");
        }
        context.destroy().unwrap();
    });
}

#[test]
fn direct_requests_of_a_thread_that_ends_are_done() {
    does_not_hang(|| survive(O_DIRECT));
}

#[test]
fn buffered_requests_of_a_thread_that_ends_are_done() {
    does_not_hang(|| survive(0));
}

/// No caller waits for the events. The thread of the engine that brings the events knows the pipe
/// only by a number of the application's table.
fn a_read_waits_beyond_its_thread() {
    const READS: u64 = 8;
    on_every_backend(|engine| {
        for _ in 0..rounds() {
            let context = Context::new(engine, 0, 128).unwrap();
            let (reader, mut writer) = std::io::pipe().unwrap();
            let memory = Memory(leaked(READS as usize, 0));
            std::thread::scope(|scope| {
                let (context, reader) = (&context, &reader);
                scope.spawn(move || {
                    let memory = &memory;
                    assert_eq!(context.io().reserve(READS as usize), Ok(READS as usize));
                    let mut submission = Submission::new(context);
                    for name in 0..READS {
                        // SAFETY: there is a byte for each.
                        let byte = unsafe { memory.0.cast::<u8>().add(name as usize) };
                        let byte = core::ptr::slice_from_raw_parts_mut(byte, 1);
                        let command = command(Kind::Read, reader, byte, 0);
                        let target = EventTarget { data: name, obj: name, eventfd: None };
                        submission.submit(command, target).unwrap();
                    }
                    submission.finish();
                });
            });
            writer.write_all(&[5; READS as usize]).unwrap();
            while context.io().ring().unread() < READS as usize {
                std::thread::yield_now();
            }
            let expected: Vec<_> = (0..READS).map(|name| (name, 1)).collect();
            assert_eq!(reap(&context, READS as usize), expected);
            context.destroy().unwrap();
        }
    });
}

#[test]
fn streams_of_a_thread_that_ends_are_read_although_no_caller_waits() {
    does_not_hang(a_read_waits_beyond_its_thread);
}
