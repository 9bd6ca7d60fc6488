//! Are threads usable, and can they have a descriptor table of their own?

use super::{CONTENT, Detail, Probe, Refusal, aside, check_read, test_file};
use nowait_sys::file::{IoVec, preadv2};
use nowait_sys::{Errno, Fd, fdtable, poll, time::Deadline};

const PATIENCE_NS: u64 = 1_000_000_000;

struct Findings {
    private_table: Result<(), Errno>,
    file_passing: Result<(), Refusal>,
}

/// Starts a thread, which gives itself a private descriptor table and reads a file sent to it.
///
/// The backend is usable if the thread starts. If the private table or sending files fails (see
/// `details`), a request on a worker is less safe when the program closes the request's file.
pub fn threads() -> Probe {
    match attempt() {
        Ok(seen) => {
            let private = seen.private_table.map(|()| "yes".to_owned());
            let private = private.map_err(|errno| Refusal::diagnose("unshare", errno));
            let passing = seen.file_passing.map(|()| "yes".to_owned());
            let details = vec![
                Detail { name: "private_table", found: private },
                Detail { name: "file_passing", found: passing },
            ];
            Probe { backend: "threads", usable: Ok(()), details }
        }
        Err(refusal) => Probe::refused("threads", refusal),
    }
}

fn attempt() -> Result<Findings, Refusal> {
    // The channel's numbers may stay low: the thread closes all other descriptors of its private
    // table, below and above the number that it keeps.
    let (near, far) = fdtable::channel().map_err(|errno| Refusal::diagnose("socketpair", errno))?;
    let sent = send_file(near.raw());
    let number = far.raw();
    aside(move || look(number, sent)).map_err(|errno| Refusal::diagnose("clone", errno))
}

fn send_file(channel: i32) -> Result<(), Refusal> {
    let file = test_file()?;
    fdtable::send(channel, file.raw(), 1).map_err(|errno| Refusal::diagnose("sendmsg", errno))
}

/// The thread in [`attempt`] owns `channel`.
fn look(channel: i32, sent: Result<(), Refusal>) -> Findings {
    let private_table = fdtable::make_private(channel);
    let file_passing = sent.and_then(|()| receive_file(channel));
    Findings { private_table, file_passing }
}

fn receive_file(channel: i32) -> Result<(), Refusal> {
    let deadline = Deadline::after_ns(PATIENCE_NS);
    let poll = || poll::ppoll(channel, 1, deadline, None);
    let ready = core::iter::repeat_with(poll).find(|ready| *ready != Err(Errno::INTR));
    ready.transpose().map_err(|errno| Refusal::diagnose("ppoll", errno))?;
    let received = fdtable::receive(channel).and_then(|(_, file)| file.ok_or(Errno::MFILE));
    let file = received.map_err(|errno| Refusal::diagnose("recvmsg", errno))?;
    check_read("preadv2", read(&file))
}

fn read(file: &Fd) -> i64 {
    let mut bytes = [0u8; CONTENT.len()];
    let segment = IoVec { base: bytes.as_mut_ptr(), len: bytes.len() };
    // SAFETY: the segment is a live local.
    match unsafe { preadv2(file.raw(), &[segment], 0, 0) } {
        Ok(count) => count as i64,
        Err(errno) => -i64::from(errno.raw()),
    }
}
