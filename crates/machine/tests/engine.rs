//! The whole engine on a simulated machine: contexts, workers, the driver, native AIO, held files.
#![cfg(simulated)]

use nowait_block::Segments;
use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind, SubmitMode,
    command::open_for,
    submit::{Reply, Submission},
};
use nowait_machine::Machine;
use nowait_sys::{Fd, aligned::AlignedBuffer, file::IoVec, inspect, time::Deadline};
use std::sync::Arc;

const BLOCK: usize = 4096;
const BLOCKS: usize = 16;

fn open(name: &std::ffi::CStr, flags: i32) -> Fd {
    inspect::open(name, flags, 0o600).unwrap()
}

fn command(kind: Kind, fd: &Fd, memory: &mut [u8], offset: usize) -> Command {
    let segment = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
    let file = (fd.raw(), open_for(fd.raw()).unwrap());
    // SAFETY: the test takes the event before the memory goes.
    unsafe { Command::new(kind, file, Segments::One(segment), offset as i64) }
}

fn submit(context: &Arc<Context>, command: Command, name: u64) {
    assert_eq!(context.io().reserve(1), Ok(1));
    let mut submission = Submission::new(context);
    submission.start(command, Reply { data: name, obj: name, eventfd: None }).unwrap();
    submission.finish();
}

fn take(context: &Context, min: usize) -> Vec<(u64, i64)> {
    let mut events = Vec::new();
    let sink = |_: usize, event: nowait_sys::aio::IoEvent| {
        events.push((event.data, event.res));
        Ok(())
    };
    context.wait_events(min, usize::MAX, Deadline::NEVER, None, sink).unwrap();
    events
}

fn write_and_read_back(backend: BackendChoice, direct: bool) {
    const O_RDWR: i32 = 2;
    const O_CREAT: i32 = 0o100;
    const O_DIRECT: i32 = 0o40000;
    let config = Config { backend, submit: SubmitMode::Auto, ..Config::default() };
    let engine = Engine::on_machine(config, "simulated".to_owned()).unwrap();
    let threads: Vec<_> = (0..2)
        .map(|number: u8| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let context = Context::new(&engine, number.into(), 64).unwrap();
                let flags = O_RDWR | O_CREAT | if direct { O_DIRECT } else { 0 };
                let fd = open(c"file", flags);
                let base = usize::from(number) * BLOCKS * BLOCK;
                let mut memory = AlignedBuffer::zeroed(BLOCKS * BLOCK);
                for (index, block) in memory.chunks_mut(BLOCK).enumerate() {
                    block.fill(number * 100 + index as u8 + 1);
                    submit(&context, command(Kind::Write, &fd, block, base + index * BLOCK), 7);
                }
                let mut ended = 0;
                while ended < BLOCKS {
                    let events = take(&context, 1);
                    assert!(events.iter().all(|event| *event == (7, BLOCK as i64)), "{events:?}");
                    ended += events.len();
                }
                memory.fill(0);
                for (index, block) in memory.chunks_mut(BLOCK).enumerate() {
                    submit(&context, command(Kind::Read, &fd, block, base + index * BLOCK), 8);
                }
                let mut ended = 0;
                while ended < BLOCKS {
                    ended += take(&context, BLOCKS - ended).len();
                }
                for (index, block) in memory.chunks(BLOCK).enumerate() {
                    let expected = number * 100 + index as u8 + 1;
                    assert!(block.iter().all(|byte| *byte == expected), "block {index}");
                }
                context.destroy().unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    engine.shutdown();
}

fn many_seeds(backend: BackendChoice, direct: bool) {
    for seed in 0..30 {
        let run = || Machine::run(seed, None, move || write_and_read_back(backend, direct));
        let first = run().unwrap_or_else(|failure| panic!("{failure}"));
        let second = run().unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first.1, second.1, "seed {seed} repeats");
        println!("{seed}: {:?}", first.1);
    }
}

#[test]
fn buffered_by_workers() {
    many_seeds(BackendChoice::Threads, false);
}

#[test]
fn direct_by_workers() {
    many_seeds(BackendChoice::Threads, true);
}

#[test]
fn buffered_by_native_aio() {
    many_seeds(BackendChoice::Kaio, false);
}

#[test]
fn direct_by_native_aio() {
    many_seeds(BackendChoice::Kaio, true);
}
