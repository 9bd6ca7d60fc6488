//! Vectors of up to IOV_MAX buffers, empty ones among them, on every backend and in every cache
//! mode; and limits of requests in flight.

mod common;

use common::{BLOCK, everywhere, folder, open};
use nowait::{AlignedBuffer, Errno, File, Limits, Nowait, POLL_IN, Queue, Stream};
use std::{io::Write, path::Path};

const IOV_MAX: usize = 1024;

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

fn most(is_filled: bool) -> Vec<AlignedBuffer> {
    let byte = |index: usize| if is_filled { (index % 251) as u8 + 1 } else { 0 };
    let len = |index: usize| if index.is_multiple_of(3) { 0 } else { BLOCK };
    (0..IOV_MAX).map(|index| filled(len(index), byte(index))).collect()
}

fn bytes_of(buffers: &[AlignedBuffer]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.to_vec()).collect()
}

fn run(queue: &mut Queue<u8, AlignedBuffer>) -> (Result<usize, Errno>, Vec<AlignedBuffer>) {
    queue.submit();
    assert_eq!(queue.wait(1, None).unwrap(), 1);
    let done = queue.pop().unwrap();
    (done.result.map_err(|error| error.errno()), done.buffers.many().unwrap_or_default())
}

fn vectors(nowait: &Nowait, file: &File, path: &Path) {
    let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(4).unwrap();
    let (buffers, expected) = (most(true), bytes_of(&most(true)));
    queue.write_vectored(file, buffers, 0, 0).unwrap();
    let (result, buffers) = run(&mut queue);
    assert_eq!((result, buffers.len()), (Ok(expected.len()), IOV_MAX));
    file.sync_all().unwrap();
    assert!(std::fs::read(path).unwrap() == expected, "another order, or a hole");
    queue.read_vectored(file, most(false), 0, 0).unwrap();
    let (result, buffers) = run(&mut queue);
    assert_eq!(result, Ok(expected.len()));
    assert!(bytes_of(&buffers) == expected);
    // The file ends within the vector, at the end of one of its buffers.
    let offset = (expected.len() - 2 * BLOCK) as u64;
    queue.read_vectored(file, most(false), offset, 0).unwrap();
    let (result, buffers) = run(&mut queue);
    assert_eq!(result, Ok(2 * BLOCK));
    assert!(bytes_of(&buffers)[..2 * BLOCK] == expected[offset as usize..]);
    for empty in [0, 1, 2, IOV_MAX] {
        let none = || (0..empty).map(|_| filled(0, 0)).collect::<Vec<_>>();
        queue.read_vectored(file, none(), 0, 0).unwrap();
        assert_eq!(run(&mut queue).0, Ok(0), "read of {empty}");
        queue.write_vectored(file, none(), 1 << 30, 0).unwrap();
        assert_eq!(run(&mut queue).0, Ok(0), "write of {empty}");
    }
    assert_eq!(file.size().unwrap(), expected.len() as u64, "a write of nothing changed it");
}

#[test]
fn vectors_may_have_iov_max_buffers_and_empty_ones() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        vectors(nowait, &open(nowait, mode, &path), &path);
    });
}

#[test]
fn one_buffer_more_than_iov_max_is_refused_and_comes_back() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let mut queue: Queue<u8, AlignedBuffer> = nowait.queue(4).unwrap();
        let many = || (0..=IOV_MAX).map(|_| filled(BLOCK, 1)).collect::<Vec<_>>();
        for refused in [
            queue.write_vectored(&file, many(), 0, 1).unwrap_err(),
            queue.read_vectored(&file, many(), 0, 1).unwrap_err(),
        ] {
            assert_eq!((refused.error.errno(), refused.tag), (Errno::INVAL, 1));
            assert_eq!(refused.buffers.many().map(|it| it.len()), Some(IOV_MAX + 1));
        }
        assert!(queue.is_empty() && file.size().unwrap() == 0);
    });
}

#[test]
fn limits_of_the_builder_refuse_with_eagain_and_start_nothing() {
    let limits = Limits { requests: 3, bytes: 100_000 };
    let queue_limits = Limits { requests: 2, ..Limits::NONE };
    let nowait = Nowait::builder().limits(limits).queue_limits(queue_limits).build().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = std::sync::Arc::new(reader);
    let mut first: Queue<u8> = nowait.queue(8).unwrap();
    let mut second: Queue<u8> = nowait.queue(8).unwrap();
    for tag in 0..3 {
        first.poll(reader.clone(), POLL_IN, tag).unwrap();
    }
    assert_eq!(first.submit(), 3);
    first
        .reap(1, None, |done| {
            assert_eq!((done.tag, done.result.unwrap_err().errno()), (2, Errno::AGAIN));
        })
        .unwrap();
    let stream = Stream::new(&nowait, reader.clone());
    second.read_stream(&stream, vec![0; 100_001], 0).unwrap();
    second.read_stream(&stream, vec![0; 1], 1).unwrap();
    second.submit();
    second
        .reap(1, None, |done| {
            let too_many = done.result.unwrap_err().errno();
            assert_eq!((done.tag, too_many, done.buffers.one()), (1, Errno::AGAIN, Some(vec![0])));
        })
        .unwrap();
    writer.write_all(b"x").unwrap();
    first.reap(2, None, |done| assert!(done.result.is_ok())).unwrap();
    second.reap(1, None, |done| assert_eq!(done.result.unwrap(), 1)).unwrap();
    assert!(first.is_empty() && second.is_empty());
}

#[test]
fn a_limit_of_nothing_is_refused_with_a_sentence() {
    for limits in [Limits { requests: 0, ..Limits::NONE }, Limits { bytes: 0, ..Limits::NONE }] {
        for builder in [Nowait::builder().limits(limits), Nowait::builder().queue_limits(limits)] {
            let error = builder.build().unwrap_err();
            assert_eq!(error.errno(), Errno::INVAL);
            assert!(error.to_string().contains("limit of 0"), "{error}");
        }
    }
}
