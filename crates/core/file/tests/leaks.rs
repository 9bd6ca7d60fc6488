//! Contexts leave nothing behind. `SCALE=full` makes 10,000 contexts.
//!
//! This is the only test in its file, because files and threads of other tests would be counted.

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

/// Requests for which the kernel's AIO contexts have room, in the whole system.
fn aio_nr() -> i64 {
    std::fs::read_to_string("/proc/sys/fs/aio-nr").unwrap().trim().parse().unwrap()
}

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
        // The kernel destroys its own AIO contexts some milliseconds later, and other processes
        // have some, too. Each of ours has room for 192 requests.
        let room = i64::from(is_kaio) * count as i64 * 192;
        let is_left = || is_kaio && aio_nr() - aio_before > room.min(32_768) / 2;
        let (files, threads, rings) = before;
        // The driver may hold the last reference to a context that was just destroyed: its queue is
        // closed by `drop_deferred`.
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
        // Workers are started when they are needed, and end seconds later.
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
