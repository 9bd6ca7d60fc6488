//! A file as a stream of bytes, for both families of traits.

mod common;

use common::{everywhere, folder, open};
use nowait::{AsyncFile, CacheMode, Cursor, Nowait, POLL_IN, Stream};
use proptest::prelude::*;
use std::{
    io::{self, SeekFrom},
    path::Path,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

fn cursor(nowait: &Nowait, mode: CacheMode, path: &Path) -> Cursor {
    AsyncFile::from(open(nowait, mode, path)).cursor(0)
}

/// Skips the mode `Direct`, where requests must be aligned.
fn unaligned(claim: impl Fn(&Nowait, CacheMode)) {
    everywhere(|nowait, mode| {
        if mode != CacheMode::Direct {
            claim(nowait, mode);
        }
    });
}

#[test]
fn lines_go_in_and_out_with_futures_io() {
    use futures_lite::{AsyncBufReadExt, AsyncSeekExt, AsyncWriteExt, StreamExt};
    unaligned(|nowait, mode| {
        let folder = folder();
        let mut cursor = cursor(nowait, mode, &folder.path().join("file"));
        futures_lite::future::block_on(async {
            for number in 0..10_000 {
                cursor.write_all(format!("line {number}\n").as_bytes()).await.unwrap();
            }
            cursor.flush().await.unwrap();
            cursor.seek(SeekFrom::Start(0)).await.unwrap();
            let mut lines = cursor.lines();
            for number in 0..10_000 {
                assert_eq!(lines.next().await.unwrap().unwrap(), format!("line {number}"));
            }
            assert!(lines.next().await.is_none());
        });
    });
}

/// The reactor has 16,384 places. The cursor reports the write as done while the write waits for
/// one.
#[test]
fn a_write_without_a_place_goes_on_after_the_cursor_is_dropped() {
    use futures_io::AsyncWrite;
    let nowait = Nowait::new().unwrap();
    let (reader, _writer) = io::pipe().unwrap();
    let pipe = Stream::new(&nowait, reader);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..16_384).map(|_| pipe.ready(POLL_IN)).collect();
    waiting.iter_mut().for_each(|it| assert!(Pin::new(it).poll(&mut context).is_pending()));

    let folder = folder();
    let path = folder.path().join("file");
    let mut cursor = cursor(&nowait, CacheMode::Host, &path);
    let written = Pin::new(&mut cursor).poll_write(&mut context, b"reported as written");
    assert!(matches!(written, Poll::Ready(Ok(19))), "{written:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"", "it waits for a place");
    drop(cursor);
    let began = Instant::now();
    while std::fs::read(&path).unwrap() != b"reported as written" {
        assert!(began.elapsed() < Duration::from_secs(10), "the write is lost");
        std::thread::yield_now();
    }
}

#[test]
fn bytes_go_in_and_out_with_tokio() {
    use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    unaligned(|nowait, mode| {
        let folder = folder();
        let mut cursor = cursor(nowait, mode, &folder.path().join("file"));
        let bytes: Vec<u8> = (0..300_000u32).map(|n| (n / 1000) as u8).collect();
        runtime.block_on(async {
            cursor.write_all(&bytes).await.unwrap();
            assert_eq!(cursor.seek(SeekFrom::End(-100_000)).await.unwrap(), 200_000);
            let mut tail = Vec::new();
            cursor.read_to_end(&mut tail).await.unwrap();
            assert!(tail == bytes[200_000..]);
            assert_eq!(cursor.seek(SeekFrom::Current(-10)).await.unwrap(), 299_990);
            let refused = cursor.seek(SeekFrom::Current(-300_000)).await.unwrap_err();
            assert!(refused.to_string().contains("before the start"), "{refused}");
            cursor.seek(SeekFrom::Start(1 << 63)).await.unwrap();
            assert_eq!(cursor.seek(SeekFrom::Current(i64::MAX)).await.unwrap(), u64::MAX);
            let refused = cursor.seek(SeekFrom::Current(1)).await.unwrap_err();
            assert!(refused.to_string().contains("largest offset"), "{refused}");
            cursor.shutdown().await.unwrap();
        });
    });
}

#[test]
fn a_write_that_was_taken_is_done_even_if_the_cursor_is_dropped() {
    use futures_lite::AsyncWriteExt;
    unaligned(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let mut cursor = cursor(nowait, mode, &path);
        let file = cursor.file().clone();
        futures_lite::future::block_on(async {
            cursor.write_all(b"taken").await.unwrap();
            drop(cursor);
            file.sync_data().await.unwrap();
        });
        assert_eq!(std::fs::read(&path).unwrap(), b"taken");
    });
}

#[test]
fn an_error_of_a_write_is_told_by_the_next_call() {
    use futures_lite::AsyncWriteExt;
    unaligned(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let options = nowait::OpenOptions::new().read(true).cache(mode);
        let mut cursor = AsyncFile::from(options.open(nowait, &path).unwrap()).cursor(0);
        let outcome = futures_lite::future::block_on(async {
            cursor.write_all(b"y").await?;
            cursor.flush().await
        });
        assert!(outcome.unwrap_err().to_string().contains("not open for writing"));
        assert_eq!(cursor.position(), 0, "nothing was written");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Write(usize, u8),
    Seek(SeekFrom),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let seek = prop_oneof![
        (0..300_000u64).prop_map(SeekFrom::Start),
        (-100_000..100_000i64).prop_map(SeekFrom::Current),
        (-100_000..10_000i64).prop_map(SeekFrom::End),
    ];
    prop_oneof![
        3 => (0..100_000usize).prop_map(Step::Read),
        3 => (0..100_000usize, any::<u8>()).prop_map(|(len, byte)| Step::Write(len, byte)),
        2 => seek.prop_map(Step::Seek),
        1 => Just(Step::Flush),
    ]
}

async fn apply(cursor: &mut Cursor, model: &mut io::Cursor<Vec<u8>>, step: &Step) {
    use futures_lite::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    use std::io::{Read, Seek, Write};
    match *step {
        Step::Read(len) => {
            let (mut seen, mut expected) = (vec![0; len], vec![0; len]);
            let count = model.read(&mut expected).unwrap();
            cursor.read_exact(&mut seen[..count]).await.unwrap();
            assert!(seen == expected);
        }
        Step::Write(len, byte) => {
            cursor.write_all(&vec![byte; len]).await.unwrap();
            model.write_all(&vec![byte; len]).unwrap();
        }
        Step::Seek(to) => {
            let moved = cursor.seek(to).await;
            assert_eq!(moved.ok(), model.seek(to).ok());
        }
        Step::Flush => cursor.flush().await.unwrap(),
    }
    assert_eq!(cursor.position(), model.position());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_random_run_agrees_with_a_cursor_in_memory(
        steps in prop::collection::vec(step(), 0..60)
    ) {
        unaligned(|nowait, mode| {
            let folder = folder();
            let path = folder.path().join("file");
            let mut cursor = cursor(nowait, mode, &path);
            let mut model = io::Cursor::new(Vec::new());
            futures_lite::future::block_on(async {
                for step in &steps {
                    apply(&mut cursor, &mut model, step).await;
                }
                cursor.file().sync_all().await.unwrap();
            });
            assert!(std::fs::read(&path).unwrap() == model.into_inner());
        });
    }
}
