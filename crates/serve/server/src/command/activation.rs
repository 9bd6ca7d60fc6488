//! Listening sockets that systemd has opened and passes to the server. Source: sd_listen_fds(3).

use crate::{ServeError, server::Listener};
use nowait_sys::fd;
use std::{env, process};

const FIRST: i32 = 3;

/// Takes over the listening sockets that systemd has passed to this process, if there are any. The
/// process must not have opened a file yet, because the file could have got the number of a missing
/// socket.
///
/// # Errors
/// A passed descriptor is not a listening TCP socket or Unix stream socket.
pub(super) fn listeners() -> Result<Vec<Listener>, ServeError> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let count = match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(process), Some(count)) if process == process::id() => count,
        _ => return Ok(Vec::new()),
    };
    let numbers = (FIRST..).take(count as usize);
    let listener = |number| {
        // SAFETY: the parent process states that it has left the descriptor open for this process,
        // and no other code here uses its number.
        let given = unsafe { fd::inherited(number) };
        given.and_then(|given| Listener::passed(given.into())).ok_or_else(|| {
            ServeError::new(format!(
                "file descriptor {number} of LISTEN_FDS={count} is not a Unix or TCP socket that \
                 listens for streams: the socket unit needs ListenStream= and Accept=no"
            ))
        })
    };
    numbers.map(listener).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::{
        fs::File,
        io,
        net::{TcpListener, TcpStream, UdpSocket},
        os::{
            fd::OwnedFd,
            unix::net::{UnixDatagram, UnixListener, UnixStream},
        },
    };

    fn listener(given: impl Into<OwnedFd>) -> Option<Listener> {
        Listener::passed(given.into().into())
    }

    fn is_listener(given: impl Into<OwnedFd>) -> bool {
        listener(given).is_some()
    }

    fn socket(domain: Domain, kind: Type) -> OwnedFd {
        Socket::new(domain, kind, None).unwrap().into()
    }

    #[test]
    fn only_a_stream_socket_that_listens_is_served() {
        assert!(!is_listener(UdpSocket::bind("127.0.0.1:0").unwrap()));
        assert!(!is_listener(UnixDatagram::unbound().unwrap()));
        assert!(!is_listener(socket(Domain::UNIX, Type::SEQPACKET)));
        assert!(!is_listener(UnixStream::pair().unwrap().0));
        assert!(!is_listener(socket(Domain::UNIX, Type::STREAM)));
        assert!(!is_listener(socket(Domain::IPV6, Type::STREAM)));
        assert!(!is_listener(File::open("/dev/null").unwrap()));
        assert!(!is_listener(io::pipe().unwrap().0));
    }

    #[test]
    fn a_tcp_connection_is_refused_and_a_tcp_listener_is_served() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert!(!is_listener(tcp.accept().unwrap().0));
        drop(client);
        let served = listener(tcp).unwrap();
        assert!(served.is_tcp());
        // The call does not block, because the server has made the listener nonblocking.
        assert_eq!(served.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_passed_unix_socket_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let served = listener(UnixListener::bind(&path).unwrap()).unwrap();
        assert_eq!(served.to_string(), format!("unix:{}", path.display()));
        drop(served);
        assert!(path.exists(), "it is systemd's");
    }
}
