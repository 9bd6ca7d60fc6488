//! Copies a file with 32 requests in flight. Each buffer is used again: a read fills it, a write
//! takes its bytes to the target, and the next read fills it again.
//!
//! `cargo run --release -p nowait --example copy -- FROM TO`

use nowait::{Completion, Error, File, Nowait, Queue};
use std::{ffi::OsString, process::ExitCode, time::Instant};

const DEPTH: usize = 32;
const CHUNK: usize = 256 << 10;

/// The purpose of a request: the tag that its completion returns. `left` is the number of bytes by
/// which the read before this write was short.
#[derive(Clone, Copy)]
enum Step {
    Read { offset: u64 },
    Write { offset: u64, left: usize },
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [from, to] = args.as_slice() else {
        eprintln!("usage: copy FROM TO");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    match copy(from, to) {
        Ok(bytes) => {
            let seconds = start.elapsed().as_secs_f64();
            println!("{bytes} bytes in {seconds:.3} s: {:.0} MB/s", bytes as f64 / seconds / 1e6);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of bytes copied, which are durable.
fn copy(from: &OsString, to: &OsString) -> Result<u64, Error> {
    let nowait = Nowait::new()?;
    let (source, target) = (File::open(&nowait, from)?, File::create(&nowait, to)?);
    let size = source.size()?;
    let mut queue: Queue<Step> = nowait.queue(DEPTH)?;
    let mut next = 0;
    while next < size && !queue.is_full() {
        queue.read(&source, vec![0; CHUNK], next, Step::Read { offset: next })?;
        next += CHUNK as u64;
    }
    let mut copied = 0;
    while !queue.is_empty() {
        queue.submit();
        queue.wait(1, None)?;
        while let Some(Completion { tag, buffers, result }) = queue.pop() {
            let mut buffer = buffers.one().expect("every request here has one buffer");
            let bytes = result?;
            match tag {
                // Only a read of 0 bytes is the end: the file has become shorter.
                Step::Read { .. } if bytes == 0 => {}
                Step::Read { offset } => {
                    let left = buffer.len() - bytes;
                    buffer.truncate(bytes);
                    queue.write(&target, buffer, offset, Step::Write { offset, left })?;
                }
                Step::Write { offset, left } => {
                    assert_eq!(bytes, buffer.len(), "a write that is short without an error");
                    copied += bytes as u64;
                    let end = offset + bytes as u64;
                    if left > 0 && end < size {
                        // The read was short, for example before bytes that cannot be read. The
                        // next read then returns the error.
                        buffer.resize(left, 0);
                        queue.read(&source, buffer, end, Step::Read { offset: end })?;
                    } else if next < size {
                        buffer.resize(CHUNK, 0);
                        queue.read(&source, buffer, next, Step::Read { offset: next })?;
                        next += CHUNK as u64;
                    }
                }
            }
        }
    }
    target.sync_all()?;
    Ok(copied)
}
