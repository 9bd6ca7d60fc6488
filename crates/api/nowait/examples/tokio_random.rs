//! Random reads of 4 KiB by the tasks of a tokio program: in each cache mode of nowait, and by
//! blocking calls in tokio's pool. Prints the reads per second.
//!
//! `cargo run --release -p nowait --features tokio --example tokio_random -- FILE [MILLISECONDS]`

use nowait::{AlignedBuffer, AsyncFile, CacheMode, File, Nowait, OpenOptions};
use std::{
    error::Error,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

const TASKS: u64 = 32;
const BLOCK: usize = 4096;

type Result<T> = core::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: tokio_random FILE [MILLISECONDS]");
        return ExitCode::from(2);
    };
    let millis = args.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(1000);
    match run(path.as_ref(), Duration::from_millis(millis)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(path: &Path, time: Duration) -> Result<()> {
    let blocks = std::fs::metadata(path)?.len() / BLOCK as u64;
    if blocks == 0 {
        return Err("a file of at least one block, please".into());
    }
    let nowait = Nowait::builder().cache_bytes(1 << 30).build()?;
    for mode in [CacheMode::User, CacheMode::Host, CacheMode::Direct] {
        let options = OpenOptions::new().read(true).cache(mode);
        let file = options.open_async(&nowait, path).await?;
        let read = move |offset, buffer| read(file.clone(), offset, buffer);
        report(&format!("{mode:?}"), time, blocks, read).await?;
    }
    for mode in [CacheMode::Host, CacheMode::Direct] {
        let file = OpenOptions::new().read(true).cache(mode).open(&nowait, path)?;
        let read = move |offset, buffer| read_in_pool(file.clone(), offset, buffer);
        report(&format!("{mode:?}, pool"), time, blocks, read).await?;
    }
    Ok(())
}

async fn read(file: AsyncFile, offset: u64, buffer: AlignedBuffer) -> Result<AlignedBuffer> {
    let (result, buffer) = file.read_at(buffer, offset).await;
    result?;
    Ok(buffer)
}

async fn read_in_pool(file: File, offset: u64, mut buffer: AlignedBuffer) -> Result<AlignedBuffer> {
    tokio::task::spawn_blocking(move || {
        file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    })
    .await?
}

async fn report<F>(
    name: &str,
    time: Duration,
    blocks: u64,
    read: impl Fn(u64, AlignedBuffer) -> F + Clone + Send + 'static,
) -> Result<()>
where
    F: Future<Output = Result<AlignedBuffer>> + Send,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let read = read.clone();
            tokio::spawn(async move {
                let (mut state, mut count) = (task + 1, 0u64);
                let mut buffer = AlignedBuffer::zeroed(BLOCK);
                while start.elapsed() < time {
                    // Knuth's MMIX generator.
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    buffer = read((state >> 33) % blocks * BLOCK as u64, buffer).await?;
                    count += 1;
                }
                Ok::<u64, Box<dyn Error + Send + Sync>>(count)
            })
        })
        .collect();
    let mut total = 0;
    for task in tasks {
        total += task.await??;
    }
    println!("{name:>14} {:>9.0} reads/s", total as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
