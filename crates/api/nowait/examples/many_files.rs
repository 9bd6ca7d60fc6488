//! Reads each regular file of a folder, 64 at a time, through one queue, and prints their sizes.
//!
//! `cargo run -p nowait --example many_files -- FOLDER`

use nowait::{Completion, Error, File, Nowait, Queue};
use std::{error, path::PathBuf, process::ExitCode};

const DEPTH: usize = 64;
const CHUNK: usize = 64 << 10;

/// A file being read, and the tag of its one request in flight.
struct Reading {
    file: File,
    offset: u64,
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: many_files FOLDER");
        return ExitCode::from(2);
    };
    match read_all(folder.into()) {
        Ok((files, bytes)) => println!("{files} files, {bytes} bytes"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn read_all(folder: PathBuf) -> Result<(usize, u64), Box<dyn error::Error>> {
    let nowait = Nowait::new()?;
    let mut queue: Queue<Reading> = nowait.queue(DEPTH)?;
    let mut entries = std::fs::read_dir(folder)?;
    let (mut files, mut bytes) = (0, 0);
    let mut spare = Vec::new();
    loop {
        while !queue.is_full()
            && let Some(entry) = entries.next()
        {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let reading = Reading { file: File::open(&nowait, entry.path())?, offset: 0 };
                go_on(&mut queue, reading, spare.pop().unwrap_or_else(|| vec![0; CHUNK]))?;
            }
        }
        if queue.is_empty() {
            return Ok((files, bytes));
        }
        queue.submit();
        queue.wait(1, None)?;
        while let Some(Completion { mut tag, buffers, result }) = queue.pop() {
            let buffer = buffers.one().expect("every request here has one buffer");
            let count = result? as u64;
            bytes += count;
            tag.offset += count;
            // Only a read of 0 bytes is the end: a read may also be short before bytes that cannot
            // be read.
            if count > 0 {
                go_on(&mut queue, tag, buffer)?;
            } else {
                println!("{:>12} {}", tag.offset, tag.file.path().display());
                files += 1;
                spare.push(buffer);
            }
        }
    }
}

fn go_on(queue: &mut Queue<Reading>, reading: Reading, buffer: Vec<u8>) -> Result<(), Error> {
    let (file, offset) = (reading.file.clone(), reading.offset);
    queue.read(&file, buffer, offset, reading)?;
    Ok(())
}
