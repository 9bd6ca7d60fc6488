//! Reads a file from beginning to end, by blocking requests, and counts its bytes and lines.
//!
//! `cargo run -p nowait --example read_file -- FILE`

use nowait::{Error, File, Nowait};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: read_file FILE");
        return ExitCode::from(2);
    };
    match read(path.as_ref()) {
        Ok((bytes, lines)) => println!("{bytes} bytes, {lines} lines"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn read(path: &std::path::Path) -> Result<(u64, usize), Error> {
    let nowait = Nowait::new()?;
    let file = File::open(&nowait, path)?;
    let mut chunk = vec![0; 256 << 10];
    let (mut offset, mut lines) = (0, 0);
    loop {
        let count = file.read_at(&mut chunk, offset)?;
        if count == 0 {
            return Ok((offset, lines));
        }
        lines += chunk[..count].split(|byte| *byte == b'\n').count() - 1;
        offset += count as u64;
    }
}
