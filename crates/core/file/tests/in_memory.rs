//! Files in memory: requests take effect in submission order on every route.

mod common;

use common::{Prng, bytes, command, command_with, leaked, on_every_backend, reap, submit};
use nowait_block::skip::note_skip_here;
use nowait_file::{Context, Kind, command::Flags};
use nowait_sys::{
    file::{O_APPEND, O_RDONLY, O_RDWR, O_WRONLY},
    inspect::set_status_flags,
};
use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    sync::{Arc, Barrier},
};

const FILE_BYTES: usize = 1 << 20;
const SMALL: usize = 4 << 10;
/// More bytes than submit copies itself.
const LARGE: usize = 512 << 10;
const BATCHES: usize = 12;
const DEPTH: u64 = 16;

fn file() -> Option<File> {
    let file = tempfile::tempfile_in("/dev/shm");
    file.inspect_err(|error| note_skip_here(&format!("/dev/shm: {error}"))).ok()
}

fn batch(contexts: &[Arc<Context>], file: &File, model: &mut [u8], random: &mut Prng) {
    let mut reads = Vec::new();
    let mut counts = vec![0; contexts.len()];
    for name in 0..DEPTH {
        let which = random.below(contexts.len() as u64) as usize;
        let context = &contexts[which];
        counts[which] += 1;
        let len = if random.one_in(4) { LARGE } else { SMALL };
        let offset = random.below((FILE_BYTES - len) as u64 + 1) as usize;
        let range = offset..offset + len;
        if random.one_in(8) {
            submit(context, name, command(Kind::Fsync, file, leaked(0, 0), 0)).unwrap();
        } else if random.one_in(2) {
            let byte = random.below(256) as u8;
            model[range].fill(byte);
            let command = command(Kind::Write, file, leaked(len, byte), offset as u64);
            submit(context, name, command).unwrap();
        } else {
            let memory = leaked(len, 0);
            reads.push((name, memory, model[range].to_vec()));
            submit(context, name, command(Kind::Read, file, memory, offset as u64)).unwrap();
        }
    }
    for (context, count) in contexts.iter().zip(counts) {
        let events = reap(context, count);
        assert!(events.iter().all(|(_, result)| *result >= 0), "{events:?}");
    }
    for (name, memory, expected) in reads {
        assert!(bytes(memory) == expected, "request {name} read something else");
    }
}

#[test]
fn small_and_large_requests_take_effect_in_order() {
    take_effect_in_order(1);
}

#[test]
fn remembered_flags_decide_nothing() {
    on_every_backend(|engine| {
        let Some(file) = file() else { return };
        let context = Context::new(engine, 0, 64).unwrap();
        let hinted = |flags, kind, len, offset| {
            command_with(Flags::Remembered(flags), kind, &file, leaked(len, 7), offset)
        };
        submit(&context, 1, hinted(O_RDONLY, Kind::Write, SMALL, 0)).unwrap();
        submit(&context, 2, hinted(O_WRONLY, Kind::Read, SMALL, 0)).unwrap();
        let whole = SMALL as i64;
        assert_eq!(reap(&context, 2), [(1, whole), (2, whole)]);
        // The file is open for appending, unlike the remembered flags: the write appends once, in
        // one piece.
        set_status_flags(file.as_raw_fd(), O_RDWR | O_APPEND).unwrap();
        submit(&context, 3, hinted(O_RDWR, Kind::Write, LARGE, 0)).unwrap();
        assert_eq!(reap(&context, 1), [(3, LARGE as i64)]);
        assert_eq!(file.metadata().unwrap().len() as usize, SMALL + LARGE);
        context.destroy().unwrap();
    });
}

#[test]
fn so_do_those_of_several_contexts() {
    take_effect_in_order(3);
}

fn take_effect_in_order(contexts: usize) {
    let Some(file) = file() else { return };
    on_every_backend(|engine| {
        file.set_len(0).unwrap();
        file.set_len(FILE_BYTES as u64).unwrap();
        let context = |_| Context::new(engine, 0, 64).unwrap();
        let contexts: Vec<_> = (0..contexts).map(context).collect();
        let (mut model, mut random) = (vec![0; FILE_BYTES], Prng(7));
        for _ in 0..BATCHES {
            batch(&contexts, &file, &mut model, &mut random);
        }
        contexts.iter().for_each(|context| context.destroy().unwrap());
    });
}

/// An append is one piece, even if submit could copy only its first part.
#[test]
fn appends_of_two_threads_do_not_mix() {
    const RECORD: usize = 300 << 10;
    const RECORDS: u64 = 30;
    let Some(_) = file() else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("log");
    on_every_backend(|engine| {
        File::create(&path).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for byte in 1..=2 {
                let (path, start) = (&path, &start);
                scope.spawn(move || {
                    let log = OpenOptions::new().append(true).open(path).unwrap();
                    let context = Context::new(engine, u32::from(byte), 8).unwrap();
                    let record = leaked(RECORD, byte);
                    start.wait();
                    for name in 0..RECORDS {
                        submit(&context, name, command(Kind::Write, &log, record, 0)).unwrap();
                        assert_eq!(reap(&context, 1), [(name, RECORD as i64)]);
                    }
                    context.destroy().unwrap();
                });
            }
        });
        let log = std::fs::read(&path).unwrap();
        assert_eq!(log.len(), 2 * RECORDS as usize * RECORD);
        let whole = |record: &[u8]| record.iter().all(|byte| *byte == record[0]);
        assert!(log.chunks(RECORD).all(whole), "one record within another");
    });
}
