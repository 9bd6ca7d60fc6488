//! Addresses, listeners and sockets of clients.

use super::socket_path;
use crate::{access::Peer, identity::OwnName, os_text};
use core::{fmt, str::FromStr, time::Duration};
use nowait_sys::socket;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::{
    ffi::OsStr,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsRawFd, RawFd},
    path::PathBuf,
};

/// An address to listen at: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP, as HOST:PORT.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        Address::read(text.as_ref())
    }
}

impl Address {
    /// Parses an argument of the command line, in which a path need not be UTF-8.
    pub(crate) fn read(text: &OsStr) -> Result<Address, String> {
        match os_text::strip_prefix(text, "unix:") {
            Some(path) if !path.is_empty() => return Ok(Address::Unix(path.into())),
            _ => {}
        }
        let host = text.to_str().and_then(|text| text.strip_prefix("tcp:"));
        match host.filter(|host| host.rsplit_once(':').is_some_and(is_host_and_port)) {
            Some(host) => Ok(Address::Tcp(host.to_owned())),
            None => Err("expected unix:PATH or tcp:HOST:PORT".to_owned()),
        }
    }
}

fn is_host_and_port((host, port): (&str, &str)) -> bool {
    !host.is_empty() && port.parse::<u16>().is_ok()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host) => write!(f, "tcp:{host}"),
        }
    }
}

/// A socket that clients connect to. Its descriptor is readable while a client waits.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// The name of the Unix socket, if this server has made it.
    name: Option<OwnName>,
}

impl Listener {
    /// Begins to listen. Replaces an existing Unix socket on which no process listens.
    ///
    /// # Errors
    /// The errors of bind(2), for example because the address is in use or not permitted. A host
    /// name that is not found, or a path that is too long for a Unix socket.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        let (socket, name) = match address {
            Address::Unix(path) => {
                let (listener, name) = socket_path::listen(path)?;
                (Socket::from(listener), Some(name))
            }
            Address::Tcp(host) => (Socket::from(TcpListener::bind(host)?), None),
        };
        socket.set_nonblocking(true)?;
        Ok(Listener { socket, name })
    }

    /// Makes a listener of a socket that systemd has passed. Returns `None` if the socket is not a
    /// listening TCP socket or Unix stream socket.
    pub(crate) fn passed(socket: Socket) -> Option<Listener> {
        // A descriptor without a type is not a socket.
        let is_stream = socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
        let is_served = is_stream
            && socket.is_listener().ok()?
            && [Domain::UNIX, Domain::IPV4, Domain::IPV6].contains(&socket.domain().ok()?);
        socket.set_nonblocking(true).ok()?;
        is_served.then_some(Listener { socket, name: None })
    }

    /// Removes the name of a Unix socket that this server has made, unless the name belongs to
    /// another socket by now. After the removal no new client can connect. Has no effect on TCP
    /// sockets and on sockets that systemd has passed.
    pub fn unlink(&self) {
        self.name.iter().for_each(OwnName::remove);
    }

    fn tcp_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Returns `true` if the listener has a TCP address.
    pub fn is_tcp(&self) -> bool {
        self.tcp_address().is_some()
    }

    /// Returns `true` if the listener has a TCP address that is not a loopback address.
    pub fn is_open_to_other_machines(&self) -> bool {
        self.tcp_address().is_some_and(|address| !address.ip().is_loopback())
    }

    /// Accepts a client that waits. Does not block.
    ///
    /// # Errors
    /// `WouldBlock`: no client waits. The errors of accept(2) and setsockopt(2).
    pub fn accept(&self) -> io::Result<Socket> {
        let (socket, address) = self.socket.accept()?;
        if !address.is_unix() {
            // The server sends replies in batches itself, so the kernel must not delay replies to
            // collect more.
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&keepalive())?;
        }
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.tcp_address() {
            return write!(f, "tcp:{address}");
        }
        let address = self.socket.local_addr().ok();
        let path = address.as_ref().and_then(SockAddr::as_pathname);
        write!(f, "unix:{}", path.unwrap_or("?".as_ref()).display())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Returns the keepalive settings: the kernel ends an idle connection after two minutes in which
/// the client's machine has answered nothing. A client process that is stopped stays connected,
/// because the kernel of its machine answers.
fn keepalive() -> TcpKeepalive {
    const IDLE: Duration = Duration::from_mins(1);
    const BETWEEN: Duration = Duration::from_secs(10);
    TcpKeepalive::new().with_time(IDLE).with_interval(BETWEEN).with_retries(6)
}

pub(crate) fn peer_of(client: &Socket) -> Peer {
    let address = client.peer_addr().ok();
    let tcp = address.as_ref().and_then(SockAddr::as_socket);
    let user = match tcp {
        None => socket::peer_user(client.as_raw_fd()).ok(),
        Some(_) => None,
    };
    Peer { user, address: tcp.map(|address| address.ip()), certificate: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::socket_path::PATH_BYTES_MAX;
    use std::{
        fs,
        net::TcpStream,
        os::unix::{
            ffi::OsStrExt,
            net::{UnixListener, UnixStream},
        },
    };

    #[test]
    fn addresses_are_unix_or_tcp() {
        assert_eq!("unix:/a/b:c".parse(), Ok(Address::Unix("/a/b:c".into())));
        assert_eq!("tcp:[::1]:10809".parse(), Ok(Address::Tcp("[::1]:10809".to_owned())));
        let not_utf_8 = OsStr::from_bytes(b"unix:/a/\xff");
        let path = PathBuf::from(OsStr::from_bytes(b"/a/\xff"));
        assert_eq!(Address::read(not_utf_8), Ok(Address::Unix(path)));
        for wrong in ["", "unix:", "tcp:", "tcp:host", "tcp::1", "tcp:host:99999", "/a/b"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_loopback_listener_is_for_this_machine_alone() {
        for (host, open) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
            let listener = Listener::bind(&Address::Tcp(host.to_owned())).unwrap();
            assert_eq!(listener.is_open_to_other_machines(), open, "{host}");
        }
    }

    #[test]
    fn a_tcp_client_has_keepalive() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let _client = TcpStream::connect(listener.tcp_address().unwrap()).unwrap();
        let socket = listener.accept().unwrap();
        assert!(socket.keepalive().unwrap());
        let (idle, between) = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        let silent = idle.unwrap() + between.unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(silent, Duration::from_mins(2));
    }

    #[test]
    fn a_socket_without_a_listener_is_replaced_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        std::mem::forget(Listener::bind(&address).unwrap());
        assert!(Listener::bind(&address).is_err(), "in use");
        let dead = folder.path().join("dead");
        drop(UnixListener::bind(&dead).unwrap());
        drop(Listener::bind(&Address::Unix(dead.clone())).unwrap());
        assert!(!dead.exists());
        fs::write(&dead, "a file").unwrap();
        assert!(Listener::bind(&Address::Unix(dead.clone())).is_err());
        assert_eq!(fs::read(&dead).unwrap(), b"a file");
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_with_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let rest = PATH_BYTES_MAX - folder.path().as_os_str().len() - 1;
        let bind = |bytes| Listener::bind(&Address::Unix(folder.path().join("s".repeat(bytes))));
        drop(bind(rest).unwrap());
        assert!(bind(rest + 1).unwrap_err().to_string().contains("107 bytes"));
    }

    #[test]
    fn the_end_of_a_listener_leaves_the_socket_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        let first = Listener::bind(&address).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Listener::bind(&address).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }
}
