//! The test of RLIMIT_FSIZE, alone in its file: the limit holds for the whole process.

use nowait_block::{
    Bio, BioOp, BlockBackend, Segments,
    backends::threads::{Threads, ThreadsConfig},
};
use nowait_sys::{Errno, file::IoVec, time::Deadline};
use std::os::fd::AsRawFd;

#[test]
fn write_beyond_the_size_limit_comes_short_and_then_fails() {
    // The limit is above the size of a file to which the test's output may go.
    const LIMIT: u64 = 1 << 40;
    let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a live local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let backend = Threads::new(ThreadsConfig::default()).unwrap();
    let (file, mut bytes) = (tempfile::tempfile().unwrap(), [1u8; 4096]);
    for (offset, expected) in [(LIMIT as i64 - 2192, Ok(2192)), (LIMIT as i64, Err(Errno::FBIG))] {
        let one = Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() });
        // SAFETY: the bytes outlive the reap.
        let bio = unsafe { Bio::new(BioOp::Write, file.as_raw_fd(), one, offset, 1) };
        assert!(backend.queue(bio).is_ok());
        backend.commit();
        let mut done = Vec::new();
        backend.reap(&mut done, 1, Deadline::NEVER).unwrap();
        assert_eq!(done[0].result, expected);
    }
}
