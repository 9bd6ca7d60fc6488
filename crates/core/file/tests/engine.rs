//! The whole engine on real files, on every backend that works on this machine.

mod common;

use nowait_block::{BlockBackend, Limits, Segments, backends::null::Null, skip::note_skip_here};
use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind, Parts, SubmitMode,
    command::open_for,
    parts::{Backends, Counter},
    submit::{EventTarget, Submission},
};
use nowait_sys::{
    Errno,
    eventfd::EventFd,
    file::{Advice, IoVec, advise},
    uring::Issuer,
};
use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::fd::AsRawFd,
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::Arc,
};

const BLOCK: usize = 4096;
const O_DIRECT: i32 = nowait_sys::file::O_DIRECT;

fn everywhere(claim: impl Fn(&Arc<Engine>)) {
    for backend in common::BACKENDS {
        for submit in [SubmitMode::Auto, SubmitMode::Offload] {
            let config = Config { backend, submit, stats: true, ..Config::default() };
            match Engine::on_machine(config, "test".to_owned()) {
                Ok(engine) => {
                    claim(&engine);
                    engine.shutdown();
                }
                Err(errno) => note_skip_here(&format!("{backend:?} cannot start: {errno}")),
            }
        }
    }
}

/// Returns page-aligned memory, because direct requests need it.
fn buffer(len: usize, byte: u8) -> &'static mut [u8] {
    // SAFETY: leaked, and not known elsewhere.
    let whole = unsafe { &mut *common::leaked(len + BLOCK, byte) };
    let skip = whole.as_ptr().align_offset(BLOCK);
    &mut whole[skip..skip + len]
}

fn command(kind: Kind, file: &File, memory: &mut [u8], offset: u64) -> Command {
    let fd = file.as_raw_fd();
    let segment = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
    // SAFETY: the buffers of these tests are leaked.
    unsafe {
        Command::new(kind, (fd, open_for(fd).unwrap()), Segments::One(segment), offset as i64)
    }
}

fn submit(context: &Arc<Context>, commands: Vec<Command>) {
    assert_eq!(context.io().reserve(commands.len()), Ok(commands.len()));
    let mut submission = Submission::new(context);
    for (index, command) in commands.into_iter().enumerate() {
        let target = EventTarget { data: index as u64, obj: 0, eventfd: None };
        submission.submit(command, target).unwrap();
    }
    submission.finish();
}

fn reap(context: &Arc<Context>, count: usize) -> Vec<(u64, i64)> {
    let mut events = Vec::new();
    common::wait_for(context, count, |event| events.push((event.data, event.res)));
    events
}

fn counter(context: &Context, name: &str) -> u64 {
    let counters = context.io().stats().counters().unwrap().all();
    counters.iter().find(|(other, _)| *other == name).unwrap().1
}

/// The blocks are numbered; they are on the disk and not in the page cache.
fn uncached(folder: &tempfile::TempDir, blocks: usize) -> std::path::PathBuf {
    let path = folder.path().join("file");
    let mut file = File::create(&path).unwrap();
    for block in 0..blocks {
        file.write_all(&(block as u64).to_ne_bytes().repeat(BLOCK / 8)).unwrap();
    }
    file.sync_all().unwrap();
    advise(file.as_raw_fd(), 0, 0, Advice::DontNeed).unwrap();
    path
}

fn reads_every_block(engine: &Arc<Engine>, flags: i32) {
    // More blocks than one ring takes requests (192), in one batch.
    const BLOCKS: usize = 600;
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = uncached(&folder, BLOCKS);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap();
    let context = Context::new(engine, 0, BLOCKS as u32).unwrap();
    let memory: Vec<_> = (0..BLOCKS).map(|_| buffer(BLOCK, 0xff)).collect();
    let mut addresses: Vec<*mut [u8]> = memory.into_iter().map(core::ptr::from_mut).collect();
    let mut read = |block: usize| {
        // SAFETY: leaked memory, one buffer a block.
        let memory = unsafe { &mut *addresses[block] };
        command(Kind::Read, &file, memory, ((block * 7 % BLOCKS) * BLOCK) as u64)
    };
    submit(&context, (0..BLOCKS).map(&mut read).collect());
    for (data, res) in reap(&context, BLOCKS) {
        assert_eq!(res, BLOCK as i64);
        // SAFETY: the event was reaped: no thread writes to the buffer any more.
        let memory = unsafe { &*addresses[data as usize] };
        let number = (data as usize * 7 % BLOCKS) as u64;
        assert_eq!(memory, number.to_ne_bytes().repeat(BLOCK / 8));
    }
    assert_eq!(counter(&context, "completions"), BLOCKS as u64);
    context.destroy().unwrap();
}

#[test]
fn cached_reads_that_one_submit_does_not_copy_are_counted_as_large() {
    const LEN: usize = 64 << 10;
    common::on_every_backend(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 10 * LEN]).unwrap();
        let file = File::open(path).unwrap();
        let context = Context::new(engine, 0, 10).unwrap();
        let read = |at: usize| command(Kind::Read, &file, buffer(LEN, 0), (at * LEN) as u64);
        submit(&context, (0..10).map(read).collect());
        assert!(reap(&context, 10).iter().all(|(_, res)| *res == LEN as i64));
        let counted = ["completed_inline", "punt_large", "punt_offload"];
        let offloads = engine.config().submit == SubmitMode::Offload;
        let expected = if offloads { [0, 0, 10] } else { [4, 6, 0] };
        assert_eq!(counted.map(|name| counter(&context, name)), expected, "{}", engine.backend());
        context.destroy().unwrap();
    });
}

#[test]
fn a_report_says_who_has_carried_out_what() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = uncached(&folder, 4);
        let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        let (file, direct) = (open(0), open(O_DIRECT));
        let context = Context::new(engine, 0, 8).unwrap();
        std::fs::read(&path).unwrap();
        for command in [
            command(Kind::Read, &file, buffer(BLOCK, 0), 0),
            command(Kind::Read, &direct, buffer(BLOCK, 0), 0),
            command(Kind::Fdatasync, &file, &mut [], 0),
        ] {
            submit(&context, vec![command]);
            reap(&context, 1);
        }
        let served = context.io().stats().served().unwrap().all();
        let by = |kind| {
            let (_, row) = served.iter().find(|(other, _)| *other == kind).unwrap();
            let counted: Vec<_> = row.iter().filter(|(_, count)| *count > 0).collect();
            assert!(matches!(counted[..], [(_, 1)]), "{kind}: {row:?}");
            counted[0].0
        };
        let offloads = engine.config().submit == SubmitMode::Offload;
        let is_ring = engine.backend() == "uring";
        let elsewhere = if is_ring { "driver" } else { "worker" };
        assert_eq!(by("read"), if offloads { elsewhere } else { "submit" });
        assert_eq!(by("sync"), "worker");
        assert_eq!(served.len(), 3, "{served:?}");
        let threads = engine.backend() == "threads";
        match by("direct_read") {
            by if threads => assert_eq!(by, "worker"),
            by if offloads => assert_eq!(by, "driver"),
            by => assert_eq!(by, "kernel"),
        }
        context.destroy().unwrap();
    });
}

#[test]
fn more_buffered_reads_than_a_ring_takes_all_complete() {
    everywhere(|engine| reads_every_block(engine, 0));
}

#[test]
fn more_direct_reads_than_a_ring_takes_all_complete() {
    everywhere(|engine| reads_every_block(engine, O_DIRECT));
}

#[test]
fn overlapping_requests_keep_their_order_without_spurious_wake_ups() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let context = Context::new(engine, 0, 256).unwrap();
        for round in 0..20u8 {
            let mut commands = Vec::new();
            for step in 0..50u8 {
                let fill = round.wrapping_mul(50).wrapping_add(step);
                // Shifted by half a block, so that each write overlaps its neighbours.
                let offset = u64::from(step % 5) * BLOCK as u64 / 2;
                commands.push(command(Kind::Write, &file, buffer(BLOCK, fill), offset));
            }
            let read = buffer(BLOCK, 0);
            let address: *const [u8] = read;
            commands.push(command(Kind::Read, &file, read, 2 * BLOCK as u64));
            submit(&context, commands);
            assert!(reap(&context, 51).iter().all(|(_, res)| *res == BLOCK as i64));
            // SAFETY: the event was reaped.
            let seen = unsafe { &*address };
            let last = round.wrapping_mul(50).wrapping_add(49);
            assert_eq!(seen, &[last; BLOCK][..], "the read came after the last write");
        }
        assert_eq!(counter(&context, "spurious"), 0);
        assert_eq!(counter(&context, "retries"), counter(&context, "kicks"));
        context.destroy().unwrap();
    });
}

/// A direct write that needs blocks would keep the submitter waiting. io_uring carries such a write
/// into a hole, but not at the end of the file.
#[test]
fn direct_writes_that_allocate_blocks_are_handed_on_and_others_are_not() {
    for backend in common::BACKENDS {
        let config = Config { backend, stats: true, ..Config::default() };
        let Ok(engine) = Engine::on_machine(config, "test".to_owned()) else {
            note_skip_here(&format!("{backend:?} cannot start"));
            continue;
        };
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = uncached(&folder, 4);
        let open = |path| OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path);
        let (file, holes) = (open(path).unwrap(), folder.path().join("holes"));
        File::create(&holes).unwrap().set_len(1 << 20).unwrap();
        let holes = open(holes).unwrap();
        let context = Context::new(&engine, 0, 8).unwrap();
        let write = |file, offset, handed_on| {
            let before = counter(&context, "punt_extend");
            submit(&context, vec![command(Kind::Write, file, buffer(BLOCK, 7), offset)]);
            assert_eq!(counter(&context, "punt_extend") - before, handed_on, "{backend:?}");
            assert_eq!(reap(&context, 1), [(0, BLOCK as i64)]);
        };
        write(&file, BLOCK as u64, 0);
        write(&file, 4 * BLOCK as u64, 1);
        write(&holes, 64 << 10, u64::from(backend != BackendChoice::Uring));
        context.destroy().unwrap();
        engine.shutdown();
    }
}

/// There are more writes than an own queue takes, none adjoins the one before, and the program
/// closes the file at once.
#[test]
fn holes_are_filled_by_whatever_thread_submits_the_writes() {
    const BLOCKS: usize = 311;
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("holes");
        let file = File::create(&path).unwrap();
        file.set_len((BLOCKS * BLOCK) as u64).unwrap();
        let context = Context::new(engine, 0, BLOCKS as u32).unwrap();
        for round in 1..3u8 {
            let file = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(&path).unwrap();
            let write = |index: usize| {
                let (block, byte) = (index * 7 % BLOCKS, (index % 100) as u8 + round);
                command(Kind::Write, &file, buffer(BLOCK, byte), (block * BLOCK) as u64)
            };
            (0..BLOCKS).for_each(|index| submit(&context, vec![write(index)]));
            drop(file);
            let ends = reap(&context, BLOCKS);
            assert!(ends.iter().all(|(_, result)| *result == BLOCK as i64), "{ends:?}");
            let bytes = std::fs::read(&path).unwrap();
            for index in 0..BLOCKS {
                let block = &bytes[index * 7 % BLOCKS * BLOCK..][..BLOCK];
                assert!(
                    block == [(index % 100) as u8 + round; BLOCK],
                    "round {round}: block {index} has {}",
                    block[0]
                );
            }
        }
        context.destroy().unwrap();
    });
}

/// Requests that signal an eventfd do not use the context's own queue.
#[test]
fn holes_are_filled_by_the_drivers_queue_for_requests_with_an_eventfd() {
    for backend in [BackendChoice::Uring, BackendChoice::Kaio] {
        let config = Config { backend, ..config_of_holes() };
        match Engine::on_machine(config, "test".to_owned()) {
            Ok(engine) => assert_eq!(fill_holes(&engine), [("driver", HOLES)], "{backend:?}"),
            Err(_) => note_skip_here(&format!("{backend:?} cannot start")),
        }
    }
}

struct FullQueue;

impl Backends for FullQueue {
    fn name(&self) -> &'static str {
        "full"
    }

    fn limits(&self) -> Option<Limits> {
        Some(Limits { depth: 8, buffered_reads: false, writes: false, readiness: false })
    }

    fn driver_queue(&self, _: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(Null::new(8)))
    }

    fn own_queue(&self, _: Option<Counter>, _: Issuer) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }
}

/// If the driver carried the write, every context would wait until its blocks are allocated.
#[test]
fn a_write_into_a_hole_that_finds_the_drivers_queue_full_goes_to_the_workers() {
    let parts = Parts::of_backends(Box::new(FullQueue), "test".to_owned());
    let engine = Engine::start(config_of_holes(), parts).unwrap();
    assert_eq!(fill_holes(&engine), [("worker", HOLES)]);
}

const HOLES: u64 = 150;

fn config_of_holes() -> Config {
    Config { stats: true, answers_as_aio: true, ..Config::default() }
}

/// Returns how many requests each part of the engine has carried out.
fn fill_holes(engine: &Arc<Engine>) -> Vec<(&'static str, u64)> {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("holes");
    let mut options = OpenOptions::new();
    let file = options.create(true).write(true).custom_flags(O_DIRECT).open(&path).unwrap();
    file.set_len(HOLES * BLOCK as u64).unwrap();
    let context = Context::new(engine, 0, HOLES as u32).unwrap();
    let counter = EventFd::new().unwrap();
    for index in 0..HOLES {
        let write = buffer(BLOCK, index as u8);
        let write = command(Kind::Write, &file, write, index * BLOCK as u64);
        let eventfd = Some(counter.raw());
        common::submit_to(&context, EventTarget { data: index, obj: 0, eventfd }, write).unwrap();
    }
    drop(file);
    let ends = reap(&context, HOLES as usize);
    assert!(ends.iter().all(|(_, result)| *result == BLOCK as i64), "{ends:?}");
    let wanted: Vec<u8> = (0..HOLES).flat_map(|index| [index as u8; BLOCK]).collect();
    assert!(std::fs::read(&path).unwrap() == wanted);
    let mut served = context.io().stats().served().unwrap().all();
    context.destroy().unwrap();
    engine.shutdown();
    let index = served.iter().position(|(work, _)| *work == "direct_write").unwrap();
    let (_, writes) = served.swap_remove(index);
    writes.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn direct_writes_that_extend_a_file_one_behind_the_other_all_arrive() {
    const BLOCKS: usize = 100;
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("grows");
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).custom_flags(O_DIRECT).open(&path).unwrap();
        let context = Context::new(engine, 0, BLOCKS as u32).unwrap();
        let write = |index: usize| {
            command(Kind::Write, &file, buffer(BLOCK, index as u8), (index * BLOCK) as u64)
        };
        submit(&context, (0..BLOCKS).map(write).collect());
        drop(file);
        let mut ends = reap(&context, BLOCKS);
        ends.sort_unstable();
        let wanted: Vec<_> = (0..BLOCKS as u64).map(|index| (index, BLOCK as i64)).collect();
        assert_eq!(ends, wanted);
        let bytes = std::fs::read(&path).unwrap();
        let wanted: Vec<u8> = (0..BLOCKS).flat_map(|index| [index as u8; BLOCK]).collect();
        assert!(bytes == wanted);
        context.destroy().unwrap();
    });
}

#[test]
fn a_write_and_its_fsync_in_one_batch_are_in_the_file() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        let context = Context::new(engine, 0, 64).unwrap();
        let mut commands: Vec<_> = (0..16u8)
            .map(|block| {
                let offset = u64::from(block) * BLOCK as u64;
                command(Kind::Write, &file, buffer(BLOCK, block), offset)
            })
            .collect();
        commands.push(command(Kind::Fsync, &file, buffer(0, 0), 0));
        submit(&context, commands);
        let events = reap(&context, 17);
        assert!(events.iter().all(|(data, res)| *res == if *data == 16 { 0 } else { 4096 }));
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.chunks(BLOCK).enumerate().all(|(n, c)| c == [n as u8; BLOCK]));
        context.destroy().unwrap();
    });
}

#[test]
fn what_cannot_be_done_is_refused_and_nothing_is_started() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let directory = File::open(folder.path()).unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        context.io().reserve(1).unwrap();
        let mut submission = Submission::new(&context);
        let read = command(Kind::Read, &directory, buffer(BLOCK, 0), 0);
        let target = EventTarget { data: 0, obj: 0, eventfd: None };
        assert_eq!(submission.submit(read, target), Err(Errno::INVAL));
        context.io().release(1);
        submission.finish();
        assert_eq!(context.io().outstanding(), 0);
        context.destroy().unwrap();
    });
}

#[test]
fn reads_at_the_end_of_the_file_are_short() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 5000]).unwrap();
        let file = File::open(&path).unwrap();
        file.read_exact_at(&mut [0; 16], 0).unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        let read = |offset| command(Kind::Read, &file, buffer(2 * BLOCK, 0), offset);
        submit(&context, vec![read(0), read(4096), read(5000), read(1 << 40)]);
        let mut events = reap(&context, 4);
        events.sort_unstable();
        assert_eq!(events, [(0, 5000), (1, 904), (2, 0), (3, 0)]);
        context.destroy().unwrap();
    });
}

#[test]
fn direct_reads_at_the_end_of_the_file_are_over_in_the_contexts_own_queue() {
    for backend in [BackendChoice::Kaio, BackendChoice::Uring] {
        let config = Config { backend, stats: true, ..Config::default() };
        let Ok(engine) = Engine::on_machine(config, "test".to_owned()) else {
            note_skip_here(&format!("{backend:?} cannot start"));
            continue;
        };
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 5000]).unwrap();
        let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(&path).unwrap();
        let context = Context::new(&engine, 0, 8).unwrap();
        for (offset, bytes) in [(0, 5000), (4096, 904), (8192, 0), (1 << 40, 0)] {
            submit(&context, vec![command(Kind::Read, &file, buffer(16 * BLOCK, 0), offset)]);
            assert_eq!(reap(&context, 1), [(0, bytes)]);
        }
        let counters = context.io().stats().counters().unwrap().all();
        let handed_on = counters.iter().filter(|(name, _)| name.starts_with("punt_"));
        assert_eq!(handed_on.map(|(_, count)| count).sum::<u64>(), 0, "{backend:?}");
        context.destroy().unwrap();
        engine.shutdown();
    }
}

/// In the engine's table, the numbers of the application's files mean other files.
#[test]
fn engines_that_end_close_no_other_descriptors() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let files: Vec<File> = (0..64)
        .map(|number| File::create(folder.path().join(format!("{number}"))).unwrap())
        .collect();
    let inodes = || -> Vec<u64> {
        let stat = |file: &File| nowait_sys::file::stat(file.as_raw_fd()).unwrap().ino;
        files.iter().map(stat).collect()
    };
    let before = inodes();
    let on = |backend| {
        let config = Config { backend, ..Config::default() };
        Engine::on_machine(config, "test".to_owned())
    };
    let starts: [&dyn Fn() -> Result<Arc<Engine>, Errno>; 3] =
        [&|| on(BackendChoice::Kaio), &|| on(BackendChoice::Uring), &common::with_event_counters];
    for _ in 0..60 {
        for start in starts {
            let Ok(engine) = start() else { continue };
            let context = Context::new(&engine, 0, 1).unwrap();
            context.destroy().unwrap();
            drop(context);
            engine.shutdown();
            assert_eq!(inodes(), before);
        }
    }
}

#[test]
fn what_was_started_is_handed_over_by_who_returns_early_too() {
    everywhere(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = uncached(&folder, 1);
        let file = File::open(path).unwrap();
        let context = Context::new(engine, 0, 1).unwrap();
        assert_eq!(context.io().reserve(1), Ok(1));
        let mut submission = Submission::new(&context);
        let read = command(Kind::Read, &file, buffer(BLOCK, 0xff), 0);
        submission.submit(read, EventTarget { data: 5, obj: 0, eventfd: None }).unwrap();
        drop(submission);
        assert_eq!(reap(&context, 1), [(5, BLOCK as i64)]);
        context.destroy().unwrap();
    });
}
