//! The machine on which an engine is simulated: one device, whose queues carry every bio.
//!
//! Real files give the numbers, status flags and sizes; their bytes are never read or written.

use nowait_block::{
    Bio, BioOp, BlockBackend, Completion, Limits,
    backends::threads::{Deliver, Receiver, ThreadsConfig},
};
use nowait_file::{
    parts::{Backends, Counter, Workers},
    turn::Next,
};
use nowait_sim::SimDevice;
use nowait_sys::{Errno, file, time::Deadline, uring::Issuer};
use std::{
    collections::VecDeque,
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// One of this many completions of workers is lost.
    LosesCompletions(u64),
    /// One of this many writes reports success without being carried out.
    SkipsWrites(u64),
}

pub(crate) struct Machine {
    pub(crate) seed: u64,
    pub(crate) device: SimDevice,
    pub(crate) files: Arc<Files>,
    pub(crate) limits: Limits,
    pub(crate) mistake: Option<Mistake>,
}

/// The index of an inode is the descriptor of its file on the device.
pub(crate) struct Files(Vec<(u64, u64)>);

impl Files {
    pub(crate) fn new(files: &[&std::fs::File]) -> Arc<Files> {
        let key = |file: &&std::fs::File| {
            let stat = file::stat(file.as_raw_fd()).unwrap();
            (stat.dev, stat.ino)
        };
        Arc::new(Files(files.iter().map(key).collect()))
    }

    fn find(&self, number: i32) -> i32 {
        let stat = file::stat(number).expect("the file is held");
        let index = self.0.iter().position(|key| *key == (stat.dev, stat.ino));
        index.expect("a file of the device") as i32
    }
}

impl Machine {
    fn queue(&self, depth: usize) -> Queue {
        Queue {
            device: self.device.another_queue(depth),
            files: self.files.clone(),
            limits: Limits { depth, ..self.limits },
            mistake: self.mistake,
            writes: AtomicU64::new(0),
        }
    }
}

impl Backends for Machine {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn limits(&self) -> Option<Limits> {
        Some(self.limits)
    }

    fn driver_queue(&self, _: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(self.queue(self.limits.depth)))
    }

    fn own_queue(&self, _: Option<Counter>, _: Issuer) -> Result<Arc<dyn BlockBackend>, Errno> {
        self.driver_queue(None)
    }

    fn workers(&self, config: ThreadsConfig) -> Result<Box<dyn Workers>, Errno> {
        const DEPTH: usize = 1 << 16;
        let Deliver::Call(deliver) = config.deliver else { return Err(Errno::INVAL) };
        let (queue, ended) = (self.queue(DEPTH), Mutex::default());
        let (delivered, turns) = (AtomicU64::new(0), AtomicU64::new(0));
        let seed = self.seed;
        Ok(Box::new(Hired { queue, deliver, ended, delivered, turns, seed }))
    }
}

struct Queue {
    device: SimDevice,
    files: Arc<Files>,
    limits: Limits,
    mistake: Option<Mistake>,
    writes: AtomicU64,
}

impl BlockBackend for Queue {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn queue(&self, mut bio: Bio) -> Result<(), Bio> {
        if !self.device.has_room(1) {
            return Err(bio);
        }
        bio.fd = self.files.find(bio.number().expect("there are enough descriptors"));
        bio.file = None;
        if let (Some(Mistake::SkipsWrites(every)), BioOp::Write) = (self.mistake, bio.op)
            && self.writes.fetch_add(1, Relaxed) % every == every - 1
        {
            bio.op = BioOp::Read;
        }
        self.device.queue(bio)
    }

    fn commit(&self) {
        self.device.commit();
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.device.reap(done, min, deadline)
    }

    fn wake(&self) {
        self.device.wake();
    }

    fn cancel(&self, token: u64) {
        self.device.cancel(token);
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }
}

/// Workers without threads: each turn delivers one completion.
struct Hired {
    queue: Queue,
    deliver: Receiver,
    ended: Mutex<VecDeque<Completion>>,
    delivered: AtomicU64,
    turns: AtomicU64,
    seed: u64,
}

const TURNS_MAX: u64 = 500_000;

impl Workers for Hired {
    fn deliver(&self, completions: &mut Vec<Completion>) {
        self.ended.lock().unwrap().extend(completions.drain(..));
    }

    fn shutdown(&self) {}

    fn turn(&self) -> Next {
        let turns = self.turns.fetch_add(1, Relaxed);
        assert!(turns < TURNS_MAX, "seed {}: a call hangs", self.seed);
        let mut done = Vec::new();
        let _ = self.queue.reap(&mut done, 0, Deadline::NOW);
        let mut ended = self.ended.lock().unwrap();
        ended.extend(done.drain(..));
        let next = ended.pop_front();
        drop(ended);
        let Some(completion) = next else { return Next::Sleep(Deadline::NEVER) };
        let number = self.delivered.fetch_add(1, Relaxed);
        if let Some(Mistake::LosesCompletions(every)) = self.queue.mistake
            && number % every == every - 1
        {
            return Next::Turn;
        }
        done.push(completion);
        (self.deliver)(&mut done);
        Next::Turn
    }
}

impl BlockBackend for Hired {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn limits(&self) -> Limits {
        self.queue.limits()
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        self.queue.queue(bio)
    }

    fn commit(&self) {
        self.queue.commit();
    }

    fn reap(&self, _: &mut Vec<Completion>, _: usize, _: Deadline) -> Result<(), Errno> {
        Ok(())
    }

    fn wake(&self) {}

    fn cancel(&self, token: u64) {
        self.queue.cancel(token);
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}
