//! A proxy before an object store. The proxy makes faults of stores and networks, and counts
//! requests and bytes. A seed decides the faults.
//!
//! The proxy reads a whole request and draws its fault, if any. Then it passes the request on by a
//! new connection and answers, as far as the fault permits. It draws in the order in which it has
//! read the requests.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::http::Message;

/// The faults that a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The proxy closes the connection before the store receives the request.
    Cut,
    /// The store receives half of the request, then the connection ends. Tests do not use this
    /// fault with moto, which takes the half for the whole.
    Halve,
    /// The proxy answers 500; the store does not receive the request.
    Fail,
    /// The proxy answers 503 SlowDown; the store does not receive the request.
    SlowDown,
    /// The store carries the request out, and the proxy closes the connection without the response.
    Forget,
    /// The store carries the request out, and the proxy answers 500.
    Deny,
    /// The store carries the request out twice, and the client gets the second response.
    Repeat,
    /// The client gets half of the response's body, then the connection ends. A response without a
    /// body arrives whole.
    Truncate,
}

/// The faults under which every store stays correct.
pub const FAULTS: [Fault; 7] = [
    Fault::Cut,
    Fault::Fail,
    Fault::SlowDown,
    Fault::Forget,
    Fault::Deny,
    Fault::Repeat,
    Fault::Truncate,
];

/// The behaviour of a proxy.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// The faults that the proxy makes.
    pub faults: Vec<Fault>,
    /// Number of requests out of a thousand that get a fault, on average.
    pub per_mille: u64,
    /// Each request waits for a random part of this time; with `is_constant`, for the whole time.
    pub delay: Duration,
    /// The delay is the same for each request.
    pub is_constant: bool,
}

/// Numbers of the requests, bytes and faults so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Requests by their methods.
    pub requests: BTreeMap<String, u64>,
    /// Bytes of the bodies of the requests that the proxy has read.
    pub sent: u64,
    /// Bytes of the bodies that the proxy has sent to clients.
    pub received: u64,
    /// Number of the requests with each fault.
    pub faults: BTreeMap<Fault, u64>,
}

impl Counts {
    /// Returns the number of requests of this method.
    pub fn of(&self, method: &str) -> u64 {
        self.requests.get(method).copied().unwrap_or(0)
    }

    /// Returns the number of all requests.
    pub fn all(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// A running proxy. A drop ends it and its connections.
#[derive(Debug)]
pub struct StoreProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    store: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    seed: u64,
    counts: Counts,
    stands_still: bool,
    is_ending: bool,
    clients: Vec<TcpStream>,
}

impl StoreProxy {
    /// Starts a proxy before the store at `store`, at first without faults or delays.
    pub fn start(store: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let state = State {
            behaviour: Behaviour::default(),
            seed,
            counts: Counts::default(),
            stands_still: false,
            is_ending: false,
            clients: Vec::new(),
        };
        let shared = Shared { store, state: Mutex::new(state), changed: Condvar::new() };
        let shared = Arc::new(shared);
        let address = listener.local_addr().expect("an address");
        let accepting = Some(thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        }));
        Self { address, shared, accepting }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the behaviour, from the next request on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.change(|state| state.behaviour = behaviour);
    }

    /// Holds requests and responses back until [`StoreProxy::heal`], like a network partition.
    pub fn stand_still(&self) {
        self.shared.change(|state| state.stands_still = true);
    }

    /// Releases the requests and responses that the proxy holds back.
    pub fn heal(&self) {
        self.shared.change(|state| state.stands_still = false);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts.clone()
    }

    /// Waits until `enough` accepts the counts, or until `patience` has passed; returns the last
    /// result of `enough`.
    pub fn wait_for(&self, patience: Duration, enough: impl Fn(&Counts) -> bool) -> bool {
        let state = self.shared.state();
        let waited =
            self.shared.changed.wait_timeout_while(state, patience, |state| !enough(&state.counts));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        enough(&state.counts)
    }
}

impl Drop for StoreProxy {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.is_ending = true;
            for client in state.clients.drain(..) {
                let _ = client.shutdown(Shutdown::Both);
            }
        });
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn judge(&self, request: &Message) -> (Option<Fault>, Duration) {
        let mut state = self.state();
        let (chance, which, share) = (state.draw(), state.draw(), state.draw());
        let Behaviour { faults, per_mille, delay, is_constant } = &state.behaviour;
        let is_chosen = chance % 1000 < *per_mille && !faults.is_empty();
        let fault = is_chosen.then(|| faults[(which % faults.len() as u64) as usize]);
        let share = if *is_constant { 1.0 } else { (share >> 11) as f64 / (1_u64 << 53) as f64 };
        let delay = delay.mul_f64(share);
        *state.counts.requests.entry(request.method().to_owned()).or_default() += 1;
        state.counts.sent += request.body.len() as u64;
        if let Some(fault) = fault {
            *state.counts.faults.entry(fault).or_default() += 1;
        }
        drop(state);
        self.changed.notify_all();
        (fault, delay)
    }

    /// Waits for the delay, and for the end of a partition; fails if the proxy ends meanwhile.
    fn hold(&self, delay: Duration) -> io::Result<()> {
        let end = Instant::now() + delay;
        let mut state = self.state();
        loop {
            if state.is_ending {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let left = end.saturating_duration_since(Instant::now());
            state = if state.stands_still {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if left.is_zero() {
                return Ok(());
            } else {
                let waited = self.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

impl State {
    /// splitmix64.
    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for client in listener.incoming().flatten() {
        let mut state = shared.state();
        if state.is_ending {
            break;
        }
        state.clients.extend(client.try_clone());
        drop(state);
        let shared = Arc::clone(shared);
        // Faults end connections early, so the error of a connection is ignored.
        threads.push(thread::spawn(move || drop(serve(&client, &shared))));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn serve(client: &TcpStream, shared: &Shared) -> io::Result<()> {
    let outcome = answer_all(client, shared);
    let _ = client.shutdown(Shutdown::Both);
    outcome
}

fn answer_all(mut client: &TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from = BufReader::new(client);
    while let Some(request) = Message::request(&mut from, &mut client)? {
        let (fault, delay) = shared.judge(&request);
        shared.hold(delay)?;
        let Some(answer) = done(&request, fault, shared.store)? else { return Ok(()) };
        shared.hold(Duration::ZERO)?;
        let bytes = answer.bytes();
        let cut = if fault == Some(Fault::Truncate) { answer.body.len().div_ceil(2) } else { 0 };
        shared.change(|state| state.counts.received += (answer.body.len() - cut) as u64);
        client.write_all(&bytes[..bytes.len() - cut])?;
        if cut > 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Passes a request to the store as far as its fault permits, and returns the response for the
/// client; `None`: the client gets no response.
fn done(request: &Message, fault: Option<Fault>, store: SocketAddr) -> io::Result<Option<Message>> {
    let ask = || Message::answer(&mut BufReader::new(passed(request, store)?), request.method());
    let failed = Message::error("500 Internal Server Error", "InternalError");
    Ok(match fault {
        None | Some(Fault::Truncate) => Some(ask()?),
        Some(Fault::Cut) => None,
        Some(Fault::Halve) => {
            let bytes = to_store(request).bytes();
            TcpStream::connect(store)?.write_all(&bytes[..bytes.len() / 2])?;
            None
        }
        Some(Fault::Fail) => Some(failed),
        Some(Fault::SlowDown) => Some(Message::error("503 Slow Down", "SlowDown")),
        Some(Fault::Forget) => ask().map(|_| None)?,
        Some(Fault::Deny) => ask().map(|_| Some(failed))?,
        Some(Fault::Repeat) => {
            ask()?;
            Some(ask()?)
        }
    })
}

fn passed(request: &Message, store: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(store)?;
    stream.set_nodelay(true)?;
    stream.write_all(&to_store(request).bytes())?;
    Ok(stream)
}

fn to_store(request: &Message) -> Message {
    let mut request = request.clone();
    request.set("Connection", "close");
    request
}
