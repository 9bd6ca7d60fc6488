//! The power fails during NBD writes: no data that was acknowledged as durable is lost.
//!
//! Sessions, [`Disk`], queue, workers and page cache are those of a server; only the workers' calls
//! go to a simulated device instead of the kernel. Clients write whole sectors, sometimes with FUA,
//! and flush. The oracle records the replies, and judges the data that is left after the cut.
//! Two connections use one image, which the protocol allows: a flush on one connection makes the
//! acknowledged writes of the other connection durable.
//!
//! The threads are real: a seed decides the requests and the device's faults, but not the order of
//! several requests in flight.

#[path = "support/carried.rs"]
mod carried;

use carried::Carried;
use nowait::{Errno, Nowait};
use nowait_block::{Bio, BlockBackend, backends::threads::Carry};
use nowait_device::{AnySource, BlockingTasks, Cache, Disk, Image, ImageOptions, Mailbox, Medium};
use nowait_file::parts::Parts;
use nowait_server::nbd::{Limits, Security, Session};
use nowait_sim::{Config, Cut, Faults, Lies, Oracle, Prng, SimDevice};
use nowait_sys::{
    epoll::{self, Epoll},
    time::Deadline,
};
use std::{collections::BTreeMap, io::IoSlice, os::fd::AsRawFd, sync::Arc, sync::Mutex};
use tempfile::TempDir;

const FD: i32 = 3;
const SECTOR: u64 = 512;
const SECTORS: u64 = 6144;
/// A test fails if it waits longer for an end of a request.
const HANG_NS: u64 = 60_000_000_000;

/// Returns a function that carries bios to the one file of a simulated device, whatever their
/// descriptor. Several threads may call the function at the same time, each with a queue of its own
/// on the device.
fn carry_to(device: &SimDevice) -> Carry {
    let (device, spare) = (device.clone(), Mutex::new(Vec::new()));
    Arc::new(move |bio: &Bio| {
        let queue = spare.lock().unwrap().pop().unwrap_or_else(|| device.another_queue(1));
        let mut bio = bio.clone();
        (bio.fd, bio.file) = (FD, None);
        queue.queue(bio).expect("one at a time");
        queue.commit();
        let mut done = Vec::new();
        queue.reap(&mut done, 1, Deadline::NEVER)?;
        spare.lock().unwrap().push(queue);
        done.remove(0).result.map(|bytes| bytes as usize)
    })
}

const CONNECTIONS: usize = 2;
/// Less than the image, so that pages are also written back to make room.
const CACHE_BYTES: u64 = 2 << 20;

struct Connection {
    session: Session<AnySource>,
    heard: Vec<u8>,
}

impl Connection {
    /// Chooses the export without a name by the old option; skips the greeting and the answer.
    fn new(owner: u64, images: &Arc<[Arc<Image>]>, disk: &mut Disk) -> Connection {
        let session = Session::new(owner, images, Security::Plain, Limits::default());
        let mut connection = Connection { session, heard: Vec::new() };
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
        connection.session.receive(0, &hello, disk, 0);
        connection.listen(disk);
        connection.heard.clear();
        connection
    }

    fn listen(&mut self, disk: &mut Disk) {
        while !self.session.is_sent() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = self.session.unsent(&mut slices);
            let bytes: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            slices[..count].iter().for_each(|slice| self.heard.extend_from_slice(slice));
            self.session.sent(bytes, disk);
        }
    }
}

struct Run {
    connections: Vec<Connection>,
    disk: Disk,
    epoll: Epoll,
    device: SimDevice,
    /// The unit of writes, in sectors.
    unit: u64,
    oracle: Oracle,
    prng: Prng,
    cookie: u64,
    /// Requests without a reply yet, and the bytes that they write.
    waiting: BTreeMap<u64, u32>,
    _folder: TempDir,
}

impl Run {
    fn new(config: &Config, cache: Cache) -> Run {
        let device = SimDevice::new(config);
        let mut oracle = Oracle::new(config.sector_bytes);
        device.create(FD, SECTORS * SECTOR);
        oracle.create(FD, SECTORS * SECTOR);
        // The file gives the image its size. All reads and writes go to the simulated device.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(SECTORS * SECTOR).unwrap();
        let backends = Box::new(Carried(carry_to(&device)));
        let parts = Parts::of_backends(backends, "it is simulated".to_owned());
        let nowait = Nowait::builder().cache_bytes(CACHE_BYTES).build_of(parts);
        let nowait = nowait.unwrap();
        let sector_bytes = (cache == Cache::User).then_some(SECTOR as u32);
        let options = ImageOptions { path, cache, sector_bytes, ..ImageOptions::default() };
        let image = Arc::new(Image::open(&nowait, &options).unwrap());
        let unit = u64::from(image.properties().sector_bytes) / SECTOR;
        let images = Arc::from([image]);
        let mailbox = Mailbox::new().unwrap();
        let (epoll, tasks_end) = (Epoll::new().unwrap(), mailbox.raw());
        let mut disk = Disk::new(&nowait, &BlockingTasks::new(1), mailbox, 64 << 20).unwrap();
        epoll.add(tasks_end, epoll::IN, 0).unwrap();
        for fd in disk.descriptors().unwrap() {
            epoll.add(fd.as_raw_fd(), epoll::IN, 0).unwrap();
        }
        let connect = |owner| Connection::new(owner as u64, &images, &mut disk);
        Run {
            connections: (0..CONNECTIONS).map(connect).collect(),
            disk,
            epoll,
            device,
            unit,
            oracle,
            prng: Prng::new(!config.seed),
            cookie: 0,
            waiting: BTreeMap::new(),
            _folder: folder,
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        let which = self.prng.below(CONNECTIONS as u64) as usize;
        self.connections[which].session.receive(0, bytes, &mut self.disk, 0);
    }

    fn step(&mut self) {
        match self.prng.weighted(&[50, 15, 15, 20]) {
            0 | 1 if self.waiting.len() < 40 => self.write(),
            2 if self.waiting.len() < 40 => {
                self.ask(0);
                self.oracle.begin_flush(self.cookie, FD);
                let flush = self.header(3, 0, 0, 0);
                self.say(&flush);
            }
            _ => self.turn(),
        }
    }

    fn write(&mut self) {
        // Sometimes write so much that the session divides it into chunks.
        let most = if self.prng.chance(100_000) { 1200 } else { 16 };
        let first = self.prng.below(SECTORS / self.unit) * self.unit;
        let most = (most.min(SECTORS - first) / self.unit).max(1);
        let count = (1 + self.prng.below(most)) * self.unit;
        let flags = u16::from(self.prng.chance(300_000));
        self.ask((count * SECTOR) as u32);
        let mut data = Vec::with_capacity((count * SECTOR) as usize);
        for sector in 0..count {
            let tag = (self.cookie << 12 | sector).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            data.extend(tag.to_le_bytes().repeat(SECTOR as usize / 8));
        }
        let durable = flags != 0;
        self.oracle.begin_write(self.cookie, FD, first * SECTOR, &data, durable);
        let header = self.header(1, flags, first * SECTOR, (count * SECTOR) as u32);
        self.say(&[header, data].concat());
    }

    fn ask(&mut self, len: u32) {
        self.cookie += 1;
        self.waiting.insert(self.cookie, len);
    }

    fn header(&self, command: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = nowait_device::nbd::REQUEST.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    fn turn(&mut self) {
        self.disk.start();
        if !self.disk.is_idle() {
            let (epoll, mut ready) = (&self.epoll, Vec::with_capacity(4));
            let limit = Deadline::after_ns(HANG_NS);
            self.disk.sleep(|| epoll.wait(&mut ready, limit)).unwrap();
            assert!(!limit.has_passed(), "nothing ends any more");
        }
        while let Some(ended) = self.disk.pop() {
            let owner = ended.tag.owner as usize;
            self.connections[owner].session.end(ended, &mut self.disk, 0);
        }
        let mut heard = Vec::new();
        for connection in &mut self.connections {
            connection.session.retry(&mut self.disk, 0);
            connection.listen(&mut self.disk);
            heard.append(&mut connection.heard);
        }
        for reply in heard.chunks(16) {
            let number = |from: usize, to: usize| {
                reply[from..to].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let (error, cookie) = (number(4, 8), number(8, 16));
            assert_eq!(number(0, 4), u64::from(nowait_device::nbd::SIMPLE_REPLY));
            let len = self.waiting.remove(&cookie).expect("answered once");
            self.oracle.end(cookie, if error == 0 { Ok(len) } else { Err(Errno::IO) });
        }
    }

    fn drain(&mut self) {
        while !self.waiting.is_empty() {
            self.turn();
        }
    }
}

/// Runs clients, cuts the power meanwhile or afterwards, and returns the verdict of the oracle.
fn cut(seed: u64, faults: Faults, cache: Cache) -> Result<(), String> {
    let config = Config { faults, ..Config::new(seed) };
    let mut run = Run::new(&config, cache);
    let mut prng = Prng::new(seed ^ 0x5eed);
    let n = prng.below(120);
    run.device.cut_at(if prng.chance(500_000) { Cut::Queued(n) } else { Cut::Completed(n) });
    for _ in 0..200 {
        run.step();
    }
    run.device.cut_power();
    run.drain();
    for again in 0..3 {
        let after = run.device.reboot(&config, &mut Prng::new(seed + again));
        let left = after.contents(FD).expect("the descriptors are the same");
        run.oracle.judge(FD, &left).map_err(|violation| format!("seed {seed}: {violation}"))?;
    }
    Ok(())
}

fn nothing_is_lost(seeds: core::ops::Range<u64>, cache: Cache, faults: impl Fn(u64) -> Faults) {
    for seed in seeds {
        if let Err(found) = cut(seed, faults(seed), cache) {
            panic!("{found}");
        }
    }
}

/// Returns random faults, but no lies, and no writes that end inside a sector, because the oracle
/// knows only whole sectors.
fn swarm(seed: u64) -> Faults {
    Faults { short_odd_ppm: 0, ..Faults::swarm(&mut Prng::new(seed)) }
}

#[test]
fn nothing_acknowledged_is_lost_in_a_power_cut() {
    nothing_is_lost(0..100, Cache::None, |_| Faults::volatile_cache());
}

#[test]
fn nothing_acknowledged_is_lost_on_devices_with_other_faults() {
    nothing_is_lost(0..60, Cache::None, swarm);
}

#[test]
fn nothing_acknowledged_is_lost_from_the_page_cache() {
    nothing_is_lost(0..60, Cache::User, |_| Faults::volatile_cache());
}

#[test]
fn nothing_acknowledged_is_lost_from_the_page_cache_on_devices_with_other_faults() {
    nothing_is_lost(0..60, Cache::User, swarm);
}

#[test]
fn canary_a_device_that_ignores_flushes_is_found_out() {
    let faults = || Faults { lies: Some(Lies::IgnoreFlush), ..Faults::volatile_cache() };
    for cache in [Cache::None, Cache::User] {
        let found = (0..20).filter(|seed| cut(*seed, faults(), cache).is_err()).count();
        assert!(found > 10, "{cache:?}: found {found} of 20");
    }
}
