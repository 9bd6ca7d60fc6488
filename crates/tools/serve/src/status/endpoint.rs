//! The status endpoint on a socket: the least of HTTP/1.1 that curl and Prometheus need.

use super::{Status, metrics};
#[cfg(test)]
use crate::failure;
use crate::{
    ServeError,
    server::{Listener, Socket, View},
};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How long a question and its answer may take together: others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to accept no client after accept failed for want of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest question.
const QUESTION_BYTES_MAX: usize = 8192;
/// Longest answer that is listened to: some thousands of exports.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A thread that answers. It ends with the process.
#[derive(Debug)]
pub struct Endpoint;

impl Endpoint {
    /// Begins to answer on `listener` with what `status` returns.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        listener: Arc<Listener>,
        view: &View,
        status: impl Fn() -> Status + Send + 'static,
    ) -> Result<Endpoint, ServeError> {
        let shared = view.shared().clone();
        let named = thread::Builder::new().name("nowait-status".to_owned());
        let spawned = named.spawn(move || {
            loop {
                match listener.accept_blocking() {
                    // Errors of the client are ignored.
                    Ok(socket) => {
                        let answer = || {
                            #[cfg(test)]
                            failure::inject(failure::At::Status, shared.exports[0].name());
                            answer(Asker::new(socket), &status)
                        };
                        let _ = shared.caught("as it told the status", answer);
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Descriptors come back when clients go.
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        });
        spawned.map_err(|error| ServeError::io("start of a thread", &error))?;
        Ok(Endpoint)
    }
}

/// A socket that is read and written until a moment: a client that sends a byte now and then gains
/// nothing.
#[derive(Debug)]
struct Asker {
    socket: Socket,
    until: Instant,
}

impl Asker {
    fn new(socket: Socket) -> Asker {
        Asker { socket, until: Instant::now() + PATIENCE }
    }

    /// Has the next call end in time.
    fn limit(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A limit of nothing would be none.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_timeouts(left)
    }
}

impl Read for Asker {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.socket.read(buffer)
    }
}

impl Write for Asker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn answer(mut socket: Asker, status: &impl Fn() -> Status) -> io::Result<()> {
    let mut question = Vec::new();
    let mut bytes = [0; 1024];
    while !question.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = socket.read(&mut bytes)?;
        question.extend(&bytes[..count]);
        if count == 0 || question.len() > QUESTION_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&question);
    let mut words = text.split_whitespace();
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (code, kind, body) = match (verb, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics") => ("200 OK", "text/plain; version=0.0.4", metrics(&status())),
        ("GET", "/status" | "/") => {
            let json = serde_json::to_string(&status()).unwrap_or_default();
            ("200 OK", "application/json", json)
        }
        ("GET", _) => ("404 Not Found", "text/plain", "see /status and /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

/// Asks the server whose socket is at `path`.
///
/// # Errors
/// No server answers there, or not as ours does.
pub fn fetch(path: &Path) -> io::Result<Status> {
    let mut server = Asker::new(Socket::Unix(UnixStream::connect(path)?));
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
    fn a_question_has_one_deadline_however_often_bytes_come() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"GET /status").unwrap();
        let mut asker = Asker::new(Socket::Unix(near));
        assert_eq!(asker.read(&mut [0; 4]).unwrap(), 4);
        asker.until = Instant::now();
        // More is there, but the time is over.
        assert_eq!(asker.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(asker.write(b"200").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn questions_are_answered_in_json_or_refused() {
        let ask = |question: &str| {
            let (near, mut far) = UnixStream::pair().unwrap();
            far.write_all(question.as_bytes()).unwrap();
            answer(Asker::new(Socket::Unix(near)), &Status::default).unwrap();
            let mut text = String::new();
            far.read_to_string(&mut text).unwrap();
            text
        };
        assert!(ask("GET /status HTTP/1.1\r\n\r\n").contains("\"exports\":[]"));
        assert!(ask("GET /metrics?a HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(ask("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("PUT /status HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(&"x".repeat(QUESTION_BYTES_MAX + 1024)).starts_with("HTTP/1.1 405"));
    }
}
