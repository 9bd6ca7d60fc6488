//! M1: aio-stress on a file that is not cached: records of 64 KiB, 64 in flight, 8 in one call.

use crate::{
    costs,
    stage::{self, Stage},
    table::{Row, Source, Table},
    world::{Semaphore, Thread},
};
use nowait_block::BioOp;
use nowait_cache::Cache;
use nowait_sim::{Hardware, Prng};
use std::{cell::Cell, rc::Rc};

const RECORD_BYTES: u64 = 64 << 10;
const DEPTH: usize = 64;
const BATCH: usize = 8;
const PROCESSORS: usize = 4;

/// The page cache's share of the file: 384 MiB of 1 GiB, on a machine of 512 MiB.
const CACHE_SHARE: (u64, u64) = (3, 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `io_submit` of a kernel without the patches: all waits are inside the call.
    Vanilla,
    Nowait,
    Direct,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    write: bool,
    sync: bool,
    random: bool,
    /// The figures of the source in MB/s: vanilla, patched, `O_DIRECT`.
    source: (f64, f64, Option<f64>),
}

const fn work(name: &'static str, bits: [bool; 3], source: (f64, f64, Option<f64>)) -> Work {
    Work { name, random: bits[0], write: bits[1], sync: bits[2], source }
}

const WORKS: [Work; 6] = [
    work("random read", [true, false, false], (10.08, 23.91, Some(18.91))),
    work("random O_SYNC write", [true, true, true], (8.86, 15.84, Some(16.51))),
    work("sequential read", [false, false, false], (31.49, 33.00, Some(31.86))),
    work("sequential O_SYNC write", [false, true, true], (8.68, 32.60, Some(31.45))),
    work("random write", [true, true, false], (31.09, 30.90, None)),
    work("sequential write", [false, true, false], (30.84, 30.09, None)),
];

pub(crate) fn table(hardware: &Hardware, file_bytes: u64, seed: u64) -> Table {
    let mut rows = Vec::new();
    let mut notes = vec![format!(
        "file of {} MiB, page cache of {} MiB, records at random places may repeat",
        file_bytes >> 20,
        cache_bytes(file_bytes) >> 20
    )];
    for work in WORKS {
        let (before, after, direct) = work.source;
        let (baseline, flushed) = run(hardware, work, Mode::Vanilla, file_bytes, seed);
        let (nowait, own_flushed) = run(hardware, work, Mode::Nowait, file_bytes, seed);
        let source = Source::Figures(before, after);
        rows.push(Row::new(work.name, ("MB/s", true), source, (baseline, nowait)));
        if work.write && !work.sync {
            notes.push(format!(
                "{} with the final fsync: {flushed:.2} and {own_flushed:.2} MB/s",
                work.name
            ));
        }
        if let Some(figure) = direct {
            let (simulated, _) = run(hardware, work, Mode::Direct, file_bytes, seed);
            notes.push(format!(
                "{} with O_DIRECT: {simulated:.2} MB/s (source {figure:.2})",
                work.name
            ));
        }
    }
    let title = "aio-stress, buffered, uncached: vanilla → patched (linux-aio 2003)".to_owned();
    Table { row: "M1", title, notes, rows }
}

fn cache_bytes(file_bytes: u64) -> u64 {
    file_bytes * CACHE_SHARE.0 / CACHE_SHARE.1
}

/// Returns the throughput in MB/s, without and with a final fsync.
fn run(hardware: &Hardware, work: Work, mode: Mode, file_bytes: u64, seed: u64) -> (f64, f64) {
    let world = stage::world(hardware, PROCESSORS, 1, file_bytes, seed);
    let cache = Cache::new(cache_bytes(file_bytes)).expect("memory for the page cache");
    let stage = Stage::new(&world, &cache, 0, file_bytes, RECORD_BYTES);
    let ends = Rc::new(Cell::new((0, 0)));
    let app = App { stage, work, mode, thread: Thread::default(), events: Semaphore::new(0) };
    world.spawn(app.run(file_bytes, seed, ends.clone()));
    world.run();
    let (end_ns, flushed_ns) = ends.get();
    let rate = |ns: u64| file_bytes as f64 * 1e3 / ns as f64;
    (rate(end_ns), rate(flushed_ns))
}

#[derive(Clone)]
struct App {
    stage: Stage,
    work: Work,
    mode: Mode,
    thread: Thread,
    events: Semaphore,
}

impl App {
    async fn run(self, file_bytes: u64, seed: u64, ends: Rc<Cell<(u64, u64)>>) {
        let (records, mut prng) = (file_bytes / RECORD_BYTES, Prng::new(seed));
        let world = self.stage.world.clone();
        let mut in_flight = 0;
        for first in (0..records).step_by(BATCH) {
            world.cpu(&self.thread, costs::SYSCALL_NS).await;
            for record in first..records.min(first + BATCH as u64) {
                let at = if self.work.random { prng.below(records) } else { record };
                self.submit(at * RECORD_BYTES).await;
                in_flight += 1;
            }
            while in_flight + BATCH > DEPTH {
                world.reap(&self.thread, &self.events, BATCH).await;
                in_flight -= BATCH;
            }
        }
        world.reap(&self.thread, &self.events, in_flight).await;
        let end_ns = world.now_ns();
        self.stage.sync(&self.thread).await;
        ends.set((end_ns, world.now_ns()));
    }

    async fn submit(&self, offset: u64) {
        if self.mode == Mode::Vanilla {
            let request_ns = costs::KAIO_REQUEST_NS;
            self.stage.world.cpu(&self.thread, request_ns).await;
            self.clone().carry_out(offset).await;
        } else {
            self.stage.world.cpu(&self.thread, costs::OWN_REQUEST_NS).await;
            self.stage.world.spawn(self.clone().carry_out(offset));
        }
    }

    async fn carry_out(self, offset: u64) {
        let waits = self.mode == Mode::Vanilla;
        let (stage, thread) = (&self.stage, &self.thread);
        match (self.mode, self.work.write) {
            (Mode::Direct, write) => {
                let op = if write { BioOp::Write } else { BioOp::Read };
                stage.world.cpu(thread, costs::device_ns(RECORD_BYTES)).await;
                stage.world.transfer(op, stage::fd(0), offset, RECORD_BYTES).await;
            }
            (_, true) => stage.write(thread, offset, RECORD_BYTES, self.work.sync, waits).await,
            (Mode::Vanilla, false) => stage.read_as_before(thread, offset, RECORD_BYTES).await,
            (_, false) => stage.read(thread, offset, RECORD_BYTES, waits).await,
        }
        self.events.release(1);
    }
}
