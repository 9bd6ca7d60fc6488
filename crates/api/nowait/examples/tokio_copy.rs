//! Copies a file in a tokio program: tasks read and write their parts concurrently, each with one
//! buffer that it uses again and again.
//!
//! `cargo run --release -p nowait --features tokio --example tokio_copy -- FROM TO`

use nowait::{AsyncFile, Error, Nowait};
use std::{ffi::OsString, process::ExitCode, time::Instant};

const TASKS: u64 = 32;
const CHUNK: u64 = 256 << 10;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [from, to] = args.as_slice() else {
        eprintln!("usage: tokio_copy FROM TO");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    match copy(from, to).await {
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
async fn copy(from: &OsString, to: &OsString) -> Result<u64, Error> {
    let nowait = Nowait::new()?;
    let source = AsyncFile::open(&nowait, from).await?;
    let target = AsyncFile::create(&nowait, to).await?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(copy_parts(source.clone(), target.clone(), task)))
        .collect();
    let mut copied = 0;
    for task in tasks {
        copied += task.await.expect("a task that does not panic")?;
    }
    target.sync_all().await?;
    target.close().await?;
    Ok(copied)
}

/// Copies every part whose number modulo [`TASKS`] is `task`. Returns the number of bytes copied.
async fn copy_parts(source: AsyncFile, target: AsyncFile, task: u64) -> Result<u64, Error> {
    let mut buffer = Vec::new();
    let (mut offset, mut copied) = (task * CHUNK, 0);
    loop {
        buffer.resize((CHUNK - offset % CHUNK) as usize, 0);
        let (read, mut bytes) = source.read_at(buffer, offset).await;
        // Only a read of 0 bytes is the end: a read may also be short before bytes that cannot be
        // read.
        bytes.truncate(read?);
        if bytes.is_empty() {
            return Ok(copied);
        }
        let (written, bytes) = target.write_all_at(bytes, offset).await;
        written?;
        copied += bytes.len() as u64;
        offset += bytes.len() as u64;
        if offset.is_multiple_of(CHUNK) {
            offset += (TASKS - 1) * CHUNK;
        }
        buffer = bytes;
    }
}
