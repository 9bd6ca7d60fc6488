//! Vectored futures on streams: buffers are filled and written in order, with as many bytes as
//! available, and every buffer comes back or is dropped once, on every backend.

mod common;

use common::on_every_engine;
use futures_lite::future::{block_on, poll_once, zip};
use nowait::{Errno, IoBuffer, IoBufferMut, Nowait, POLL_IN, Stream};
use std::{
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixDatagram, UnixStream},
    },
    sync::mpsc,
    time::Duration,
};

const IOV_MAX: usize = 1024;

/// Checks a claim with a pipe, whose reading end comes first, and with a pair of sockets.
fn on_every_stream(claim: impl Fn(&Nowait, Stream, Stream)) {
    on_every_engine(|nowait| {
        let (reader, writer) = std::io::pipe().unwrap();
        claim(nowait, Stream::new(nowait, reader), Stream::new(nowait, writer));
        if cfg!(miri) {
            return; // Miri sends no messages
        }
        let (one, other) = UnixStream::pair().unwrap();
        claim(nowait, Stream::new(nowait, one), Stream::new(nowait, other));
    });
}

fn pipe_to(nowait: &Nowait) -> (Stream, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Stream::new(nowait, reader), writer)
}

fn empty(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().map(|len| vec![0; *len]).collect()
}

fn counted(lengths: &[usize]) -> Vec<Vec<u8>> {
    let mut next = (0..=250u8).cycle();
    lengths.iter().map(|len| next.by_ref().take(*len).collect()).collect()
}

async fn read_all(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let (result, buffers) = stream.read_vectored(empty(&[100, 0, 1_000, 5_000])).await;
        let count = result.unwrap();
        assert!(count > 0, "the end after {} of {len} bytes", all.len());
        all.extend(buffers.concat().into_iter().take(count));
    }
    all
}

#[test]
fn what_is_there_fills_the_buffers_in_order_and_leaves_the_rest_alone() {
    on_every_stream(|_, reader, writer| {
        block_on(async {
            let (result, _) = writer.write(&b"abcdefghij"[..]).await;
            assert_eq!(result.unwrap(), 10);
            let buffers = vec![vec![b'.'; 4], vec![], vec![b'.'; 3], vec![b'.'; 8], vec![b'.'; 2]];
            let (result, buffers) = reader.read_vectored(buffers).await;
            assert_eq!(result.unwrap(), 10);
            let expected: [&[u8]; 5] = [b"abcd", b"", b"efg", b"hij.....", b".."];
            assert_eq!(buffers, expected);
        });
    });
}

#[test]
fn a_read_into_a_vector_waits_for_the_first_byte() {
    on_every_stream(|_, reader, writer| {
        block_on(async {
            let mut read = reader.read_vectored(empty(&[1, 0, 2]));
            assert!(poll_once(&mut read).await.is_none());
            assert_eq!(writer.write(&b"x"[..]).await.0.unwrap(), 1);
            let (result, buffers) = read.await;
            assert_eq!((result.unwrap(), buffers), (1, vec![vec![b'x'], vec![], vec![0; 2]]));
        });
    });
}

#[test]
fn a_write_of_a_vector_goes_on_until_all_of_it_is_written() {
    // The vectors are larger than a pipe or a socket takes at a time, and buffers end inside pages.
    let lengths: &[usize] = match cfg!(miri) {
        true => &[3, 0, 500],
        false => &[1, 0, 100_000, 4_096, 299_999, 0, 7, 200_000],
    };
    let whole: usize = lengths.iter().sum();
    on_every_stream(|_, reader, writer| {
        block_on(async {
            let write = writer.write_vectored(counted(lengths));
            let ((result, buffers), read) = zip(write, read_all(&reader, whole)).await;
            assert_eq!(result.unwrap(), whole);
            assert!(buffers == counted(lengths), "the buffers of a write are only read");
            assert!(read == buffers.concat(), "another order, or a part twice");
        });
    });
}

#[test]
fn vectors_take_effect_in_the_order_of_their_first_polls() {
    on_every_stream(|_, reader, writer| {
        block_on(async {
            let mut reads: Vec<_> = (0..8).map(|_| reader.read_vectored(empty(&[1, 1]))).collect();
            for read in &mut reads {
                assert!(poll_once(read).await.is_none());
            }
            for (number, read) in (0u8..).zip(reads) {
                let pair = vec![vec![number], vec![number + 100]];
                assert_eq!(writer.write_vectored(pair.clone()).await.0.unwrap(), 2);
                let (result, buffers) = read.await;
                assert_eq!((result.unwrap(), buffers), (2, pair));
            }
        });
    });
}

#[test]
#[cfg_attr(miri, ignore = "it sends no messages")]
fn a_vector_is_one_datagram() {
    on_every_engine(|nowait| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let (one, other) = (Stream::new(nowait, one), Stream::new(nowait, other));
        block_on(async {
            for lengths in [&[2, 0, 5][..], &[1, 1]] {
                let (result, _) = one.write_vectored(counted(lengths)).await;
                assert_eq!(result.unwrap(), lengths.iter().sum::<usize>());
            }
            let (result, buffers) = other.read_vectored(empty(&[3, 1])).await;
            assert_eq!((result.unwrap(), buffers), (4, counted(&[3, 1])), "the rest is cut off");
            let (result, buffers) = other.read_vectored(empty(&[1, 9])).await;
            assert_eq!((result.unwrap(), &buffers.concat()[..2]), (2, &[0, 1][..]));
        });
    });
}

#[test]
fn a_vector_of_nothing_moves_nothing() {
    on_every_stream(|_, reader, writer| {
        block_on(async {
            for lengths in [&[][..], &[0], &[0, 0]] {
                let (result, buffers) = writer.write_vectored(empty(lengths)).await;
                assert_eq!((result.unwrap(), buffers.len()), (0, lengths.len()));
                let (result, buffers) = reader.read_vectored(empty(lengths)).await;
                assert_eq!((result.unwrap(), buffers.len()), (0, lengths.len()));
            }
        });
    });
}

#[test]
#[cfg_attr(miri, ignore = "thousands of buffers take it half a minute")]
fn iov_max_buffers_are_taken_and_one_more_is_refused_and_comes_back() {
    on_every_stream(|_, reader, writer| {
        let lengths: Vec<usize> = (0..IOV_MAX).map(|index| index % 3).collect();
        block_on(async {
            let write = writer.write_vectored(counted(&lengths));
            let ((result, _), read) = zip(write, read_all(&reader, lengths.iter().sum())).await;
            assert_eq!(result.unwrap(), read.len());
            assert!(read == counted(&lengths).concat());
            for refused in [
                writer.write_vectored(empty(&[1; IOV_MAX + 1])).await,
                reader.read_vectored(empty(&[1; IOV_MAX + 1])).await,
            ] {
                let (result, buffers) = refused;
                assert_eq!(result.unwrap_err().errno(), Errno::INVAL);
                assert_eq!(buffers.len(), IOV_MAX + 1);
            }
            assert!(poll_once(reader.ready(POLL_IN)).await.is_none(), "something was written");
        });
    });
}

#[test]
fn a_cancelled_or_late_vector_comes_back_untouched() {
    on_every_stream(|_, reader, _writer| {
        block_on(async {
            let mut read = reader.read_vectored(counted(&[3, 4]));
            assert!(poll_once(&mut read).await.is_none());
            read.cancel();
            let (result, buffers) = read.await;
            assert_eq!(result.unwrap_err().errno(), Errno::CANCELED);
            assert_eq!(buffers, counted(&[3, 4]));
            let read = reader.read_vectored(counted(&[5])).timeout(Duration::from_millis(2));
            let (result, buffers) = read.await;
            assert_eq!(result.unwrap_err().errno(), Errno::TIMEDOUT);
            assert_eq!(buffers, counted(&[5]));
        });
    });
}

#[test]
fn who_hangs_up_ends_vectors_and_their_buffers_come_back() {
    on_every_stream(|nowait, reader, writer| {
        block_on(async {
            let mut read = reader.read_vectored(counted(&[2, 2]));
            assert!(poll_once(&mut read).await.is_none());
            drop(writer);
            let (result, buffers) = read.await;
            assert_eq!((result.unwrap(), buffers), (0, counted(&[2, 2])), "the end");
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let write = Stream::new(nowait, writer).write_vectored(counted(&[2, 2]));
            let (result, buffers) = write.await;
            assert_eq!(result.unwrap_err().errno(), Errno::PIPE);
            assert_eq!(buffers, counted(&[2, 2]));
        });
    });
}

struct Telling(Box<[u8]>, mpsc::Sender<u8>);

// SAFETY: the bytes belong to a box, and stay in place when the box is moved.
unsafe impl IoBuffer for Telling {
    fn as_ptr(&self) -> *const u8 {
        IoBuffer::as_ptr(&self.0)
    }

    fn len(&self) -> usize {
        IoBuffer::len(&self.0)
    }
}

// SAFETY: as above; the value owns its bytes.
unsafe impl IoBufferMut for Telling {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        IoBufferMut::as_mut_ptr(&mut self.0)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = self.1.send(self.0[0]);
    }
}

#[test]
fn a_dropped_vector_stays_with_the_engine_until_its_end() {
    const VECTORS: usize = 5;
    on_every_engine(|nowait| {
        let (reader, mut writer) = pipe_to(nowait);
        let (sender, dropped) = mpsc::channel();
        let telling = || Telling(vec![0; 8].into(), sender.clone());
        for _ in 0..VECTORS {
            let mut read = reader.read_vectored(vec![telling(), telling(), telling()]);
            assert!(block_on(poll_once(&mut read)).is_none());
        }
        // A read that was dropped may still receive the byte: its cancellation is only requested.
        writer.write_all(&[1]).unwrap();
        let first_bytes = (0..3 * VECTORS).map(|_| u32::from(dropped.recv().unwrap()));
        assert!(first_bytes.sum::<u32>() <= 1, "one byte read twice");
        drop(sender);
        assert!(dropped.recv().is_err(), "a buffer was dropped twice");
    });
}

#[test]
fn what_plain_calls_write_and_read_are_the_same_bytes() {
    on_every_engine(|nowait| {
        let (reader, mut writer) = pipe_to(nowait);
        writer.write_all(&counted(&[300])[0]).unwrap();
        assert_eq!(block_on(read_all(&reader, 300)), counted(&[300])[0]);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writer = Stream::new(nowait, OwnedFd::from(writer));
        let (result, _) = block_on(writer.write_vectored(counted(&[100, 200])));
        assert_eq!(result.unwrap(), 300);
        let mut found = vec![0; 300];
        reader.read_exact(&mut found).unwrap();
        assert_eq!(found, counted(&[300])[0]);
    });
}
