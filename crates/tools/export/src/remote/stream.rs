//! The socket to a server.

use core::time::Duration;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::Path,
};

/// A connection by TCP or a Unix socket.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How long a server may take to let us in, at each step.
const PATIENCE: Duration = Duration::from_secs(10);

impl Stream {
    /// Connects to the first address of `host` that answers.
    pub(super) fn tcp(host: &str, port: u16) -> io::Result<Stream> {
        let mut failure = io::Error::other("the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Stream::Tcp(stream).hurried(Some(PATIENCE));
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Connects to the socket at `path`.
    pub(super) fn unix(path: &Path) -> io::Result<Stream> {
        Stream::Unix(UnixStream::connect(path)?).hurried(Some(PATIENCE))
    }

    /// Lets a server take as long as it wants from now on.
    pub(super) fn wait_without_limit(&self) -> io::Result<()> {
        self.limit(None)
    }

    fn hurried(self, limit: Option<Duration>) -> io::Result<Stream> {
        self.limit(limit)?;
        Ok(self)
    }

    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => {
                tcp.set_read_timeout(limit)?;
                tcp.set_write_timeout(limit)
            }
            Stream::Unix(unix) => {
                unix.set_read_timeout(limit)?;
                unix.set_write_timeout(limit)
            }
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(tcp) => Stream::Tcp(tcp.try_clone()?),
            Stream::Unix(unix) => Stream::Unix(unix.try_clone()?),
        })
    }

    /// Ends the connection for every thread that uses it.
    pub(super) fn shut(&self) {
        // It may have ended already.
        let _ = match self {
            Stream::Tcp(tcp) => tcp.shutdown(Shutdown::Both),
            Stream::Unix(unix) => unix.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.read(bytes),
            Stream::Unix(unix) => unix.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.write(bytes),
            Stream::Unix(unix) => unix.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
