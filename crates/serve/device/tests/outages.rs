//! NBD servers that end connections, lose data that was not flushed, stall, stay away, or come back
//! with another image.

mod support;

use core::time::Duration;
use nowait::Errno;
use nowait_device::{BlockingTask, Medium, PIECE_BYTES, Patience, Tag};
use nowait_sys::{
    epoll::{self, Epoll},
    mutex::Mutex,
    time::Deadline,
};
use std::{
    io::{self, Read, Write},
    ops::Range,
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use support::{
    ASKED_BYTES, Numbers, Rig, SIZE, TAG, answer, cached, export, greeting, next_end,
    wait_until_left,
};

/// The limits for servers that come back: longer than a successful test takes.
const LONG: Patience = Patience {
    outage: Duration::from_secs(50),
    silence: Duration::from_secs(25),
    end: Duration::from_mins(1),
    say: None,
};
const FLUSH: u16 = 1 << 2;
const FUA: u16 = 1 << 3;
const TRIM: u16 = 1 << 5;
const ZEROES: u16 = 1 << 6;

struct Heard {
    flags: u16,
    kind: u16,
    cookie: [u8; 8],
    place: Range<usize>,
    bytes: Vec<u8>,
}

fn hear(client: &mut UnixStream) -> Option<Heard> {
    let mut header = [0; 28];
    client.read_exact(&mut header).ok()?;
    let number = |place: Range<usize>| {
        header[place].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    assert_eq!(number(0..4), u64::from(nowait_device::nbd::REQUEST), "a request begins here");
    let (flags, kind) = (number(4..6) as u16, number(6..8) as u16);
    let (at, len) = (number(16..24) as usize, number(24..28) as usize);
    let mut bytes = vec![0; if kind == 1 { len } else { 0 }];
    client.read_exact(&mut bytes).ok()?;
    let cookie = header[8..16].try_into().unwrap();
    (kind != 2).then_some(Heard { flags, kind, cookie, place: at..at + len, bytes })
}

fn reply(error: u32, cookie: [u8; 8], read: &[u8]) -> Vec<u8> {
    [&nowait_device::nbd::SIMPLE_REPLY.to_be_bytes()[..], &error.to_be_bytes(), &cookie, read]
        .concat()
}

struct Storage {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// The ranges where `cached` and `durable` may differ.
    unflushed: Vec<Range<usize>>,
}

impl Storage {
    fn new() -> Storage {
        let empty = vec![0; SIZE as usize];
        Storage { cached: empty.clone(), durable: empty, unflushed: Vec::new() }
    }

    fn apply(&mut self, heard: &Heard) -> Vec<u8> {
        let place = heard.place.clone();
        match heard.kind {
            0 => return self.cached[place].to_vec(),
            1 => self.cached[place.clone()].copy_from_slice(&heard.bytes),
            3 => self.settle(|_| true),
            4 | 6 => self.cached[place.clone()].fill(0),
            kind => panic!("command {kind}"),
        }
        if heard.flags & 1 != 0 {
            self.durable[place.clone()].copy_from_slice(&self.cached[place]);
        } else if heard.kind != 3 {
            self.unflushed.push(place);
        }
        Vec::new()
    }

    fn settle(&mut self, mut keeps: impl FnMut(&Range<usize>) -> bool) {
        for place in self.unflushed.drain(..).filter(|place| keeps(place)) {
            self.durable[place.clone()].copy_from_slice(&self.cached[place]);
        }
    }

    /// Restarts: some of the unflushed ranges survive, and the disk loses the others.
    fn restart(&mut self, numbers: &mut Numbers) {
        self.settle(|_| numbers.below(3) == 0);
        self.cached.copy_from_slice(&self.durable);
    }
}

/// A server that makes a mistake at every n-th message, up to 25 mistakes. The server carries out
/// requests in any order, and after some mistakes loses data that was not flushed.
struct Faulty {
    storage: Storage,
    numbers: Numbers,
    flags: u16,
    every: u64,
    messages: u64,
    faults_left: u64,
}

struct Cut;

impl Faulty {
    fn new(seed: u64) -> Faulty {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let fua = if numbers.below(2) == 0 { FUA } else { 0 };
        let flags = 1 | FLUSH | TRIM | ZEROES | fua;
        let every = 2 + numbers.below(60);
        Faulty { storage: Storage::new(), numbers, flags, every, messages: 0, faults_left: 25 }
    }

    fn is_at_fault(&mut self) -> bool {
        self.messages += 1;
        let fault = self.faults_left > 0 && self.messages.is_multiple_of(self.every);
        self.faults_left -= u64::from(fault);
        fault
    }

    fn serve(&mut self, mut client: UnixStream) {
        let mut hello = [greeting(), export(SIZE, self.flags), answer(1, &[])].concat();
        if self.is_at_fault() {
            hello.truncate(self.numbers.below(hello.len() as u64) as usize);
        }
        let _ = client.write_all(&hello);
        if client.read_exact(&mut [0; ASKED_BYTES]).is_err() {
            return;
        }
        let mut at_hand = Vec::new();
        while let Some(heard) = hear(&mut client) {
            at_hand.push(heard);
            let more = at_hand.len() < 6 && is_readable(&client) && self.numbers.below(4) > 0;
            while !more && !at_hand.is_empty() {
                let next = self.numbers.below(at_hand.len() as u64) as usize;
                if self.answer(&mut client, &at_hand.swap_remove(next)).is_err() {
                    if self.numbers.below(2) == 0 {
                        self.storage.restart(&mut self.numbers);
                    }
                    return;
                }
            }
        }
    }

    fn answer(&mut self, client: &mut UnixStream, heard: &Heard) -> Result<(), Cut> {
        let fault = self.is_at_fault().then(|| self.numbers.below(6));
        let mut said = match fault {
            Some(0) => return Err(Cut),
            Some(1) => reply(108, heard.cookie, &[]),
            _ => {
                let read = self.storage.apply(heard);
                reply(0, heard.cookie, &read)
            }
        };
        match fault {
            Some(2) => return Err(Cut),
            Some(3) => said.truncate(self.numbers.below(said.len() as u64) as usize),
            Some(4) => said[0] ^= 1,
            Some(5) => said[15] ^= 0x80,
            _ => {}
        }
        let sent = client.write_all(&said);
        if fault.is_some() || sent.is_err() { Err(Cut) } else { Ok(()) }
    }
}

fn is_readable(client: &UnixStream) -> bool {
    let mut ready = Vec::with_capacity(1);
    let epoll = Epoll::new().unwrap();
    epoll.add(client.as_raw_fd(), epoll::IN, 0).unwrap();
    epoll.wait(&mut ready, Deadline::NOW);
    !ready.is_empty()
}

struct Served<T> {
    folder: tempfile::TempDir,
    stops: Arc<AtomicBool>,
    thread: thread::JoinHandle<T>,
}

impl<T: Send + 'static> Served<T> {
    fn start(mut server: T, serve: impl Fn(&mut T, UnixStream) + Send + 'static) -> Served<T> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = stops.clone();
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Relaxed) {
                    break;
                }
                serve(&mut server, client.unwrap());
            }
            server
        });
        Served { folder, stops, thread }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn stop(self) -> T {
        self.stops.store(true, Relaxed);
        drop(UnixStream::connect(self.socket()));
        self.thread.join().unwrap()
    }
}

fn ask_for_some(rig: &mut Rig, numbers: &mut Numbers, model: &mut [u8], step: &mut u8) {
    let count = 1 + numbers.below(12) as u32;
    for slot in 0..count {
        let range = numbers.range();
        let (place, tag) = (range.start as usize..range.end as usize, Tag { slot, ..TAG });
        if numbers.below(6) == 0 {
            rig.disk.flush(&rig.image, &rig.image.join(), tag);
            continue;
        }
        let mut chunk = rig.disk.pool().take(place.len());
        if numbers.below(4) == 0 {
            rig.disk.read(&rig.image, chunk, range.start, tag);
            continue;
        }
        *step = step.wrapping_add(1);
        chunk.data_mut().fill(*step);
        // With a journal, overlapping writes take effect in the order in which the test makes them.
        model[place].fill(*step);
        rig.disk.write(&rig.image, chunk, range.start, false, tag);
    }
    for _ in 0..count {
        let ended = next_end(&mut rig.disk, &rig.epoll);
        assert_eq!(ended.result, Ok(()));
        ended.chunk.into_iter().for_each(|chunk| rig.disk.pool().give_back(chunk));
    }
}

/// Runs requests to a faulty server, through a cache of `cache_bytes` unless this is 0. Returns how
/// often the client reconnected, how many changes it repeated, and how many reads the cache
/// answered.
fn survives(seed: u64, cache_bytes: u64) -> [u64; 3] {
    let server = Served::start(Faulty::new(seed), Faulty::serve);
    // A client does not retry its first connection, so the test opens the image until this
    // succeeds.
    let mut rig = (0..30)
        .find_map(|_| support::open_with(&cached(&server.socket(), LONG, cache_bytes)).ok())
        .map(|(nowait, image)| Rig::of(&nowait, image))
        .expect("it lets us in at last");
    let (mut numbers, mut model, mut step) = (Numbers(seed), vec![0; SIZE as usize], 0);
    for _ in 0..60 {
        ask_for_some(&mut rig, &mut numbers, &mut model, &mut step);
        let range = numbers.range();
        let place = range.start as usize..range.end as usize;
        match numbers.below(8) {
            0 => assert_eq!(rig.flush(), Ok(())),
            1 => {
                model[place].fill(0);
                let zero =
                    BlockingTask::Zero { range, allocated: false, fast: false, durable: false };
                assert_eq!(rig.run(zero), Ok(()));
            }
            2 => {
                model[place].fill(0);
                assert_eq!(rig.run(BlockingTask::Discard { range, durable: true }), Ok(()));
            }
            3 => {
                model[place.clone()].fill(77);
                assert_eq!(rig.write(range.start, &vec![77; place.len()], true), Ok(()));
            }
            _ => assert!(rig.read(range).unwrap() == model[place], "seed {seed}: read"),
        }
    }
    assert_eq!(rig.flush(), Ok(()));
    let counts = rig.connection();
    assert_eq!(counts.kept_bytes, 0, "all is flushed");
    drop(rig);
    let storage = server.stop().storage;
    assert!(storage.durable == model, "seed {seed}: what was flushed is lost");
    [counts.reconnects, counts.repeated, counts.cache.hits]
}

fn survive(cache_bytes: u64) -> [u64; 3] {
    let mut sums = [0; 3];
    for seed in 0..40 {
        let counts = survives(seed, cache_bytes);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

#[test]
fn flushed_data_survives_whatever_a_server_does() {
    let [reconnects, repeated, hits] = survive(0);
    assert!(reconnects > 100 && repeated > 100, "{reconnects} times, {repeated} changes");
    assert_eq!(hits, 0);
}

/// The cache has no room for all of the image.
#[test]
fn cached_data_is_correct_whatever_a_server_does() {
    let [reconnects, repeated, hits] = survive(SIZE * 3 / 4);
    assert!(reconnects > 100 && repeated > 100, "{reconnects} times, {repeated} changes");
    assert!(hits > 100, "{hits}");
}

#[test]
fn reads_of_cached_data_do_not_wait_for_the_server() {
    let server = Served::start((Storage::new(), 0), |(storage, clients), client| {
        *clients += 1;
        let first = *clients == 1;
        let _ = serve_until(storage, client, (SIZE, CAN), |heard| first && heard.kind == 0);
    });
    let mut rig = Rig::with(&cached(&server.socket(), LONG, SIZE));
    assert_eq!(rig.write(0, &[1; 8192], false), Ok(()));
    let chunk = rig.disk.pool().take(4096);
    rig.disk.read(&rig.image, chunk, 8192, Tag { slot: 1, ..TAG });
    assert_eq!(rig.read(4096..8192), Ok(vec![1; 4096]));
    assert_eq!(rig.connection().cache.hits, 1);
    let support::Rig { mut disk, epoll, image } = rig;
    drop(image);
    let ended = next_end(&mut disk, &epoll);
    assert_eq!((ended.tag.slot, ended.result), (1, Err(Errno::IO)));
    disk.pool().give_back(ended.chunk.unwrap());
    server.stop();
}

/// Greets a client, and answers its requests from the storage until `ends` returns `true` for a
/// request; then waits until the client leaves, and returns this request. `None`: the client has
/// left before.
fn serve_until(
    storage: &mut Storage,
    mut client: UnixStream,
    (size, flags): (u64, u16),
    mut ends: impl FnMut(&Heard) -> bool,
) -> io::Result<Option<Heard>> {
    client.write_all(&[greeting(), export(size, flags), answer(1, &[])].concat())?;
    client.read_exact(&mut [0; ASKED_BYTES])?;
    while let Some(heard) = hear(&mut client) {
        if ends(&heard) {
            wait_until_left(&client);
            return Ok(Some(heard));
        }
        let read = storage.apply(&heard);
        client.write_all(&reply(0, heard.cookie, &read))?;
    }
    Ok(None)
}

const CAN: u16 = 1 | FLUSH | FUA | ZEROES;

#[test]
fn a_stalled_server_is_replaced_by_the_next() {
    let server = Served::start((Storage::new(), 0), |(storage, clients), client| {
        *clients += 1;
        let still = *clients == 1;
        let mut kinds = 0;
        let ends = |_: &Heard| {
            kinds += 1;
            still && kinds == 2
        };
        serve_until(storage, client, (SIZE, CAN), ends).unwrap();
    });
    let patience = Patience { silence: Duration::from_millis(20), ..LONG };
    let mut rig = Rig::patient(&server.socket(), patience);
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()));
    assert_eq!(rig.write(4096, &[2; 4096], false), Ok(()), "by the second connection");
    assert_eq!(rig.flush(), Ok(()));
    assert!(rig.connection().reconnects >= 1);
    assert!(rig.connection().repeated >= 1);
    drop(rig);
    let (storage, _) = server.stop();
    assert!(storage.durable[..8192] == [[1; 4096], [2; 4096]].concat());
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(text: &str) {
    SAID.lock().push(text.to_owned());
}

fn was_said(text: &str) -> bool {
    SAID.lock().iter().any(|said| said.contains(text))
}

/// A proxy whose server is away accepts connections and closes them.
#[test]
fn a_server_that_accepts_and_hangs_up_is_reported_once() {
    let server = Served::start((Storage::new(), 0), |(storage, clients), client| {
        *clients += 1;
        let hello = [greeting(), export(SIZE, CAN), answer(1, &[])].concat();
        if *clients > 6 {
            let _ = serve_until(storage, client, (SIZE, CAN), |_| false);
        } else if (&client).write_all(&hello).is_ok() {
            let _ = (&client).read_exact(&mut [0; ASKED_BYTES]);
        }
    });
    let mut rig = Rig::patient(&server.socket(), Patience { say: Some(note), ..LONG });
    assert_eq!(rig.read(0..4096), Ok(vec![0; 4096]));
    assert_eq!(rig.connection().reconnects, 6);
    let address = server.socket().display().to_string();
    let count = |text: &str| {
        let said = SAID.lock();
        said.iter().filter(|said| said.contains(&address) && said.contains(text)).count()
    };
    assert_eq!((count("the connection is lost"), count("connected again")), (1, 1));
    drop(rig);
    server.stop();
}

#[test]
fn all_requests_fail_when_a_server_stays_away_for_too_long() {
    let server = Served::start(Storage::new(), |storage, client| {
        let served = serve_until(storage, client, (SIZE, CAN), |heard| heard.kind == 0);
        assert!(served.unwrap().is_some());
    });
    let patience = Patience {
        outage: Duration::from_millis(200),
        silence: Duration::from_millis(50),
        say: Some(note),
        ..Patience::default()
    };
    let mut rig = Rig::patient(&server.socket(), patience);
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()));
    assert_eq!(rig.read(0..4096), Err(Errno::IO), "connected again and again, and never answered");
    assert_eq!(rig.flush(), Err(Errno::IO));
    assert_eq!(rig.write(0, &[1; 4096], true), Err(Errno::IO));
    assert!(!rig.connection().is_up);
    assert!(was_said("does not answer; requests wait for the next one"));
    assert!(was_said("every request fails from now on"));
    drop(rig);
    server.stop();
}

#[test]
fn a_server_that_has_gone_for_good_fails_all_requests() {
    let server = Served::start(Storage::new(), |storage, client| {
        let mut until = client.try_clone().unwrap();
        let mut reads = false;
        let ended = serve_until(storage, client, (SIZE, CAN), |heard| {
            reads |= heard.kind == 0;
            if reads {
                let _ = until.shutdown(std::net::Shutdown::Both);
                let _ = until.flush();
            }
            reads
        });
        drop(ended);
    });
    let outage = Duration::from_millis(100);
    let mut rig = Rig::patient(&server.socket(), Patience { outage, ..LONG });
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()));
    let socket = server.socket();
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(rig.read(0..4096), Err(Errno::IO));
    assert_eq!(rig.flush(), Err(Errno::IO), "the write may be lost");
    drop(rig);
    UnixListener::bind(&socket).unwrap();
    drop(server);
}

#[test]
fn an_image_that_is_closed_does_not_wait_for_its_server() {
    let server = Served::start(Storage::new(), |storage, client| {
        let _ = serve_until(storage, client, (SIZE, CAN), |_| true);
    });
    let rig = Rig::patient(&server.socket(), LONG);
    let support::Rig { mut disk, epoll, image } = rig;
    std::fs::remove_file(server.socket()).unwrap();
    for slot in 0..20 {
        let chunk = disk.pool().take(PIECE_BYTES);
        disk.write(&image, chunk, 0, false, Tag { slot, ..TAG });
    }
    drop(image);
    for _ in 0..20 {
        let ended = next_end(&mut disk, &epoll);
        assert_eq!(ended.result, Err(Errno::IO));
        disk.pool().give_back(ended.chunk.unwrap());
    }
    drop(server);
}

#[test]
fn a_server_with_another_image_fails_all_requests() {
    let (other_size, other_flags) = ((SIZE / 2, CAN), (SIZE, CAN & !FUA));
    for (second, expected) in
        [(other_size, "bytes now, before"), (other_flags, "capabilities changed")]
    {
        let server = Served::start((Storage::new(), 0), move |(storage, clients), client| {
            *clients += 1;
            let first = *clients == 1;
            let what = if first { (SIZE, CAN) } else { second };
            let _ = serve_until(storage, client, what, |heard| first && heard.kind == 0);
        });
        let patience = Patience { silence: Duration::from_millis(20), say: Some(note), ..LONG };
        let mut rig = Rig::patient(&server.socket(), patience);
        assert_eq!(rig.read(0..4096), Err(Errno::IO));
        assert_eq!(rig.flush(), Err(Errno::IO));
        assert!(was_said(expected), "{expected}");
        drop(rig);
        server.stop();
    }
}

#[test]
fn an_acknowledged_write_that_is_refused_later_fails_all_requests() {
    let server = Served::start((Storage::new(), 0), |(storage, clients), mut client| {
        *clients += 1;
        if *clients == 1 {
            let _ = serve_until(storage, client, (SIZE, CAN), |heard| heard.kind == 0);
            return;
        }
        client.write_all(&[greeting(), export(SIZE, CAN), answer(1, &[])].concat()).unwrap();
        client.read_exact(&mut [0; ASKED_BYTES]).unwrap();
        let heard = hear(&mut client).unwrap();
        assert_eq!((heard.kind, heard.bytes), (1, vec![1; 4096]), "first what was acknowledged");
        client.write_all(&reply(28, heard.cookie, &[])).unwrap();
        wait_until_left(&client);
    });
    let patience = Patience { silence: Duration::from_millis(20), say: Some(note), ..LONG };
    let mut rig = Rig::patient(&server.socket(), patience);
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()));
    assert_eq!(rig.read(0..4096), Err(Errno::IO));
    assert_eq!(rig.flush(), Err(Errno::IO));
    assert!(was_said("refuses a write that it had acknowledged"));
    drop(rig);
    server.stop();
}

const KEPT_MAX: u64 = 64 << 20;

fn write_much(rig: &mut Rig, mut check: impl FnMut(&Rig)) -> Result<(), Errno> {
    let mut outcome = Ok(());
    for _ in 0..8 {
        for slot in 0..64 {
            let chunk = rig.disk.pool().take(PIECE_BYTES);
            let at = u64::from(slot) % 4 * PIECE_BYTES as u64;
            rig.disk.write(&rig.image, chunk, at, false, Tag { slot, ..TAG });
        }
        for _ in 0..64 {
            let ended = next_end(&mut rig.disk, &rig.epoll);
            outcome = outcome.and(ended.result);
            rig.disk.pool().give_back(ended.chunk.unwrap());
            check(rig);
        }
    }
    outcome
}

#[test]
fn flushes_bound_the_size_of_the_journal() {
    let server = Served::start((Storage::new(), 0), |(storage, flushes), client| {
        let count = |heard: &Heard| {
            *flushes += u64::from(heard.kind == 3);
            false
        };
        serve_until(storage, client, (SIZE, CAN), count).unwrap();
    });
    let mut rig = Rig::patient(&server.socket(), LONG);
    let mut most = 0;
    write_much(&mut rig, |rig| most = most.max(rig.connection().kept_bytes)).unwrap();
    assert!(most > KEPT_MAX / 4 && most <= KEPT_MAX, "{most} bytes");
    drop(rig);
    let (_, flushes) = server.stop();
    assert!(flushes >= 2, "{flushes}");
}

/// No client has asked for this flush, so no client would learn of its failure otherwise.
#[test]
fn a_failed_flush_for_journal_room_fails_all_requests() {
    let server = Served::start((), |(), mut client| {
        client.write_all(&[greeting(), export(SIZE, CAN), answer(1, &[])].concat()).unwrap();
        client.read_exact(&mut [0; ASKED_BYTES]).unwrap();
        while let Some(heard) = hear(&mut client) {
            let error = if heard.kind == 3 { 5 } else { 0 };
            if client.write_all(&reply(error, heard.cookie, &[])).is_err() {
                return;
            }
        }
    });
    let mut rig = Rig::patient(&server.socket(), Patience { say: Some(note), ..LONG });
    assert_eq!(write_much(&mut rig, |_| {}), Err(Errno::IO));
    assert_eq!(rig.flush(), Err(Errno::IO));
    assert!(was_said("cannot make written data durable"));
    drop(rig);
    server.stop();
}
