//! Fetches the status of a server through its status socket.

use crate::{PATIENCE, Status};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Instant,
};

/// The maximum size of an answer in bytes: room for about a thousand exports.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A server that sends single bytes slowly cannot extend the time limit.
#[derive(Debug)]
struct Timed {
    socket: UnixStream,
    until: Instant,
}

impl Timed {
    fn new(socket: UnixStream) -> Timed {
        Timed { socket, until: Instant::now() + PATIENCE }
    }

    fn limit(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        // The kernel would take a timeout of zero for no limit, so `UnixStream` refuses it.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Fetches the status of the server whose socket is at `path`, within [`PATIENCE`] after the
/// connect.
///
/// # Errors
/// No server answers there in time, or the answer does not have the format of [`Status`].
pub fn fetch(path: &Path) -> io::Result<Status> {
    let mut server = Timed::new(UnixStream::connect(path)?);
    server.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    server.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    serde_json::from_str(body).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_one_deadline_however_often_bytes_come() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"HTTP/1.1 200").unwrap();
        let mut timed = Timed::new(near);
        assert_eq!(timed.read(&mut [0; 4]).unwrap(), 4);
        timed.until = Instant::now();
        // More data is there, but the time is over.
        assert_eq!(timed.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(timed.write(b"GET").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
