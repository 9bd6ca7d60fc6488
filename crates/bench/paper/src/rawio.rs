//! M8: rawiobench compares threads that make one synchronous request at a time with AIO.
//! *Overhead*: each thread has one AIO request. *Batch*: a thread submits a request for each drive,
//! and waits for all. *Minimum batch*: the thread waits only for one.

use crate::{
    costs, stage,
    table::{Point, Row, Source, Table},
    world::{Semaphore, Thread, World},
};
use nowait_block::BioOp;
use nowait_sim::{Hardware, Prng};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

const PROCESSORS: usize = 8;
const THREADS_PER_DRIVE: usize = 8;
const FILE_BYTES: u64 = 4 << 30;
const BLOCKS: [u64; 5] = [2 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Mode {
    name: &'static str,
    /// Number of threads: for each drive if `per_drive`, otherwise for all together.
    threads: usize,
    per_drive: bool,
    /// The thread waits for all requests in flight, and not only for one.
    all: bool,
    /// The figures of the source for its AIO, as multiples of the figures of synchronous threads.
    throughput: Source,
    processor: Source,
}

const OVERHEAD: Mode = Mode {
    name: "overhead",
    threads: THREADS_PER_DRIVE,
    per_drive: true,
    all: true,
    throughput: Source::Said("≤ 1"),
    processor: Source::Between(1.20, 1.25),
};

const MODES: [Mode; 4] = [
    OVERHEAD,
    Mode {
        name: "batch",
        threads: 8,
        per_drive: false,
        all: true,
        throughput: Source::Said("well below 1"),
        processor: Source::Silent,
    },
    Mode {
        name: "minimum batch",
        threads: 8,
        per_drive: false,
        all: false,
        throughput: Source::Said("≤ 1"),
        processor: Source::Between(1.10, 1.20),
    },
    Mode {
        name: "minimum batch, 16 threads",
        threads: 16,
        per_drive: false,
        all: false,
        throughput: Source::Said("> 1 at 8 KiB"),
        processor: Source::Silent,
    },
];

/// The engine decides how much processor time a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Sync,
    Kaio,
    Nowait,
}

pub(crate) fn tables(hardware: &Hardware, count: u64, seed: u64) -> Vec<Table> {
    let job = |write, random, bytes| Job {
        hardware: hardware.clone(),
        write,
        random,
        bytes,
        count,
        seed,
    };
    let kinds = [
        ("sequential read", false, false),
        ("random read", false, true),
        ("sequential write", true, false),
        ("random write", true, true),
    ];
    let table = |(name, write, random): (&'static str, bool, bool)| {
        let mut rows = Vec::new();
        for bytes in BLOCKS {
            let job = job(write, random, bytes);
            let sync = job.run(OVERHEAD, Engine::Sync);
            for mode in MODES {
                let kaio = job.run(mode, Engine::Kaio);
                let nowait = job.run(mode, Engine::Nowait);
                rows.extend(rows_of(name, mode, bytes, [sync, kaio, nowait]));
            }
        }
        Table {
            row: "M8",
            title: format!("rawiobench, {name}, direct: AIO against threads (OLS 2003, 6)"),
            notes: vec![
                "baseline: the kernel's AIO of 2003; all columns are multiples of synchronous \
                 threads, 8 a drive, one request each"
                    .to_owned(),
                "the source has curves and few numbers; its processor time is of random reads"
                    .to_owned(),
            ],
            rows,
        }
    };
    kinds.into_iter().map(table).collect()
}

/// Throughput, and processor time for each byte.
type Figures = (f64, f64);

fn rows_of(
    name: &'static str,
    mode: Mode,
    bytes: u64,
    [sync, kaio, nowait]: [Figures; 3],
) -> [Row; 2] {
    let row = |quantity, more_is_better, source, of: fn(Figures) -> f64| {
        let what = format!("{name} {} KiB, {}, {quantity}", bytes >> 10, mode.name);
        let figures = (of(kaio) / of(sync), of(nowait) / of(sync));
        let point = Point { block_bytes: bytes, plot: name, series: mode.name, quantity };
        let row = Row::new(what, ("× sync", more_is_better), source, figures);
        Row { point: Some(point), ..row }
    };
    [
        row("throughput", true, mode.throughput, |figures| figures.0),
        row("CPU a byte", false, mode.processor, |figures| figures.1),
    ]
}

struct Job {
    hardware: Hardware,
    write: bool,
    random: bool,
    bytes: u64,
    count: u64,
    seed: u64,
}

struct Shared {
    world: World,
    engine: Engine,
    op: BioOp,
    random: bool,
    bytes: u64,
    left: Cell<u64>,
    ended: Cell<u64>,
    /// For each drive, the number of its next sequential request.
    next: RefCell<Vec<u64>>,
    prng: RefCell<Prng>,
}

impl Job {
    fn run(&self, mode: Mode, engine: Engine) -> Figures {
        let drives = self.hardware.drives();
        let world = stage::world(&self.hardware, PROCESSORS, drives, FILE_BYTES, self.seed);
        let shared = Rc::new(Shared {
            world: world.clone(),
            engine,
            op: if self.write { BioOp::Write } else { BioOp::Read },
            random: self.random,
            bytes: self.bytes,
            left: Cell::new(self.count),
            ended: Cell::new(0),
            next: RefCell::new(vec![0; drives]),
            prng: RefCell::new(Prng::new(self.seed)),
        });
        let threads = if mode.per_drive { mode.threads * drives } else { mode.threads };
        for thread in 0..threads {
            let own = if mode.per_drive { vec![thread % drives] } else { (0..drives).collect() };
            let shared = shared.clone();
            if engine == Engine::Sync {
                world.spawn(shared.synchronous(thread % drives));
            } else {
                world.spawn(shared.asynchronous(own, mode.all));
            }
        }
        world.run();
        let bytes = (shared.ended.get() * self.bytes) as f64;
        (bytes / world.now_ns() as f64, world.busy_ns() as f64 / bytes)
    }
}

impl Shared {
    /// Returns the offset of the next request on a drive; `None` after the last request of the run.
    fn place(&self, drive: usize) -> Option<u64> {
        self.left.set(self.left.get().checked_sub(1)?);
        let slots = FILE_BYTES / self.bytes;
        if self.random {
            return Some(self.prng.borrow_mut().below(slots) * self.bytes);
        }
        let next = &mut self.next.borrow_mut()[drive];
        *next += 1;
        Some((*next - 1) % slots * self.bytes)
    }

    async fn synchronous(self: Rc<Self>, drive: usize) {
        let (world, thread) = (&self.world, Thread::default());
        while let Some(offset) = self.place(drive) {
            world.cpu(&thread, costs::SYSCALL_NS + costs::device_ns(self.bytes)).await;
            world.transfer(self.op, stage::fd(drive), offset, self.bytes).await;
            world.cpu(&thread, costs::SWITCH_NS).await;
            self.ended.set(self.ended.get() + 1);
        }
    }

    async fn asynchronous(self: Rc<Self>, drives: Vec<usize>, all: bool) {
        let (world, thread, events) = (&self.world, Thread::default(), Semaphore::new(0));
        let idle = Rc::new(RefCell::new(VecDeque::from(drives)));
        let mut in_flight = 0;
        loop {
            let request_ns = match self.engine {
                Engine::Nowait => costs::OWN_REQUEST_NS,
                _ => costs::KAIO_REQUEST_NS,
            };
            let mut batch = Vec::new();
            while let Some(drive) = idle.borrow_mut().pop_front() {
                batch.extend(self.place(drive).map(|offset| (drive, offset)));
            }
            if !batch.is_empty() {
                world.cpu(&thread, costs::SYSCALL_NS).await;
            }
            for (drive, offset) in batch {
                world.cpu(&thread, request_ns + costs::device_ns(self.bytes)).await;
                let (shared, idle, events) = (self.clone(), idle.clone(), events.clone());
                world.spawn(async move {
                    let fd = stage::fd(drive);
                    shared.world.transfer(shared.op, fd, offset, shared.bytes).await;
                    shared.ended.set(shared.ended.get() + 1);
                    idle.borrow_mut().push_back(drive);
                    events.release(1);
                });
                in_flight += 1;
            }
            if in_flight == 0 {
                return;
            }
            let min = if all { in_flight } else { 1 };
            world.reap(&thread, &events, min).await;
            let more = events.available();
            events.acquire(more).await;
            in_flight -= min + more;
        }
    }
}
