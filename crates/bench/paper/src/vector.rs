//! M7: eight segments of 4 KiB, as a loop over the segments and as one request.

use crate::{
    costs, stage,
    table::{Row, Source, Table},
    world::{Thread, World},
};
use nowait_block::BioOp;
use nowait_sim::{Hardware, Prng};

const SEGMENT_BYTES: u64 = 4096;
const SEGMENTS: u64 = 8;
const VECTOR_BYTES: u64 = SEGMENT_BYTES * SEGMENTS;
/// The source states no size; this size gives figures near the source's figures of random writes.
const FILE_BYTES: u64 = 256 << 20;

/// A mix of reads and writes: returns `true` if the request with this number writes.
type Mix = fn(u64) -> bool;

const READS: Mix = |_| false;
const WRITES: Mix = |_| true;
const ALTERNATING: Mix = |number| number % 2 == 1;

pub(crate) fn table(hardware: &Hardware, count: u64, seed: u64) -> Table {
    let run = |mix, random, whole| run(hardware, mix, random, whole, count, seed);
    let mut rows = Vec::new();
    let mut throughput = |what: &str, mix, random, ratio| {
        let [baseline, nowait] = [false, true].map(|whole| run(mix, random, whole).0);
        rows.push(Row::new(what, ("MB/s", true), Source::Ratio(ratio), (baseline, nowait)));
    };
    throughput("random writev", WRITES, true, 8.7);
    throughput("sequential writev", WRITES, false, 6.6);
    throughput("random mixed", ALTERNATING, true, 5.0);
    throughput("sequential mixed", ALTERNATING, false, 6.6);
    let mut processor = |what: &str, source, baseline, nowait| {
        rows.push(Row::new(what, ("µs CPU", false), Source::Ratio(source), (baseline, nowait)));
    };
    for (what, random) in [("random readv", true), ("sequential readv", false)] {
        let [baseline, nowait] = [false, true].map(|whole| run(READS, random, whole).1);
        processor(what, 1.0 / 5.0, baseline, nowait);
    }
    let us = |ns: u64| ns as f64 / 1e3;
    let many =
        costs::SYSCALL_NS + SEGMENTS * (costs::OWN_REQUEST_NS + costs::device_ns(SEGMENT_BYTES));
    let one = costs::SYSCALL_NS + costs::OWN_REQUEST_NS + costs::device_ns(VECTOR_BYTES);
    processor("8 iocbs in one submit → 1 iocb of 8 segments", 1.0 / 2.0, us(many), us(one));
    Table {
        row: "M7",
        title: "readv and writev of 8 × 4 KiB, direct: loop → one request (OLS 2003, 5)".to_owned(),
        notes: vec![
            "processor time a request of 32 KiB; the last row is the table of costs \
                     alone"
                .to_owned(),
        ],
        rows,
    }
}

/// Returns the throughput in MB/s, and the processor time of a request in µs.
fn run(
    hardware: &Hardware,
    mix: Mix,
    random: bool,
    whole: bool,
    count: u64,
    seed: u64,
) -> (f64, f64) {
    let world = stage::world(hardware, 1, 1, FILE_BYTES, seed);
    world.spawn(application(world.clone(), mix, random, whole, count, seed));
    world.run();
    let rate = (count * VECTOR_BYTES) as f64 * 1e3 / world.now_ns() as f64;
    (rate, world.busy_ns() as f64 / 1e3 / count as f64)
}

async fn application(world: World, writes: Mix, random: bool, whole: bool, count: u64, seed: u64) {
    let (thread, mut prng) = (Thread::default(), Prng::new(seed));
    for number in 0..count {
        let slots = FILE_BYTES / VECTOR_BYTES;
        let slot = if random { prng.below(slots) } else { number % slots };
        let op = if writes(number) { BioOp::Write } else { BioOp::Read };
        let (parts, bytes) = if whole { (1, VECTOR_BYTES) } else { (SEGMENTS, SEGMENT_BYTES) };
        world.cpu(&thread, costs::SYSCALL_NS).await;
        for part in 0..parts {
            world.cpu(&thread, costs::device_ns(bytes)).await;
            world.transfer(op, stage::fd(0), slot * VECTOR_BYTES + part * bytes, bytes).await;
            world.cpu(&thread, costs::SWITCH_NS).await;
        }
    }
}
