//! A proxy before an object store that does, by a seed, what stores and networks do at their
//! worst, and counts what passes.
//!
//! Each request is read whole, judged, passed on by a connection of its own, and answered. What
//! becomes of it is drawn in the order in which requests arrive.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::http::Message;

/// What may become of a request besides being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The connection is closed before the store hears of it.
    Cut,
    /// The store hears half of it, then the connection ends. Not for moto, which takes the half
    /// for all of it.
    Halve,
    /// 500 without doing it.
    Fail,
    /// 503 SlowDown without doing it.
    SlowDown,
    /// It is done, and the connection is closed without the answer.
    Forget,
    /// It is done, and answered with 500.
    Deny,
    /// It is done twice, and the second answer is the client's.
    Repeat,
    /// Half the answer's body comes, then the connection ends.
    Truncate,
}

/// Those that every store is right in the face of.
pub const FAULTS: [Fault; 7] = [
    Fault::Cut,
    Fault::Fail,
    Fault::SlowDown,
    Fault::Forget,
    Fault::Deny,
    Fault::Repeat,
    Fault::Truncate,
];

/// How a proxy behaves.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// Which faults it has.
    pub faults: Vec<Fault>,
    /// How many of a thousand requests get one of them.
    pub per_mille: u64,
    /// Each request waits up to this long; with `is_constant`, exactly so long.
    pub delay: Duration,
    /// Whether the delay is the same for each request.
    pub is_constant: bool,
}

/// What has passed.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Requests by their methods.
    pub requests: BTreeMap<String, u64>,
    /// Bytes of the requests' bodies.
    pub sent: u64,
    /// Bytes of the answers' bodies.
    pub received: u64,
    /// Faults that were done.
    pub faults: BTreeMap<Fault, u64>,
}

impl Counts {
    /// How many requests of this method have come.
    pub fn of(&self, method: &str) -> u64 {
        self.requests.get(method).copied().unwrap_or(0)
    }

    /// How many requests have come.
    pub fn all(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// A running proxy; gone when dropped.
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
    /// Starts one before the store at `store`, which does all it is asked as fast as it can.
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

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Behaves otherwise from the next request on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.change(|state| state.behaviour = behaviour);
    }

    /// Holds requests and answers back: a partition.
    pub fn stand_still(&self) {
        self.shared.change(|state| state.stands_still = true);
    }

    /// Lets go what was held back.
    pub fn heal(&self) {
        self.shared.change(|state| state.stands_still = false);
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts.clone()
    }

    /// Returns once `enough` is true of what has passed, or after `patience`: whether it is.
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
        // Wakes the thread that accepts.
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

    /// Counts a request and draws what becomes of it.
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

    /// Waits for the delay, and for the end of a partition; fails when the proxy ends meanwhile.
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
    /// The next number (splitmix64).
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
        // A connection that ends early is what this proxy is for.
        threads.push(thread::spawn(move || drop(serve(&client, &shared))));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Answers the requests of a connection, until it ends or a fault ends it.
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

/// The answer to a request, if the client gets any.
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

/// The request as the store gets it, by a connection of its own.
fn to_store(request: &Message) -> Message {
    let mut request = request.clone();
    request.set("Connection", "close");
    request
}
