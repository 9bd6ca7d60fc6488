//! Sockets that are asked without waiting, whatever mode they are in.

use crate::{Errno, file::IoVec, sys};

fn message(iov: &[IoVec]) -> libc::msghdr {
    // SAFETY: a message header is plain data; all zeroes name no address and no control data.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut().cast();
    header.msg_iovlen = iov.len();
    header
}

/// Receives into `iov` what is there now, as read(2) would.
///
/// # Errors
/// `EAGAIN`: nothing is there. `ENOTCONN`, `ECONNRESET`, …
/// # Safety
/// Every segment must be writable for its length during the call.
/// Source: recvmsg(2), MSG_DONTWAIT.
pub unsafe fn receive_now(fd: i32, iov: &[IoVec]) -> Result<usize, Errno> {
    let mut header = message(iov);
    let header = core::ptr::from_mut(&mut header);
    // SAFETY: the header is a live local that names live segments, as promised above.
    unsafe { sys!(libc::SYS_recvmsg, fd, header, libc::MSG_DONTWAIT) }
}

/// Sends as much of `iov` as there is room for now, as write(2) would, SIGPIPE included.
///
/// # Errors
/// `EAGAIN`: no room. `EPIPE`, `EMSGSIZE`, `ENOTCONN`, …
/// # Safety
/// Every segment must be readable for its length during the call.
/// Source: sendmsg(2), MSG_DONTWAIT.
pub unsafe fn send_now(fd: i32, iov: &[IoVec]) -> Result<usize, Errno> {
    let header = message(iov);
    let header = core::ptr::from_ref(&header);
    // SAFETY: as above.
    unsafe { sys!(libc::SYS_sendmsg, fd, header, libc::MSG_DONTWAIT) }
}
