//! As much of HTTP as a benchmark of a server needs: one request after the other on a connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nowait_harness::error::{BenchError, Context, Result};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A connection that is kept.
#[derive(Debug)]
pub(crate) struct Connection(BufReader<UnixStream>);

impl Connection {
    /// Connects to a server.
    pub(crate) fn new(socket: &Path) -> Result<Self> {
        let what = || format!("connect to {}", socket.display());
        let stream = UnixStream::connect(socket).context(what)?;
        stream.set_read_timeout(Some(PATIENCE)).context(what)?;
        Ok(Self(BufReader::with_capacity(128 << 10, stream)))
    }

    /// Asks, with more lines for the header, each with its end, and waits for the whole answer;
    /// the length of its body.
    pub(crate) fn get(&mut self, path: &str, header: &str) -> Result<u64> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{header}\r\n");
        let what = || format!("ask for {path}");
        self.0.get_mut().write_all(request.as_bytes()).context(what)?;
        let len = body_len(&mut self.0)?;
        let mut body = self.0.by_ref().take(len);
        std::io::copy(&mut body, &mut std::io::sink()).context(what)
    }
}

/// Reads the header of an answer; how long its body is.
fn body_len(answer: &mut impl BufRead) -> Result<u64> {
    let mut line = String::new();
    let mut next = |line: &mut String| {
        line.clear();
        answer.read_line(line).context(|| "read an answer".to_owned())
    };
    next(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    if !status.starts_with('2') {
        return Err(BenchError::failed(format!("the server answers '{}'", line.trim())));
    }
    let mut len = None;
    while next(&mut line)? > 0 && !line.trim().is_empty() {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("Content-Length") {
            len = value.trim().parse().ok();
        }
    }
    len.ok_or_else(|| BenchError::failed("an answer without a length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_answer_is_found() {
        let of = |text: &str| body_len(&mut text.as_bytes());
        let found = of("HTTP/1.1 206 Partial Content\r\nA: b\r\ncontent-length: 7\r\n\r\nbody");
        assert_eq!(found, Ok(7));
        let error = of("HTTP/1.1 404 Not Found\r\n\r\n").expect_err("no success");
        assert!(error.to_string().contains("404 Not Found"), "{error}");
        assert!(of("HTTP/1.1 200 OK\r\n\r\n").is_err() && of("").is_err());
    }

    #[test]
    fn answers_follow_each_other_on_a_connection() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        theirs.write_all(format!("{answer}{answer}").as_bytes()).expect("room for both");
        let mut connection = Connection(BufReader::new(ours));
        assert_eq!((connection.get("/", ""), connection.get("/", "")), (Ok(3), Ok(3)));
    }
}
