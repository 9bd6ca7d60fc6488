//! Whole HTTP/1.1 messages, which the proxies before stores read and pass on.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};

/// Limit of a body, larger than the largest object of an image. The limit bounds the memory that
/// one message of a broken server or client takes.
const BODY_MAX: u64 = 64 << 20;
const HEAD_MAX: u64 = 64 << 10;

/// A request or a response.
#[derive(Debug, Clone)]
pub struct Message {
    /// The first line of the message.
    pub start: String,
    /// Names and values, in their order.
    pub headers: Vec<(String, String)>,
    /// The body, without the marks of chunks.
    pub body: Vec<u8>,
}

impl Message {
    /// Makes a response of the proxy itself, with an error in S3's format.
    pub fn error(status: &str, code: &str) -> Self {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        let headers = vec![("Content-Type".to_owned(), "application/xml".to_owned())];
        let mut message =
            Self { start: format!("HTTP/1.1 {status}"), headers, body: body.into_bytes() };
        message.set("Content-Length", &message.body.len().to_string());
        message
    }

    /// Reads a request; `None`: the client has closed the connection. If the request has the header
    /// Expect, writes `100 Continue` to `proceed` before reading the body.
    pub fn request(from: &mut impl BufRead, proceed: &mut impl Write) -> io::Result<Option<Self>> {
        let Some(mut request) = Self::head(from)? else { return Ok(None) };
        if request.remove("Expect").is_some() {
            proceed.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.read_body(from, Some(0))?;
        Ok(Some(request))
    }

    /// Reads the response to a request of this method. Skips responses with a status 1xx.
    pub fn answer(from: &mut impl BufRead, method: &str) -> io::Result<Self> {
        loop {
            let mut answer = Self::head(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = answer.status();
            if (100..200).contains(&status) {
                continue;
            }
            if method != "HEAD" && status != 204 && status != 304 {
                answer.read_body(from, None)?;
                answer.set("Content-Length", &answer.body.len().to_string());
            }
            answer.remove("Connection");
            answer.remove("Keep-Alive");
            return Ok(answer);
        }
    }

    /// Returns the method of a request.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// Returns the status of a response; 0 if it has none.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    /// Returns the value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Removes the first header with this name, and appends a header with this value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the bytes to send.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.start);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }

    fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.headers.iter().position(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(self.headers.remove(at).1)
    }

    fn head(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut from = from.take(HEAD_MAX);
        let Some(start) = line(&mut from)? else { return Ok(None) };
        let mut headers = Vec::new();
        loop {
            let line = line(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(Some(Self { start, headers, body: Vec::new() }))
    }

    /// Reads the body by its chunks or its Content-Length. If the message has no length, reads
    /// `unsaid` bytes; if `unsaid` is `None`, reads to the end of the stream, at most `BODY_MAX`
    /// bytes.
    fn read_body(&mut self, from: &mut impl BufRead, unsaid: Option<u64>) -> io::Result<()> {
        if self.remove("Transfer-Encoding").is_some() {
            while let Some(len) = chunk(from)? {
                take(from, len, &mut self.body)?;
                line(from)?;
            }
            self.set("Content-Length", &self.body.len().to_string());
            return Ok(());
        }
        let said = self.header("Content-Length").map(|len| len.parse().unwrap_or(u64::MAX));
        match said.or(unsaid) {
            Some(len) => take(from, len, &mut self.body),
            None => from.take(BODY_MAX).read_to_end(&mut self.body).map(drop),
        }
    }
}

/// Reads the length of the next chunk. `None`: the last chunk has come, and the trailer was read.
fn chunk(from: &mut impl BufRead) -> io::Result<Option<u64>> {
    let line_of_it = line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let digits = line_of_it.split(';').next().unwrap_or_default().trim();
    let len = u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    if len > 0 {
        return Ok(Some(len));
    }
    while line(from)?.is_some_and(|trailer| !trailer.is_empty()) {}
    Ok(None)
}

fn take(from: &mut impl BufRead, len: u64, body: &mut Vec<u8>) -> io::Result<()> {
    if len.saturating_add(body.len() as u64) > BODY_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let read = from.take(len).read_to_end(body)?;
    if read as u64 == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_become_one_body_of_a_said_length() {
        let mut from = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nrest"[..];
        let answer = Message::answer(&mut from, "GET").expect("an answer");
        assert_eq!((answer.status(), &answer.body[..]), (200, &b"abcde"[..]));
        assert_eq!((answer.header("content-length"), from), (Some("5"), &b"rest"[..]));
    }

    #[test]
    fn the_answer_to_a_head_has_the_length_and_no_body() {
        let mut from = &b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"[..];
        let answer = Message::answer(&mut from, "HEAD").expect("an answer");
        assert_eq!((answer.header("Content-Length"), answer.body.len()), (Some("7"), 0));
    }

    #[test]
    fn a_request_that_is_cut_is_an_error_and_one_that_does_not_come_is_none() {
        let mut cut = &b"PUT /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"[..];
        assert!(Message::request(&mut cut, &mut Vec::new()).is_err());
        assert!(Message::request(&mut &b""[..], &mut Vec::new()).expect("an end").is_none());
    }
}
