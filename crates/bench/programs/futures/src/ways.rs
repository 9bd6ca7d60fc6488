//! The crates: each with its executor, its file, and the same tasks.

use crate::{
    load::{Load, Report, Share, task},
    memory::{BLOCK, Block},
};
use compio::io::AsyncReadAt;
use core::future::Future;
use futures_util::future::{FutureExt, LocalBoxFuture, try_join_all};
use nowait_harness::order::Offsets;
use std::{
    io::{self, SeekFrom},
    os::unix::fs::FileExt,
    path::Path,
    rc::Rc,
    sync::Arc,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// nowait, with one engine for all threads.
pub(crate) fn nowait(load: &Load, threads: usize, user: bool) -> io::Result<Report> {
    use nowait::{AsyncFile, CacheMode, Nowait, OpenOptions};
    let mode = match (load.is_direct(), user) {
        (true, _) => CacheMode::Direct,
        (false, true) => CacheMode::User,
        (false, false) => CacheMode::Host,
    };
    let mut builder = Nowait::builder();
    if user {
        let spare = if load.is_once() { 0 } else { load.size / 4 };
        builder = builder.cache_bytes(load.size + spare);
    }
    let engine = builder.build()?;
    let open = |path: &Path| OpenOptions::new().read(true).cache(mode).open(&engine, path);
    let file = open(&load.path)?;
    let mut other = None;
    if mode == CacheMode::User && load.is_once() {
        // The cache is full of this file's pages as long as the file is open.
        let other = other.insert(open(&load.another()?)?);
        other.advise(0..load.size, nowait::Advice::Random)?;
        let mut bytes = vec![0; BLOCK];
        let mut places = Offsets::shuffled(load.size, BLOCK as u64, 1);
        for _ in 0..places.blocks() {
            other.read_at(&mut bytes, places.next())?;
        }
    } else if mode == CacheMode::User {
        let mut bytes = vec![0; 1 << 20];
        for index in 0..load.size >> 20 {
            file.read_at(&mut bytes, index << 20)?;
        }
    }
    load.on_threads(threads, |_, share| {
        let file = AsyncFile::from(file.clone());
        in_tokio(share, move |block, offset| {
            let read = file.read_at(block, offset);
            async move {
                let (count, block) = read.await;
                (count.map_err(io::Error::from), block)
            }
        })
    })
}

pub(crate) fn tokio_uring(load: &Load, share: Rc<Share>) -> io::Result<()> {
    tokio_uring::start(async {
        let file = Rc::new(tokio_uring::fs::File::from_std(load.open()?));
        let tasks = (0..share.tasks).map(|_| {
            let file = file.clone();
            let read = move |block, offset| {
                let file = file.clone();
                async move { file.read_at(block, offset).await }
            };
            let running = tokio_uring::spawn(task(share.clone(), read));
            async move { running.await.map_err(io::Error::other)? }
        });
        try_join_all(tasks).await.map(drop)
    })
}

pub(crate) fn compio(load: &Load, share: Rc<Share>) -> io::Result<()> {
    compio::runtime::Runtime::new()?.block_on(async {
        let mut options = compio::fs::OpenOptions::new();
        options.read(true).custom_flags(if load.is_direct() { libc::O_DIRECT } else { 0 });
        let file = options.open(&load.path).await?;
        let tasks = (0..share.tasks).map(|_| {
            let file = file.clone();
            let read = move |block, offset| {
                let file = file.clone();
                async move {
                    let compio::BufResult(count, block) = file.read_at(block, offset).await;
                    (count, block)
                }
            };
            let running = compio::runtime::spawn(task(share.clone(), read));
            async move { running.await.map_err(|_| io::Error::other("a task failed"))? }
        });
        try_join_all(tasks).await.map(drop)
    })
}

/// Each task has its own open of the file, because an open file has one position.
pub(crate) fn tokio_fs(load: &Load, share: Rc<Share>) -> io::Result<()> {
    let open = || {
        load.open().map(|file| Rc::new(tokio::sync::Mutex::new(tokio::fs::File::from_std(file))))
    };
    let files: Vec<_> = (0..share.tasks).map(|_| open()).collect::<io::Result<_>>()?;
    let mut files = files.into_iter();
    run_in_tokio(share, move |share| {
        let file = files.next().expect("one for each task");
        task(share, move |mut block: Block, offset| {
            let file = file.clone();
            async move {
                let mut file = file.lock().await;
                let read = async {
                    file.seek(SeekFrom::Start(offset)).await?;
                    file.read_exact(block.bytes_mut()).await
                };
                let count = read.await;
                (count, block)
            }
        })
        .boxed_local()
    })
}

pub(crate) fn spawn_blocking(load: &Load, share: Rc<Share>) -> io::Result<()> {
    let file = Arc::new(load.open()?);
    in_tokio(share, move |mut block, offset| {
        let file = file.clone();
        async move {
            let read = tokio::task::spawn_blocking(move || {
                let count = file.read_at(block.bytes_mut(), offset);
                (count, block)
            });
            read.await.expect("a read that ends")
        }
    })
}

pub(crate) fn pread(load: &Load, share: Rc<Share>) -> io::Result<()> {
    let file = load.open()?;
    in_tokio(share, move |mut block, offset| {
        let count = file.read_at(block.bytes_mut(), offset);
        async move { (count, block) }
    })
}

fn in_tokio<F>(share: Rc<Share>, read: impl Fn(Block, u64) -> F + 'static) -> io::Result<()>
where
    F: Future<Output = (io::Result<usize>, Block)> + 'static,
{
    let read = Rc::new(read);
    run_in_tokio(share, move |share| {
        let read = read.clone();
        task(share, move |block, offset| read(block, offset)).boxed_local()
    })
}

fn run_in_tokio(
    share: Rc<Share>,
    mut make: impl FnMut(Rc<Share>) -> LocalBoxFuture<'static, io::Result<()>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let tasks = (0..share.tasks).map(|_| {
            let running = tokio::task::spawn_local(make(share.clone()));
            async move { running.await.map_err(io::Error::other)? }
        });
        try_join_all(tasks).await.map(drop)
    })
}
