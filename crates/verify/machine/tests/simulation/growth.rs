//! The cost of a request as the number of threads grows, in system calls: the machine runs one
//! thread at a time, so it cannot measure time.
//!
//! Each thread has a context, keeps its own reads in flight, and waits for them. docs/machine.md
//! has the curve and the command.

use crate::{alone, number, spawn};
use nowait_block::Segments;
use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind,
    command::open_for,
    submit::{EventTarget, Submission},
};
use nowait_machine::process;
use nowait_sys::{
    aligned::AlignedBuffer,
    file::{IoVec, set_len},
    inspect::{self, O_CREAT, O_DIRECT, O_RDWR},
    time::Deadline,
};
use std::sync::Arc;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const DEPTH: usize = 4;
const ROUNDS: u64 = 3;
const TAGS: u32 = 256;

fn program(backend: BackendChoice, threads: u32, rounds: u64) {
    nowait_machine::say_tags(TAGS);
    let config = Config { backend, cache_bytes: 1 << 20, ..Config::default() };
    let engine = Engine::on_machine(config, "simulated".to_owned()).unwrap();
    let file = inspect::open(c"/file", O_RDWR | O_CREAT, 0o600).unwrap();
    set_len(file.raw(), BLOCKS * BLOCK as u64).unwrap();
    let begin = |number| {
        let engine = engine.clone();
        spawn(&format!("reader {number}"), move || read(&engine, number, rounds))
    };
    let readers: Vec<_> = (0..threads).map(begin).collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    drop(file);
    engine.shutdown();
}

fn read(engine: &Arc<Engine>, number: u32, rounds: u64) {
    let file = inspect::open(c"/file", O_RDWR | O_DIRECT, 0).unwrap();
    let context = Context::new(engine, number, DEPTH as u32).unwrap();
    let mut memory = AlignedBuffer::zeroed(DEPTH * BLOCK);
    for round in 0..rounds {
        assert_eq!(context.io().reserve(DEPTH).unwrap(), DEPTH);
        let mut submission = Submission::new(&context);
        // Calls `open_for` once for each io_submit, as the drop-in libraries do.
        let open = open_for(file.raw()).unwrap();
        for (slot, part) in memory.chunks_mut(BLOCK).enumerate() {
            let block = (u64::from(number) + round * DEPTH as u64 + slot as u64) % BLOCKS;
            let segments = Segments::One(IoVec { base: part.as_mut_ptr(), len: BLOCK });
            let offset = (block * BLOCK as u64) as i64;
            // SAFETY: the memory outlives the round, at whose end the request has ended.
            let command = unsafe { Command::new(Kind::Read, (file.raw(), open), segments, offset) };
            let target = EventTarget { data: slot as u64, obj: 0, eventfd: None };
            submission.submit(command, target).unwrap();
        }
        submission.finish();
        let mut ended = 0;
        while ended < DEPTH {
            let sink = |_: usize, event: nowait_sys::aio::IoEvent| {
                assert_eq!(event.res, BLOCK as i64);
                Ok(())
            };
            ended += context.wait_events(1, DEPTH, Deadline::NEVER, None, sink).unwrap();
        }
    }
    context.destroy().unwrap();
}

/// Compares runs with twice as many reads, so that the begin and end of a run do not count.
fn calls_a_read(backend: BackendChoice, threads: u32) -> f64 {
    // With fewer seeds, chance alone would change the figure by a tenth.
    let is_large = threads * DEPTH as u32 > TAGS;
    let seeds = number("GROWTH_SEEDS", if is_large { 3 } else { 12 });
    let calls = |rounds| -> u64 {
        let run = |seed| process::run(seed, move || program(backend, threads, rounds)).unwrap();
        (0..seeds).map(|seed| run(seed).calls).sum()
    };
    let reads = u64::from(threads) * ROUNDS * DEPTH as u64 * seeds;
    (calls(2 * ROUNDS) as f64 - calls(ROUNDS) as f64) / reads as f64
}

#[test]
fn what_a_read_costs_grows_with_the_reads_in_flight_and_not_with_the_threads() {
    let _alone = alone();
    for backend in [BackendChoice::Uring, BackendChoice::Kaio, BackendChoice::Threads] {
        let [one, some, tags, beyond] = [1, 16, 64, 256].map(|it| calls_a_read(backend, it));
        println!("{backend:?}: {one:.2} {some:.2} {tags:.2} {beyond:.2} calls a read");
        // 64 threads have as many requests in flight as the disk has tags, so few requests find no
        // tag.
        assert!(some <= one && tags <= 1.2 * some, "{backend:?}: {one}, {some}, {tags}");
        // The driver sends each request that finds no tag, and wakes the submitting thread when
        // this request ends.
        assert!(beyond <= tags + 5.0, "{backend:?}: {tags}, {beyond}");
    }
}
