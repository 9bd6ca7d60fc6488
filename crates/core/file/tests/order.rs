//! Requests on the same bytes, or beyond the end of the file, take effect in the order of their
//! submission.

mod common;

use common::{BACKENDS, leaked, reap};
use nowait_block::skip::note_skip_here;
use nowait_file::{
    Command, Config, Context, Engine, Kind, SubmitMode,
    submit::{EventTarget, Submission},
};
use nowait_sys::file::{Advice, O_DIRECT, advise};
use std::{
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    sync::Arc,
};

const BLOCK: usize = 4096;
/// The bytes of the larger request, and below, the offset of the smaller one in it.
const LARGE: usize = 64 * BLOCK;
const INSIDE: u64 = (LARGE / 2) as u64;
const ROUNDS: u64 = 40;

fn everywhere(claim: impl Fn(&Arc<Context>)) {
    for backend in BACKENDS {
        for submit in [SubmitMode::Auto, SubmitMode::Offload] {
            let config = Config { backend, submit, ..Config::default() };
            match Engine::on_machine(config, "test".to_owned()) {
                Ok(engine) => {
                    let context = Context::new(&engine, 0, 16).unwrap();
                    claim(&context);
                    context.destroy().unwrap();
                    engine.shutdown();
                }
                Err(errno) => note_skip_here(&format!("{backend:?} cannot start: {errno}")),
            }
        }
    }
}

/// Returns page-aligned memory, because direct requests need it.
fn buffer(len: usize, byte: u8) -> *mut [u8] {
    let whole = leaked(len + BLOCK, byte).cast::<u8>();
    core::ptr::slice_from_raw_parts_mut(whole.wrapping_add(whole.align_offset(BLOCK)), len)
}

struct Both {
    buffered: File,
    direct: File,
    _folder: tempfile::TempDir,
}

impl Both {
    fn new(len: usize) -> Both {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'o'; len]).unwrap();
        let open = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags).open(&path).unwrap()
        };
        let both = Both { buffered: open(0), direct: open(O_DIRECT), _folder: folder };
        both.buffered.sync_all().unwrap();
        advise(both.buffered.as_raw_fd(), 0, 0, Advice::DontNeed).unwrap();
        advise(both.buffered.as_raw_fd(), 0, 0, Advice::Random).unwrap();
        both
    }

    /// While the page is cached, the kernel refuses a direct write there that must not wait.
    fn cache(&self, offset: u64) {
        self.buffered.read_exact_at(&mut [0], offset).unwrap();
    }
}

fn submit(context: &Arc<Context>, commands: [Command; 2], at_once: bool) {
    assert_eq!(context.io().reserve(2), Ok(2));
    let mut submission = Submission::new(context);
    for (name, command) in (0..).zip(commands) {
        let target = EventTarget { data: name, obj: name, eventfd: None };
        submission.submit(command, target).unwrap();
        if !at_once {
            submission.finish();
            submission = Submission::new(context);
        }
    }
    submission.finish();
}

fn submit_apart(context: &Arc<Context>, commands: [Command; 2]) -> [i64; 2] {
    let other = Context::new(context.engine(), 1, 16).unwrap();
    let contexts = [context, &other];
    for (context, command) in contexts.into_iter().zip(commands) {
        assert_eq!(context.io().reserve(1), Ok(1));
        let mut submission = Submission::new(context);
        let target = EventTarget { data: 0, obj: 0, eventfd: None };
        submission.submit(command, target).unwrap();
        submission.finish();
    }
    let results = contexts.map(|context| reap(context, 1)[0].1);
    other.destroy().unwrap();
    results
}

/// One page of the first request is cached; the second request lies inside the first.
fn direct_then(
    first: Kind,
    second: (Kind, fn(&Both) -> &File),
    check: impl Fn(&Both, u64, [&[u8]; 2]),
) {
    let both = Both::new(ROUNDS as usize * LARGE);
    everywhere(|context| {
        for round in 0..ROUNDS {
            let (offset, inside) = (round * LARGE as u64, round * LARGE as u64 + INSIDE);
            both.buffered.write_all_at(&vec![b'o'; LARGE], offset).unwrap();
            both.buffered.sync_data().unwrap();
            advise(both.buffered.as_raw_fd(), offset, LARGE as u64, Advice::DontNeed).unwrap();
            both.cache(offset);
            let memory = [buffer(LARGE, b'1'), buffer(BLOCK, b'2')];
            let (kind, file) = second;
            let commands = [
                common::command(first, &both.direct, memory[0], offset),
                common::command(kind, file(&both), memory[1], inside),
            ];
            if round % 4 == 3 {
                assert_eq!(submit_apart(context, commands), [LARGE as i64, BLOCK as i64]);
            } else {
                submit(context, commands, round % 2 == 0);
                assert_eq!(reap(context, 2), [(0, LARGE as i64), (1, BLOCK as i64)]);
            }
            check(&both, inside, memory.map(common::bytes));
        }
    });
}

fn on_disk(both: &Both, offset: u64) -> u8 {
    both.buffered.sync_data().unwrap();
    let memory = buffer(BLOCK, 0);
    // SAFETY: leaked, and known to no request.
    both.direct.read_exact_at(unsafe { &mut *memory }, offset).unwrap();
    common::bytes(memory)[0]
}

#[test]
fn a_direct_write_is_not_lost_behind_an_earlier_one() {
    direct_then(Kind::Write, (Kind::Write, |both| &both.direct), |both, inside, _| {
        assert_eq!(on_disk(both, inside), b'2', "the later write");
    });
}

#[test]
fn a_buffered_write_is_not_lost_behind_an_earlier_direct_one() {
    direct_then(Kind::Write, (Kind::Write, |both| &both.buffered), |both, inside, _| {
        assert_eq!(on_disk(both, inside), b'2', "the later write");
    });
}

#[test]
fn a_read_sees_an_earlier_direct_write() {
    let files: [fn(&Both) -> &File; 2] = [|both| &both.direct, |both| &both.buffered];
    for file in files {
        direct_then(Kind::Write, (Kind::Read, file), |_, _, [_, read]| {
            assert!(read.iter().all(|byte| *byte == b'1'), "what was written before");
        });
    }
}

#[test]
fn a_direct_read_does_not_see_a_later_write() {
    let files: [fn(&Both) -> &File; 2] = [|both| &both.direct, |both| &both.buffered];
    for file in files {
        direct_then(Kind::Read, (Kind::Write, file), |_, _, [read, _]| {
            assert_eq!(read[INSIDE as usize], b'o', "what was there before");
        });
    }
}

#[test]
fn reads_find_the_end_of_the_file_where_it_was_at_their_turn() {
    const FAR: u64 = 1 << 20;
    everywhere(|context| {
        for round in 0..ROUNDS {
            let both = Both::new(0);
            let write = || common::command(Kind::Write, &both.buffered, buffer(LARGE, b'1'), FAR);
            let read = |at| common::command(Kind::Read, &both.buffered, buffer(BLOCK, 0), at);
            submit(context, [write(), read(0)], round % 2 == 0);
            assert_eq!(reap(context, 2), [(0, LARGE as i64), (1, BLOCK as i64)], "of the hole");
            both.buffered.set_len(0).unwrap();
            submit(context, [read(2 * BLOCK as u64), write()], round % 2 == 0);
            assert_eq!(reap(context, 2), [(0, 0), (1, LARGE as i64)], "beyond the end");
        }
    });
}

#[test]
fn a_direct_read_across_the_end_does_not_see_what_a_later_write_puts_there() {
    const END: usize = 2 * BLOCK + 512;
    everywhere(|context| {
        for round in 0..ROUNDS {
            let both = Both::new(END);
            // A single block, whose file the engine does not check before the kernel reads it; or
            // several.
            let (at, blocks) = if round % 4 < 2 { (2 * BLOCK, 1) } else { (0, 8) };
            let memory = [buffer(blocks * BLOCK, 0), buffer(BLOCK, b'2')];
            let commands = [
                common::command(Kind::Read, &both.direct, memory[0], at as u64),
                common::command(Kind::Write, &both.direct, memory[1], 3 * BLOCK as u64),
            ];
            if round % 8 > 5 {
                assert_eq!(submit_apart(context, commands), [(END - at) as i64, BLOCK as i64]);
            } else {
                submit(context, commands, round % 2 == 0);
                assert_eq!(reap(context, 2), [(0, (END - at) as i64), (1, BLOCK as i64)]);
            }
        }
    });
}
