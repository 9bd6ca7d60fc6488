//! A forked child has none of the engine's threads: no call in it waits for them.

mod common;

use common::{folder, on_every_engine};
use core::pin::pin;
use futures_lite::future::{block_on, poll_once};
use nowait::{AsyncFile, CacheMode, Errno, Nowait, OpenOptions, POLL_IN, Stream};
use std::{
    ffi::CString,
    fs,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

const LONG: Duration = Duration::from_secs(1000);

/// Lets one test run at a time: another test may hold a lock of std at the fork.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` in a forked child. Fails if `work` panics, or hangs.
#[track_caller]
fn in_child(work: impl FnOnce()) {
    const SECONDS_MAX: u32 = 20;
    // SAFETY: the child uses no lock that another thread of the parent may hold, and leaves by
    // `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process");
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::alarm(SECONDS_MAX) };
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: ends the child without running destructors or exit handlers.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = -1;
    // SAFETY: a live local; a child that was not waited for.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "signal {}: the child hung", libc::WTERMSIG(status));
    assert_eq!(status, 0, "the child panicked");
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn futures_in_flight_end_with_einval_in_the_child_and_as_usual_in_the_parent() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let pipe = || {
            let (reader, writer) = std::io::pipe().unwrap();
            (Stream::new(nowait, reader), writer)
        };
        let ((stream, mut writer), (other, mut other_writer)) = (pipe(), pipe());
        let mut read = stream.read(vec![7; 8]).timeout(LONG);
        let mut ready = other.ready(POLL_IN);
        // A helper thread waits in open(2) for a writer.
        let fifo = folder.path().join("fifo");
        let name = CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let options = OpenOptions::new().read(true).cache(CacheMode::Host);
        let mut open = pin!(options.open_async(nowait, &fifo));
        block_on(async {
            assert!(poll_once(&mut read).await.is_none());
            assert!(poll_once(&mut ready).await.is_none());
            assert!(poll_once(&mut open).await.is_none());
        });
        in_child(|| {
            let (result, buffer) = block_on(&mut read);
            assert_eq!((result.unwrap_err().errno(), buffer), (Errno::INVAL, vec![7; 8]));
            ready.cancel();
            assert_eq!(block_on(&mut ready).unwrap_err().errno(), Errno::INVAL);
            assert_eq!(block_on(&mut open).unwrap_err().errno(), Errno::INVAL);
        });
        writer.write_all(b"x").unwrap();
        assert_eq!(block_on(read).0.unwrap(), 1);
        other_writer.write_all(b"x").unwrap();
        assert_eq!(block_on(ready).unwrap(), POLL_IN, "the child has cancelled it");
        let _writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        block_on(open).unwrap();
    });
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_child_closes_a_file_without_the_helper_thread_of_its_parent() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let file = block_on(AsyncFile::create(nowait, folder.path().join("file"))).unwrap();
        in_child(|| block_on(file.close()).unwrap());
    });
}

/// glibc gives the stacks of the parent's threads to threads of the child.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_child_that_drops_the_engine_of_its_parent_can_join_its_own_threads() {
    const OF_EACH_SIZE: usize = 32;
    let _alone = alone();
    let nowait = Nowait::new().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut ready = Stream::new(&nowait, reader).ready(POLL_IN).timeout(LONG);
    assert!(block_on(poll_once(&mut ready)).is_none(), "reactor and timer have started");
    in_child(move || {
        let end = Arc::new(Barrier::new(2 * OF_EACH_SIZE + 1));
        let threads: Vec<_> = [256 << 10, 2 << 20]
            .repeat(OF_EACH_SIZE)
            .into_iter()
            .map(|bytes| {
                let end = end.clone();
                let waits = move || _ = end.wait();
                thread::Builder::new().stack_size(bytes).spawn(waits).unwrap()
            })
            .collect();
        drop((ready, nowait));
        end.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
