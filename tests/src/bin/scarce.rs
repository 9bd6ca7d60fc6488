//! A program with too few descriptors for its first use of the library.
//!
//! `scarce COUNT FILE` leaves COUNT descriptors free. The program exits 0 if the library works when
//! more descriptors are free. If COUNT is below 2, a failed start must also have left no threads
//! and descriptors behind. Otherwise the program panics with the reason.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use nowait_tests::request::{Context, Request};
use nowait_tests::thread_state::wait_until;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let left: usize = args[0].parse().expect("how many descriptors are left");
    let file = File::create(&args[1]).expect("a new file");
    let (descriptors, threads) = (count("fd"), count("task"));
    let kept = take_all_but(left);
    for _ in 0..3 {
        let failed = Context::new(8).map(drop);
        if failed.is_ok() {
            break; // these were enough
        }
        assert_eq!(failed, Err(-libc::EMFILE), "io_setup");
    }
    drop(kept);
    if left < 2 {
        // A thread by which the library probed the kernel may still be ending.
        wait_until(|| count("task") == threads);
        assert_eq!(count("fd"), descriptors, "what failed has left descriptors");
    }
    let context = Context::new(8).expect("io_setup with descriptors");
    let writes = (0..8).map(|block| Request::write(file.as_fd(), &[7; 4096], block * 4096));
    assert!(context.run(writes.collect()).iter().all(|done| done.res == 4096));
}

/// Returns the number of entries in a folder of `/proc/self`, without the descriptor that reads the
/// folder.
fn count(folder: &str) -> usize {
    let entries = std::fs::read_dir(format!("/proc/self/{folder}")).expect("the process's folder");
    entries.count() - usize::from(folder == "fd")
}

fn take_all_but(left: usize) -> (Vec<OwnedFd>, Limit) {
    let limit = Limit::lower(64);
    let mut taken = Vec::new();
    loop {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::dup(0) };
        if fd < 0 {
            break;
        }
        // SAFETY: a new descriptor, without another owner.
        taken.push(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    taken.truncate(taken.len() - left);
    (taken, limit)
}

/// The previous limit of descriptors, which a drop restores.
struct Limit(libc::rlimit);

impl Limit {
    fn lower(count: u64) -> Self {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a live structure to be filled.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
        let lower = libc::rlimit { rlim_cur: count, ..before };
        // SAFETY: a live structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const lower) }, 0);
        Self(before)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // SAFETY: a live structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) }, 0);
    }
}
