//! Socket calls that do not wait, also on blocking sockets.

use crate::{Errno, file::IoVec, sys};
use std::{
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::Path,
};

fn message(iov: &[IoVec]) -> libc::msghdr {
    // SAFETY: a message header is plain data; all zeroes name no address and no control data.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut().cast();
    // The field has another width with musl.
    header.msg_iovlen = iov.len() as _;
    header
}

/// Receives the available bytes into `iov`, as read(2) would. Source: recvmsg(2), MSG_DONTWAIT.
///
/// # Errors
/// `EAGAIN`: no bytes are available. `ENOTCONN`, `ECONNRESET`, …
/// # Safety
/// Every segment must be writable for its length during the call.
pub unsafe fn receive_now(fd: i32, iov: &[IoVec]) -> Result<usize, Errno> {
    let mut header = message(iov);
    let header = core::ptr::from_mut(&mut header);
    // SAFETY: the header is a live local that names live segments, as promised above.
    unsafe { sys!(libc::SYS_recvmsg, fd, header, libc::MSG_DONTWAIT) }
}

/// Sends as much of `iov` as there is room for now, as write(2) would, SIGPIPE included. Source:
/// sendmsg(2), MSG_DONTWAIT.
///
/// # Errors
/// `EAGAIN`: no room. `EPIPE`, `EMSGSIZE`, `ENOTCONN`, …
/// # Safety
/// Every segment must be readable for its length during the call.
pub unsafe fn send_now(fd: i32, iov: &[IoVec]) -> Result<usize, Errno> {
    let header = message(iov);
    let header = core::ptr::from_ref(&header);
    // SAFETY: as above.
    unsafe { sys!(libc::SYS_sendmsg, fd, header, libc::MSG_DONTWAIT) }
}

/// Copies the first unread bytes and leaves them in the socket; never waits. If files are attached
/// to the messages, copies the bytes of the first message only. Returns the number of bytes; 0: the
/// peer sends nothing more. Source: recv(2), MSG_PEEK.
///
/// # Errors
/// `EAGAIN`: no bytes are available. `ENOTCONN`, `ECONNRESET`, …
pub fn peek(fd: i32, bytes: &mut [u8]) -> Result<usize, Errno> {
    let (flags, none) = (libc::MSG_DONTWAIT | libc::MSG_PEEK, core::ptr::null::<u8>());
    // SAFETY: a live slice of this length; no address is asked for.
    unsafe { sys!(libc::SYS_recvfrom, fd, bytes.as_mut_ptr(), bytes.len(), flags, none, none) }
}

/// Returns the number of unread bytes. Source: unix(7), SIOCINQ.
///
/// # Errors
/// `EINVAL`: the socket listens.
pub fn unread_bytes(fd: i32) -> Result<usize, Errno> {
    let mut count = 0i32;
    // SAFETY: a live local of the type that the call fills.
    unsafe { sys!(libc::SYS_ioctl, fd, libc::FIONREAD, core::ptr::from_mut(&mut count)) }?;
    Ok(count as usize)
}

/// Returns the user id of the peer of a connected Unix socket, as it was when the peer connected;
/// `u32::MAX` for another socket.
///
/// # Errors
/// `ENOTSOCK`: not a socket.
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

/// Connects to the Unix socket at `path`, or fails at once: a blocking connect(2) waits as long as
/// the listener's queue is full.
///
/// # Errors
/// `EAGAIN`: the queue is full. `EINVAL`: the path is longer than an address. `ENOENT`,
/// `ECONNREFUSED`, …
/// Source: unix(7), connect(2).
pub fn connect_now(path: &Path) -> Result<UnixStream, Errno> {
    // SAFETY: an address is plain data.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays zero.
    if bytes.len() >= address.sun_path.len() {
        return Err(Errno::INVAL);
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let socket = unsafe { sys!(libc::SYS_socket, libc::AF_UNIX, kind, 0) }?;
    // SAFETY: a new descriptor without another owner.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(socket as i32) });
    let (pointer, len) = (core::ptr::from_ref(&address), size_of::<libc::sockaddr_un>());
    // SAFETY: a live local of this length, which the call reads.
    unsafe { sys!(libc::SYS_connect, socket, pointer, len) }?;
    stream.set_nonblocking(false).map_err(|_| Errno::BADF)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_listener_without_room_is_not_waited_for() {
        use std::io::{Read, Write};
        let path = std::env::temp_dir().join(format!("nowait-connect-{}", std::process::id()));
        assert_eq!(connect_now(&path).unwrap_err(), Errno::NOENT);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut near = connect_now(&path).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"abc").unwrap();
        let mut heard = [0; 3];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"abc");
        let mut attempts = core::iter::repeat_with(|| connect_now(&path)).take(1 << 16);
        let mut kept = Vec::new();
        let refused = attempts.find_map(|outcome| outcome.map(|one| kept.push(one)).err());
        assert_eq!(refused, Some(Errno::AGAIN));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(connect_now(Path::new(&"a".repeat(108))).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn what_waits_to_be_read_is_counted_and_seen_and_stays() {
        use std::io::{Read, Write};
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let mut seen = [0; 4];
        assert_eq!(unread_bytes(far.as_raw_fd()), Ok(0));
        assert_eq!(peek(far.as_raw_fd(), &mut seen), Err(Errno::AGAIN));
        near.write_all(b"ab").unwrap();
        near.write_all(b"cdef").unwrap();
        assert_eq!(unread_bytes(far.as_raw_fd()), Ok(6));
        assert_eq!((peek(far.as_raw_fd(), &mut seen), &seen), (Ok(4), b"abcd"));
        far.read_exact(&mut [0; 6]).unwrap();
        drop(near);
        assert_eq!(peek(far.as_raw_fd(), &mut seen), Ok(0));
    }

    #[test]
    fn the_peer_of_a_socket_is_its_user() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_user(near.as_raw_fd()), Ok(crate::inspect::user_ids().1));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(peer_user(file.as_raw_fd()).is_err());
    }
}
