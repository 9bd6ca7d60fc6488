//! The engine's descriptor table is full: a file that finds no number there fails its own requests,
//! and no others.
//!
//! This is the only test in its file, because it changes a limit of the process.

use nowait_block::{bio::Descriptor, skip::note_skip_here};
use nowait_file::{command::open_for, hold::Holds};
use nowait_sys::{Errno, fd, fdtable, file};
use std::{fs::File, os::fd::AsRawFd, process::Command, sync::Arc};

fn forbid_descriptors() -> bool {
    let me = std::process::id().to_string();
    let lowered = Command::new("prlimit").args(["--pid", &me, "--nofile=3:"]).status();
    lowered.is_ok_and(|status| status.success())
}

#[test]
fn a_file_that_finds_no_number_fails_its_own_requests() {
    let (near, far) = fdtable::channel().unwrap();
    let holds = Holds::new(near, far.raw());
    let file = File::open("/proc/self/exe").unwrap();
    let number = file.as_raw_fd();
    let hold = || holds.hold_afresh(number).unwrap();
    let stat = file::stat(number).unwrap();
    let share = || holds.hold(number, &stat, open_for(number).unwrap()).unwrap();
    let arrived = [hold(), hold()];
    assert!(arrived[1].number().is_ok(), "takes in both");
    let (first, second, shared) = (hold(), hold(), share());
    if !forbid_descriptors() {
        return note_skip_here("prlimit cannot lower the limit");
    }
    // The channel holds the first file before the second.
    assert_eq!(second.number(), Err(Errno::MFILE));
    assert_eq!(second.number(), Err(Errno::MFILE), "asked again");
    assert!(arrived[0].number().is_ok(), "has arrived before");
    assert_eq!(shared.number(), Err(Errno::MFILE));
    fd::raise_nofile_limit();
    assert_eq!(first.number(), Err(Errno::MFILE), "its own message found no number");
    let again = share();
    assert!(!Arc::ptr_eq(&again, &shared) && again.number().is_ok());
    assert!(hold().number().is_ok());
}
