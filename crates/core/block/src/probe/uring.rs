//! Is io_uring usable?

use super::{Detail, Probe, Refusal, aside, check_read, test_file};
use nowait_sys::Errno;
use nowait_sys::confined::Extra;
use nowait_sys::time::Deadline;
use nowait_sys::uring::{Completion, Issuer, Ring, opcode, types};

/// Entries of the probed ring: as many as a small queue of the backend has, so that the probe fails
/// if RLIMIT_MEMLOCK is too low for such a queue.
const ENTRIES: u32 = 128;
const PATIENCE_NS: u64 = 1_000_000_000;

const NEEDED: &[(&str, u8)] = &[
    ("read", opcode::Read::CODE),
    ("write", opcode::Write::CODE),
    ("readv", opcode::Readv::CODE),
    ("writev", opcode::Writev::CODE),
    ("fsync", opcode::Fsync::CODE),
    ("poll", opcode::PollAdd::CODE),
    ("cancel", opcode::AsyncCancel::CODE),
];

/// Makes a ring, reads a file through it, and lists the operations that the ring lacks.
pub fn uring() -> Probe {
    // The kernel tears a ring down at any time after its close, and then interrupts the waits of
    // the threads that made or entered it. So a new thread makes this ring, and then ends.
    let attempted = aside(attempt).unwrap_or_else(|errno| Err(Refusal::diagnose("clone", errno)));
    match attempted {
        Ok(details) => Probe { backend: "uring", usable: Ok(()), details },
        Err(refusal) => Probe::refused("uring", refusal),
    }
}

fn attempt() -> Result<Vec<Detail>, Refusal> {
    Refusal::unless_confined("io_uring_setup", Extra::Rings)?;
    let ring = Ring::new(ENTRIES, Issuer::Any)
        .map_err(|errno| Refusal::diagnose("io_uring_setup", errno))?;
    read_through(&ring)?;
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(_, code)| !ring.supports(*code)).map(|(name, _)| *name).collect();
    let operations = if missing.is_empty() {
        "all".to_owned()
    } else {
        format!("without {}", missing.join(", "))
    };
    Ok(vec![Detail { name: "operations", found: Ok(operations) }])
}

fn read_through(ring: &Ring) -> Result<(), Refusal> {
    let file = test_file()?;
    let mut buffer = Box::new([0u8; 16]);
    let read = opcode::Read::new(types::Fd(file.raw()), buffer.as_mut_ptr(), 16).build();
    // SAFETY: no other thread has this ring; the buffer outlives the request: if `wait` fails, the
    // buffer is leaked. If `enter` fails, the kernel has not taken the entry.
    let pushed = unsafe { ring.push(&read) };
    debug_assert!(pushed, "an empty ring takes an entry");
    ring.enter(1, 0, Deadline::NEVER)
        .map_err(|errno| Refusal::diagnose("io_uring_enter", errno))?;
    match wait(ring) {
        Ok(completion) => check_read("io_uring_enter", i64::from(completion.result)),
        Err(errno) => {
            // The kernel may still write to the buffer.
            Box::leak(buffer);
            Err(Refusal::diagnose("io_uring_enter", errno))
        }
    }
}

fn wait(ring: &Ring) -> Result<Completion, Errno> {
    let deadline = Deadline::after_ns(PATIENCE_NS);
    loop {
        // SAFETY: no other thread has this ring.
        if let Some(completion) = unsafe { ring.pop() } {
            return Ok(completion);
        }
        match ring.enter(0, 1, deadline) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
