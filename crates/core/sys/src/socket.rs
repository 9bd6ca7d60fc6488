//! Sockets that are asked without waiting, whatever mode they are in.

use crate::{Errno, file::IoVec, sys};

fn message(iov: &[IoVec]) -> libc::msghdr {
    // SAFETY: a message header is plain data; all zeroes name no address and no control data.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut().cast();
    // Another width with musl.
    header.msg_iovlen = iov.len() as _;
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

/// Returns the user at the other end of a connected Unix socket, as it was when it connected.
///
/// # Errors
/// `ENOPROTOOPT`: it is no Unix socket.
/// Source: unix(7), SO_PEERCRED.
pub fn peer_user(socket: i32) -> Result<u32, Errno> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as u32;
    let (peer_pointer, len_pointer) =
        (core::ptr::from_mut(&mut peer), core::ptr::from_mut(&mut len));
    // SAFETY: both are live locals of the types the call fills.
    unsafe {
        sys!(
            libc::SYS_getsockopt,
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer_pointer,
            len_pointer
        )
    }?;
    Ok(peer.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_peer_of_a_socket_is_its_user() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_user(near.as_raw_fd()), Ok(crate::inspect::user_ids().1));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(peer_user(file.as_raw_fd()).is_err());
    }
}
