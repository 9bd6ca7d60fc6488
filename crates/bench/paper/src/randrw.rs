//! M9: fio randrw of 4 KiB, depth 32, buffered: the time of the caller inside submit.

use crate::{
    costs,
    stage::{self, Stage},
    table::{Row, Source, Table},
    world::{Semaphore, Thread},
};
use nowait_cache::Cache;
use nowait_sim::{Hardware, Prng};
use std::{cell::Cell, rc::Rc};

const BLOCK_BYTES: u64 = 4096;
const DEPTH: usize = 32;
const PROCESSORS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    read_submit_ns: u64,
    reads: u64,
    write_submit_ns: u64,
    writes: u64,
    end_ns: u64,
}

/// Leaves out the source's RAM disk: its simulation would show only the table of costs.
pub(crate) fn table(hardware: &Hardware, file_bytes: u64, seed: u64) -> Table {
    let [baseline, nowait] = [false, true].map(|offload| run(hardware, file_bytes, offload, seed));
    let us = |ns: u64, count: u64| ns as f64 / 1e3 / count as f64;
    let iops = |times: Times| times.reads as f64 * 1e9 / times.end_ns as f64;
    let row = |what: &str, unit, (before, after): (f64, f64), of: &dyn Fn(Times) -> f64| {
        Row::new(what, unit, Source::Figures(before, after), (of(baseline), of(nowait)))
    };
    let submit = |times: Times| us(times.read_submit_ns, times.reads);
    let submit_write = |times: Times| us(times.write_submit_ns, times.writes);
    Table {
        row: "M9",
        title: "fio randrw 4 KiB, depth 32, buffered: unpatched → offload (2012)".to_owned(),
        notes: vec![
            format!("file of {} MiB, each block once", file_bytes >> 20),
            "the source lost 19 % of its IOPS; its RAM disk is not simulated (it is processor \
             time alone): `nowait bench submit --case b-tmpfs` measures it"
                .to_owned(),
        ],
        rows: vec![
            row("submit of a read, mean", ("µs", false), (6571.88, 1.65), &submit),
            row("submit of a write, mean", ("µs", false), (24.66, 1.85), &submit_write),
            row("reads a second", ("IOPS", true), (151.0, 123.0), &iops),
        ],
    }
}

fn run(hardware: &Hardware, file_bytes: u64, offload: bool, seed: u64) -> Times {
    let world = stage::world(hardware, PROCESSORS, 1, file_bytes, seed);
    // The cache is so large that nothing is written back during the run, as in the source.
    let cache = Cache::new(file_bytes * 5 / 2).expect("memory for the page cache");
    let stage = Stage::new(&world, &cache, 0, file_bytes, BLOCK_BYTES);
    let times = Rc::new(Cell::new(Times::default()));
    world.spawn(application(stage, file_bytes, offload, seed, times.clone()));
    world.run();
    times.get()
}

async fn application(
    stage: Stage,
    file_bytes: u64,
    offload: bool,
    seed: u64,
    out: Rc<Cell<Times>>,
) {
    let (world, thread, events) = (stage.world.clone(), Thread::default(), Semaphore::new(0));
    let worker = Thread::default();
    let mut prng = Prng::new(seed);
    let mut blocks: Vec<u64> = (0..file_bytes / BLOCK_BYTES).collect();
    for index in (1..blocks.len()).rev() {
        blocks.swap(index, prng.index(index + 1));
    }
    let (mut times, mut in_flight) = (Times::default(), 0);
    for block in blocks {
        let (begin_ns, write) = (world.now_ns(), prng.chance(500_000));
        world.cpu(&thread, costs::SYSCALL_NS).await;
        let (request_ns, runs) = match offload {
            true => (costs::HAND_OVER_NS, &worker),
            false => (costs::KAIO_REQUEST_NS, &thread),
        };
        world.cpu(&thread, request_ns).await;
        let offset = block * BLOCK_BYTES;
        let one = carry_out(stage.clone(), runs.clone(), offset, write, !offload, events.clone());
        if offload {
            world.spawn(one);
        } else {
            one.await;
        }
        let inside_ns = world.now_ns() - begin_ns;
        if write {
            (times.write_submit_ns, times.writes) =
                (times.write_submit_ns + inside_ns, times.writes + 1);
        } else {
            (times.read_submit_ns, times.reads) =
                (times.read_submit_ns + inside_ns, times.reads + 1);
        }
        in_flight += 1;
        if in_flight == DEPTH {
            world.reap(&thread, &events, 1).await;
            in_flight -= 1;
        }
    }
    world.reap(&thread, &events, in_flight).await;
    times.end_ns = world.now_ns();
    out.set(times);
}

async fn carry_out(
    stage: Stage,
    thread: Thread,
    offset: u64,
    write: bool,
    waits: bool,
    events: Semaphore,
) {
    if !waits {
        stage.world.cpu(&thread, costs::OWN_REQUEST_NS).await;
    }
    if write {
        stage.write(&thread, offset, BLOCK_BYTES, false, waits).await;
    } else {
        stage.read(&thread, offset, BLOCK_BYTES, waits).await;
    }
    events.release(1);
}
