//! The socket to a server.

use super::tls::Channel;
use crate::backing::NbdServer;
use core::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use nowait::Errno;
use nowait_sys::{socket, time::now_ns};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, ToSocketAddrs},
    sync::Arc,
};

#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Arc<Channel>),
}

#[derive(Debug)]
pub(super) struct Socket {
    socket: socket2::Socket,
    /// The deadline by the clock of [`now_ns`]; 0: no overall limit.
    until_ns: AtomicU64,
}

/// The time limit for connecting and the handshake together.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Stream {
    /// Connects to `server`. Connecting and all reads and writes before the call of
    /// [`Stream::limit`] must finish within [`PATIENCE`].
    pub(super) fn to(server: &NbdServer) -> io::Result<Stream> {
        let until_ns = now_ns() + PATIENCE.as_nanos() as u64;
        let socket = match server {
            NbdServer::Tcp(host, port) => tcp(host, *port, until_ns)?.into(),
            NbdServer::Unix(path) => {
                let connected = socket::connect_now(path);
                let failed = |errno: Errno| io::Error::from_raw_os_error(errno.raw());
                connected.map_err(failed)?.into()
            }
        };
        Ok(Stream::Plain(Socket { socket, until_ns: AtomicU64::new(until_ns) }))
    }

    /// Limits each further read and write on the socket; `None`: no limit. Lifts the deadline of
    /// the handshake for this handle.
    pub(super) fn limit(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        let socket = self.socket();
        socket.until_ns.store(0, Relaxed);
        socket.set_timeouts(read, write)
    }

    fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(channel) => channel.socket().socket(),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Plain(socket) => Stream::Plain(socket.try_clone()?),
            Stream::Tls(channel) => Stream::Tls(channel.clone()),
        })
    }

    pub(super) fn shut(&self) {
        // An error means that the connection has ended already.
        let _ = self.socket().socket.shutdown(Shutdown::Both);
    }

    pub(super) fn finish(&self) -> io::Result<()> {
        match self {
            Stream::Tls(channel) => channel.finish(),
            Stream::Plain(_) => Ok(()),
        }
    }
}

impl Socket {
    fn try_clone(&self) -> io::Result<Socket> {
        let until_ns = AtomicU64::new(self.until_ns.load(Relaxed));
        Ok(Socket { socket: self.socket.try_clone()?, until_ns })
    }

    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(read)?;
        self.socket.set_write_timeout(write)
    }

    /// The deadline of the handshake limits the call, if there is one.
    fn in_time<T>(&self, call: impl FnOnce(&socket2::Socket) -> io::Result<T>) -> io::Result<T> {
        let until_ns = self.until_ns.load(Relaxed);
        if until_ns == 0 {
            return call(&self.socket);
        }
        let left = Some(left_until(until_ns)?);
        self.set_timeouts(left, left)?;
        call(&self.socket).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => silent(),
            _ => error,
        })
    }
}

fn left_until(until_ns: u64) -> io::Result<Duration> {
    match until_ns.saturating_sub(now_ns()) {
        0 => Err(silent()),
        left => Ok(Duration::from_nanos(left)),
    }
}

fn silent() -> io::Error {
    let reason = format!("the NBD server does not answer within {} s", PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.in_time(|mut socket| socket.read(bytes)),
            Stream::Tls(channel) => channel.read(bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.in_time(|mut socket| socket.write(bytes)),
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

fn tcp(host: &str, port: u16, until_ns: u64) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the host name has no address");
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    for (place, address) in addresses.iter().enumerate() {
        // Each address gets an equal part of the time left, so that the client also tries the later
        // addresses.
        let left = left_until(until_ns)? / (addresses.len() - place) as u32;
        match TcpStream::connect_timeout(address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => failure = silent(),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_server_that_drips_has_no_more_time_than_a_silent_one() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let until_ns = AtomicU64::new(now_ns() + 50_000_000);
        let stream = Stream::Plain(Socket { socket: near.into(), until_ns });
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                far.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
                while !ends.load(Relaxed) {
                    let _ = far.write(b"N");
                }
            });
            let error = loop {
                if let Err(error) = (&stream).read(&mut [0]) {
                    break error;
                }
            };
            ends.store(true, Relaxed);
            assert_eq!(error.to_string(), "the NBD server does not answer within 10 s");
        });
        // After the handshake a read has no time limit, or each read has its own.
        stream.limit(None, None).unwrap();
        (&stream).read_exact(&mut [0]).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let silent = Socket { socket: near.into(), until_ns: AtomicU64::new(now_ns() + 1) };
        let silent = Stream::Plain(silent);
        silent.limit(Some(Duration::from_millis(1)), None).unwrap();
        let error = (&silent).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
