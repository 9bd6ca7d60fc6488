//! Cancelled, limited and linked requests of a queue, and the descriptor that reports their ends.

mod common;

use common::{BLOCK, everywhere, folder, on_every_engine, open};
use nowait::{
    AlignedBuffer, CacheMode, Completion, Errno, File, Nowait, POLL_IN, POLL_OUT, Queue, RequestId,
    Stream,
};
use proptest::prelude::*;
use std::{
    io::Write,
    os::fd::{AsFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

type Ends = Vec<(u32, Result<usize, Errno>)>;

fn ends(queue: &mut Queue<u32, AlignedBuffer>) -> Ends {
    let mut ends = Vec::new();
    let count = queue.len();
    let end = |done: Completion<u32, AlignedBuffer>| {
        ends.push((done.tag, done.result.map_err(|error| error.errno())));
    };
    assert_eq!(queue.reap(count, None, end).unwrap(), count);
    ends.sort_unstable_by_key(|(tag, _)| *tag);
    ends
}

#[test]
fn a_cancelled_request_comes_back_with_ecanceled_once() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let (reader, _writer) = std::io::pipe().unwrap();
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        let poll = queue.poll(reader.try_clone().unwrap(), POLL_IN, 0).unwrap();
        let stream = Stream::new(nowait, reader);
        let read = queue.read_stream(&stream, filled(BLOCK, 0), 1).unwrap();
        let prepared = queue.write(&file, filled(BLOCK, 1), 0, 2).unwrap();
        assert!(queue.cancel(prepared), "not submitted");
        assert!(!queue.cancel(prepared), "once");
        queue.submit();
        assert!(queue.cancel(poll) && queue.cancel(read));
        let all = ends(&mut queue);
        assert_eq!(all, [0, 1, 2].map(|tag| (tag, Err(Errno::CANCELED))));
        assert!(!queue.cancel(poll), "an old name finds nothing");
        assert_eq!(file.size().unwrap(), 0);
    });
}

#[test]
fn a_request_that_was_not_submitted_can_be_taken_back_with_its_buffer() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(2).unwrap();
        let write = queue.write(&file, filled(BLOCK, 1), 0, 1).unwrap();
        let sync = queue.sync_data(&file, 2).unwrap();
        queue.link(write, sync).unwrap();
        let (tag, buffers) = queue.take_back(write).unwrap();
        assert_eq!((tag, buffers.one().unwrap().len()), (1, BLOCK));
        assert!(queue.take_back(write).is_none() && !queue.is_full());
        queue.submit();
        assert!(queue.take_back(sync).is_none(), "submitted");
        assert_eq!(ends(&mut queue), [(2, Err(Errno::CANCELED))], "what was to follow");
        assert_eq!(file.size().unwrap(), 0);
    });
}

struct Broken;

impl AsFd for Broken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        std::panic::resume_unwind(Box::new("broken"))
    }
}

#[test]
fn a_source_that_panics_takes_no_place_in_the_queue() {
    everywhere(|nowait, _| {
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(1).unwrap();
        for _ in 0..3 {
            let prepare = || queue.poll(Broken, POLL_IN, 0).is_ok();
            assert!(catch_unwind(AssertUnwindSafe(prepare)).is_err());
            assert!(queue.is_empty());
        }
    });
}

#[test]
fn a_request_that_is_late_comes_back_with_etimedout() {
    everywhere(|nowait, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Arc::new(reader);
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        let limit = |queue: &mut Queue<u32, AlignedBuffer>, tag, ns| {
            let id = queue.poll(reader.clone(), POLL_IN, tag).unwrap();
            queue.timeout(id, Duration::from_nanos(ns)).unwrap();
            id
        };
        limit(&mut queue, 0, 0);
        limit(&mut queue, 1, 1_000_000);
        let later = limit(&mut queue, 2, u64::MAX);
        let (begin, first) = (Instant::now(), Duration::from_millis(1));
        let long = limit(&mut queue, 3, first.as_nanos() as u64);
        queue.submit();
        queue.timeout(later, Duration::from_millis(1)).unwrap();
        // On a slow machine the first time limit of `long` may have passed already.
        let in_time = queue.timeout(long, Duration::from_secs(1000)).is_ok();
        let extended = in_time && begin.elapsed() < first;
        // Wait for the requests with the tags 0 and 1: on a slow machine the time limits of others
        // may pass before theirs.
        let mut late = [false; 2];
        while late != [true; 2] {
            let reaped = queue.reap(1, None, |done| {
                assert!(done.tag == 3 || done.result.unwrap_err().errno() == Errno::TIMEDOUT);
                if let Some(late) = late.get_mut(done.tag as usize) {
                    *late = true;
                }
            });
            reaped.unwrap();
        }
        writer.write_all(b"x").unwrap();
        for (tag, result) in ends(&mut queue) {
            let expected = if tag == 3 { Ok(1) } else { Err(Errno::TIMEDOUT) };
            // Request 2 may find the byte before its time limit.
            assert!(result == expected || tag == 2 || tag == 3 && !extended, "{tag}: {result:?}");
        }
        let gone = queue.timeout(long, Duration::ZERO);
        assert_eq!(gone.unwrap_err().errno(), Errno::INVAL);
    });
}

#[test]
fn a_sync_follows_its_write() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = open(nowait, mode, &path);
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        for round in 0..10u32 {
            let offset = u64::from(round) * BLOCK as u64;
            let write = queue.write(&file, filled(BLOCK, round as u8), offset, 0).unwrap();
            let sync = queue.sync_data(&file, 1).unwrap();
            let read = queue.read(&file, filled(BLOCK, 0xff), offset, 2).unwrap();
            queue.link(write, sync).unwrap();
            queue.link(sync, read).unwrap();
            queue.submit();
            assert_eq!(ends(&mut queue), [(0, Ok(BLOCK)), (1, Ok(0)), (2, Ok(BLOCK))]);
        }
    });
}

#[test]
fn a_failure_cancels_those_that_follow_and_no_others() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = open(nowait, mode, &path);
        file.write_all_at(&filled(BLOCK, 7), 0).unwrap();
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        // This read is short, because the file has one block.
        let short = queue.read(&file, filled(2 * BLOCK, 0), 0, 0).unwrap();
        let write = queue.write(&file, filled(BLOCK, 8), 0, 1).unwrap();
        let sync = queue.sync_all(&file, 2).unwrap();
        let poll = queue.poll(std::io::stdout(), nowait::POLL_OUT, 3).unwrap();
        queue.sync_all(&file, 4).unwrap();
        for (first, then) in [(short, write), (write, sync), (short, poll)] {
            queue.link(first, then).unwrap();
        }
        queue.submit();
        let cancelled = Err(Errno::CANCELED);
        let expected = [(0, Ok(BLOCK)), (1, cancelled), (2, cancelled), (3, cancelled), (4, Ok(0))];
        assert_eq!(ends(&mut queue), expected);
        file.sync_all().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; BLOCK]);
    });
}

#[test]
fn a_request_that_waits_for_another_can_be_cancelled_and_dropped() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Arc::new(reader);
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        let chain = |queue: &mut Queue<u32, AlignedBuffer>| {
            let poll = queue.poll(reader.clone(), POLL_IN, 0).unwrap();
            let write = queue.write(&file, filled(BLOCK, 1), 0, 1).unwrap();
            let sync = queue.sync_data(&file, 2).unwrap();
            queue.link(poll, write).unwrap();
            queue.link(write, sync).unwrap();
            queue.submit();
            (poll, write, sync)
        };
        let (_, write, _) = chain(&mut queue);
        assert!(queue.cancel(write));
        assert_eq!(queue.wait(2, None).unwrap(), 2);
        writer.write_all(b"x").unwrap();
        let cancelled = Err(Errno::CANCELED);
        assert_eq!(ends(&mut queue), [(0, Ok(1)), (1, cancelled), (2, cancelled)]);
        assert_eq!(file.size().unwrap(), 0);
        chain(&mut queue);
        assert_eq!(ends(&mut queue), [(0, Ok(1)), (1, Ok(BLOCK)), (2, Ok(0))]);
        let (silent, _other) = std::io::pipe().unwrap();
        let poll = queue.poll(silent, POLL_IN, 0).unwrap();
        let write = queue.write(&file, filled(BLOCK, 9), 0, 1).unwrap();
        queue.link(poll, write).unwrap();
        queue.submit();
        drop(queue);
        let mut block = filled(BLOCK, 0);
        file.read_exact_at(&mut block, 0).unwrap();
        assert_eq!(block[..], [1; BLOCK], "what had not begun was not done");
    });
}

/// Requests on files in memory end inside submit.
/// More polls than an engine's native AIO has slots.
const POLLS: usize = 400;

#[test]
#[cfg_attr(miri, ignore = "no direct I/O, which the page cache needs")]
fn polls_that_follow_others_leave_room_for_reads() {
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = open(nowait, CacheMode::User, &path);
        file.set_len(8 << 20).unwrap();
        let (silent, writer) = std::io::pipe().unwrap();
        let (silent, writer) = (Arc::new(silent), Arc::new(writer));
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(2 * POLLS).unwrap();
        for _ in 0..POLLS {
            let first = queue.poll(writer.clone(), POLL_OUT, 0).unwrap();
            let then = queue.poll(silent.clone(), POLL_IN, 1).unwrap();
            queue.link(first, then).unwrap();
        }
        queue.submit();
        assert_eq!(queue.wait(POLLS, None).unwrap(), POLLS);
        let (done, ends) = mpsc::channel();
        thread::spawn(move || {
            // The end of a read lets a poll into the queue.
            let read = |page: u64| file.read_exact_at(&mut filled(BLOCK, 1), page << 20).is_ok();
            done.send((0..8).all(read)).unwrap();
        });
        assert_eq!(ends.recv_timeout(Duration::from_mins(1)), Ok(true), "no slot is left");
    });
}

#[test]
fn links_between_requests_in_memory_keep_their_order_with_copies() {
    everywhere(|nowait, mode| {
        if mode != CacheMode::Host {
            return;
        }
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = open(nowait, mode, &folder.path().join("file"));
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        for round in 0..30u8 {
            queue.write(&file, filled(BLOCK, 50), 0, 0).unwrap();
            let write = queue.write(&file, filled(BLOCK, round), 0, 1).unwrap();
            let read = queue.read(&file, filled(BLOCK, 0xff), 0, 2).unwrap();
            let again = queue.write(&file, filled(BLOCK, 60), 0, 3).unwrap();
            queue.read(&file, filled(BLOCK, 0xff), 0, 4).unwrap();
            // This read is short, because the file has one block: the queue must not start the
            // write linked to it.
            let short = queue.read(&file, filled(2 * BLOCK, 0xff), 0, 5).unwrap();
            let never = queue.write(&file, filled(BLOCK, 70), 0, 6).unwrap();
            queue.read(&file, filled(BLOCK, 0xff), 0, 7).unwrap();
            for (first, then) in [(write, read), (read, again), (short, never)] {
                queue.link(first, then).unwrap();
            }
            assert_eq!(queue.submit(), 8);
            let mut seen = [None; 8];
            let done = queue.reap(8, None, |done| {
                let result = done.result.map_err(|error| error.errno());
                seen[done.tag as usize] = Some((result, done.buffers.one().unwrap()[0]));
            });
            let whole = |byte| Some((Ok(BLOCK), byte));
            let expected = [
                whole(50),
                whole(round),
                whole(round),
                whole(60),
                whole(60),
                whole(60),
                Some((Err(Errno::CANCELED), 70)),
                whole(60),
            ];
            assert_eq!((done.unwrap(), seen), (8, expected), "round {round}");
        }
    });
}

#[test]
fn a_link_is_made_between_prepared_requests_in_their_order() {
    let nowait = Nowait::new().unwrap();
    let folder = folder();
    let file = open(&nowait, CacheMode::Host, &folder.path().join("file"));
    let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
    let first = queue.sync_all(&file, 0).unwrap();
    let second = queue.sync_all(&file, 1).unwrap();
    let refused = |queue: &mut Queue<u32, AlignedBuffer>, first: RequestId, then: RequestId| {
        queue.link(first, then).unwrap_err().errno()
    };
    assert_eq!(refused(&mut queue, second, first), Errno::INVAL);
    assert_eq!(refused(&mut queue, first, first), Errno::INVAL);
    queue.link(first, second).unwrap();
    assert_eq!(refused(&mut queue, first, second), Errno::INVAL, "it has one already");
    let stream = Stream::new(&nowait, std::io::stdin());
    let read = queue.read_stream(&stream, filled(BLOCK, 0), 2).unwrap();
    assert_eq!(refused(&mut queue, second, read), Errno::OPNOTSUPP);
    assert!(queue.cancel(read) && queue.cancel(first));
    queue.submit();
    let third = queue.sync_all(&file, 3).unwrap();
    assert_eq!(refused(&mut queue, second, third), Errno::INVAL, "the first is submitted");
    queue.submit();
    let cancelled = Err(Errno::CANCELED);
    let expected = [(0, cancelled), (1, cancelled), (2, cancelled), (3, Ok(0))];
    assert_eq!(ends(&mut queue), expected);
}

fn is_readable(queue: &mut Queue<u32, AlignedBuffer>, wait: bool) -> bool {
    use std::os::fd::AsRawFd;
    let fd = queue.event_fd().unwrap().as_raw_fd();
    let until = match wait {
        true => nowait_sys::time::Deadline::NEVER,
        false => nowait_sys::time::Deadline::NOW,
    };
    nowait_sys::poll::ppoll(fd, 1, until, None).unwrap() != 0
}

#[test]
fn what_a_submission_gives_back_does_not_make_the_descriptor_readable() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        file.write_all_at(&filled(BLOCK, 5), 0).unwrap();
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        assert!(!is_readable(&mut queue, false));
        for round in 0..100u32 {
            queue.read(&file, filled(BLOCK, 0), 0, round).unwrap();
            let mut given = Vec::new();
            assert_eq!(queue.submit_and_pop(|done| given.push(done)), 1);
            if let Some(done) = given.pop() {
                assert_eq!((done.tag, done.result.unwrap()), (round, BLOCK));
                assert!(!is_readable(&mut queue, false), "{nowait:?}, {mode:?}");
            } else {
                // A request that the submission left in flight makes the descriptor readable when
                // the request ends.
                assert!(is_readable(&mut queue, true));
                queue.reap(1, None, |done| assert_eq!(done.tag, round)).unwrap();
                while is_readable(&mut queue, false) {
                    queue.wait(0, Some(Duration::ZERO)).unwrap();
                }
            }
            assert!(queue.is_empty());
        }
    });
}

#[test]
fn the_descriptor_of_a_queue_is_readable_when_requests_have_ended() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        file.write_all_at(&filled(4 * BLOCK, 5), 0).unwrap();
        let mut queue: Queue<u32, AlignedBuffer> = nowait.queue(8).unwrap();
        assert!(!is_readable(&mut queue, false));
        for round in 0..20u32 {
            let at = u64::from(round % 4) * BLOCK as u64;
            queue.read(&file, filled(BLOCK, 0), at, round).unwrap();
            queue.sync_data(&file, round).unwrap();
            queue.submit();
            let mut ended = 0;
            while ended < 2 {
                // The descriptor may become readable after the event was taken: then it is readable
                // without an event.
                assert!(is_readable(&mut queue, true));
                ended += queue.reap(0, None, |done| assert!(done.result.is_ok())).unwrap();
            }
        }
        let silent = std::io::pipe().unwrap();
        let poll = queue.poll(silent.0, POLL_IN, 0).unwrap();
        queue.submit();
        assert!(queue.cancel(poll));
        while queue.wait(0, None).unwrap() == 0 {
            assert!(is_readable(&mut queue, true));
        }
        assert_eq!(ends(&mut queue), [(0, Err(Errno::CANCELED))]);
    });
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Write(usize),
    Sync,
    Poll,
    Link(usize),
    Cancel(usize),
    Limit(usize, u64),
    Submit,
    Reap,
    MakeReady,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8usize).prop_map(Step::Read),
        3 => (0..8usize).prop_map(Step::Write),
        2 => Just(Step::Sync),
        1 => Just(Step::Poll),
        3 => (1..4usize).prop_map(Step::Link),
        2 => (0..20usize).prop_map(Step::Cancel),
        1 => (0..20usize, 0..300_000u64).prop_map(|(which, ns)| Step::Limit(which, ns)),
        3 => Just(Step::Submit),
        2 => Just(Step::Reap),
        1 => Just(Step::MakeReady),
    ]
}

struct Run {
    queue: Queue<u32, AlignedBuffer>,
    file: File,
    pipe: (Arc<std::io::PipeReader>, std::io::PipeWriter),
    ids: Vec<RequestId>,
    /// The result of each request by tag; `None`: the request has not come back.
    ends: Vec<Option<Result<usize, Errno>>>,
    links: Vec<(usize, usize)>,
}

impl Run {
    fn apply(&mut self, step: &Step) {
        let (tag, buffer) = (self.ends.len() as u32, filled(BLOCK, 3));
        let queue = &mut self.queue;
        let last = self.ids.len();
        let taken = match *step {
            Step::Read(block) => queue.read(&self.file, buffer, (block * BLOCK) as u64, tag),
            Step::Write(block) => queue.write(&self.file, buffer, (block * BLOCK) as u64, tag),
            Step::Sync => queue.sync_data(&self.file, tag),
            Step::Poll => queue.poll(self.pipe.0.clone(), POLL_IN, tag),
            Step::Link(back) => {
                if last > back && queue.link(self.ids[last - 1 - back], self.ids[last - 1]).is_ok()
                {
                    self.links.push((last - 1 - back, last - 1));
                }
                return;
            }
            Step::Cancel(back) => {
                let id = self.ids.iter().rev().nth(back);
                let _ = id.map(|id| queue.cancel(*id));
                return;
            }
            Step::Limit(back, ns) => {
                let id = self.ids.iter().rev().nth(back);
                let _ = id.map(|id| queue.timeout(*id, Duration::from_nanos(ns)));
                return;
            }
            Step::Submit => {
                queue.submit();
                return;
            }
            Step::Reap => return self.reap(0),
            Step::MakeReady => return self.pipe.1.write_all(b"x").unwrap(),
        };
        match taken {
            Ok(id) => {
                self.ids.push(id);
                self.ends.push(None);
            }
            Err(refused) => assert_eq!(refused.error.errno(), Errno::AGAIN),
        }
    }

    fn reap(&mut self, min: usize) {
        let ends = &mut self.ends;
        let end = |done: Completion<u32, AlignedBuffer>| {
            let result = done.result.map_err(|error| error.errno());
            let before = ends[done.tag as usize].replace(result);
            assert_eq!(before, None, "it comes back once");
        };
        self.queue.reap(min, None, end).unwrap();
    }

    fn check(&self) {
        for (tag, end) in self.ends.iter().enumerate() {
            match end.expect("it comes back") {
                Ok(_) | Err(Errno::CANCELED | Errno::TIMEDOUT) => {}
                Err(errno) => panic!("{tag}: {errno}"),
            }
        }
        for (first, then) in &self.links {
            let failed = self.ends[*first].is_some_and(|end| end.is_err());
            let follows = self.ends[*then].is_some_and(|end| end.is_ok());
            assert!(!(failed && follows), "{then} begins after {first}, which failed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_request_comes_back_once_whatever_is_done_to_it(
        steps in prop::collection::vec(step(), 0..120)
    ) {
        everywhere(|nowait, mode| {
            let folder = folder();
            let file = open(nowait, mode, &folder.path().join("file"));
            file.write_all_at(&filled(8 * BLOCK, 2), 0).unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let mut run = Run {
                queue: nowait.queue(16).unwrap(),
                file,
                pipe: (Arc::new(reader), writer),
                ids: Vec::new(),
                ends: Vec::new(),
                links: Vec::new(),
            };
            steps.iter().for_each(|step| run.apply(step));
            run.queue.submit();
            run.apply(&Step::MakeReady);
            run.reap(usize::MAX);
            assert!(run.queue.is_empty());
            run.check();
        });
    }
}
