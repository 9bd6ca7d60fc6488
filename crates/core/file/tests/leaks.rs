//! Contexts that come and go leave nothing behind. `SCALE=full` makes 10,000 of them.
//!
//! The only test of its file: other tests' files and threads would be counted.

mod common;

use common::*;
use nowait_file::{Context, Kind};
use std::{
    fs::File,
    time::{Duration, Instant},
};

const POLLIN: u16 = 1;

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Requests that the contexts of the kernel's AIO have room for, in the whole system.
fn aio_nr() -> i64 {
    std::fs::read_to_string("/proc/sys/fs/aio-nr").unwrap().trim().parse().unwrap()
}

/// Counts everything in a process that a context could leave behind.
fn belongings() -> (usize, usize, usize) {
    let entries = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("aio") || line.contains("io_uring"));
    (entries("/proc/self/fd"), entries("/proc/self/task"), rings.count())
}

#[test]
fn contexts_that_come_and_go_leave_nothing_behind() {
    on_every_backend(|engine| {
        let file = File::open("/proc/self/exe").unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let one = |id: u64| {
            let context = Context::new(engine, id as u32, 64).unwrap();
            if id.is_multiple_of(4) {
                context.event_counter().unwrap();
            }
            if id.is_multiple_of(8) {
                context.loop_descriptors().unwrap();
            }
            submit(&context, 1, command(Kind::Read, &file, leaked(64, 0), 0)).unwrap();
            submit(&context, 2, poll(&reader, POLLIN)).unwrap();
            submit(&context, 3, command(Kind::Read, &reader, leaked(8, 0), 0)).unwrap();
            reap(&context, 1);
            context.destroy().unwrap();
        };
        (0..100).for_each(one);
        engine.drop_deferred();
        let (before, memory) = (belongings(), resident_bytes());
        let (is_kaio, aio_before) = (engine.backend() == "kaio", aio_nr());
        let full = std::env::var_os("SCALE").is_some_and(|scale| scale == "full");
        let count = if full { 10_000 } else { 200 };
        (0..count).for_each(one);
        engine.drop_deferred();
        // The kernel takes its own contexts down some milliseconds later. Other processes have
        // such contexts too; if ours were left behind, it would be room for 192 requests each.
        let room = i64::from(is_kaio) * count as i64 * 192;
        let is_left = || is_kaio && aio_nr() - aio_before > room.min(32_768) / 2;
        let (files, threads, rings) = before;
        // The driver may have the last hold on a context that was destroyed just now: its queue is
        // then closed by the next thread that makes one.
        let begin = Instant::now();
        let after = loop {
            engine.drop_deferred();
            let after = belongings();
            let gone = after.0 <= files && after.2 <= rings && !is_left();
            if gone || begin.elapsed() > Duration::from_secs(30) {
                break after;
            }
            std::thread::yield_now();
        };
        assert!(after.0 <= files && after.2 <= rings, "{after:?}, {before:?} before");
        assert!(!is_left(), "aio-nr: {} of {aio_before} before", aio_nr());
        // Workers come as they are needed, and go seconds later.
        let workers_max = engine.config().workers_max;
        assert!(after.1 <= threads + workers_max, "{} threads, {threads} before", after.1);
        let grown = resident_bytes().saturating_sub(memory);
        let backend = engine.backend();
        println!(
            "{count} contexts, {backend:?}: {before:?} before, {after:?} after, {grown} bytes"
        );
        assert!(grown < 32 << 20, "{grown} bytes");
    });
}
