//! A proxy for Google's XML API before fake-gcs-server. That server supports the API's operations
//! on images except PUTs. The proxy translates PUTs to the JSON API, in which fake-gcs-server
//! respects the conditions of PUTs. The proxy passes other requests on, with the headers `Host` and
//! `Connection` that fake-gcs-server needs.

use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use crate::http::Message;

/// A running proxy. After a drop it accepts no more connections.
#[derive(Debug)]
pub struct XmlPuts {
    address: SocketAddr,
    is_ending: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl XmlPuts {
    /// Starts a proxy before the server at `store`.
    pub fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let is_ending = Arc::new(AtomicBool::new(false));
        let accepting = Some(thread::spawn({
            let is_ending = Arc::clone(&is_ending);
            move || {
                for client in listener.incoming().flatten() {
                    if is_ending.load(SeqCst) {
                        break;
                    }
                    // The thread ends with its client.
                    thread::spawn(move || drop(serve(&client, store)));
                }
            }
        }));
        Self { address, is_ending, accepting }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for XmlPuts {
    fn drop(&mut self) {
        self.is_ending.store(true, SeqCst);
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(mut client: &TcpStream, store: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from = BufReader::new(client);
    while let Some(request) = Message::request(&mut from, &mut client)? {
        let answer = match request.method() {
            "PUT" => in_headers(ask(in_json(request)?, store)?),
            _ => ask(request, store)?,
        };
        client.write_all(&answer.bytes())?;
    }
    Ok(())
}

fn ask(mut request: Message, store: SocketAddr) -> io::Result<Message> {
    // fake-gcs-server chooses between its APIs by the header Host, too.
    request.set("Host", &store.to_string());
    request.set("Connection", "close");
    let mut stream = TcpStream::connect(store)?;
    stream.write_all(&request.bytes())?;
    Message::answer(&mut BufReader::new(stream), request.method())
}

/// Turns `PUT /BUCKET/OBJECT`, which has its condition in a header, into an upload, which has the
/// condition in its query.
fn in_json(mut request: Message) -> io::Result<Message> {
    let path = request.start.split(' ').nth(1).and_then(|path| path.strip_prefix('/'));
    let (bucket, object) =
        path.and_then(|path| path.split_once('/')).ok_or(io::ErrorKind::InvalidData)?;
    let condition = request.header("x-goog-if-generation-match");
    let condition = condition.map(|it| format!("&ifGenerationMatch={it}")).unwrap_or_default();
    let query = format!("uploadType=media&name={object}{condition}");
    request.start = format!("POST /upload/storage/v1/b/{bucket}/o?{query} HTTP/1.1");
    Ok(request)
}

/// Puts the ETag and the generation from the JSON of an upload's response into headers, as a PUT's
/// response has them. Returns other responses unchanged.
fn in_headers(mut answer: Message) -> Message {
    if answer.status() != 200 {
        return answer;
    }
    let said: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |name: &str| said[name].as_str().unwrap_or_default().trim_matches('"').to_owned();
    answer.set("ETag", &format!("\"{}\"", text("etag")));
    answer.set("x-goog-generation", &text("generation"));
    answer.body.clear();
    answer.set("Content-Length", "0");
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_is_said_as_an_upload_and_its_answer_as_that_of_a_put() {
        let mut from = &b"PUT /b/a%2Fc HTTP/1.1\r\nx-goog-if-generation-match: 7\r\n\
            Content-Length: 1\r\n\r\nx"[..];
        let put = Message::request(&mut from, &mut Vec::new()).expect("whole").expect("one");
        let upload = in_json(put).expect("a path").start;
        let query = "uploadType=media&name=a%2Fc&ifGenerationMatch=7";
        assert_eq!(upload, format!("POST /upload/storage/v1/b/b/o?{query} HTTP/1.1"));
        let mut from = &b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n\
            {\"generation\":\"8\",\"etag\":\"abc\"}"[..];
        let answer = in_headers(Message::answer(&mut from, "POST").expect("an answer"));
        assert_eq!((answer.header("etag"), answer.body.len()), (Some("\"abc\""), 0));
        assert_eq!(answer.header("x-goog-generation"), Some("8"));
    }
}
