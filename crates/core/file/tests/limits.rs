//! Limits on requests in flight, and fair turns between contexts.

mod common;

use common::*;
use nowait_file::{BackendChoice, Config, Context, Engine, Kind, limits::Limits};
use nowait_sys::{Errno, file::rwf};
use std::{fs::File, os::fd::AsFd, sync::Arc};

const POLLIN: u16 = 1;

fn engine(change: impl FnOnce(&mut Config)) -> Arc<Engine> {
    let mut config = Config { backend: BackendChoice::Threads, ..Config::default() };
    change(&mut config);
    Engine::on_machine(config, "test".to_owned()).unwrap()
}

fn read(file: &impl AsFd, len: usize) -> nowait_file::Command {
    command(Kind::Read, file, leaked(len, 0), 0)
}

#[test]
fn a_context_and_an_engine_refuse_more_than_they_may_have_in_flight() {
    let engine = engine(|config| {
        config.limits = Limits { requests: 5, ..Limits::NONE };
        config.context_limits = Limits { requests: 3, bytes: 10_000 };
    });
    let (reader, _writer) = std::io::pipe().unwrap();
    let context = Context::new(&engine, 0, 64).unwrap();
    for name in 0..3 {
        submit(&context, name, read(&reader, 3000)).unwrap();
    }
    assert_eq!(submit(&context, 3, read(&reader, 1)), Err(Errno::AGAIN), "a fourth request");
    context.cancel(1).unwrap();
    reap(&context, 1);
    assert_eq!(submit(&context, 1, read(&reader, 5000)), Err(Errno::AGAIN), "too many bytes");
    submit(&context, 1, read(&reader, 4000)).unwrap();
    let other = Context::new(&engine, 1, 64).unwrap();
    submit(&other, 4, poll(&reader, POLLIN)).unwrap();
    submit(&other, 5, poll(&reader, POLLIN)).unwrap();
    assert_eq!(submit(&other, 6, poll(&reader, POLLIN)), Err(Errno::AGAIN), "of the engine");
    assert_eq!((context.requests(), other.requests()), (3, 2));
    let file = File::open("/proc/self/exe").unwrap();
    submit(&other, 7, poll(&file, POLLIN)).unwrap();
    assert_eq!(reap(&other, 1), [(7, i64::from(POLLIN))]);
    context.destroy().unwrap();
    other.destroy().unwrap();
    assert_eq!((context.requests() + other.requests(), context.io().outstanding()), (0, 0));
    engine.shutdown();
}

#[test]
fn a_deep_context_does_not_starve_a_shallow_one() {
    const DEEP: u64 = 400;
    let engine = engine(|config| config.workers_max = 1);
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    // Each write has a file of its own, because writes of the same bytes run one after another.
    let files: Vec<File> =
        (0..DEEP).map(|name| File::create(folder.path().join(name.to_string())).unwrap()).collect();
    let lone = File::create(folder.path().join("lone")).unwrap();
    let (deep, shallow) =
        (Context::new(&engine, 0, 1024).unwrap(), Context::new(&engine, 1, 8).unwrap());
    let write = |file: &File| {
        let mut write = command(Kind::Write, file, leaked(4096, 1), 0);
        write.rw_flags = rwf::DSYNC;
        write
    };
    for (name, file) in files.iter().enumerate() {
        submit(&deep, name as u64, write(file)).unwrap();
    }
    let mut left = Vec::new();
    for name in 0..5 {
        submit(&shallow, name, write(&lone)).unwrap();
        reap(&shallow, 1);
        left.push(deep.io().outstanding());
    }
    reap(&deep, DEEP as usize);
    assert!(left.iter().all(|left| *left > 0), "waited for all of the other's: {left:?}");
    deep.destroy().unwrap();
    shallow.destroy().unwrap();
    engine.shutdown();
}
