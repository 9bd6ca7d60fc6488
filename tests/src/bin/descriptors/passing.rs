//! Sends and receives open files through a socket (SCM_RIGHTS).

use std::os::fd::RawFd;
use std::ptr;

/// Room for the control message of one file, aligned like the kernel's control header.
#[repr(C, align(8))]
struct Control([u8; 24]);

pub(crate) fn send(socket: RawFd, fd: RawFd) {
    with_message(|message| {
        // SAFETY: the message has room for one number, and lives during the call.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
            assert_eq!(libc::sendmsg(socket, message, 0), 1);
        }
    });
}

pub(crate) fn receive(socket: RawFd) -> RawFd {
    let mut fd = -1;
    with_message(|message| {
        // SAFETY: the message has room for one number, and lives during the call.
        unsafe {
            assert_eq!(libc::recvmsg(socket, message, libc::MSG_CMSG_CLOEXEC), 1);
            let header = libc::CMSG_FIRSTHDR(message);
            fd = libc::CMSG_DATA(header).cast::<i32>().read_unaligned();
        }
    });
    fd
}

fn with_message(f: impl FnOnce(*mut libc::msghdr)) {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    let mut control = Control([0; 24]);
    // SAFETY: a message is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    f(&raw mut message);
}
