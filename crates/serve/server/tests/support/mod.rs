//! A medium in memory, and an NBD client without a socket.

#![allow(dead_code, reason = "each test uses a part")]

use nowait::{Errno, IoBuffer};
use nowait_device::{
    BlockingTask, Chunk, Extent, Image, KnownFailures, Loan, Medium, Pool, Properties, RequestEnd,
    Tag,
};
use nowait_server::nbd::{Limits, Security, Session};
use std::{collections::VecDeque, io::IoSlice, sync::Arc};

pub(crate) const SIZE: usize = 8 << 20;

/// The size of a fuzzer's image, in bytes: a little more than `PIECE_BYTES`. An input of some
/// hundred bytes can ask for dozens of reads of the whole image, so with a larger image a fuzzer
/// would mostly clear and copy memory.
pub(crate) const SMALL_SIZE: usize = 272 << 10;

/// A medium that holds an image in memory. Requests end when the test wants.
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pool: Pool,
    pub(crate) ended: VecDeque<RequestEnd>,
    pub(crate) failure: Option<Errno>,
    pub(crate) panics: bool,
    pub(crate) flushes: usize,
    pub(crate) durable_writes: usize,
    /// Do not report the ends of requests.
    pub(crate) holds: bool,
    /// Borrow lent memory instead of asking for a copy.
    pub(crate) borrows: bool,
    /// Report every other sector as a hole.
    pub(crate) fragmented: bool,
}

impl Memory {
    pub(crate) fn new(bound: usize) -> Memory {
        Memory::sized(bound, SIZE)
    }

    pub(crate) fn sized(bound: usize, size: usize) -> Memory {
        let (pool, ended) = (Pool::new(bound), VecDeque::new());
        let bytes = vec![0; size];
        Memory {
            bytes,
            pool,
            ended,
            failure: None,
            panics: false,
            flushes: 0,
            durable_writes: 0,
            holds: false,
            borrows: false,
            fragmented: false,
        }
    }

    fn end(&mut self, tag: Tag, chunk: Option<Chunk>, extents: Vec<Extent>) {
        assert!(!core::mem::take(&mut self.panics), "injected");
        let result = self.failure.map_or(Ok(()), Err);
        self.ended.push_back(RequestEnd { tag, result, chunk, extents });
    }
}

impl Medium for Memory {
    type File = ();

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn read(&mut self, _: &Arc<Image<()>>, mut chunk: Chunk, offset: u64, tag: Tag) {
        let len = chunk.data().len();
        chunk.data_mut().copy_from_slice(&self.bytes[offset as usize..][..len]);
        self.end(tag, Some(chunk), Vec::new());
    }

    fn write(&mut self, _: &Arc<Image<()>>, chunk: Chunk, offset: u64, durable: bool, tag: Tag) {
        self.durable_writes += usize::from(durable);
        let data = chunk.data();
        self.bytes[offset as usize..][..data.len()].copy_from_slice(data);
        self.end(tag, Some(chunk), Vec::new());
    }

    fn borrow(
        &mut self,
        _: &Arc<Image<()>>,
        loan: Loan,
        offset: u64,
        tag: Tag,
    ) -> Result<(), Loan> {
        if !self.borrows {
            return Err(loan);
        }
        self.durable_writes += usize::from(loan.writes && loan.durable);
        let mut at = offset as usize;
        for segment in &loan.segments {
            let (len, bytes) = (segment.len(), &mut self.bytes[at..]);
            let ours = bytes[..len].as_mut_ptr();
            // SAFETY: the memory is lent as long as the loan lives, and the slice above proves that
            // the range is inside `bytes`.
            unsafe {
                match loan.writes {
                    true => segment.as_ptr().copy_to(ours, len),
                    false => segment.as_ptr().cast_mut().copy_from(ours, len),
                }
            }
            at += len;
        }
        self.end(tag, None, Vec::new());
        Ok(())
    }

    fn flush(&mut self, _: &Arc<Image<()>>, _: &KnownFailures, tag: Tag) {
        self.flushes += 1;
        self.end(tag, None, Vec::new());
    }

    fn run(&mut self, _: &Arc<Image<()>>, task: BlockingTask, tag: Tag) {
        let mut extents = Vec::new();
        match task {
            BlockingTask::Zero { range, .. } | BlockingTask::Discard { range, .. } => {
                self.bytes[range.start as usize..range.end as usize].fill(0);
            }
            BlockingTask::Extents { range, max } if self.fragmented => {
                let sectors = (range.end - range.start) / 512;
                let all = (0..sectors).map(|sector| Extent { len: 512, hole: sector % 2 == 0 });
                extents = all.take(max).collect();
            }
            BlockingTask::Extents { range, max } => {
                let half = (range.end - range.start).div_ceil(2);
                extents.push(Extent { len: half, hole: false });
                if max > 1 && half < range.end - range.start {
                    extents.push(Extent { len: range.end - range.start - half, hole: true });
                }
            }
            _ => {}
        }
        self.end(tag, None, extents);
    }

    fn pop(&mut self) -> Option<RequestEnd> {
        if self.holds { None } else { self.ended.pop_front() }
    }
}

pub(crate) const PLAIN: Properties =
    Properties { read_only: false, sector_bytes: 512, preferred_bytes: 4096, caches: true };

/// Returns two images: `disk`, which is writable, and `fixed`, which is read-only.
pub(crate) fn exports() -> Arc<[Arc<Image<()>>]> {
    let read_only = Properties { read_only: true, ..PLAIN };
    let one = Image::new("disk", PLAIN, 0, SIZE as u64, ());
    let two = Image::new("fixed", read_only, 0, SIZE as u64, ());
    vec![Arc::new(one), Arc::new(two)].into()
}

pub(crate) struct Client {
    pub(crate) session: Session<()>,
    pub(crate) memory: Memory,
    pub(crate) heard: Vec<u8>,
}

impl Client {
    pub(crate) fn new(security: Security, limits: Limits) -> Client {
        Client::of(&exports(), Memory::new(64 << 20), security, limits)
    }

    pub(crate) fn of(
        images: &Arc<[Arc<Image<()>>]>,
        memory: Memory,
        security: Security,
        limits: Limits,
    ) -> Client {
        let session = Session::new(7, images, security, limits);
        let mut client = Client { session, memory, heard: Vec::new() };
        client.run();
        client
    }

    pub(crate) fn on(name: &str, structured: bool, limits: Limits) -> Client {
        let mut client = Client::new(Security::Plain, limits);
        client.choose(name, structured);
        client
    }

    pub(crate) fn choose(&mut self, name: &str, structured: bool) {
        self.say(&3u32.to_be_bytes());
        if structured {
            self.say(&option(8, &[]));
            self.say(&option(10, &contexts(name, &["base:allocation"])));
        }
        self.say(&option(7, &go(name)));
        assert!(!self.session.is_handshake());
        self.heard.clear();
    }

    /// Sends bytes as a socket would deliver them: into the receive buffer first. Drops bytes that
    /// the session does not take.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.offer(bytes);
    }

    /// Like [`Client::say`]; returns how many bytes the session has taken.
    pub(crate) fn offer(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read_budget = self.session.read_budget();
            if read_budget == 0 {
                break;
            }
            let mut filled = 0;
            if let Some(buffer) = self.session.receive_buffer() {
                filled = buffer.len().min(rest.len());
                buffer[..filled].copy_from_slice(&rest[..filled]);
            }
            let after = &rest[filled..];
            let count = read_budget.min(after.len());
            self.session.receive(filled, &after[..count], &mut self.memory, 0);
            rest = &after[count..];
            self.run();
        }
        bytes.len() - rest.len()
    }

    /// Delivers the ends of requests, and takes the output, until neither changes anything.
    pub(crate) fn run(&mut self) {
        loop {
            while let Some(ended) = self.memory.pop() {
                self.session.end(ended, &mut self.memory, 1);
            }
            self.take();
            let went_on = self.session.retry(&mut self.memory, 1);
            if !went_on && (self.memory.ended.is_empty() || self.memory.holds) {
                return self.take();
            }
        }
    }

    pub(crate) fn take(&mut self) {
        while !self.session.is_sent() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = self.session.unsent(&mut slices);
            let mut bytes = 0;
            for slice in &slices[..count] {
                self.heard.extend_from_slice(slice);
                bytes += slice.len();
            }
            self.session.sent(bytes, &mut self.memory);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.session.stop(&mut self.memory, 0);
        self.take();
    }

    pub(crate) fn end_checked(mut self) {
        self.memory.holds = false;
        self.run();
        let Client { session, mut memory, .. } = self;
        session.abandon(&mut memory);
        while let Some(ended) = memory.pop() {
            ended.chunk.into_iter().for_each(|chunk| memory.pool().give_back(chunk));
        }
        assert_eq!(memory.pool().used_bytes(), 0);
    }

    pub(crate) fn next<const N: usize>(&mut self) -> [u8; N] {
        let front: Vec<u8> = self.heard.drain(..N).collect();
        front.try_into().unwrap()
    }

    /// Takes a simple reply: its error and its cookie.
    pub(crate) fn simple(&mut self) -> (u32, u64) {
        assert_eq!(self.next(), nowait_device::nbd::SIMPLE_REPLY.to_be_bytes());
        (u32::from_be_bytes(self.next()), u64::from_be_bytes(self.next()))
    }

    /// Takes a structured reply of one chunk: its type, its cookie, its payload.
    pub(crate) fn structured(&mut self) -> (u16, u64, Vec<u8>) {
        assert_eq!(self.next(), nowait_device::nbd::STRUCTURED_REPLY.to_be_bytes());
        assert_eq!(self.next(), 1u16.to_be_bytes(), "flags");
        let kind = u16::from_be_bytes(self.next());
        let cookie = u64::from_be_bytes(self.next());
        let len = u32::from_be_bytes(self.next());
        (kind, cookie, self.heard.drain(..len as usize).collect())
    }

    /// Takes an answer to an option: its option, its type, its data.
    pub(crate) fn answer(&mut self) -> (u32, u32, Vec<u8>) {
        assert_eq!(self.next(), nowait_device::nbd::OPTION_REPLY.to_be_bytes());
        let number = u32::from_be_bytes(self.next());
        let kind = u32::from_be_bytes(self.next());
        let len = u32::from_be_bytes(self.next());
        (number, kind, self.heard.drain(..len as usize).collect())
    }
}

pub(crate) fn replay(target: &str, drive: fn(&[u8])) {
    let kept = format!("{}/../../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(kept).unwrap();
    let count = entries.map(|entry| drive(&std::fs::read(entry.unwrap().path()).unwrap())).count();
    assert!(count > 0);
}

pub(crate) fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x4948_4156_454f_5054_u64.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub(crate) fn go(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 1, 0, 3]);
    data
}

pub(crate) fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

pub(crate) fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = nowait_device::nbd::REQUEST.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const ZEROES: u16 = 6;
pub(crate) const STATUS: u16 = 7;
