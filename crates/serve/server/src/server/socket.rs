//! Addresses, listeners and sockets of clients.

use super::socket_path;
use crate::{access::Peer, identity::OwnName, os_text};
use core::{fmt, str::FromStr, time::Duration};
use nowait_sys::socket;
use socket2::{SockRef, TcpKeepalive};
use std::{
    ffi::OsStr,
    io,
    io::{IoSlice, IoSliceMut, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
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
    ///
    /// # Errors
    /// The text is not an address.
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

/// A socket that clients connect to.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket, and its name if this server has made it.
    Unix(UnixListener, Option<OwnName>),
    /// TCP.
    Tcp(TcpListener),
}

impl Listener {
    /// Begins to listen. Replaces a Unix socket without a listener.
    ///
    /// # Errors
    /// The errors of bind(2): the address is in use, not permitted, or not possible.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Unix(path) => {
                let (listener, name) = socket_path::listen(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener, Some(name)))
            }
            Address::Tcp(host) => {
                let listener = TcpListener::bind(host)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(listener))
            }
        }
    }

    /// Removes the name of a Unix socket that this server has made, unless it belongs to another
    /// socket by now. No new client can connect.
    pub fn unlink(&self) {
        if let Listener::Unix(_, Some(name)) = self {
            name.remove();
        }
    }

    /// Returns `true` for TCP, by which every client may come.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Listener::Tcp(_))
    }

    /// Returns `true` if the address alone lets clients on other machines connect.
    pub fn is_open_to_other_machines(&self) -> bool {
        match self {
            Listener::Unix(..) => false,
            Listener::Tcp(listener) => {
                !listener.local_addr().is_ok_and(|address| address.ip().is_loopback())
            }
        }
    }

    /// Accepts a client; never waits.
    ///
    /// # Errors
    /// `WouldBlock`: no client waits. The errors of accept(2).
    pub fn accept(&self) -> io::Result<Socket> {
        let socket = match self {
            Listener::Unix(listener, _) => Socket::Unix(listener.accept()?.0),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Replies are sent in batches already.
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
                Socket::Tcp(stream)
            }
        };
        socket.set_nonblocking()?;
        Ok(socket)
    }
}

/// The descriptor is readable while a client waits.
impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Unix(listener, _) => listener.as_raw_fd(),
            Listener::Tcp(listener) => listener.as_raw_fd(),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Unix(listener, _) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                write!(f, "unix:{}", path.unwrap_or("?".as_ref()).display())
            }
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "tcp:{address}"),
                Err(_) => write!(f, "tcp:?"),
            },
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Returns the keepalive settings: a client whose machine or network has failed is noticed after
/// two minutes. A client that is stopped stays, because its kernel answers.
fn keepalive() -> TcpKeepalive {
    const IDLE: Duration = Duration::from_mins(1);
    const BETWEEN: Duration = Duration::from_secs(10);
    TcpKeepalive::new().with_time(IDLE).with_interval(BETWEEN).with_retries(6)
}

/// A client's socket; never waits.
#[derive(Debug)]
pub enum Socket {
    /// A Unix socket.
    Unix(UnixStream),
    /// TCP.
    Tcp(TcpStream),
}

impl Socket {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_nonblocking(true),
            Socket::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    /// Returns the properties of the peer.
    pub fn peer(&self) -> Peer {
        let (user, address) = match self {
            Socket::Unix(stream) => (socket::peer_user(stream.as_raw_fd()).ok(), None),
            Socket::Tcp(stream) => (None, stream.peer_addr().ok().map(|address| address.ip())),
        };
        Peer { user, address, certificate: None }
    }

    /// Returns the descriptor.
    pub fn raw(&self) -> i32 {
        match self {
            Socket::Unix(stream) => stream.as_raw_fd(),
            Socket::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(buffer),
            Socket::Tcp(stream) => stream.read(buffer),
        }
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read_vectored(buffers),
            Socket::Tcp(stream) => stream.read_vectored(buffers),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write_vectored(buffers),
            Socket::Tcp(stream) => stream.write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::socket_path::PATH_BYTES_MAX;
    use std::{fs, os::unix::ffi::OsStrExt};

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
        let Listener::Tcp(tcp) = &listener else { unreachable!() };
        let _client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let Socket::Tcp(stream) = listener.accept().unwrap() else { unreachable!() };
        let socket = SockRef::from(&stream);
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
