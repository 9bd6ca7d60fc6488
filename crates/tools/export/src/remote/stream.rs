//! The socket to a server.

use super::tls::Channel;
use crate::backing::NbdServer;
use core::time::Duration;
use nowait::Errno;
use nowait_sys::socket;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::Arc,
};

/// A connection by TCP or a Unix socket, or TLS through one of these.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Arc<Channel>),
}

/// How long a server may take to let us in, at each step.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Stream {
    /// Connects to `server`, and lets it take [`PATIENCE`] for each step.
    pub(super) fn to(server: &NbdServer) -> io::Result<Stream> {
        let stream = match server {
            NbdServer::Tcp(host, port) => Stream::Tcp(tcp(host, *port)?),
            NbdServer::Unix(path) => {
                let connected = socket::connect_now(path);
                let failed = |errno: Errno| io::Error::from_raw_os_error(errno.raw());
                Stream::Unix(connected.map_err(failed)?)
            }
        };
        stream.limit(Some(PATIENCE), Some(PATIENCE))?;
        Ok(stream)
    }

    /// Has what reads and writes fail if it takes longer.
    pub(super) fn limit(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => {
                tcp.set_read_timeout(read)?;
                tcp.set_write_timeout(write)
            }
            Stream::Unix(unix) => {
                unix.set_read_timeout(read)?;
                unix.set_write_timeout(write)
            }
            Stream::Tls(channel) => channel.socket().limit(read, write),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(tcp) => Stream::Tcp(tcp.try_clone()?),
            Stream::Unix(unix) => Stream::Unix(unix.try_clone()?),
            Stream::Tls(channel) => Stream::Tls(channel.clone()),
        })
    }

    /// Ends the connection for every thread that uses it.
    pub(super) fn shut(&self) {
        // It may have ended already.
        let _ = match self {
            Stream::Tcp(tcp) => tcp.shutdown(Shutdown::Both),
            Stream::Unix(unix) => unix.shutdown(Shutdown::Both),
            Stream::Tls(channel) => {
                channel.socket().shut();
                Ok(())
            }
        };
    }

    /// Says that nothing more will be sent, where that is said.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self {
            Stream::Tls(channel) => channel.finish(),
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => (&mut &*tcp).read(bytes),
            Stream::Unix(unix) => (&mut &*unix).read(bytes),
            Stream::Tls(channel) => channel.read(bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => (&mut &*tcp).write(bytes),
            Stream::Unix(unix) => (&mut &*unix).write(bytes),
            Stream::Tls(channel) => channel.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the first address of `host` that answers.
fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
