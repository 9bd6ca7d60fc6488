//! A relay between servers and the store, which delays and counts the requests.
//!
//! The delay stands for the round trip in a network. The rate is not limited: bytes sent together
//! arrive together.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nowait_harness::error::{Context, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    /// Bytes to the store, with the headers of requests.
    pub(crate) sent: u64,
}

impl Passed {
    pub(crate) fn since(self, before: Passed) -> Passed {
        Passed {
            puts: self.puts - before.puts,
            gets: self.gets - before.gets,
            sent: self.sent - before.sent,
        }
    }
}

/// The thread that listens ends with the program.
#[derive(Debug, Clone)]
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    delay_ns: AtomicU64,
    passed: Mutex<Passed>,
}

impl Relay {
    pub(crate) fn start(store: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.context(|| "a port for the relay".to_owned())?;
        let address = listener.local_addr().context(|| "the relay's address".to_owned())?;
        let shared = Arc::new(Shared::default());
        let relay = Relay { address, shared: shared.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the store refuses, dropping the client's connection tells the client.
                if let Ok(server) = TcpStream::connect(store) {
                    begin(&shared, &client, &server);
                }
            }
        });
        Ok(relay)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.delay_ns.store(delay.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn passed(&self) -> Passed {
        *self.shared.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests pass delayed and counted; answers pass without a delay.
fn begin(shared: &Arc<Shared>, client: &TcpStream, server: &TcpStream) {
    for stream in [client, server] {
        let _ = stream.set_nodelay(true);
    }
    let clones = || Some([client.try_clone().ok()?, server.try_clone().ok()?]);
    let (Some([mut from_client, mut to_server]), Some([mut to_client, mut from_server])) =
        (clones(), clones())
    else {
        return;
    };
    // The first bytes that a client sends after an answer are the beginning of a request.
    let is_answered = Arc::new(AtomicBool::new(true));
    let (queue, late) = mpsc::channel::<(Instant, Vec<u8>)>();
    let (counts, answered) = (shared.clone(), is_answered.clone());
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_client.read(&mut bytes) {
            let bytes = &bytes[..count];
            let is_first = answered.swap(false, Relaxed);
            let mut passed = counts.passed.lock().unwrap_or_else(PoisonError::into_inner);
            passed.sent += count as u64;
            passed.puts += u64::from(is_first && bytes.starts_with(b"PUT "));
            passed.gets += u64::from(is_first && bytes.starts_with(b"GET "));
            drop(passed);
            let due = Instant::now() + Duration::from_nanos(counts.delay_ns.load(Relaxed));
            if queue.send((due, bytes.to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in late {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to_server.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut bytes) {
            is_answered.store(true, Relaxed);
            if to_client.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;

    #[test]
    fn requests_are_counted_and_come_whole() {
        let store = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let relay = Relay::start(store.local_addr().expect("an address")).expect("a relay");
        let server = thread::spawn(move || {
            let (stream, _) = store.accept().expect("a connection");
            let mut lines = std::io::BufReader::new(stream.try_clone().expect("a handle")).lines();
            let mut stream = stream;
            for expected in ["PUT one", "GET two"] {
                assert_eq!(lines.next().expect("a line").expect("text"), expected);
                stream.write_all(b"200\n").expect("a connection");
            }
        });
        let mut client = TcpStream::connect(relay.address()).expect("a connection");
        for request in [b"PUT one\n", b"GET two\n"] {
            client.write_all(request).expect("a connection");
            let mut answer = [0; 4];
            client.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"200\n");
        }
        server.join().expect("no panic");
        assert_eq!(relay.passed(), Passed { puts: 1, gets: 1, sent: 16 });
    }
}
