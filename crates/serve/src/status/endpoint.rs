//! Answers questions on a socket: the least of HTTP/1.1 that curl and Prometheus need.

use super::{Status, metrics};
use crate::{
    ServeError,
    server::{Listener, Socket},
};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

/// How long somebody who asks may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest question.
const QUESTION_BYTES_MAX: usize = 8192;

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
        status: impl Fn() -> Status + Send + 'static,
    ) -> Result<Endpoint, ServeError> {
        let named = thread::Builder::new().name("nowait-status".to_owned());
        let spawned = named.spawn(move || {
            loop {
                match listener.accept_blocking() {
                    // Who asks wrongly or goes away is no concern of ours.
                    Ok(socket) => drop(answer(socket, &status)),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        spawned.map_err(|error| ServeError::io("start of a thread", &error))?;
        Ok(Endpoint)
    }
}

fn answer(mut socket: Socket, status: &impl Fn() -> Status) -> io::Result<()> {
    socket.set_timeouts(PATIENCE)?;
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
/// Nobody answers there, or not as a server does.
pub fn fetch(path: &Path) -> io::Result<Status> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    serde_json::from_str(body).map_err(io::Error::from)
}
