//! A single-threaded executor. A seed decides the order of iterations and completions.

use crate::copy::User;
use crate::primitives::{Arc, AtomicU32, Relaxed};
use crate::{Backing, Cache, CachedFile, ReadOperation, SyncLevel, SyncOperation, Target};
use crate::{WriteOperation, cache::IoCounts};
use nowait_block::{Bio, BioOp, BlockBackend, Completion, Segments};
use nowait_retry::Step;
use nowait_sys::{Errno, file::IoVec, time::Deadline};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Wake, Waker};

/// Draws numbers (xorshift64, Marsaglia 2003).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

#[derive(Clone, Debug)]
pub(super) enum Do {
    Read { offset: u64, len: usize },
    Write { offset: u64, bytes: Vec<u8>, durable: Option<SyncLevel> },
    Sync(SyncLevel),
}

enum Operation {
    Read(ReadOperation),
    Write(WriteOperation),
    Sync(SyncOperation),
}

pub(super) struct Task {
    operation: Operation,
    pub(super) what: Do,
    buffer: Vec<u8>,
    kicked: Arc<Kicked>,
    pub(super) result: Option<Result<u32, Errno>>,
    pub(super) iterations: u32,
}

struct Kicked(AtomicU32);

impl Wake for Kicked {
    fn wake(self: Arc<Self>) {
        self.0.store(1, Relaxed);
    }
}

impl Task {
    pub(super) fn bytes(&self) -> &[u8] {
        let len = self.result.unwrap().unwrap_or(0);
        &self.buffer[..len as usize]
    }

    fn new(file: &Arc<CachedFile>, what: Do, random: &mut Random) -> Task {
        let mut buffer = match &what {
            Do::Read { len, .. } => vec![0xee; *len],
            Do::Write { bytes, .. } => bytes.clone(),
            Do::Sync(_) => Vec::new(),
        };
        let segments = cut(&mut buffer, random);
        // SAFETY: the buffer's memory stays where it is, and the task keeps it with the operation.
        let user = unsafe { User::new(segments) };
        let file = file.clone();
        let operation = match &what {
            Do::Read { offset, .. } => Operation::Read(ReadOperation::new(file, *offset, user)),
            Do::Write { offset, durable, .. } => {
                Operation::Write(WriteOperation::new(file, *offset, user, *durable))
            }
            Do::Sync(durable) => Operation::Sync(SyncOperation::whole(file, *durable)),
        };
        let kicked = Arc::new(Kicked(AtomicU32::new(1)));
        Task { operation, what, buffer, kicked, result: None, iterations: 0 }
    }

    fn is_ready(&self) -> bool {
        self.result.is_none() && self.kicked.0.load(Relaxed) != 0
    }

    fn iterate(&mut self, plug: &mut Vec<Bio>) {
        self.kicked.0.store(0, Relaxed);
        self.iterations += 1;
        let kicked = self.kicked.clone();
        let entry = move || Waker::from(kicked.clone());
        let step = match &mut self.operation {
            Operation::Read(read) => read.iterate(plug, &entry),
            Operation::Write(write) => write.iterate(plug, &entry),
            Operation::Sync(sync) => sync.iterate(plug, &entry),
        };
        if let Step::Done(result) = step {
            self.result = Some(result);
        }
    }
}

fn cut(buffer: &mut [u8], random: &mut Random) -> Segments {
    let (base, len) = (buffer.as_mut_ptr(), buffer.len());
    let mut cuts = [random.below(len as u64 + 1), random.below(len as u64 + 1)];
    cuts.sort_unstable();
    let [a, b] = cuts.map(|at| at as usize);
    let piece = |from: usize, end: usize| IoVec { base: base.wrapping_add(from), len: end - from };
    let pieces = [piece(0, a), piece(a, b), piece(b, len)];
    match random.below(2) {
        0 => Segments::One(piece(0, len)),
        _ => Segments::Many(pieces.into_iter().filter(|piece| piece.len > 0).collect()),
    }
}

pub(super) struct Rig<B> {
    pub(super) device: B,
    pub(super) cache: Arc<Cache>,
    pub(super) file: Arc<CachedFile>,
    pub(super) random: Random,
    in_flight: Vec<Bio>,
    pub(super) panics: usize,
    pub(super) in_flight_max: usize,
    /// Bios complete only when no operation can run.
    pub(super) slow_device: bool,
    /// Bios reach the device only when no operation can run, as if all were one submission.
    pub(super) one_plug: bool,
}

impl<B: BlockBackend> Rig<B> {
    pub(super) fn new(device: B, frames: u32, size: u64, seed: u64) -> Rig<B> {
        let cache = Cache::with_frames(frames);
        let target = Target { fd: -1, file: None };
        let file = CachedFile::new(&cache, Backing::of(&target), size);
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Rig {
            device,
            cache,
            file,
            random,
            in_flight: Vec::new(),
            panics: 0,
            in_flight_max: 0,
            slow_device: false,
            one_plug: false,
        }
    }

    pub(super) fn run(&mut self, list: Vec<Do>) -> Vec<Task> {
        let mut tasks = self.tasks(list);
        self.finish(&mut tasks);
        tasks
    }

    /// Runs the first iterations with one plug, as a submission does, and returns the bios'
    /// lengths.
    pub(super) fn submit(&mut self, list: Vec<Do>) -> (Vec<Task>, Vec<usize>) {
        let (mut tasks, mut plug) = (self.tasks(list), Vec::new());
        tasks.iter_mut().for_each(|task| task.iterate(&mut plug));
        let bytes = plug.iter().map(|bio| bio.segments.len()).collect();
        self.queue(plug);
        (tasks, bytes)
    }

    fn tasks(&mut self, list: Vec<Do>) -> Vec<Task> {
        list.into_iter().map(|what| Task::new(&self.file, what, &mut self.random)).collect()
    }

    pub(super) fn finish(&mut self, tasks: &mut [Task]) {
        let mut plug = Vec::new();
        while tasks.iter().any(|task| task.result.is_none()) {
            let ready: Vec<usize> = (0..tasks.len()).filter(|at| tasks[*at].is_ready()).collect();
            if ready.is_empty() || !self.one_plug {
                self.queue(core::mem::take(&mut plug));
            }
            if ready.is_empty() || (!self.slow_device && self.random.below(4) == 0) {
                let delivered = self.deliver(&mut plug);
                assert!(delivered || !ready.is_empty(), "all wait, and nothing will come");
            } else {
                let at = ready[self.random.below(ready.len() as u64) as usize];
                tasks[at].iterate(&mut plug);
            }
        }
        self.queue(plug);
    }

    pub(super) fn settle(&mut self) {
        let mut plug = Vec::new();
        while self.deliver(&mut plug) {
            self.queue(core::mem::take(&mut plug));
        }
    }

    pub(super) fn counts(&self) -> IoCounts {
        self.cache.io_counts()
    }

    /// Returns the number of bytes copied without an operation, and the number of all bytes; 0 if
    /// the read is not over after one iteration.
    pub(super) fn attempt(&mut self, offset: u64, len: usize) -> (usize, u32) {
        let mut buffer = vec![0; len];
        let segment = IoVec { base: buffer.as_mut_ptr(), len };
        // SAFETY: the buffer lives longer than the operation.
        let mut user = unsafe { User::new(Segments::One(segment)) };
        let done = self.file.read_cached(offset, &mut user);
        let mut read = ReadOperation::resume(self.file.clone(), offset, done, user);
        let mut plug = Vec::new();
        let step = read.iterate(&mut plug, &|| Waker::noop().clone());
        self.queue(plug);
        (done, if let Step::Done(result) = step { result.unwrap() } else { 0 })
    }

    /// Nothing may be in flight.
    pub(super) fn zero_device(&mut self, from: u64, end: u64) {
        let mut zeroes = vec![0u8; (end - from) as usize];
        let segment = IoVec { base: zeroes.as_mut_ptr(), len: zeroes.len() };
        let offset = from as i64;
        // SAFETY: the zeroes live until `perform` has returned the completion.
        let bio = unsafe { Bio::new(BioOp::Write, -1, Segments::One(segment), offset, 0) };
        self.perform(bio).result.unwrap();
        drop(zeroes);
    }

    fn queue(&mut self, plug: Vec<Bio>) {
        self.in_flight.extend(plug);
        self.in_flight_max = self.in_flight_max.max(self.in_flight.len());
    }

    /// A random bio reaches the device only now, and its completion the cache. Returns `false` if
    /// nothing is in flight.
    fn deliver(&mut self, plug: &mut Vec<Bio>) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        let at = self.random.below(self.in_flight.len() as u64) as usize;
        let bio = self.in_flight.swap_remove(at);
        if bio.op == BioOp::Write {
            let end = bio.offset as u64 + bio.segments.len() as u64;
            assert!(end <= self.file.size(), "a crash now would leave a file of {end} bytes");
        }
        let Completion { token, result } = self.perform(bio);
        let complete = || self.cache.complete(token, result, plug);
        self.panics += usize::from(catch_unwind(AssertUnwindSafe(complete)).is_err());
        true
    }

    fn perform(&mut self, bio: Bio) -> Completion {
        self.device.queue(bio).expect("an idle device");
        self.device.commit();
        let mut done = Vec::new();
        self.device.reap(&mut done, 1, Deadline::NEVER).unwrap();
        done.pop().expect("one completion")
    }
}
