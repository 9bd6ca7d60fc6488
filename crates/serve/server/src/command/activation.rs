//! Listening sockets that systemd has opened and passes on. Source: sd_listen_fds(3).

use crate::{ServeError, server::Listener};
use nowait_sys::fd;
use socket2::{Domain, Socket, Type};
use std::{
    env, fmt, io,
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixListener},
    process,
};

/// The number of the first descriptor that systemd passes.
const FIRST: i32 = 3;

/// The reason why a passed descriptor cannot be served.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    NotOpen,
    NotASocket,
    Datagram,
    SequentialPacket,
    NotAStream,
    Connection,
    NotListening,
    Family,
    Unusable(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = "write ListenStream= in the socket unit";
        match self {
            Unfit::NotOpen => f.write_str("is not open: start the server by its socket unit"),
            Unfit::NotASocket => write!(f, "is not a socket: {stream}"),
            Unfit::Datagram => write!(f, "is a datagram socket: {stream}, not ListenDatagram="),
            Unfit::SequentialPacket => {
                write!(f, "is a socket of packets: {stream}, not ListenSequentialPacket=")
            }
            Unfit::NotAStream => write!(f, "is not a stream socket: {stream}"),
            Unfit::Connection => {
                f.write_str("is the connection of one client: write Accept=no in the socket unit")
            }
            Unfit::NotListening => write!(f, "does not listen: {stream}, with Accept=no"),
            Unfit::Family => {
                f.write_str("is not of Unix or TCP: write ListenStream=PATH or ListenStream=PORT")
            }
            Unfit::Unusable(error) => f.write_str(error),
        }
    }
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Unfit {
        Unfit::Unusable(error.to_string())
    }
}

/// Takes over the listening sockets passed to this process, if there are any. Nothing may be open
/// above standard error yet.
///
/// # Errors
/// A descriptor is not a listening stream socket.
pub(super) fn listeners() -> Result<Vec<Listener>, ServeError> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let count = match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(process), Some(count)) if process == process::id() => count,
        _ => return Ok(Vec::new()),
    };
    let numbers = (FIRST..).take(count as usize);
    let listener = |number| {
        // SAFETY: the parent process states that it has left the descriptor open for this process,
        // and nothing else here has used it.
        let given = unsafe { fd::inherited(number) };
        let listener = given.ok_or(Unfit::NotOpen).and_then(listener);
        listener.map_err(|why| {
            ServeError::new(format!("file descriptor {number} of LISTEN_FDS={count} {why}"))
        })
    };
    numbers.map(listener).collect()
}

/// Checks a descriptor and makes it a listener.
fn listener(given: OwnedFd) -> Result<Listener, Unfit> {
    let socket = Socket::from(given);
    match socket.r#type() {
        Ok(Type::STREAM) => {}
        Ok(Type::DGRAM) => return Err(Unfit::Datagram),
        Ok(Type::SEQPACKET) => return Err(Unfit::SequentialPacket),
        Ok(_) => return Err(Unfit::NotAStream),
        // Only a socket has options.
        Err(_) => return Err(Unfit::NotASocket),
    }
    if !socket.is_listener()? {
        let is_connected = socket.peer_addr().is_ok();
        return Err(if is_connected { Unfit::Connection } else { Unfit::NotListening });
    }
    socket.set_nonblocking(true)?;
    match socket.domain()? {
        Domain::UNIX => Ok(Listener::Unix(UnixListener::from(OwnedFd::from(socket)), None)),
        Domain::IPV4 | Domain::IPV6 => Ok(Listener::Tcp(TcpListener::from(socket))),
        _ => Err(Unfit::Family),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        net::{TcpStream, UdpSocket},
        os::unix::net::{UnixDatagram, UnixStream},
    };

    fn unfit(given: impl Into<OwnedFd>) -> Unfit {
        listener(given.into()).unwrap_err()
    }

    fn socket(domain: Domain, kind: Type) -> OwnedFd {
        Socket::new(domain, kind, None).unwrap().into()
    }

    #[test]
    fn only_a_stream_socket_that_listens_is_served() {
        assert_eq!(unfit(UdpSocket::bind("127.0.0.1:0").unwrap()), Unfit::Datagram);
        assert_eq!(unfit(UnixDatagram::unbound().unwrap()), Unfit::Datagram);
        assert_eq!(unfit(socket(Domain::UNIX, Type::SEQPACKET)), Unfit::SequentialPacket);
        assert_eq!(unfit(UnixStream::pair().unwrap().0), Unfit::Connection);
        assert_eq!(unfit(socket(Domain::UNIX, Type::STREAM)), Unfit::NotListening);
        assert_eq!(unfit(socket(Domain::IPV6, Type::STREAM)), Unfit::NotListening);
        assert_eq!(unfit(File::open("/dev/null").unwrap()), Unfit::NotASocket);
        assert_eq!(unfit(io::pipe().unwrap().0), Unfit::NotASocket);
    }

    #[test]
    fn a_tcp_connection_is_refused_and_a_tcp_listener_is_served() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert_eq!(unfit(tcp.accept().unwrap().0), Unfit::Connection);
        drop(client);
        let served = listener(tcp.into()).unwrap();
        assert!(served.is_tcp());
        // Does not wait, because the server has made the listener nonblocking.
        assert_eq!(served.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_passed_unix_socket_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let served = listener(UnixListener::bind(&path).unwrap().into()).unwrap();
        assert_eq!(served.to_string(), format!("unix:{}", path.display()));
        drop(served);
        assert!(path.exists(), "it is systemd's");
    }

    #[test]
    fn each_reason_names_the_setting_of_the_unit() {
        for (why, advice) in [
            (Unfit::Datagram, "ListenStream="),
            (Unfit::SequentialPacket, "ListenStream="),
            (Unfit::NotASocket, "ListenStream="),
            (Unfit::Connection, "Accept=no"),
            (Unfit::NotListening, "Accept=no"),
        ] {
            assert!(why.to_string().contains(advice), "{why}");
        }
    }
}
