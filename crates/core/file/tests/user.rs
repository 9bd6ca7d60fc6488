//! User files on real files, on every backend that works on this machine.

mod common;

use nowait_block::{Segments, skip::note_skip_here};
use nowait_cache::SyncLevel;
use nowait_file::{
    Command, Config, Context, Engine, Kind, Opened, UserFile, UserOperation,
    command::Flags,
    submit::{EventTarget, Started, Submission},
};
use nowait_sys::file::{Advice, IoVec, O_DSYNC};
use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    sync::Arc,
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;

fn everywhere(claim: impl Fn(&Arc<Engine>)) {
    for backend in common::BACKENDS {
        let config = Config { backend, cache_bytes: 8 << 20, stats: true, ..Config::default() };
        match Engine::on_machine(config, "test".to_owned()) {
            Ok(engine) => {
                claim(&engine);
                engine.shutdown();
            }
            Err(errno) => note_skip_here(&format!("{backend:?} cannot start: {errno}")),
        }
    }
}

fn file(folder: &tempfile::TempDir, name: &str) -> File {
    let path = folder.path().join(name);
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn segments(memory: &[u8]) -> Segments {
    Segments::One(IoVec { base: memory.as_ptr().cast_mut(), len: memory.len() })
}

fn read(engine: &Arc<Engine>, user: &Arc<UserFile>, offset: u64, memory: &mut [u8]) -> u32 {
    // SAFETY: `run` returns when the operation is over.
    unsafe { UserOperation::read(user, offset, segments(memory)) }.run(engine).unwrap()
}

fn write(engine: &Arc<Engine>, user: &Arc<UserFile>, offset: u64, memory: &[u8]) -> u32 {
    // SAFETY: as above.
    unsafe { UserOperation::write(user, offset, segments(memory), None) }.run(engine).unwrap()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ seed.wrapping_mul(31) ^ (i >> 12) as u8).collect()
}

#[test]
fn what_is_written_is_read_back_and_on_disk_after_a_sync() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let plain = file(&folder, "f");
        let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
        let data = pattern(3 * MIB + 1234, 5);
        assert_eq!(write(engine, &user, 0, &data) as usize, data.len());
        let mut back = vec![0; data.len() + 100];
        assert_eq!(read(engine, &user, 0, &mut back) as usize, data.len());
        assert!(back[..data.len()] == data);
        assert_eq!(UserOperation::sync(&user, SyncLevel::All).run(engine), Ok(0));
        let disk = std::fs::read(folder.path().join("f")).unwrap();
        assert_eq!(disk.len(), data.len());
        assert!(disk == data);
    });
}

#[test]
fn a_file_larger_than_the_cache_passes_through_it() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let plain = file(&folder, "f");
        let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
        for part in 0..32u8 {
            let data = pattern(MIB, part);
            assert_eq!(write(engine, &user, u64::from(part) << 20, &data) as usize, MIB);
        }
        let mut back = vec![0; MIB];
        for part in (0..32u8).rev() {
            assert_eq!(read(engine, &user, u64::from(part) << 20, &mut back) as usize, MIB);
            assert!(back == pattern(MIB, part), "part {part}");
        }
    });
}

#[test]
fn an_open_sees_what_others_wrote_since() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, pattern(MIB, 1)).unwrap();
        let plain = file(&folder, "f");
        let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
        let mut back = vec![0; MIB];
        read(engine, &user, 0, &mut back);
        std::fs::write(&path, pattern(MIB / 2, 2)).unwrap();
        let again = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        assert!(Arc::ptr_eq(&user, &again));
        assert_eq!(read(engine, &again, 0, &mut back) as usize, MIB / 2);
        assert!(back[..MIB / 2] == pattern(MIB / 2, 2));
    });
}

fn submit_write(context: &Arc<Context>, file: &File, memory: &[u8]) {
    assert_eq!(context.io().reserve(1), Ok(1));
    let mut submission = Submission::new(context);
    let opened = (file.as_raw_fd(), Flags::Read(libc::O_RDWR));
    // SAFETY: the memory lives until the event has been taken, below.
    let write = unsafe { Command::new(Kind::Write, opened, segments(memory), 0) };
    submission.submit(write, EventTarget { data: 0, obj: 0, eventfd: None }).unwrap();
    submission.finish();
    common::wait_for(context, 1, |event| assert_eq!(event.res, memory.len() as i64));
}

fn fcntl(file: &File, command: i32, argument: i32) -> i32 {
    // SAFETY: the commands of leases take no memory.
    let said = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    assert!(said >= 0, "fcntl {command}: {}", std::io::Error::last_os_error());
    said
}

/// An open in the page cache waits in open(2) until a lease on the file is given back.
#[test]
fn a_submission_does_not_wait_for_the_open_of_another_file() {
    const F_SETSIG: i32 = 10;
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let (cached, uncached) = (file(&folder, "cached"), file(&folder, "uncached"));
        let user = UserFile::open(engine, cached.as_raw_fd()).unwrap();
        let context = Context::new(engine, 0, 4).unwrap();
        let leased = file(&folder, "leased");
        // The kernel asks for the lease back by SIGURG; the default signal would end the process.
        fcntl(&leased, F_SETSIG, libc::SIGURG);
        fcntl(&leased, libc::F_SETLEASE, libc::F_WRLCK);
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| UserFile::open(engine, leased.as_raw_fd()));
            while fcntl(&leased, libc::F_GETLEASE, 0) == libc::F_WRLCK {
                assert!(!opener.is_finished(), "the file was not opened");
                std::thread::yield_now();
            }
            for round in 0..10 {
                submit_write(&context, &uncached, &[round; 4096]);
                submit_write(&context, &cached, &[round; 4096]);
                let mut back = [0xff; 4096];
                read(engine, &user, 0, &mut back);
                assert_eq!(back, [round; 4096]);
            }
            assert!(!opener.is_finished(), "requests waited until the other file was open");
            fcntl(&leased, libc::F_SETLEASE, libc::F_UNLCK);
            opener.join().unwrap().unwrap();
        });
        context.destroy().unwrap();
    });
}

#[test]
fn requests_of_a_context_complete_once_each() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(folder.path().join("f"), pattern(16 * MIB, 9)).unwrap();
        let plain = file(&folder, "f");
        let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
        let context = Context::new(engine, 0, 64).unwrap();
        let whole = pattern(16 * MIB, 9);
        let mut memory = vec![vec![0u8; 65536]; 64];
        for round in 0..40u64 {
            assert_eq!(context.io().reserve(64), Ok(64));
            let mut submission = Submission::new(&context);
            let mut seen = [0; 64];
            let offset = |i: u64| (i * 7919 + round * 104_729) % 250 * 65_536;
            for (i, memory) in memory.iter_mut().enumerate() {
                let i = i as u64;
                let (data, at) = (i, offset(i) as i64);
                // SAFETY: the memory lives to the end of the round, when all have completed.
                let read =
                    unsafe { Command::new(Kind::Read, (-1, Flags::Read(0)), segments(memory), at) };
                let target = EventTarget { data, obj: 0, eventfd: None };
                let started = submission.start_on(&user, &read, &target).unwrap();
                if let Started::Completed(Ok(bytes)) = started {
                    assert_eq!(bytes, 65_536);
                    context.io().release(1);
                    seen[i as usize] += 1;
                }
            }
            submission.finish();
            let left = 64 - seen.iter().sum::<usize>();
            common::wait_for(&context, left, |event| {
                seen[event.data as usize] += 1;
                assert_eq!(event.res, 65_536);
            });
            assert_eq!(seen, [1; 64]);
            for (i, memory) in memory.iter().enumerate() {
                let at = offset(i as u64) as usize;
                assert!(memory[..] == whole[at..at + 65_536], "round {round}, request {i}");
            }
        }
        context.destroy().unwrap();
    });
}

/// Adjoining writes share one bio, in spite of the limit on bytes copied inside submit.
#[test]
fn durable_writes_of_a_submission_are_handed_over_unless_they_adjoin() {
    const LEN: usize = 65_536;
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(folder.path().join("f"), vec![0; 16 * LEN]).unwrap();
        let user = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        for distance in [1, 2] {
            let context = Context::new(engine, 0, 8).unwrap();
            let memory: Vec<_> = (0..8).map(|i| pattern(LEN, 8 * distance + i)).collect();
            assert_eq!(context.io().reserve(8), Ok(8));
            let mut submission = Submission::new(&context);
            for (i, memory) in memory.iter().enumerate() {
                let (at, dsync) = ((i * usize::from(distance) * LEN) as i64, O_DSYNC);
                // SAFETY: the memory lives until the events have come.
                let write = unsafe {
                    Command::new(Kind::Write, (-1, Flags::Read(dsync)), segments(memory), at)
                };
                let target = EventTarget { data: i as u64, obj: 0, eventfd: None };
                let started = submission.start_cached(&user, &write, &target).unwrap();
                submission.deliver(&target, started);
            }
            submission.finish();
            common::wait_for(&context, 8, |event| assert_eq!(event.res, LEN as i64));
            let handed_over = context.io().stats().counters().unwrap().punt_large.get();
            let expected = distance == 2 && engine.backend() != "threads";
            assert_eq!(handed_over > 0, expected, "{:?}, {distance}", engine.backend());
            let bytes = std::fs::read(folder.path().join("f")).unwrap();
            for (i, memory) in memory.iter().enumerate() {
                let at = i * usize::from(distance) * LEN;
                assert!(bytes[at..at + LEN] == memory[..], "write {i}");
            }
            context.destroy().unwrap();
        }
    });
}

#[test]
fn a_write_larger_than_the_cache_ends_as_a_request_of_a_context() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let plain = file(&folder, "f");
        let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
        let context = Context::new(engine, 0, 64).unwrap();
        let data = pattern(24 * MIB, 3);
        assert_eq!(context.io().reserve(1), Ok(1));
        let mut submission = Submission::new(&context);
        // SAFETY: the data live until the event has come.
        let write = unsafe { Command::new(Kind::Write, (-1, Flags::Read(0)), segments(&data), 0) };
        let target = EventTarget { data: 7, obj: 0, eventfd: None };
        let started = submission.start_cached(&user, &write, &target).unwrap();
        submission.deliver(&target, started);
        submission.finish();
        common::wait_for(&context, 1, |event| {
            assert_eq!((event.data, event.res), (7, data.len() as i64));
        });
        user.settle(engine).unwrap();
        assert!(std::fs::read(folder.path().join("f")).unwrap() == data);
        context.destroy().unwrap();
    });
}

#[test]
fn appends_go_to_the_end_that_earlier_requests_made() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let user = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        let mut expected = Vec::new();
        for part in 0..20u8 {
            let data = pattern(1 + 997 * usize::from(part), part);
            // SAFETY: `run` returns when the operation is over.
            let append = unsafe { UserOperation::append(&user, segments(&data), None) };
            assert_eq!(append.run(engine), Ok(data.len() as u32));
            expected.extend(data);
        }
        user.settle(engine).unwrap();
        assert!(std::fs::read(folder.path().join("f")).unwrap() == expected);
    });
}

#[test]
fn a_change_past_the_cache_is_seen_by_the_next_request() {
    use std::os::unix::fs::FileExt;
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let plain = file(&folder, "f");
        let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
        write(engine, &user, 0, &pattern(10_000, 1));
        let exclusion = user.exclude(engine).unwrap();
        plain.write_all_at(b"plain", 5_000).unwrap();
        drop(exclusion);
        let mut back = [0; 5];
        read(engine, &user, 5_000, &mut back);
        assert_eq!(&back, b"plain");
    });
}

#[test]
fn an_engine_that_ends_while_pages_are_read_ahead_gives_its_memory_back() {
    let caches = RefCell::new(Vec::new());
    for _ in 0..8 {
        everywhere(|engine| {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let plain = file(&folder, "f");
            plain.set_len(8 << 20).unwrap();
            let user = UserFile::open(engine, plain.as_raw_fd()).unwrap();
            Opened::from(&user).advise(engine, 0..8 << 20, Advice::WillNeed);
            caches.borrow_mut().push(Arc::downgrade(user.cached().cache()));
        });
    }
    // Threads of the engine may hold the last reference for a moment.
    let begin = Instant::now();
    while caches.borrow().iter().any(|cache| cache.strong_count() > 0) {
        assert!(begin.elapsed() < Duration::from_secs(30), "a cache outlives its engine");
        std::thread::yield_now();
    }
}

/// A submission that began before the last close dirties a page after it, when no caller has the
/// file open.
#[test]
fn what_is_written_after_the_last_close_is_not_lost() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let context = Context::new(engine, 0, 1).unwrap();
        let (before, after) = (pattern(2 * 4096, 1), pattern(2 * 4096, 2));
        for (name, inside_submit) in [("copied", true), ("run", false)] {
            let user = UserFile::open(engine, file(&folder, name).as_raw_fd()).unwrap();
            write(engine, &user, 0, &before);
            user.settle(engine).unwrap();
            if inside_submit {
                assert_eq!(context.io().reserve(1), Ok(1));
                let mut submission = Submission::new(&context);
                // SAFETY: it is over inside submit.
                let write =
                    unsafe { Command::new(Kind::Write, (-1, Flags::Read(0)), segments(&after), 0) };
                let target = EventTarget { data: 0, obj: 0, eventfd: None };
                let started = submission.start_on(&user, &write, &target);
                assert_eq!(started, Ok(Started::Completed(Ok(2 * 4096))));
                context.io().release(1);
                submission.finish();
            } else {
                write(engine, &user, 0, &after);
            }
            drop(user);
            engine.write_back();
            assert!(std::fs::read(folder.path().join(name)).unwrap() == after, "{name}");
        }
    });
}

#[test]
fn what_is_written_comes_to_the_file_by_itself() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let user = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        let data = pattern(MIB + 123, 3);
        write(engine, &user, 0, &data);
        let kept = Arc::downgrade(&user);
        drop(user);
        let begin = Instant::now();
        while kept.strong_count() > 0 {
            let backend = engine.backend();
            assert!(begin.elapsed() < Duration::from_secs(50), "it is not written: {backend:?}");
            std::thread::yield_now();
        }
        assert!(std::fs::read(folder.path().join("f")).unwrap() == data);
    });
}

fn submit_waiting_write(context: &Arc<Context>, user: &Arc<UserFile>, data: &[u8]) {
    assert_eq!(context.io().reserve(1), Ok(1));
    let mut submission = Submission::new(context);
    // SAFETY: the data live until the event has come.
    let write = unsafe { Command::new(Kind::Write, (-1, Flags::Read(0)), segments(data), 0) };
    let target = EventTarget { data: 1, obj: 0, eventfd: None };
    assert_eq!(submission.start_on(user, &write, &target), Ok(Started::Queued), "it waits");
    submission.finish();
}

/// Waits without a call into the engine, so that no caller helps the request on.
fn comes_by_itself(context: &Arc<Context>) {
    let begin = Instant::now();
    while context.io().ring().unread() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "it is not run");
        std::thread::yield_now();
    }
    common::wait_for(context, 1, |_| {});
}

fn become_idle(engine: &Arc<Engine>, folder: &tempfile::TempDir) {
    let other = UserFile::open(engine, file(folder, "other").as_raw_fd()).unwrap();
    write(engine, &other, 0, &[1]);
    let kept = Arc::downgrade(&other);
    drop(other);
    let begin = Instant::now();
    while kept.strong_count() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(50), "it is not written");
        std::thread::yield_now();
    }
}

#[test]
fn a_write_that_waits_for_a_loan_runs_when_that_is_dropped_on_an_idle_engine() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let user = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        let (before, after) = (pattern(4096, 1), pattern(4096, 2));
        write(engine, &user, 0, &before);
        user.settle(engine).unwrap();
        let context = Context::new(engine, 0, 1).unwrap();
        let lent = user.cached().pin_range(0, 4096).unwrap();
        submit_waiting_write(&context, &user, &after);
        become_idle(engine, &folder);
        drop(lent);
        comes_by_itself(&context);
        context.destroy().unwrap();
        let mut back = vec![0; 4096];
        read(engine, &user, 0, &mut back);
        assert!(back == after);
    });
}

#[test]
fn a_write_behind_a_truncation_runs_when_that_ends() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let user = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        let (before, after) = (pattern(4096, 1), pattern(4096, 2));
        write(engine, &user, 0, &before);
        let context = Context::new(engine, 0, 1).unwrap();
        let lent = user.cached().pin_range(0, 4096).unwrap();
        std::thread::scope(|scope| {
            let cut = scope.spawn(|| user.set_len(engine, 100));
            // The truncation waits for the loan, and has its place in the order: no more pages are
            // lent.
            while user.cached().pin_range(0, 1).is_some() {
                std::thread::yield_now();
            }
            submit_waiting_write(&context, &user, &after);
            drop(lent);
            assert_eq!(cut.join().unwrap(), Ok(()));
        });
        comes_by_itself(&context);
        assert_eq!(user.cached().size(), 4096);
        context.destroy().unwrap();
    });
}

/// The context's own queue reads the page for which the call waits; only the event loop reaps it.
#[test]
fn a_call_that_blocks_in_an_event_loop_does_not_wait_for_that_loop() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(folder.path().join("f"), pattern(MIB, 1)).unwrap();
        let user = UserFile::open(engine, file(&folder, "f").as_raw_fd()).unwrap();
        let context = Context::new(engine, 0, 1).unwrap();
        context.loop_descriptors().unwrap();
        let memory = vec![0; 8192];
        assert_eq!(context.io().reserve(1), Ok(1));
        let mut submission = Submission::new(&context);
        // SAFETY: the memory lives until the event has come.
        let read_two =
            unsafe { Command::new(Kind::Read, (-1, Flags::Read(0)), segments(&memory), 0) };
        let target = EventTarget { data: 1, obj: 0, eventfd: None };
        assert_eq!(submission.start_on(&user, &read_two, &target), Ok(Started::Queued));
        submission.finish();
        let mut back = vec![0; 4096];
        read(engine, &user, 4096, &mut back);
        user.set_len(engine, 100).unwrap();
        assert!(back == pattern(MIB, 1)[4096..8192]);
        common::wait_for(&context, 1, |event| assert_eq!(event.res, 8192));
        context.destroy().unwrap();
    });
}
