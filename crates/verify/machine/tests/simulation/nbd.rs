//! A server of NBD, with everything below it: its threads, sessions, disks and blocking tasks.
//!
//! Clients make requests of all kinds, several at a time, also of parts of blocks, and disconnect
//! in several ways. The test stops the server after a drawn time, often while clients run. At
//! intervals, the test checks what a power cut would leave. Each client has a socket pair, so no
//! thread accepts connections. In some runs clients flood the server with long requests; the server
//! must still end in time. `history` does the checks.

mod client;
mod history;

use crate::{spawn, swarm};
use client::{Agreed, Answer, Header};
use history::{CELL, Deed, History};
use nowait::{BackendChoice, Nowait, SubmitMode};
use nowait_device::{Cache, Image, ImageOptions};
use nowait_machine::{note, step};
use nowait_server::{
    nbd::{Limits, Security},
    server::{Config, Server, Socket},
};
use nowait_sim::{Faults, Prng};
use std::{
    collections::BTreeMap,
    io::Write,
    net::Shutdown,
    ops::Range,
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const PATH: &str = "/image";
const CELLS: u64 = 512;
/// Least time of a zeroing call, in runs where clients mostly zero.
const ZEROING: Duration = Duration::from_secs(2);

struct Setup {
    history: History,
    /// The history's time at which the test stopped the server; 0 before.
    stopped: AtomicU64,
    faulty: bool,
    power: Faults,
    weights: [u32; KINDS.len()],
    /// Each client keeps up to 12 requests in flight; most write zeroes, which takes long.
    floods: bool,
}

struct PendingRequest {
    number: usize,
    header: Header,
}

struct Link {
    setup: Arc<Setup>,
    socket: UnixStream,
    agreed: Agreed,
    asked: Mutex<BTreeMap<u64, PendingRequest>>,
    /// An answer has arrived, or none will any more.
    news: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Disconnect,
    Drop,
    Wait,
    /// The client stays until the server ends.
    Stay,
}

impl Link {
    fn asked(&self) -> MutexGuard<'_, BTreeMap<u64, PendingRequest>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, mut prng: Prng) {
        let (depth, count) = match self.setup.floods {
            true => (12, 100),
            false => (1 + prng.index(12), prng.below(40)),
        };
        let way = [Way::Disconnect, Way::Drop, Way::Wait, Way::Stay][prng.index(4)];
        for _ in 0..count {
            self.wait_for(depth);
            if self.ask(&mut prng.fork()).is_err() {
                return;
            }
        }
        note(|| format!("{way:?}"));
        match way {
            Way::Disconnect => {
                let command = client::DISCONNECT;
                let header = Header { command, flags: 0, cookie: 0, offset: 0, len: 0 };
                let _ = (&self.socket).write_all(&header.bytes(self.agreed));
            }
            Way::Drop => drop(self.socket.shutdown(Shutdown::Both)),
            Way::Wait => {
                self.wait_for(1);
                let _ = self.socket.shutdown(Shutdown::Both);
            }
            Way::Stay => {}
        }
    }

    fn wait_for(&self, depth: usize) {
        let mut asked = self.asked();
        while asked.len() >= depth {
            asked = self.news.wait(asked).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ask(&self, prng: &mut Prng) -> std::io::Result<()> {
        let (deed, command, flags) = match self.setup.floods && prng.chance(900_000) {
            true => (Deed::Zero, client::WRITE_ZEROES, 0),
            false => draw_request(self.agreed, &self.setup.weights, prng),
        };
        let cells = match deed {
            Deed::Flush => 0..0,
            Deed::Zero if self.setup.floods => 0..CELLS,
            _ => draw_cells(prng),
        };
        if !step(|| format!("{deed:?} {cells:?}, flags {flags:#x}")) {
            return Ok(());
        }
        let durable = flags & client::FUA != 0 && deed != Deed::Look;
        let number = self.setup.history.begin(deed, cells.clone(), durable);
        let (offset, len) = (cells.start * CELL, (cells.end - cells.start) * CELL);
        let header = Header { command, flags, cookie: number as u64, offset, len };
        note(|| format!("asks {header:?}"));
        let mut bytes = header.bytes(self.agreed);
        if deed == Deed::Write {
            bytes.extend(History::bytes_of(number, cells.clone()));
        }
        self.asked().insert(header.cookie, PendingRequest { number, header });
        (&self.socket).write_all(&bytes)
    }

    fn listen(&self) {
        let asked = |cookie| self.asked().get(&cookie).expect("answered once").header;
        while let Ok((cookie, answer)) = client::listen(&self.socket, self.agreed, asked) {
            let it = self.asked().remove(&cookie).expect("it was there");
            note(|| format!("request {} is answered", it.number));
            self.judge(&it, answer);
            self.news.notify_all();
        }
        self.asked().clear();
        self.news.notify_all();
    }

    fn judge(&self, asked: &PendingRequest, answer: Answer) {
        let (history, number) = (&self.setup.history, asked.number);
        match answer {
            Answer::Done => history.end(number, true),
            Answer::Data(bytes) => history.end_read(number, &bytes),
            Answer::Extents(extents) => {
                history.end(number, true);
                let mut at = asked.header.offset;
                for (len, hole) in extents {
                    if hole {
                        history.is_hole(number, at.div_ceil(CELL)..(at + len) / CELL);
                    }
                    at += len;
                }
                let end = asked.header.offset + asked.header.len;
                assert!(at > asked.header.offset && at <= end, "extents up to {at}");
            }
            Answer::Failed(error) => {
                self.may_fail(asked, error);
                history.end(number, false);
            }
        }
    }

    fn may_fail(&self, asked: &PendingRequest, error: u32) {
        let may = match error {
            client::EIO | client::ENOSPC => self.setup.faulty,
            client::ESHUTDOWN => self.setup.stopped.load(SeqCst) > 0,
            client::EOPNOTSUPP => asked.header.flags & client::FAST_ZERO != 0,
            _ => false,
        };
        assert!(may, "{:?} fails with {error}", asked.header);
    }
}

const KINDS: [(u16, u32); 7] = [
    (client::WRITE, 35),
    (client::READ, 25),
    (client::FLUSH, 12),
    (client::WRITE_ZEROES, 10),
    (client::TRIM, 5),
    (client::BLOCK_STATUS, 5),
    (client::CACHE, 5),
];

fn draw_request(agreed: Agreed, weights: &[u32], prng: &mut Prng) -> (Deed, u16, u16) {
    let fua = if prng.chance(250_000) { client::FUA } else { 0 };
    match KINDS[prng.weighted(weights)].0 {
        client::WRITE => (Deed::Write, client::WRITE, fua),
        client::FLUSH => (Deed::Flush, client::FLUSH, 0),
        client::WRITE_ZEROES => {
            let no_hole = if prng.chance(500_000) { client::NO_HOLE } else { 0 };
            let fast = if prng.chance(300_000) { client::FAST_ZERO } else { 0 };
            (Deed::Zero, client::WRITE_ZEROES, fua | no_hole | fast)
        }
        client::TRIM => (Deed::Trim, client::TRIM, fua),
        client::BLOCK_STATUS if agreed.allocation => (Deed::Look, client::BLOCK_STATUS, 0),
        client::CACHE if agreed.caches => (Deed::Look, client::CACHE, 0),
        _ => (Deed::Look, client::READ, 0),
    }
}

fn draw_cells(prng: &mut Prng) -> Range<u64> {
    let unit = [1, 1, 4, 4, 32][prng.index(5)];
    let most = [4, 16, 64, 320][prng.weighted(&[40, 40, 15, 5])];
    let space = if prng.chance(500_000) { 48 } else { CELLS };
    let start = prng.below(space) / unit * unit;
    let len = (1 + prng.below(most)).next_multiple_of(unit);
    start..(start + len).min(CELLS)
}

fn client(setup: &Arc<Setup>, socket: UnixStream, mut prng: Prng) {
    let Ok(agreed) = client::shake_hands(&socket, b"", &mut prng) else {
        return assert!(setup.stopped.load(SeqCst) > 0, "the server is there");
    };
    assert_eq!(agreed.size, CELLS * CELL);
    let (setup, asked) = (setup.clone(), Mutex::default());
    let link = Arc::new(Link { setup, socket, agreed, asked, news: Condvar::new() });
    let of = link.clone();
    let listener = spawn("listener", move || of.listen());
    link.send(prng);
    listener.join().unwrap();
}

fn open(prng: &mut Prng) -> (Nowait, Image) {
    let backends = [BackendChoice::Threads, BackendChoice::Kaio, BackendChoice::Uring];
    let submits = [SubmitMode::Auto, SubmitMode::Offload];
    let nowait = Nowait::builder()
        .backend(backends[prng.index(3)])
        .submit(submits[prng.index(2)])
        .cache_bytes([256 << 10, 4 << 20][prng.index(2)])
        .build()
        .unwrap();
    let file = std::fs::File::create(PATH).unwrap();
    file.set_len(CELLS * CELL).unwrap();
    file.sync_all().unwrap();
    let cache = [Cache::None, Cache::User, Cache::Host][prng.index(3)];
    note(|| format!("{cache:?}"));
    let sector_bytes = prng.chance(300_000).then_some(512);
    let options = ImageOptions { path: PATH.into(), cache, sector_bytes, ..Default::default() };
    let image = Image::open(&nowait, &options).unwrap();
    (nowait, image)
}

fn config(floods: bool, prng: &mut Prng) -> Config {
    let requests = if floods { 16 } else { 1 + prng.index(16) };
    Config {
        threads: 1 + prng.index(2),
        memory_bytes: [8 << 10, 64 << 10, 1 << 20][prng.index(3)],
        limits: Limits { requests, bytes: [8 << 10, 1 << 20][prng.index(2)] },
        ..Config::default()
    }
}

fn faults(prng: &mut Prng) -> Faults {
    let errors = Faults::swarm(prng);
    Faults {
        read_error_ppm: errors.read_error_ppm / 4,
        write_error_ppm: errors.write_error_ppm / 2,
        flush_error_ppm: errors.flush_error_ppm / 2,
        partial_ppm: errors.partial_ppm,
        forget_ppm: errors.forget_ppm,
        ..Faults::none()
    }
}

fn cut_power(setup: &Setup, mut prng: Prng) {
    for _ in 0..6 {
        let after = Duration::from_nanos(prng.below(30_000_000));
        if step(|| format!("cut the power after {after:?}")) {
            thread::park_timeout(after);
            setup.history.judge_cut(PATH, &setup.power);
        }
    }
}

/// The server gives up long requests, except system calls that have begun. Each client has at most
/// four such calls, which run one after another.
fn ends_in_time<T>(clients: u32, stop: impl FnOnce() -> T) -> T {
    const TASKS: Duration = Duration::from_secs(5);
    const REST: Duration = Duration::from_secs(2);
    let begun = Instant::now();
    let stopped = stop();
    let (took, most) = (begun.elapsed(), TASKS + 4 * clients * ZEROING + REST);
    assert!(took < most, "the end took {took:?}, at most {most:?}");
    stopped
}

pub(crate) fn program(seed: u64) {
    let mut prng = Prng::new(seed ^ 0xb1d);
    let (nowait, image) = open(&mut prng);
    let faulty = prng.chance(300_000);
    let history = History::new(CELLS, faulty);
    let (stopped, power) = (AtomicU64::new(0), Faults::swarm(&mut prng));
    let weights = swarm(&KINDS, &mut prng);
    let floods = prng.chance(30_000);
    if floods {
        nowait_machine::zero_slowly(ZEROING.as_nanos() as u64);
    }
    let setup = Arc::new(Setup { history, stopped, faulty, power, weights, floods });
    let config = config(floods, &mut prng);
    let mut server = Server::start(&nowait, vec![Arc::new(image)], &config).unwrap();
    if faulty {
        let faults = faults(&mut prng);
        if step(|| format!("have devices fail: {faults:?}")) {
            nowait_machine::set_faults(faults);
        }
    }
    let (mut threads, clients) = (Vec::new(), prng.range(1..=2));
    for number in 0..clients {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        server.serve(Socket::from(near), Security::Plain);
        let (of, prng) = (setup.clone(), prng.fork());
        threads.push(spawn(&format!("client {number}"), move || client(&of, far, prng)));
    }
    let (of, fork) = (setup.clone(), prng.fork());
    threads.push(spawn("cut power", move || cut_power(&of, fork)));
    thread::park_timeout(Duration::from_nanos(prng.below(200_000_000)));
    let history = &setup.history;
    setup.stopped.store(history.now(), SeqCst);
    let sync = history.begin(Deed::Flush, 0..0, false);
    note(|| "stops".to_owned());
    let done = ends_in_time(clients as u32, || server.stop());
    history.end(sync, done.is_ok());
    assert!(faulty || done.is_ok(), "{done:?}");
    history.judge_cut(PATH, &setup.power);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    nowait_machine::set_faults(Faults::none());
    drop(nowait);
    history.judge_cut(PATH, &Faults::none());
}
