//! Queues: every accepted request comes back once, with its buffer, on every backend.

mod common;

use common::{BLOCK, everywhere, folder, forget, open};
use nowait::{AlignedBuffer, CacheMode, Errno, File, Nowait, OpenOptions, POLL_IN, Queue};
use nowait_sys::{poll, time::Deadline};
use proptest::prelude::*;
use std::{
    io::Write,
    os::fd::AsRawFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

fn numbered(nowait: &Nowait, mode: CacheMode, folder: &tempfile::TempDir) -> File {
    let file = open(nowait, mode, &folder.path().join("file"));
    for block in 0..16u8 {
        file.write_all_at(&filled(BLOCK, block), u64::from(block) * BLOCK as u64).unwrap();
    }
    file
}

#[test]
fn reads_bring_their_buffers_and_tags_back() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        file.set_len(15 * BLOCK as u64 + 512).unwrap();
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(17).unwrap();
        for block in 0..17 {
            queue.read(&file, filled(BLOCK, 0xff), u64::from(block) * BLOCK as u64, block).unwrap();
        }
        assert_eq!(queue.submit(), 17);
        let mut seen = [false; 17];
        let count = queue.reap(17, None, |done| {
            let bytes = done.result.unwrap();
            assert_eq!(bytes, [BLOCK, 512, 0][(done.tag as usize).saturating_sub(14).min(2)]);
            let buffer = done.buffers.one().unwrap();
            assert!(buffer[..bytes].iter().all(|byte| *byte == done.tag));
            assert!(!core::mem::replace(&mut seen[done.tag as usize], true));
        });
        assert_eq!((count.unwrap(), seen), (17, [true; 17]));
        assert!(queue.is_empty());
    });
}

#[test]
fn a_full_queue_gives_the_request_back_and_never_waits() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(2).unwrap();
        queue.read(&file, filled(BLOCK, 0), 0, 0).unwrap();
        queue.submit();
        queue.read(&file, filled(BLOCK, 0), 0, 1).unwrap();
        assert!(queue.is_full());
        let refused = queue.read(&file, filled(BLOCK, 9), 0, 2).unwrap_err();
        assert_eq!((refused.error.errno(), refused.tag), (Errno::AGAIN, 2));
        assert_eq!(refused.buffers.one().unwrap()[..], [9; BLOCK]);
        queue.submit();
        // A wait does not wait for more requests than are in flight.
        assert_eq!(queue.wait(99, None).unwrap(), 2);
        // A request that is over keeps its place until it is popped.
        assert_eq!(queue.sync_all(&file, 3).unwrap_err().error.errno(), Errno::AGAIN);
        assert!(queue.pop().is_some() && queue.sync_all(&file, 3).is_ok());
    });
}

#[test]
fn vectored_writes_and_reads_and_a_sync_in_one_batch() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = open(nowait, mode, &path);
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(8).unwrap();
        let buffers = vec![filled(BLOCK, 1), filled(2 * BLOCK, 2)];
        queue.write_vectored(&file, buffers, 0, 0).unwrap();
        queue.write(&file, filled(BLOCK, 3), 3 * BLOCK as u64, 1).unwrap();
        queue.sync_data(&file, 2).unwrap();
        queue.sync_all(&file, 3).unwrap();
        queue.submit();
        queue
            .reap(4, None, |done| {
                let expected = [3 * BLOCK, BLOCK, 0, 0][done.tag as usize];
                assert_eq!(done.result.unwrap(), expected, "{}", done.tag);
            })
            .unwrap();
        let whole = [vec![1; BLOCK], vec![2; 2 * BLOCK], vec![3; BLOCK]].concat();
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        queue.read_vectored(&file, vec![filled(BLOCK, 0); 4], 0, 4).unwrap();
        queue.submit();
        queue.wait(1, None).unwrap();
        let buffers = queue.pop().unwrap().buffers.many().unwrap();
        assert_eq!(buffers.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), whole);
    });
}

#[test]
fn what_is_impossible_is_refused_before_it_starts() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let options = OpenOptions::new().write(true).create(true).cache(mode);
        let file = options.open(nowait, &path).unwrap();
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(4).unwrap();
        let refused = queue.read(&file, filled(BLOCK, 7), 0, 1).unwrap_err();
        assert_eq!(refused.error.errno(), Errno::BADF);
        assert_eq!(refused.buffers.one().unwrap()[..], [7; BLOCK]);
        if mode == CacheMode::Direct {
            let refused = queue.write(&file, filled(BLOCK, 7), 3, 1).unwrap_err();
            assert_eq!(refused.error.errno(), Errno::INVAL);
            assert!(refused.error.to_string().contains("multiple of"), "{}", refused.error);
        }
        assert_eq!((queue.len(), queue.submit(), queue.wait(1, None).unwrap()), (0, 0, 0));
    });
}

#[test]
fn an_error_comes_with_the_buffer_and_names_the_request() {
    everywhere(|nowait, _| {
        let folder = folder();
        let options = OpenOptions::new().read(true).cache(CacheMode::Host);
        let directory = options.open(nowait, folder.path()).unwrap();
        let mut queue: Queue<(), Vec<u8>> = nowait.queue(4).unwrap();
        queue.read(&directory, vec![5; 10], 0, ()).unwrap();
        assert_eq!(queue.submit(), 1);
        assert_eq!(queue.wait(1, None).unwrap(), 1);
        let done = queue.pop().unwrap();
        assert_eq!(done.buffers.one().unwrap(), [5; 10]);
        let text = done.result.unwrap_err().to_string();
        assert!(text.starts_with("read of 10 bytes at 0 of /var/tmp"), "{text}");
    });
}

#[test]
fn a_queue_may_be_dropped_with_requests_in_flight() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        for round in 0..20u64 {
            let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(16).unwrap();
            for block in 0..8 {
                queue.read(&file, filled(BLOCK, 0), block * BLOCK as u64, block).unwrap();
                let place = (block + 8) * BLOCK as u64;
                queue.write(&file, filled(BLOCK, round as u8), place, block).unwrap();
            }
            queue.submit();
            let _ = queue.wait(round as usize % 16, None);
        }
        let mut last = filled(BLOCK, 0);
        file.read_exact_at(&mut last, 15 * BLOCK as u64).unwrap();
        assert_eq!(last[..], [19; BLOCK], "what was submitted was done");
    });
}

fn uncached(
    nowait: &Nowait,
    mode: CacheMode,
    folder: &tempfile::TempDir,
    blocks: usize,
) -> (File, Vec<u8>) {
    let path = folder.path().join("file");
    let bytes: Vec<u8> = (0..blocks * BLOCK).map(|at| (at / BLOCK) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    (open(nowait, mode, &path), bytes)
}

#[test]
fn what_a_dropped_queue_was_reading_ahead_is_there_for_others() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let (file, bytes) = uncached(nowait, mode, &folder, 512);
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(4).unwrap();
        for at in 0..4 {
            let offset = at * 16 * BLOCK as u64;
            queue.read(&file, filled(16 * BLOCK, 0), offset, at).unwrap();
        }
        queue.submit();
        queue.reap(1, None, |_| {}).unwrap();
        drop(queue);
        let mut rest = filled(bytes.len(), 0);
        assert_eq!(file.read_at(&mut rest, 0).unwrap(), bytes.len());
        assert!(*rest == bytes[..]);
    });
}

#[test]
fn pages_of_requests_that_are_not_reaped_are_there_for_others() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let (file, bytes) = uncached(nowait, mode, &folder, 512);
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(32).unwrap();
        for at in (0..32).rev() {
            let offset = at * 16 * BLOCK as u64;
            queue.read(&file, filled(16 * BLOCK, 0), offset, at).unwrap();
        }
        queue.submit();
        let taken = queue.reap(1, None, |_| {}).unwrap();
        let mut all = filled(bytes.len(), 0);
        assert_eq!(file.read_at(&mut all, 0).unwrap(), bytes.len());
        assert!(*all == bytes[..]);
        let rest = queue.reap(32 - taken, None, |done| {
            let from = done.tag as usize * 16 * BLOCK;
            assert_eq!(done.result.unwrap(), 16 * BLOCK);
            assert!(*done.buffers.one().unwrap() == bytes[from..][..16 * BLOCK]);
        });
        assert_eq!(rest.unwrap(), 32 - taken);
    });
}

#[test]
fn a_batch_of_durable_writes_is_in_the_file_when_it_ends() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0xee; 512 * BLOCK]).unwrap();
        let options = OpenOptions::new().read(true).write(true).sync(true).cache(mode);
        let file = options.open(nowait, &path).unwrap();
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(32).unwrap();
        for at in 0..32u8 {
            let buffer = filled(16 * BLOCK, at);
            queue.write(&file, buffer, u64::from(at) * 16 * BLOCK as u64, at).unwrap();
        }
        queue.submit();
        let reaped = queue.reap(32, None, |done| assert_eq!(done.result.unwrap(), 16 * BLOCK));
        assert_eq!(reaped.unwrap(), 32);
        let bytes = std::fs::read(&path).unwrap();
        for (page, bytes) in bytes.chunks(BLOCK).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == (page / 16) as u8), "page {page}");
        }
    });
}

#[test]
fn a_panic_in_reap_loses_nothing_but_its_own() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(4).unwrap();
        for block in 0..4 {
            queue.read(&file, filled(BLOCK, 0), block * BLOCK as u64, block).unwrap();
        }
        queue.submit();
        queue.wait(4, None).unwrap();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let reaped = catch_unwind(AssertUnwindSafe(|| queue.reap(4, None, |_| panic!("enough"))));
        std::panic::set_hook(hook);
        assert!(reaped.is_err());
        assert_eq!(queue.reap(4, None, |done| assert!(done.result.is_ok())).unwrap(), 3);
    });
}

#[test]
fn a_forgotten_queue_does_no_harm() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(4).unwrap();
        for block in 0..4 {
            queue.read(&file, filled(BLOCK, 0), block * BLOCK as u64, block).unwrap();
        }
        queue.submit();
        forget(queue);
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(4).unwrap();
        queue.read(&file, filled(BLOCK, 0), 0, 0).unwrap();
        queue.submit();
        assert_eq!(queue.wait(1, None).unwrap(), 1);
    });
}

#[test]
fn a_request_keeps_its_file_open() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let mut queue: Queue<(), AlignedBuffer> = nowait.queue(4).unwrap();
        queue.write(&open(nowait, mode, &path), filled(BLOCK, 6), 0, ()).unwrap();
        queue.submit();
        queue.reap(1, None, |done| assert_eq!(done.result.unwrap(), BLOCK)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [6; BLOCK]);
    });
}

#[test]
fn a_poll_ends_when_its_pipe_is_ready_and_when_the_queue_is_dropped() {
    everywhere(|nowait, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (reader, mut queue) = (Arc::new(reader), nowait.queue::<u8, Vec<u8>>(4).unwrap());
        queue.poll(reader.clone(), POLL_IN, 1).unwrap();
        queue.submit();
        assert_eq!(queue.wait(1, Some(Duration::ZERO)).unwrap(), 0);
        assert_eq!(queue.wait(1, Some(Duration::from_millis(1))).unwrap(), 0);
        writer.write_all(b"x").unwrap();
        queue.reap(1, None, |done| assert_eq!(done.result.unwrap(), 1)).unwrap();
        let (silent, _writer) = std::io::pipe().unwrap();
        queue.poll(silent, POLL_IN, 2).unwrap();
        queue.submit();
        drop(queue); // and returns
    });
}

#[test]
fn a_queue_can_be_given_to_another_thread() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(16).unwrap();
        for block in 0..16 {
            queue.read(&file, filled(BLOCK, 0), block * BLOCK as u64, block).unwrap();
        }
        queue.submit();
        let reaper = std::thread::spawn(move || {
            queue.reap(16, None, |done| {
                let buffer = done.buffers.one().unwrap();
                assert_eq!(buffer[..], [done.tag as u8; BLOCK]);
            })
        });
        assert_eq!(reaper.join().unwrap().unwrap(), 16);
    });
}

#[derive(Clone, Debug)]
enum Step {
    Read { block: usize, blocks: usize },
    Write { block: usize, blocks: usize, byte: u8 },
    Sync,
    Submit,
    Reap(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..BLOCKS - 2, 1..4usize);
    prop_oneof![
        4 => place().prop_map(|(block, blocks)| Step::Read { block, blocks: blocks + 1 }),
        4 => (place(), any::<u8>())
            .prop_map(|((block, blocks), byte)| Step::Write { block, blocks, byte }),
        1 => Just(Step::Sync),
        2 => Just(Step::Submit),
        2 => (0..6usize).prop_map(Step::Reap),
    ]
}

/// Number of blocks of a random run's file. The file has its full length from the beginning:
/// otherwise the result of a read would depend on the end of a write elsewhere that extends the
/// file.
const BLOCKS: usize = 14;

/// A queue, and a model of its file. Requests that overlap on one buffered file take effect in the
/// order of their submission. The model applies each write to `bytes` when the write is prepared,
/// so `bytes` equals the file when all writes have ended.
struct Model {
    file: File,
    queue: Queue<usize, AlignedBuffer>,
    bytes: Vec<u8>,
    /// By tag: the bytes that a read must return, and the number of bytes of a request; `None` once
    /// the request came back.
    expected: Vec<Option<(Option<Vec<u8>>, usize)>>,
}

impl Model {
    fn apply(&mut self, step: &Step) {
        let tag = self.expected.len();
        match *step {
            Step::Submit => drop(self.queue.submit()),
            Step::Reap(min) => self.reap(min),
            Step::Sync if !self.queue.is_full() => {
                self.queue.sync_data(&self.file, tag).unwrap();
                self.expected.push(Some((None, 0)));
            }
            Step::Read { block, blocks } if !self.queue.is_full() => {
                let (offset, len) = (block * BLOCK, blocks * BLOCK);
                let end = (offset + len).min(BLOCKS * BLOCK);
                let seen = self.bytes[offset..end].to_vec();
                self.queue.read(&self.file, filled(len, 0xee), offset as u64, tag).unwrap();
                let count = seen.len();
                self.expected.push(Some((Some(seen), count)));
            }
            Step::Write { block, blocks, byte } if !self.queue.is_full() => {
                let (offset, len) = (block * BLOCK, blocks * BLOCK);
                self.bytes[offset..offset + len].fill(byte);
                self.queue.write(&self.file, filled(len, byte), offset as u64, tag).unwrap();
                self.expected.push(Some((None, len)));
            }
            _ => {}
        }
    }

    fn reap(&mut self, min: usize) {
        let expected = &mut self.expected;
        let reaped = self.queue.reap(min, None, |done| {
            let (seen, count) = expected[done.tag].take().expect("it comes back once");
            assert_eq!(done.result.unwrap(), count);
            if let Some(seen) = seen {
                assert!(done.buffers.one().unwrap()[..count] == seen, "a read saw other bytes");
            }
        });
        reaped.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_random_run_agrees_with_a_vector(steps in prop::collection::vec(step(), 0..120)) {
        everywhere(|nowait, mode| {
            if mode == CacheMode::Direct {
                return; // overlapping direct requests have no order
            }
            let folder = folder();
            let path = folder.path().join("file");
            let (file, queue) = (open(nowait, mode, &path), nowait.queue(24).unwrap());
            let bytes = vec![0; BLOCKS * BLOCK];
            file.set_len(bytes.len() as u64).unwrap();
            let mut model = Model { file, queue, bytes, expected: Vec::new() };
            steps.iter().for_each(|step| model.apply(step));
            model.queue.submit();
            model.reap(usize::MAX);
            assert!(model.expected.iter().all(Option::is_none), "all came back");
            assert!(model.queue.is_empty());
            // After this sync the cached data is in the file that other programs read.
            model.file.sync_data().unwrap();
            assert!(std::fs::read(&path).unwrap() == model.bytes);
        });
    }
}

#[test]
fn the_descriptor_is_readable_when_requests_have_ended() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(16).unwrap();
        let fd = queue.event_fd().unwrap().as_raw_fd();
        assert_eq!(poll::ready(fd, POLL_IN as i16), Ok(0));
        for round in 0..3 {
            for block in 0..16 {
                let offset = u64::from(block) * BLOCK as u64;
                queue.read(&file, filled(BLOCK, 0xff), offset, block).unwrap();
            }
            assert_eq!(queue.submit(), 16);
            let mut ended = 0;
            while ended < 16 {
                let deadline = Deadline::after_ns(20_000_000_000);
                let events = poll::ppoll(fd, POLL_IN as i16, deadline, None).unwrap();
                assert_ne!(events, 0, "{round}: lost at {ended}");
                queue.wait(0, None).unwrap();
                while let Some(done) = queue.pop() {
                    assert_eq!(done.result.unwrap(), BLOCK);
                    assert_eq!(done.buffers.one().unwrap()[0], done.tag);
                    ended += 1;
                }
            }
        }
    });
}

#[test]
fn the_descriptor_tells_of_requests_that_were_in_flight_before_it_was_asked_for() {
    everywhere(|nowait, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut queue: Queue<u8> = nowait.queue(2).unwrap();
        queue.descriptors().unwrap(); // another loop was tried before
        queue.poll(reader, POLL_IN, 0).unwrap();
        queue.submit();
        let fd = queue.event_fd().unwrap().as_raw_fd();
        assert_eq!(poll::ready(fd, POLL_IN as i16), Ok(0));
        writer.write_all(b"x").unwrap();
        assert_ne!(poll::ppoll(fd, POLL_IN as i16, Deadline::NEVER, None), Ok(0));
        queue.reap(1, None, |done| assert!(done.result.is_ok())).unwrap();
        assert_eq!(poll::ready(fd, POLL_IN as i16), Ok(0), "nothing is left to tell");
    });
}

#[test]
fn the_descriptor_is_readable_for_what_was_over_before_it_was_asked_for() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(4).unwrap();
        queue.read(&file, filled(BLOCK, 0), 0, 0).unwrap();
        queue.submit();
        assert_eq!(queue.wait(1, None).unwrap(), 1);
        let fd = queue.event_fd().unwrap().as_raw_fd();
        assert_ne!(poll::ready(fd, POLL_IN as i16), Ok(0));
        queue.wait(0, None).unwrap();
        assert_eq!(poll::ready(fd, POLL_IN as i16), Ok(0), "a wait resets it");
        queue.ring_if_over();
        assert_ne!(poll::ready(fd, POLL_IN as i16), Ok(0), "it was not popped");
        queue.pop().unwrap().result.unwrap();
        queue.wait(0, None).unwrap();
        queue.ring_if_over();
        assert_eq!(poll::ready(fd, POLL_IN as i16), Ok(0));
    });
}

#[test]
fn a_queue_counts_what_it_did_if_asked_to() {
    let uncounted = Nowait::new().unwrap();
    let queue: Queue<u8> = uncounted.queue(1).unwrap();
    assert!(queue.report().contains("\"contexts\":[]"), "{}", queue.report());
    let nowait = Nowait::builder().stats(true).build().unwrap();
    let folder = folder();
    let file = numbered(&nowait, CacheMode::User, &folder);
    let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(1).unwrap();
    queue.read(&file, filled(BLOCK, 0), 0, 0).unwrap();
    queue.submit();
    queue.reap(1, None, |done| assert!(done.result.is_ok())).unwrap();
    let report = queue.report();
    assert!(report.contains("\"requests\":1") && report.contains("\"submits\":1"), "{report}");
}

#[test]
fn a_read_at_once_sees_what_was_submitted_before_it() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(4).unwrap();
        let mut at_once = 0;
        for byte in 16..80 {
            queue.write(&file, filled(BLOCK, byte), 0, byte).unwrap();
            queue.submit();
            for _ in 0..2 {
                let mut buffer = filled(BLOCK, 0);
                if let Some(read) = queue.read_at_once(&file, &mut buffer, 0) {
                    assert_eq!(read.unwrap(), BLOCK);
                    assert_eq!(buffer[..], [byte; BLOCK]);
                    at_once += 1;
                }
                queue.reap(1, None, |done| assert_eq!(done.result.unwrap(), BLOCK)).unwrap();
            }
        }
        match mode {
            CacheMode::User => assert!(at_once >= 64, "what was written is cached"),
            CacheMode::Direct => assert_eq!(at_once, 0, "it has to wait for the device"),
            _ => {}
        }
    });
}

#[test]
fn a_read_at_once_is_none_where_there_is_something_to_wait_for() {
    let nowait = Nowait::new().unwrap();
    let folder = folder();
    let file = numbered(&nowait, CacheMode::User, &folder);
    let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(4).unwrap();
    let mut buffer = filled(BLOCK, 0xff);
    let mut read = |queue: &mut Queue<_, _>, offset| {
        let read = queue.read_at_once(&file, &mut buffer, offset);
        read.map(|count| buffer[..count.unwrap()].to_vec())
    };
    assert_eq!(read(&mut queue, 3 * BLOCK as u64), Some(vec![3; BLOCK]));
    assert_eq!(read(&mut queue, 16 * BLOCK as u64), Some(vec![]));
    queue.sync_data(&file, 0).unwrap();
    assert_eq!(read(&mut queue, 0), None, "a request is prepared");
    queue.submit();
    queue.reap(1, None, |done| assert!(done.result.is_ok())).unwrap();
    let mut large = AlignedBuffer::zeroed((256 << 10) + BLOCK);
    assert!(queue.read_at_once(&file, &mut large, 0).is_none(), "it would hold the caller up");
    let written = OpenOptions::new().write(true).open(&nowait, folder.path().join("file")).unwrap();
    let refused = queue.read_at_once(&written, &mut filled(BLOCK, 0), 0).unwrap().unwrap_err();
    assert_eq!(refused.errno(), Errno::BADF);
}
