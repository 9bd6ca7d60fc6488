//! A private descriptor table for the library's threads, and the channel that brings files into it.
//!
//! A request must keep a reference to the open file it was submitted on, whatever the application
//! does with the number afterwards. A duplicate in the application's table would keep it, but
//! closing the duplicate drops the process's POSIX locks on the file (fcntl(2), "Advisory record
//! locking"). Locks belong to a descriptor *table*: a thread with its own table can keep and close
//! files freely.

use crate::{
    Errno, Fd,
    confined::{self, Extra},
    sys,
};
use std::cell::Cell;

std::thread_local! {
    static IS_PRIVATE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as using the private table or not. Returns the previous mark.
pub fn mark_private(is_private: bool) -> bool {
    IS_PRIVATE.replace(is_private)
}

/// Returns `true` if the calling thread is marked as using the private table.
pub fn is_private() -> bool {
    IS_PRIVATE.get()
}

/// Gives the calling thread, and the threads it will start, a descriptor table of their own. The
/// new table holds `keep` and, as 0 to 2, read ends of a pipe, to which a write fails.
///
/// `EPERM`, `ENOSYS`: neither unshare(2) nor close_range(2) is allowed here, or the program's own
/// filter may kill for them. The thread still shares the table, and nothing was closed.
pub fn make_private(keep: i32) -> Result<(), Errno> {
    const UNSHARE: usize = 1 << 1; // CLOSE_RANGE_UNSHARE
    confined::check(Extra::OwnTable)?;
    // SAFETY: no memory is involved. Only this thread's view of the descriptors changes.
    let unshared = unsafe { sys!(libc::SYS_unshare, libc::CLONE_FILES) };
    let above = keep as usize + 1;
    // close_range unshares before it closes, so it is the fallback where unshare is forbidden.
    // SAFETY: what is closed are this thread's references, in a table that is its own.
    match unsafe { sys!(libc::SYS_close_range, above, u32::MAX, UNSHARE) } {
        Ok(_) => {}
        Err(errno) if unshared.is_err() => return Err(errno),
        Err(_) => close_one_by_one(above as i32),
    }
    for fd in 0..keep {
        crate::fd::close(fd);
    }
    occupy_standard_streams();
    Ok(())
}

/// Occupies the numbers 0 to 2, so that messages of a runtime or the C library to standard error
/// are never written to a received file.
fn occupy_standard_streams() {
    const STREAMS: i32 = 3;
    let mut ends = [0i32; 2];
    // SAFETY: `ends` is a live local of two ints.
    if unsafe { sys!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) }.is_err() {
        return;
    }
    let (reader, writer) = (Fd::from_raw(ends[0]), Fd::from_raw(ends[1]));
    // The read end stays: it cannot be written to, and no data will ever arrive there.
    drop(writer);
    let mut held = vec![reader];
    while held.last().is_some_and(|last| last.raw() < STREAMS) {
        let Ok(next) = crate::fd::duplicate(held[0].raw(), 0) else { break };
        held.push(next);
    }
    for stream in held.into_iter().filter(|it| it.raw() < STREAMS) {
        let _ = stream.into_raw();
    }
}

/// Closes the descriptors from `from` up to the soft limit, 2^20 at most: kernels before 5.9 have
/// no close_range.
fn close_one_by_one(from: i32) {
    let end = crate::fd::nofile_limit().min(1 << 20) as i32;
    for fd in from..end {
        crate::fd::close(fd);
    }
}

/// Creates the two ends of the channel: send from any thread, receive in a thread with the private
/// table.
///
/// # Errors
/// `EMFILE`, `ENFILE`: no descriptors left.
pub fn channel() -> Result<(Fd, Fd), Errno> {
    let mut ends = [0i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `ends` is a live local of two ints.
    unsafe { sys!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }?;
    Ok((Fd::from_raw(ends[0]), Fd::from_raw(ends[1])))
}

/// Space for one `SCM_RIGHTS` message with one descriptor, aligned as the kernel requires.
#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fd: i32,
    pad: i32,
}

fn message(tag: &mut u64, iov: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    *iov = libc::iovec { iov_base: core::ptr::from_mut(tag).cast(), iov_len: 8 };
    // SAFETY: msghdr is plain data for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = core::ptr::from_mut(iov);
    message.msg_iovlen = 1;
    message.msg_control = core::ptr::from_mut(control).cast();
    // The field has another width with musl.
    message.msg_controllen = size_of::<Control>() as _;
    message
}

/// Sends the open file behind `fd` under `tag`; never waits.
///
/// # Errors
/// `EBADF`: `fd` is not open. `EAGAIN`: the channel is full. `ETOOMANYREFS`: too many files of this
/// user are in flight.
/// Source: unix(7), SCM_RIGHTS.
pub fn send(channel: i32, fd: i32, mut tag: u64) -> Result<(), Errno> {
    let mut control = Control {
        len: size_of::<Control>() - size_of::<i32>(),
        level: libc::SOL_SOCKET,
        kind: libc::SCM_RIGHTS,
        fd,
        pad: 0,
    };
    let mut iov = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
    let message = message(&mut tag, &mut iov, &mut control);
    let (flags, message) = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT, core::ptr::from_ref(&message));
    // SAFETY: the message and all it points to are live locals.
    unsafe { sys!(libc::SYS_sendmsg, channel, message, flags) }.map(drop)
}

/// Takes the first message out of the channel and drops its file without giving it a number. A
/// thread of the application calls this function, because closing a number would drop the
/// application's locks on the file (fcntl(2)).
///
/// # Errors
/// `EAGAIN`: there is no message.
/// Source: unix(7): if a receiver has no room for descriptors, the kernel closes them.
pub fn discard(channel: i32) -> Result<(), Errno> {
    let mut tag = 0u64;
    let mut control = Control { len: 0, level: 0, kind: 0, fd: -1, pad: 0 };
    let mut iov = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
    let mut message = message(&mut tag, &mut iov, &mut control);
    message.msg_control = core::ptr::null_mut();
    message.msg_controllen = 0;
    let message = core::ptr::from_mut(&mut message);
    // SAFETY: the message and all it points to are live locals.
    unsafe { sys!(libc::SYS_recvmsg, channel, message, libc::MSG_DONTWAIT) }.map(drop)
}

/// Copies the open file behind `number` from the main thread's table into the calling thread's.
///
/// # Errors
/// `EBADF`: not open there. `EBADF` or `ESRCH`: the main thread has ended. `EMFILE`: no free
/// number. `ENOSYS`, `EPERM`: the kernel is older than Linux 5.6, or a filter forbids it. Source:
/// pidfd_getfd(2).
pub fn fetch(number: i32) -> Result<Fd, Errno> {
    confined::check(Extra::Fetch)?;
    // SAFETY: no memory is involved.
    let process = unsafe { sys!(libc::SYS_pidfd_open, crate::thread::process_id(), 0) }?;
    let process = Fd::from_raw(process as i32);
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_pidfd_getfd, process.raw(), number, 0) }
        .map(|fd| Fd::from_raw(fd as i32))
}

/// Receives the next file and its tag; never waits. `None`: the message came without its file,
/// because no number was free (EMFILE); the file is lost.
///
/// # Errors
/// `EAGAIN`: there is no file. `EPIPE`: the message has not the length of a tag.
pub fn receive(channel: i32) -> Result<(u64, Option<Fd>), Errno> {
    let (read, tag, fd) = receive_message(channel, libc::MSG_DONTWAIT)?;
    if read != 8 {
        return Err(Errno::PIPE);
    }
    Ok((tag, fd))
}

/// Returns the first eight bytes of the next message on any Unix socket, and the first file
/// attached to it. The message stays in the socket. Never waits.
///
/// # Errors
/// `EAGAIN`: fewer bytes have arrived.
/// Source: recv(2), MSG_PEEK.
pub fn peek(socket: i32) -> Result<(u64, Option<Fd>), Errno> {
    let (read, tag, fd) = receive_message(socket, libc::MSG_DONTWAIT | libc::MSG_PEEK)?;
    if read == 8 { Ok((tag, fd)) } else { Err(Errno::AGAIN) }
}

fn receive_message(socket: i32, flags: i32) -> Result<(usize, u64, Option<Fd>), Errno> {
    let mut tag = 0u64;
    let mut control = Control { len: 0, level: 0, kind: 0, fd: -1, pad: 0 };
    let mut iov = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
    let mut message = message(&mut tag, &mut iov, &mut control);
    // The length excludes the padding: with it the kernel would have room for a second descriptor,
    // which no code would close.
    message.msg_controllen = core::mem::offset_of!(Control, pad) as _;
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    let message = core::ptr::from_mut(&mut message);
    // SAFETY: the message and all it points to are live locals of the sizes given.
    let read = unsafe { sys!(libc::SYS_recvmsg, socket, message, flags) }?;
    let sent = control.kind == libc::SCM_RIGHTS && control.fd >= 0;
    Ok((read, tag, sent.then(|| Fd::from_raw(control.fd))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_discarded_is_closed() {
        let (near, far) = channel().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        send(near.raw(), std::os::fd::AsRawFd::as_raw_fd(&writer), 7).unwrap();
        drop(writer);
        discard(far.raw()).unwrap();
        assert_eq!(discard(far.raw()), Err(Errno::AGAIN));
        let mut all = String::new();
        std::io::Read::read_to_string(&mut &reader, &mut all).unwrap(); // ends: there is no writer
    }

    #[test]
    fn a_file_sent_is_held_after_its_number_is_closed() {
        let (near, far) = channel().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let before = crate::file::stat(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
        send(near.raw(), std::os::fd::AsRawFd::as_raw_fd(&file), 7).unwrap();
        drop(file);
        let (tag, peeked) = peek(far.raw()).unwrap();
        assert_eq!((tag, crate::file::stat(peeked.unwrap().raw())), (7, Ok(before)));
        let (tag, fd) = receive(far.raw()).unwrap();
        assert_eq!((tag, crate::file::stat(fd.unwrap().raw())), (7, Ok(before)));
        assert_eq!(receive(far.raw()).unwrap_err(), Errno::AGAIN);
    }

    fn send_many(socket: i32, fds: [i32; 4]) {
        #[repr(C)]
        struct Many {
            len: usize,
            level: i32,
            kind: i32,
            fds: [i32; 4],
        }
        let (level, kind) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        let mut control = Many { len: size_of::<Many>(), level, kind, fds };
        let mut tag = 9u64;
        let mut iov = libc::iovec { iov_base: (&raw mut tag).cast(), iov_len: 8 };
        // SAFETY: a msghdr of zeroes is an empty one.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Many>() as _;
        // SAFETY: the message and all it points to are live locals.
        let sent = unsafe { sys!(libc::SYS_sendmsg, socket, &raw const message, 0) };
        assert_eq!(sent, Ok(8));
    }

    #[test]
    fn of_a_message_with_many_files_one_is_received_and_no_other_is_open() {
        let (near, far) = channel().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
        send_many(near.raw(), [number; 4]);
        for _ in 0..3 {
            drop(peek(far.raw()).unwrap());
        }
        let (tag, first) = receive(far.raw()).unwrap();
        assert!(tag == 9 && first.is_some());
        drop((writer, first));
        let mut all = String::new();
        std::io::Read::read_to_string(&mut &reader, &mut all).unwrap();
    }

    #[test]
    fn a_private_table_is_empty_and_leaves_the_shared_one_alone() {
        let (near, far) = channel().unwrap();
        send(near.raw(), near.raw(), 1).unwrap();
        let number = far.raw();
        let private = std::thread::spawn(move || {
            make_private(number)?;
            let line = b"lost".as_ptr();
            for stream in 0..3 {
                // SAFETY: the memory is a constant.
                let written = unsafe { sys!(libc::SYS_write, stream, line, 4) };
                assert_eq!(written, Err(Errno::BADF), "{stream} is nothing to write to");
            }
            let (_, file) = receive(number)?;
            assert!(file.unwrap().raw() > 2, "a received file is no standard stream");
            crate::file::status_flags(number)
        });
        assert!(private.join().unwrap().is_ok());
        assert!(crate::file::status_flags(near.raw()).is_ok());
        assert!(crate::file::status_flags(2).is_ok());
    }
}
