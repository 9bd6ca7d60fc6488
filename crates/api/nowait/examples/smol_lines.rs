//! Counts the lines of several files concurrently in a smol program, with the futures traits.
//!
//! `cargo run -p nowait --features futures-io --example smol_lines -- FILE…`

use nowait::{AsyncFile, Nowait};
use smol::{io::AsyncBufReadExt, stream::StreamExt};
use std::{io, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("usage: smol_lines FILE…");
        return ExitCode::from(2);
    }
    match smol::block_on(count_all(paths)) {
        Ok(lines) => println!("{lines} lines"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn count_all(paths: Vec<PathBuf>) -> io::Result<usize> {
    let nowait = Nowait::new()?;
    let tasks: Vec<_> =
        paths.into_iter().map(|path| smol::spawn(count(nowait.clone(), path))).collect();
    let mut total = 0;
    for task in tasks {
        let (path, lines) = task.await?;
        println!("{lines:>9} {}", path.display());
        total += lines;
    }
    Ok(total)
}

async fn count(nowait: Nowait, path: PathBuf) -> io::Result<(PathBuf, usize)> {
    let file = AsyncFile::open(&nowait, &path).await?;
    let mut lines = file.cursor(0).split(b'\n');
    let mut count = 0;
    while let Some(line) = lines.next().await {
        line?;
        count += 1;
    }
    Ok((path, count))
}
