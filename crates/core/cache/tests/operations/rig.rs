//! A cache with one file over a device in memory; the test runs the operations step by step.

use nowait_block::backends::mem::Mem;
use nowait_block::{Bio, BioOp, BlockBackend, Segments};
use nowait_cache::copy::User;
use nowait_cache::{
    Backing, Cache, CachedFile, OpenFile, ReadOperation, SyncLevel, SyncOperation, Target,
    WriteOperation,
};
use nowait_retry::{Step, WaitEntry};
use nowait_sys::{Errno, file::IoVec, time::Deadline};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Wake, Waker};

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const PAGE: u64 = 4 * KIB;

const PERIOD: u64 = MIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) op: BioOp,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) flags: u32,
}

#[derive(Default)]
pub(crate) struct Kicks(AtomicU32);

impl Wake for Kicks {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Kicks {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

pub(crate) struct Task<O> {
    pub(crate) operation: O,
    pub(crate) buffer: Vec<u8>,
    pub(crate) kicks: Arc<Kicks>,
    pub(crate) iterations: u32,
}

pub(crate) struct Rig {
    device: Mem,
    pattern: Vec<u8>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) file: Arc<CachedFile>,
    /// All bios that the cache has made; `in_flight` has those not completed.
    pub(crate) made: Vec<Made>,
    in_flight: VecDeque<(Bio, Made)>,
}

impl Rig {
    /// The file covers the whole device, which is full of the pattern.
    pub(crate) fn new(cache_bytes: u64, file_bytes: u64) -> Rig {
        let cache = Cache::new(cache_bytes).unwrap();
        let target = Target { fd: -1, file: None };
        let file = CachedFile::new(&cache, Backing::of(&target), file_bytes);
        let device = Mem::new(file_bytes as usize, 256, 7);
        let once: Vec<u8> = (0..PERIOD).map(|at| (at / 512 + at % 251) as u8).collect();
        let mut pattern = once.repeat(2);
        for offset in (0..file_bytes).step_by(PERIOD as usize) {
            let one = Segments::One(IoVec { base: pattern.as_mut_ptr(), len: PERIOD as usize });
            // SAFETY: the pattern lives until the completion, which the next line waits for.
            let bio = unsafe { Bio::new(BioOp::Write, -1, one, offset as i64, 0) };
            perform(&device, bio).unwrap();
        }
        Rig { device, pattern, cache, file, made: Vec::new(), in_flight: VecDeque::new() }
    }

    pub(crate) fn read(&self, offset: u64, len: u64) -> Task<ReadOperation> {
        let (user, buffer) = memory(vec![0xee; len as usize]);
        let operation = ReadOperation::new(self.file.clone(), offset, user);
        Task { operation, buffer, kicks: Arc::default(), iterations: 0 }
    }

    /// Copies cached bytes, as submit does in the engine.
    pub(crate) fn read_cached(&self, offset: u64, len: u64) -> (Vec<u8>, usize) {
        let (mut user, buffer) = memory(vec![0xee; len as usize]);
        let copied = self.file.read_cached(offset, &mut user);
        (buffer, copied)
    }

    pub(crate) fn write(&self, offset: u64, bytes: Vec<u8>) -> Task<WriteOperation> {
        self.write_until(offset, bytes, None)
    }

    /// `durable`: the level at which the write ends; `None`: its data are in the cache.
    pub(crate) fn write_until(
        &self,
        offset: u64,
        bytes: Vec<u8>,
        durable: Option<SyncLevel>,
    ) -> Task<WriteOperation> {
        let (user, buffer) = memory(bytes);
        let operation = WriteOperation::new(self.file.clone(), offset, user, durable);
        Task { operation, buffer, kicks: Arc::default(), iterations: 0 }
    }

    /// Copies to cached pages, as submit does in the engine, and returns a write for the rest.
    pub(crate) fn write_cached(
        &self,
        offset: u64,
        bytes: Vec<u8>,
    ) -> (Task<WriteOperation>, usize) {
        let (mut user, buffer) = memory(bytes);
        let begun = self.file.write_cached(offset, &mut user);
        let operation = WriteOperation::resume(self.file.clone(), offset, begun, user);
        (Task { operation, buffer, kicks: Arc::default(), iterations: 0 }, begun.bytes)
    }

    /// Returns the number of bytes read, or `None` if the read waits.
    pub(crate) fn iterate(&mut self, read: &mut Task<ReadOperation>) -> Option<u32> {
        let mut plug = Vec::new();
        read.iterations += 1;
        let entry = entry_of(&read.kicks);
        let step = read.operation.iterate(&mut plug, &entry);
        self.queue(plug);
        result(step)
    }

    pub(crate) fn iterate_write(&mut self, write: &mut Task<WriteOperation>) -> Option<u32> {
        result(self.step_write(write))
    }

    pub(crate) fn step_write(&mut self, write: &mut Task<WriteOperation>) -> Step {
        let mut plug = Vec::new();
        write.iterations += 1;
        let entry = entry_of(&write.kicks);
        let step = write.operation.iterate(&mut plug, &entry);
        self.queue(plug);
        step
    }

    pub(crate) fn sync(&mut self) -> Result<u32, Errno> {
        let mut sync = SyncOperation::whole(self.file.clone(), SyncLevel::Data);
        loop {
            let mut plug = Vec::new();
            let step = sync.iterate(&mut plug, &|| Waker::noop().clone());
            self.queue(plug);
            match step {
                Step::Done(result) => return result,
                _ => self.complete_oldest(),
            }
        }
    }

    pub(crate) fn clean(&mut self) {
        let mut plug = Vec::new();
        self.cache.clean(u64::MAX, &mut plug);
        self.queue(plug);
    }

    /// Runs a read to its end and compares the bytes with the pattern. Between iterations,
    /// completes the oldest bios until the read was kicked. Returns the number of iterations.
    pub(crate) fn run(&mut self, open: Option<&Arc<OpenFile>>, offset: u64, len: u64) -> u32 {
        let mut read = self.read(offset, len);
        if let Some(open) = open {
            read.operation = read.operation.with_readahead(open.clone(), false);
        }
        while self.iterate(&mut read).is_none() {
            while read.kicks.count() < read.iterations {
                self.complete_oldest();
            }
        }
        self.check(&read, offset);
        read.iterations
    }

    pub(crate) fn run_write(&mut self, offset: u64, bytes: Vec<u8>) {
        let mut write = self.write(offset, bytes);
        while self.iterate_write(&mut write).is_none() {
            self.complete_oldest();
        }
    }

    pub(crate) fn queue(&mut self, plug: Vec<Bio>) {
        for bio in plug {
            let len = bio.segments.len() as u64;
            let (op, offset, flags) = (bio.op, bio.offset as u64, bio.rw_flags);
            let made = Made { op, offset, len, flags };
            self.made.push(made);
            self.in_flight.push_back((bio, made));
        }
    }

    pub(crate) fn complete_oldest(&mut self) {
        let (bio, _) = self.in_flight.pop_front().expect("it waits, and nothing will come");
        let token = bio.token;
        let result = perform(&self.device, bio);
        self.complete(token, result);
    }

    pub(crate) fn fail_oldest(&mut self, errno: Errno) {
        let (bio, _) = self.in_flight.pop_front().expect("something to fail");
        self.complete(bio.token, Err(errno));
    }

    fn complete(&mut self, token: u64, result: Result<u32, Errno>) {
        let mut plug = Vec::new();
        self.cache.complete(token, result, &mut plug);
        self.queue(plug);
    }

    pub(crate) fn complete_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.complete_oldest();
        }
    }

    pub(crate) fn write_device(&self, offset: u64, mut bytes: Vec<u8>) {
        let one = Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() });
        // SAFETY: the bytes live until the completion, which the next line waits for.
        let bio = unsafe { Bio::new(BioOp::Write, -1, one, offset as i64, 0) };
        perform(&self.device, bio).unwrap();
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight.iter().map(|(_, made)| made.len).sum()
    }

    /// Returns the number of pages that all reads have covered, and the number of different pages
    /// among these.
    pub(crate) fn pages_read(&self) -> (u64, u64) {
        let reads = self.made.iter().filter(|made| made.op == BioOp::Read);
        let page = |made: &Made| made.offset / PAGE..(made.offset + made.len).div_ceil(PAGE);
        let mut pages: Vec<u64> = reads.flat_map(page).collect();
        let all = pages.len() as u64;
        pages.sort_unstable();
        pages.dedup();
        (all, pages.len() as u64)
    }

    /// The range has at most 1 MiB.
    pub(crate) fn pattern(&self, from: u64, end: u64) -> &[u8] {
        &self.pattern[(from % PERIOD) as usize..][..(end - from) as usize]
    }

    pub(crate) fn check(&self, read: &Task<ReadOperation>, offset: u64) {
        self.check_bytes(&read.buffer, offset);
    }

    pub(crate) fn check_bytes(&self, bytes: &[u8], offset: u64) {
        let expected = self.pattern(offset, offset + bytes.len() as u64);
        assert!(bytes == expected, "the bytes at {offset}");
    }

    pub(crate) fn is_there(&self, index: u64) -> bool {
        self.file.mapping().look_up(index).is_some_and(|pin| pin.state().is_uptodate())
    }
}

fn memory(mut buffer: Vec<u8>) -> (User, Vec<u8>) {
    let one = IoVec { base: buffer.as_mut_ptr(), len: buffer.len() };
    // SAFETY: the vector's memory stays where it is; the caller keeps it as long as the operation.
    (unsafe { User::new(Segments::One(one)) }, buffer)
}

pub(crate) fn entry_of(kicks: &Arc<Kicks>) -> impl Fn() -> WaitEntry + use<> {
    let kicks = kicks.clone();
    move || Waker::from(kicks.clone())
}

fn result(step: Step) -> Option<u32> {
    match step {
        Step::Done(result) => Some(result.unwrap()),
        _ => None,
    }
}

fn perform(device: &Mem, bio: Bio) -> Result<u32, Errno> {
    assert!(device.queue(bio).is_ok());
    device.commit();
    let mut done = Vec::new();
    device.reap(&mut done, 1, Deadline::NEVER).unwrap();
    done[0].result
}
