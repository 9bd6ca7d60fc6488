//! Futures: every buffer comes back exactly once, or is dropped once, on every backend.

mod common;

use common::{BLOCK, everywhere, folder, forget, open};
use core::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll},
};
use futures_lite::future::{block_on, or, poll_fn, poll_once};
use nowait::{
    AlignedBuffer, AsyncFile, CacheMode, Errno, IoBuffer, IoBufferMut, Nowait, OpenOptions,
    POLL_IN, Stream, Transfer,
};
use proptest::prelude::*;
use std::{
    io::{Read, Write},
    sync::{Arc, mpsc},
    task::{Wake, Waker},
    time::Duration,
};

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

const BLOCKS: usize = 16;

fn numbered(nowait: &Nowait, mode: CacheMode, folder: &tempfile::TempDir) -> AsyncFile {
    let file = open(nowait, mode, &folder.path().join("file"));
    for block in 0..BLOCKS {
        file.write_all_at(&filled(BLOCK, block as u8), (block * BLOCK) as u64).unwrap();
    }
    AsyncFile::from(file)
}

async fn all<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|it| (it, None)).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in &mut futures {
            if output.is_none() {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

struct Counted {
    bytes: AlignedBuffer,
    drops: Arc<AtomicUsize>,
    told: Option<mpsc::Sender<()>>,
}

// SAFETY: the bytes are those of an aligned buffer, on the heap.
unsafe impl IoBuffer for Counted {
    fn as_ptr(&self) -> *const u8 {
        IoBuffer::as_ptr(&self.bytes)
    }

    fn len(&self) -> usize {
        IoBuffer::len(&self.bytes)
    }
}

// SAFETY: as above; the value owns its bytes.
unsafe impl IoBufferMut for Counted {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        IoBufferMut::as_mut_ptr(&mut self.bytes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
        if let Some(told) = &self.told {
            let _ = told.send(());
        }
    }
}

#[test]
fn transfers_bring_their_buffers_back() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        block_on(async {
            let reads = (0..=BLOCKS).map(|block| file.read_at(filled(BLOCK, 0xff), at(block)));
            for (block, (result, buffer)) in all(reads.collect()).await.into_iter().enumerate() {
                let bytes = result.unwrap();
                assert_eq!(bytes, if block < BLOCKS { BLOCK } else { 0 });
                assert_eq!(buffer[..bytes], vec![block as u8; bytes]);
            }
            let writes = (0..BLOCKS).map(|block| file.write_at(filled(BLOCK, 0xaa), at(block)));
            for (result, buffer) in all(writes.collect()).await {
                assert_eq!((result.unwrap(), &buffer[..]), (BLOCK, &[0xaa; BLOCK][..]));
            }
            file.sync_data().await.unwrap();
        });
        let bytes = std::fs::read(folder.path().join("file")).unwrap();
        assert_eq!(bytes, vec![0xaa; BLOCKS * BLOCK]);
    });
}

fn at(block: usize) -> u64 {
    (block * BLOCK) as u64
}

#[test]
fn vectored_transfers_and_syncs() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let options = OpenOptions::new().read(true).write(true).create(true).cache(mode);
        block_on(async {
            let file = options.open_async(nowait, &path).await.unwrap();
            let buffers = vec![filled(BLOCK, 1), filled(2 * BLOCK, 2)];
            let (result, buffers) = file.write_vectored_at(buffers, 0).await;
            assert_eq!((result.unwrap(), buffers.len()), (3 * BLOCK, 2));
            file.sync_all().await.unwrap();
            let whole = [vec![1; BLOCK], vec![2; 2 * BLOCK]].concat();
            assert_eq!(std::fs::read(&path).unwrap(), whole);
            let (result, buffers) = file.read_vectored_at(vec![filled(BLOCK, 0); 4], 0).await;
            assert_eq!(result.unwrap(), 3 * BLOCK);
            assert_eq!(
                buffers.iter().flat_map(|b| b.to_vec()).take(3 * BLOCK).collect::<Vec<_>>(),
                whole
            );
            let (result, _) = file.read_exact_at(filled(BLOCK, 0), 2 * BLOCK as u64).await;
            result.unwrap();
            let (result, _) = file.read_exact_at(filled(BLOCK, 0), 3 * BLOCK as u64).await;
            assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
            file.set_len(BLOCK as u64).await.unwrap();
            assert_eq!(file.size().await.unwrap(), BLOCK as u64);
            file.close().await.unwrap();
        });
        assert_eq!(std::fs::read(&path).unwrap(), [1; BLOCK]);
    });
}

#[test]
fn an_error_comes_with_the_buffer() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        block_on(async {
            let missing = OpenOptions::new().read(true).cache(mode).open_async(nowait, &path).await;
            assert_eq!(missing.unwrap_err().errno(), Errno::new(2));
            let options = OpenOptions::new().write(true).create(true).cache(mode);
            let file = options.open_async(nowait, &path).await.unwrap();
            let (result, buffer) = file.read_at(filled(BLOCK, 7), 0).await;
            assert_eq!(result.unwrap_err().errno(), Errno::BADF);
            assert_eq!(buffer[..], [7; BLOCK]);
            if mode == CacheMode::Host {
                let directory = OpenOptions::new().read(true).cache(mode);
                let directory = directory.open_async(nowait, folder.path()).await.unwrap();
                let (result, buffer) = directory.read_at(vec![5; 10], 0).await;
                assert_eq!(buffer, [5; 10]);
                let text = result.unwrap_err().to_string();
                assert!(text.starts_with("read of 10 bytes at 0 of /var/tmp"), "{text}");
            }
        });
    });
}

#[test]
fn overlapping_requests_take_effect_in_the_order_of_their_first_polls() {
    everywhere(|nowait, mode| {
        if mode == CacheMode::Direct {
            return; // overlapping direct requests have no order
        }
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        for round in 0..20u8 {
            block_on(async {
                let writes = (0..8).map(|n| file.write_at(filled(4 * BLOCK, round + n), 0));
                let mut read = file.read_at(filled(BLOCK, 0), at(2));
                let mut writes: Vec<_> = writes.collect();
                poll_fn(|cx| {
                    for write in &mut writes {
                        let _ = Pin::new(write).poll(cx).map(|(result, _)| result.unwrap());
                    }
                    Poll::Ready(())
                })
                .await;
                let (result, buffer) = (&mut read).await;
                assert_eq!((result.unwrap(), buffer[0]), (BLOCK, round + 7));
            });
        }
    });
}

#[test]
fn a_dropped_future_leaves_its_buffer_with_the_engine_until_the_end() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let drops = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel();
        for block in (0..BLOCKS).rev() {
            let (told, drops) = (Some(sender.clone()), drops.clone());
            let mut read =
                file.read_at(Counted { bytes: filled(BLOCK, 0), drops, told }, at(block));
            let _ = block_on(poll_once(&mut read));
        }
        for _ in 0..BLOCKS {
            receiver.recv().unwrap();
        }
        assert_eq!(drops.load(SeqCst), BLOCKS);
    });
}

#[test]
fn a_future_that_is_not_polled_does_nothing_and_a_forgotten_one_does_no_harm() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        drop(file.write_at(filled(BLOCK, 0xff), 0));
        let mut read = file.read_at(filled(BLOCK, 0xff), 0);
        let _ = block_on(poll_once(&mut read));
        forget(read);
        let (result, buffer) = block_on(file.read_at(filled(BLOCK, 0xff), 0));
        assert_eq!((result.unwrap(), buffer[0]), (BLOCK, 0));
    });
}

/// A waker belongs to the executor, and a panic in it must not affect the other tasks.
#[test]
fn a_waker_that_panics_harms_no_other_task() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("a broken executor");
        }
    }
    everywhere(|nowait, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let source = Stream::new(nowait, reader);
        let broken = Waker::from(Arc::new(Broken));
        let mut broken_task = source.ready(POLL_IN);
        let first = Pin::new(&mut broken_task).poll(&mut Context::from_waker(&broken));
        assert!(first.is_pending());
        block_on(async {
            let mut ready = source.ready(POLL_IN);
            assert!(poll_once(&mut ready).await.is_none());
            writer.write_all(b"x").unwrap();
            assert_eq!(ready.await.unwrap(), POLL_IN);
            assert_eq!(source.ready(POLL_IN).await.unwrap(), POLL_IN);
            assert_eq!(broken_task.await.unwrap(), POLL_IN);
        });
    });
}

#[test]
fn a_cancelled_wait_ends_with_ecanceled_and_a_late_one_with_etimedout() {
    everywhere(|nowait, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let source = Stream::new(nowait, reader);
        block_on(async {
            let mut ready = source.ready(POLL_IN);
            assert!(poll_once(&mut ready).await.is_none());
            ready.cancel();
            assert_eq!(ready.await.unwrap_err().errno(), Errno::CANCELED);
            let mut never_started = source.ready(POLL_IN);
            never_started.cancel();
            assert_eq!(never_started.await.unwrap_err().errno(), Errno::CANCELED);
            let late = source.ready(POLL_IN).timeout(Duration::from_millis(2));
            assert_eq!(late.await.unwrap_err().errno(), Errno::TIMEDOUT);
            let at_once = source.ready(POLL_IN).timeout(Duration::ZERO);
            assert_eq!(at_once.await.unwrap_err().errno(), Errno::TIMEDOUT);
            let mut ready = source.ready(POLL_IN).timeout(Duration::from_secs(1000));
            assert!(poll_once(&mut ready).await.is_none());
            writer.write_all(b"x").unwrap();
            assert_eq!(ready.await.unwrap(), POLL_IN);
            drop(source.ready(POLL_IN));
        });
    });
}

/// The places are those of `docs/rust.md`: 16,384 futures of an engine have a request in flight.
#[test]
#[cfg_attr(miri, ignore = "many requests")]
fn a_request_that_waits_for_a_place_has_its_time_limit() {
    const PLACES: usize = 16_384;
    let nowait = Nowait::new().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let source = Stream::new(&nowait, reader);
    block_on(async {
        let mut in_flight: Vec<_> = (0..PLACES).map(|_| source.ready(POLL_IN)).collect();
        for ready in &mut in_flight {
            assert!(poll_once(ready).await.is_none());
        }
        let mut first = source.read(vec![0; 8]);
        assert!(poll_once(&mut first).await.is_none());
        assert!(format!("{first:?}").contains("waiting"), "{first:?}");
        let late = source.read(vec![7; 8]).timeout(Duration::from_millis(20));
        let too_late = async {
            smol::Timer::after(Duration::from_secs(20)).await;
            None
        };
        // `too_late` comes first: a poll after its end would end the read, too.
        let ended = or(too_late, async { Some(late.await) }).await;
        let (result, buffer) = ended.expect("the read ends by itself");
        assert_eq!((result.unwrap_err().errno(), buffer), (Errno::TIMEDOUT, vec![7; 8]));
    });
}

#[test]
fn pipes_are_read_and_written() {
    everywhere(|nowait, _| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let source = Stream::new(nowait, reader);
        block_on(async {
            let mut read = source.read(vec![0; 16]);
            assert!(poll_once(&mut read).await.is_none());
            writer.write_all(b"hello").unwrap();
            let (result, buffer) = read.await;
            assert_eq!(&buffer[..result.unwrap()], b"hello");
            drop(writer);
            let (result, _) = source.read(vec![0; 16]).await;
            assert_eq!(result.unwrap(), 0, "the other end is closed");
        });
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (result, _) = block_on(Stream::new(nowait, writer).write(&b"bye"[..]));
        assert_eq!(result.unwrap(), 3);
        let mut text = [0; 3];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"bye");
    });
}

#[test]
fn the_last_handle_may_go_with_a_future() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let (backend, submit) = (nowait.backend(), nowait::SubmitMode::Auto);
        let nowait = Nowait::builder().backend(backend).submit(submit).build().unwrap();
        let file = AsyncFile::from(open(&nowait, mode, &path));
        let (sender, receiver) = mpsc::channel();
        let drops = Arc::new(AtomicUsize::new(0));
        let buffer = Counted { bytes: filled(BLOCK, 6), drops, told: Some(sender) };
        let mut write = file.write_at(buffer, 0);
        drop((nowait, file));
        let first = block_on(poll_once(&mut write));
        drop(write);
        drop(first);
        receiver.recv().unwrap();
    });
}

#[test]
fn many_tasks_on_many_threads_each_get_their_own() {
    const TASKS: usize = 200;
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = numbered(nowait, mode, &folder);
        let executor = smol::Executor::new();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let file = file.clone();
                executor.spawn(async move {
                    for step in 0..5 {
                        let block = (task + step * 7) % BLOCKS;
                        let (result, buffer) = file.read_at(filled(BLOCK, 0xff), at(block)).await;
                        assert_eq!(result.unwrap(), BLOCK);
                        assert_eq!(buffer[..], [block as u8; BLOCK]);
                    }
                })
            })
            .collect();
        let (stop, stopped) = smol::channel::unbounded::<()>();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| block_on(executor.run(stopped.recv())));
            }
            block_on(async {
                for task in tasks {
                    task.await;
                }
            });
            drop(stop);
        });
    });
}

#[derive(Clone, Debug)]
enum Fate {
    Await,
    DropUnpolled,
    PollAndDrop,
    CancelAndAwait,
    PollCancelAndAwait,
    PollCancelAndDrop,
    Timeout(u64),
}

fn fate() -> impl Strategy<Value = (Fate, bool, usize)> {
    let fate = prop_oneof![
        4 => Just(Fate::Await),
        1 => Just(Fate::DropUnpolled),
        2 => Just(Fate::PollAndDrop),
        1 => Just(Fate::CancelAndAwait),
        2 => Just(Fate::PollCancelAndAwait),
        1 => Just(Fate::PollCancelAndDrop),
        1 => (0..200_000u64).prop_map(Fate::Timeout),
    ];
    (fate, any::<bool>(), 0..BLOCKS)
}

type Started = (Fate, Transfer<Counted>, Option<Poll<()>>);

fn begin(file: &AsyncFile, (fate, writes, block): (Fate, bool, usize), buffer: Counted) -> Started {
    let mut transfer = match writes {
        true => file.write_at(buffer, at(block)),
        false => file.read_at(buffer, at(block)),
    };
    let mut first = None;
    match fate {
        Fate::Timeout(ns) => transfer = transfer.timeout(Duration::from_nanos(ns)),
        Fate::CancelAndAwait => transfer.cancel(),
        _ => {}
    }
    if !matches!(fate, Fate::DropUnpolled) {
        let waker = Waker::from(Arc::new(Nobody));
        let polled = Pin::new(&mut transfer).poll(&mut Context::from_waker(&waker));
        first = Some(polled.map(check));
    }
    (fate, transfer, first)
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

fn check((result, buffer): (Result<usize, nowait::Error>, Counted)) {
    match result {
        Ok(count) => assert_eq!(count, IoBuffer::len(&buffer)),
        Err(error) => assert!(matches!(error.errno(), Errno::CANCELED | Errno::TIMEDOUT)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_buffer_comes_back_or_is_dropped_exactly_once(
        fates in prop::collection::vec(fate(), 0..60)
    ) {
        everywhere(|nowait, mode| {
            let folder = folder();
            let file = numbered(nowait, mode, &folder);
            let drops = Arc::new(AtomicUsize::new(0));
            let (sender, receiver) = mpsc::channel();
            let buffer = || Counted {
                bytes: filled(BLOCK, 1),
                drops: drops.clone(),
                told: Some(sender.clone()),
            };
            let started: Vec<_> =
                fates.iter().map(|fate| begin(&file, fate.clone(), buffer())).collect();
            for (fate, mut transfer, first) in started {
                if first == Some(Poll::Ready(())) {
                    continue;
                }
                match fate {
                    Fate::DropUnpolled | Fate::PollAndDrop => drop(transfer),
                    Fate::PollCancelAndDrop => transfer.cancel(),
                    Fate::PollCancelAndAwait => {
                        transfer.cancel();
                        check(block_on(transfer));
                    }
                    _ => check(block_on(transfer)),
                }
            }
            for _ in 0..fates.len() {
                receiver.recv().unwrap();
            }
            assert_eq!(drops.load(SeqCst), fates.len());
        });
    }
}
