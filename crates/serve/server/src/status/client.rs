//! A client of the status endpoint: its question, then the answer.

use super::http;
use crate::server::Socket;
use nowait_status::Status;
use std::io::{self, ErrorKind, Read, Write};

/// The event that a client is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// More of its question.
    Question,
    /// Room for the answer.
    Room,
    /// Nothing: the client has its answer.
    Over,
}

/// A client of the status endpoint, with a nonblocking socket.
#[derive(Debug)]
pub(super) struct Client {
    socket: Socket,
    /// The time to disconnect it, by the clock of `now_ns`.
    pub(super) until_ns: u64,
    question: Vec<u8>,
    /// The answer, empty until the question is complete.
    answer: Vec<u8>,
    sent: usize,
}

impl Client {
    pub(super) fn new(socket: Socket, until_ns: u64) -> Client {
        Client { socket, until_ns, question: Vec::new(), answer: Vec::new(), sent: 0 }
    }

    /// Returns the descriptor.
    pub(super) fn raw(&self) -> i32 {
        self.socket.raw()
    }

    /// Continues as far as the socket allows.
    ///
    /// # Errors
    /// The client has gone.
    pub(super) fn go_on(&mut self, status: impl Fn() -> Status) -> io::Result<Wait> {
        let outcome = self.ask(status).and_then(|wait| match wait {
            Wait::Room => self.send(),
            other => Ok(other),
        });
        match outcome {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Ok(if self.answer.is_empty() { Wait::Question } else { Wait::Room })
            }
            outcome => outcome,
        }
    }

    /// Reads the question, and makes the answer when the question is complete.
    fn ask(&mut self, status: impl Fn() -> Status) -> io::Result<Wait> {
        let mut bytes = [0; 1024];
        while self.answer.is_empty() {
            let count = match self.socket.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count?,
            };
            self.question.extend(&bytes[..count]);
            if count == 0 || http::is_whole(&self.question) {
                self.answer = http::answer(&self.question, &status);
            }
        }
        Ok(Wait::Room)
    }

    fn send(&mut self) -> io::Result<Wait> {
        while self.sent < self.answer.len() {
            match self.socket.write(&self.answer[self.sent..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                count => self.sent += count?,
            }
        }
        Ok(Wait::Over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_status::ExportStatus;
    use std::os::unix::net::UnixStream;

    fn client() -> (Client, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (Client::new(Socket::Unix(near), 0), far)
    }

    #[test]
    fn a_question_may_come_in_parts() {
        let (mut client, mut far) = client();
        for part in ["GET /status", " HTTP/1.1\r\n", "\r"] {
            far.write_all(part.as_bytes()).unwrap();
            assert_eq!(client.go_on(Status::default).unwrap(), Wait::Question);
        }
        far.write_all(b"\n").unwrap();
        assert_eq!(client.go_on(Status::default).unwrap(), Wait::Over);
        drop(client);
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with('}'), "{text}");
    }

    #[test]
    fn an_answer_is_sent_as_fast_as_it_is_read() {
        let (mut client, mut far) = client();
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let status = || {
            let export = ExportStatus { name: "x".repeat(4 << 20), ..Default::default() };
            Status { exports: vec![export], ..Status::default() }
        };
        let mut text = Vec::new();
        while client.go_on(status).unwrap() == Wait::Room {
            let mut part = vec![0; 1 << 16];
            let count = far.read(&mut part).unwrap();
            text.extend(&part[..count]);
        }
        drop(client);
        far.read_to_end(&mut text).unwrap();
        assert!(text.len() > 4 << 20 && text.ends_with(b"}"));
    }

    #[test]
    fn a_client_that_leaves_without_a_question_is_done() {
        let (mut client, far) = client();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.go_on(Status::default).unwrap(), Wait::Over);
    }
}
