//! Tests of the io_uring and the native AIO backend alone.

use nowait_block::{
    Bio, BioOp, BlockBackend, Completion, Segments,
    backends::{aio::Kaio, uring::Uring},
    skip::note_skip,
};
use nowait_sys::{
    Errno,
    aligned::AlignedBuffer,
    file::{IoVec, O_DIRECT},
    time::Deadline,
    uring::Issuer,
};
use std::{
    io::pipe,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

fn one(bytes: &mut [u8]) -> Segments {
    Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() })
}

fn bio(op: BioOp, fd: &impl AsRawFd, segments: Segments, offset: i64, token: u64) -> Bio {
    // SAFETY: the tests keep their buffers until they have reaped.
    unsafe { Bio::new(op, fd.as_raw_fd(), segments, offset, token) }
}

fn run(backend: &dyn BlockBackend, bio: Bio) -> Completion {
    assert!(backend.queue(bio).is_ok());
    backend.commit();
    let mut done = Vec::new();
    backend.reap(&mut done, 1, Deadline::NEVER).unwrap();
    done[0]
}

fn usable<B>(test: &str, backend: Result<B, Errno>) -> Option<B> {
    backend.map_err(|errno| note_skip(test, &errno.to_string())).ok()
}

#[test]
fn read_of_a_silent_pipe_can_be_cancelled() {
    for issuer in [Issuer::Any, Issuer::InTurn, Issuer::Single] {
        let uring = usable("read_of_a_silent_pipe_can_be_cancelled", Uring::new(8, issuer, None));
        let (Some(uring), (reader, _writer)) = (uring, pipe().unwrap()) else { return };
        let mut buffer = [0u8; 8];
        assert!(uring.queue(bio(BioOp::Read, &reader, one(&mut buffer), -1, 3)).is_ok());
        uring.commit();
        assert!(!uring.has_completions());
        uring.cancel(3);
        let mut done = Vec::new();
        uring.reap(&mut done, 1, Deadline::NEVER).unwrap();
        assert_eq!(done, [Completion { token: 3, result: Err(Errno::CANCELED) }]);
    }
}

#[test]
fn dropping_a_ring_ends_what_is_in_flight() {
    for issuer in [Issuer::Any, Issuer::InTurn, Issuer::Single] {
        let uring = usable("dropping_a_ring_ends_what_is_in_flight", Uring::new(8, issuer, None));
        let (Some(uring), (reader, _writer)) = (uring, pipe().unwrap()) else { return };
        let mut buffer = [0u8; 8];
        assert!(uring.queue(bio(BioOp::Read, &reader, one(&mut buffer), -1, 1)).is_ok());
        uring.commit();
        assert!(uring.queue(bio(BioOp::Poll(1), &reader, Segments::NONE, 0, 2)).is_ok());
        drop(uring);
    }
}

#[test]
fn completions_show_without_a_system_call() {
    let file = tempfile::tempfile().unwrap();
    for issuer in [Issuer::Any, Issuer::InTurn, Issuer::Single] {
        let uring = usable("completions_show_without_a_system_call", Uring::new(8, issuer, None));
        let Some(uring) = uring else { return };
        assert!(uring.queue(bio(BioOp::Fsync, &file, Segments::NONE, 0, 1)).is_ok());
        uring.commit();
        while !uring.has_completions() {
            std::thread::yield_now();
        }
        let mut done = Vec::new();
        uring.reap(&mut done, 0, Deadline::NOW).unwrap();
        assert_eq!(done, [Completion { token: 1, result: Ok(0) }]);
        // The kernel may also hold back work that brings no completion, such as freeing a request.
        while uring.has_completions() {
            assert_ne!(issuer, Issuer::Any);
            uring.reap(&mut done, 0, Deadline::NOW).unwrap();
        }
        assert_eq!(done.len(), 1);
    }
}

#[test]
fn what_others_commit_reaches_a_sleeping_issuer() {
    let uring = usable("what_others_commit", Uring::new(8, Issuer::Single, None));
    let (Some(uring), file) = (uring, tempfile::tempfile().unwrap()) else { return };
    for token in 0..200 {
        let mut done = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let fsync = bio(BioOp::Fdatasync, &file, Segments::NONE, 0, token);
                assert!(uring.queue(fsync).is_ok());
                uring.commit();
            });
            uring.reap(&mut done, 1, Deadline::NEVER).unwrap();
        });
        assert_eq!(done, [Completion { token, result: Ok(0) }]);
    }
}

#[test]
fn positions_of_streams_are_refused_by_native_aio() {
    let Some(kaio) = usable("positions_of_streams", Kaio::new(8)) else { return };
    let (file, mut buffer) = (tempfile::tempfile().unwrap(), [0u8; 8]);
    let done = run(&kaio, bio(BioOp::Read, &file, one(&mut buffer), -1, 1));
    assert_eq!(done.result, Err(Errno::INVAL));
}

#[test]
fn native_aio_that_does_not_wait_refuses_what_would() {
    let test = "native_aio_that_does_not_wait_refuses_what_would";
    let Some(kaio) = usable(test, Kaio::new(4)) else { return };
    let kaio = kaio.without_waiting();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let options = options.read(true).write(true).create(true).custom_flags(O_DIRECT);
    let file = options.open(folder.path().join("file")).unwrap();
    let mut memory = AlignedBuffer::zeroed(4096);
    let mut block = || Segments::One(IoVec { base: memory.as_mut_ptr(), len: 4096 });
    assert!(kaio.queue(bio(BioOp::Write, &file, block(), 0, 1)).is_ok());
    let refused = kaio.commit_or_refuse();
    assert_eq!(refused.bios.len(), 1, "submit would have waited");
    assert!(matches!(refused.bios[0], (1, Err(Errno::AGAIN | Errno::OPNOTSUPP))), "{refused:?}");
    assert_eq!((kaio.in_flight(), file.metadata().unwrap().len()), (0, 0));
    let refused = run(&kaio, bio(BioOp::Write, &file, block(), 0, 2)).result;
    assert!(matches!(refused, Err(Errno::AGAIN | Errno::OPNOTSUPP)), "{refused:?}");
    // The kernel refuses more writes than the ring has room for events, while no thread reaps.
    for token in 0..5_000 {
        assert!(kaio.queue(bio(BioOp::Write, &file, block(), 0, token)).is_ok());
        assert_eq!(kaio.commit_or_refuse().bios.len(), 1, "of {token}");
    }
    // Only transfers get RWF_NOWAIT, so this fsync may wait.
    assert_eq!(run(&kaio, bio(BioOp::Fsync, &file, Segments::NONE, 0, 3)).result, Ok(0));
    drop(kaio);
    let kaio = Kaio::new(4).unwrap();
    assert_eq!(run(&kaio, bio(BioOp::Write, &file, block(), 0, 4)).result, Ok(4096));
}

#[test]
fn a_forked_child_takes_no_events_of_native_aio() {
    let test = "a_forked_child_takes_no_events_of_native_aio";
    let Some(kaio) = usable(test, Kaio::new(4)) else { return };
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let mut memory = [0; 64];
    assert!(kaio.queue(bio(BioOp::Read, &file, one(&mut memory), 0, 1)).is_ok());
    kaio.commit();
    assert!(kaio.has_completions(), "a buffered read is done in submit");
    let mut done = Vec::with_capacity(1);
    // SAFETY: the child takes a lock that no thread holds, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = kaio.reap(&mut done, 0, Deadline::NOW);
        // SAFETY: `_exit` ends the child without running destructors or exit handlers.
        unsafe { libc::_exit(done.len() as i32) };
    }
    let mut status = -1;
    // SAFETY: `status` is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has taken it");
    kaio.reap(&mut done, 1, Deadline::NEVER).unwrap();
    assert_eq!(done, [Completion { token: 1, result: Ok(64) }]);
}
