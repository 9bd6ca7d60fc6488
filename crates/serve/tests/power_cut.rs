//! The power fails under NBD writes: nothing that was acknowledged as durable is lost.
//!
//! The protocol runs on the simulated device. Clients write whole sectors, some of them with FUA,
//! and flush; what they were told goes to the oracle, which judges what is left after the cut.
//! There are two connections to one image, which may do that: a flush by one makes durable what the
//! other was told is written.

use nowait::{Errno, IoBuffer, IoBufferMut};
use nowait_block::{Bio, BioOp, BlockBackend, Completion, Segments};
use nowait_export::{Chore, Chunk, Ended, Image, Medium, Pool, Properties, Tag};
use nowait_serve::nbd::{Limits, Security, Session};
use nowait_sim::{Config, Cut, Faults, Lies, Oracle, Prng, SimDevice};
use nowait_sys::{
    file::{IoVec, rwf},
    time::Deadline,
};
use std::{
    collections::{BTreeMap, VecDeque},
    io::IoSlice,
    sync::Arc,
};

const FD: i32 = 3;
const SECTOR: u64 = 512;
const SECTORS: u64 = 2048;

/// A simulated device as the medium of an image.
struct SimMedium {
    device: SimDevice,
    pool: Pool,
    open: BTreeMap<u64, (Tag, Option<Chunk>)>,
    next: u64,
    ended: VecDeque<Ended>,
}

impl SimMedium {
    fn queue(&mut self, op: BioOp, mut chunk: Option<Chunk>, offset: u64, flags: u32, tag: Tag) {
        let segments = match &mut chunk {
            Some(chunk) => {
                Segments::One(IoVec { base: chunk.as_mut_ptr(), len: IoBuffer::len(chunk) })
            }
            None => Segments::NONE,
        };
        // SAFETY: the chunk is kept in `open` until the completion was reaped.
        let mut bio = unsafe { Bio::new(op, FD, segments, offset as i64, self.next) };
        bio.rw_flags = flags;
        self.device.queue(bio).expect("the client has few requests under way");
        self.open.insert(self.next, (tag, chunk));
        self.next += 1;
    }

    /// Starts what was queued, and takes what has completed; waits for one.
    fn turn(&mut self) {
        self.device.commit();
        let mut done = Vec::new();
        let min = usize::from(!self.open.is_empty());
        self.device.reap(&mut done, min, Deadline::NEVER).expect("nothing can interrupt this");
        for Completion { token, result } in done {
            let (tag, chunk) = self.open.remove(&token).expect("completes once");
            let whole = |bytes| chunk.as_ref().is_none_or(|c| IoBuffer::len(c) == bytes as usize);
            let result = match result {
                Ok(bytes) if whole(bytes) => Ok(()),
                Ok(_) => Err(Errno::IO),
                Err(errno) => Err(errno),
            };
            self.ended.push_back(Ended { tag, result, chunk, extents: Vec::new() });
        }
    }
}

impl Medium for SimMedium {
    type File = ();

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn read(&mut self, _: &Arc<Image<()>>, chunk: Chunk, offset: u64, tag: Tag) {
        self.queue(BioOp::Read, Some(chunk), offset, 0, tag);
    }

    fn write(&mut self, _: &Arc<Image<()>>, chunk: Chunk, offset: u64, durable: bool, tag: Tag) {
        let flags = if durable { rwf::DSYNC } else { 0 };
        self.queue(BioOp::Write, Some(chunk), offset, flags, tag);
    }

    fn flush(&mut self, _: &Arc<Image<()>>, tag: Tag) {
        self.queue(BioOp::Fdatasync, None, 0, 0, tag);
    }

    fn run(&mut self, _: &Arc<Image<()>>, _: Chore, tag: Tag) {
        self.ended.push_back(Ended::plain(tag, Err(Errno::OPNOTSUPP)));
    }

    fn pop(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }
}

const CONNECTIONS: usize = 2;

/// One connection, and what was said on it.
struct Connection {
    session: Session<()>,
    heard: Vec<u8>,
}

impl Connection {
    /// Chooses the export without a name by the old way; the greeting and the answer are passed
    /// over.
    fn new(owner: u64, images: &Arc<[Arc<Image<()>>]>, medium: &mut SimMedium) -> Connection {
        let session = Session::new(owner, images, Security::Plain, Limits::default());
        let mut connection = Connection { session, heard: Vec::new() };
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
        connection.session.receive(0, &hello, medium, 0);
        connection.listen(medium);
        connection.heard.clear();
        connection
    }

    fn listen(&mut self, medium: &mut SimMedium) {
        while !self.session.is_sent() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = self.session.unsent(&mut slices);
            let bytes: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            slices[..count].iter().for_each(|slice| self.heard.extend_from_slice(slice));
            self.session.sent(bytes, medium);
        }
    }
}

/// A client that does random things, and what it was told.
struct Run {
    connections: Vec<Connection>,
    medium: SimMedium,
    oracle: Oracle,
    prng: Prng,
    cookie: u64,
    /// Requests without a reply yet, and how many bytes they write.
    waiting: BTreeMap<u64, u32>,
}

impl Run {
    fn new(config: &Config) -> Run {
        let device = SimDevice::new(config);
        let mut oracle = Oracle::new(config.sector_bytes);
        device.create(FD, SECTORS * SECTOR);
        oracle.create(FD, SECTORS * SECTOR);
        let properties = Properties {
            read_only: false,
            sector_bytes: 512,
            preferred_bytes: 4096,
            caches: false,
        };
        let image = Arc::new(Image::new("disk", properties, 0, SECTORS * SECTOR, ()));
        let images = Arc::from([image]);
        let (pool, open, ended) = (Pool::new(64 << 20), BTreeMap::new(), VecDeque::new());
        let mut medium = SimMedium { device, pool, open, next: 0, ended };
        let connect = |owner| Connection::new(owner as u64, &images, &mut medium);
        Run {
            connections: (0..CONNECTIONS).map(connect).collect(),
            medium,
            oracle,
            prng: Prng::new(!config.seed),
            cookie: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Says something on one of the connections.
    fn say(&mut self, bytes: &[u8]) {
        let which = self.prng.below(CONNECTIONS as u64) as usize;
        self.connections[which].session.receive(0, bytes, &mut self.medium, 0);
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
        // Now and then one that the session cuts into pieces.
        let most = if self.prng.chance(50_000) { 1200 } else { 16 };
        let first = self.prng.below(SECTORS);
        let count = 1 + self.prng.below(most.min(SECTORS - first));
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
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    /// Lets the device get on, and tells the oracle what the client was told.
    fn turn(&mut self) {
        self.medium.turn();
        while let Some(ended) = self.medium.pop() {
            let owner = ended.tag.owner as usize;
            self.connections[owner].session.end(ended, &mut self.medium, 0);
        }
        let mut heard = Vec::new();
        for connection in &mut self.connections {
            connection.session.retry(&mut self.medium, 0);
            connection.listen(&mut self.medium);
            heard.append(&mut connection.heard);
        }
        for reply in heard.chunks(16) {
            let number = |from: usize, to: usize| {
                reply[from..to].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let (error, cookie) = (number(4, 8), number(8, 16));
            assert_eq!(number(0, 4), 0x6744_6698);
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

/// Runs a client into a power cut; tells what the oracle finds.
fn cut(seed: u64, faults: Faults) -> Result<(), String> {
    let config = Config { faults, ..Config::new(seed) };
    let mut run = Run::new(&config);
    let mut prng = Prng::new(seed ^ 0x5eed);
    let n = prng.below(120);
    run.medium.device.cut_at(if prng.chance(500_000) { Cut::Queued(n) } else { Cut::Completed(n) });
    for _ in 0..200 {
        run.step();
    }
    run.medium.device.cut_power();
    run.drain();
    for again in 0..3 {
        let after = run.medium.device.reboot(&config, &mut Prng::new(seed + again));
        let left = after.contents(FD).expect("the descriptors are the same");
        run.oracle.judge(FD, &left).map_err(|violation| format!("seed {seed}: {violation}"))?;
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_in_a_power_cut() {
    for seed in 0..150 {
        if let Err(found) = cut(seed, Faults::volatile_cache()) {
            panic!("{found}");
        }
    }
}

#[test]
fn nor_on_devices_with_other_faults() {
    for seed in 0..100 {
        let mut faults = Faults::swarm(&mut Prng::new(seed));
        faults.lies = None;
        // The engine goes on with short writes; this medium calls them failed, and the oracle does
        // not know failed writes that end inside a sector.
        faults.short_odd_ppm = 0;
        if let Err(found) = cut(seed, faults) {
            panic!("{found}");
        }
    }
}

#[test]
fn canary_a_device_that_ignores_flushes_is_found_out() {
    let faults = || Faults { lies: Some(Lies::IgnoreFlush), ..Faults::volatile_cache() };
    let found = (0..40).filter(|seed| cut(*seed, faults()).is_err()).count();
    assert!(found > 20, "found {found} of 40");
}
