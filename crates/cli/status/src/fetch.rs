//! Fetches the status of a server, as `nowait top` does.

use crate::{PATIENCE, Status};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Instant,
};

/// Most bytes of an answer: room for some thousands of exports.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A socket with a total time limit for reads and writes: a server that sends single bytes slowly
/// cannot extend it.
#[derive(Debug)]
struct Timed {
    socket: UnixStream,
    until: Instant,
}

impl Timed {
    fn new(socket: UnixStream) -> Timed {
        Timed { socket, until: Instant::now() + PATIENCE }
    }

    /// Limits the next call to the time that is left.
    fn limit(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A timeout of zero would mean no limit.
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

/// Fetches the status of the server whose socket is at `path`.
///
/// # Errors
/// No server answers there, or not in this format.
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
