//! The code of the documentation pages about the API, and checks of their claims. The pages quote
//! this code (`cargo x tidy` compares), so that it compiles and runs.

mod common;

use common::folder;
use futures_lite::future::block_on;
use nowait::{AsyncFile, Error, File, Nowait, OpenOptions, Queue};
use nowait_sys::{
    epoll::{Epoll, IN},
    time::Deadline,
};
use std::{collections::BTreeSet, fs, os::fd::AsRawFd, path::PathBuf, time::Duration};

const COMPLETIONS: u64 = 1;

fn data() -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("data");
    fs::write(&path, [[1; 4096], [2; 4096]].concat()).unwrap();
    (folder, path)
}

#[test]
#[rustfmt::skip] // the comments stand below each other
fn the_first_example_of_the_rust_page_runs() -> Result<(), Error> {
    let (folder, path) = data();
    let log_path = folder.path().join("log");
    let mut buffer = [0; 4096];

    use nowait::{File, Nowait, OpenOptions};

    let nowait = Nowait::new()?;                          // an engine: backend and threads
    let file = File::open(&nowait, path)?;                // for reading
    let count = file.read_at(&mut buffer, 4096)?;         // blocks; less at the end of the file
    let log = OpenOptions::new().write(true).create(true).open(&nowait, &log_path)?;
    log.write_all_at(b"entry", log.size()?)?;
    log.sync_data()?;                                     // durable

    assert_eq!((count, buffer[0]), (4096, 2));
    assert_eq!(fs::read(log_path).unwrap(), b"entry");
    Ok(())
}

#[test]
#[rustfmt::skip]
fn many_requests_are_in_flight_as_the_rust_page_shows() -> Result<(), Error> {
    let (_folder, path) = data();
    let nowait = Nowait::new()?;
    let file = File::open(&nowait, path)?;
    let offset = 4096;
    let mut seen = Vec::new();
    let mut handle = |tag, bytes: &[u8]| seen.push((tag, bytes.len(), bytes[0]));

    let mut queue: Queue<u64> = nowait.queue(32)?;        // the tag is a u64, buffers are Vec<u8>
    queue.read(&file, vec![0; 4096], offset, offset)?;    // takes the buffer
    queue.submit();                                       // hands all over; waits for no data
    queue.wait(1, None)?;                                 // until one is over
    while let Some(done) = queue.pop() {                  // gives buffer and tag back
        let bytes = done.result?;
        let buffer = done.buffers.one().expect("a request with one buffer");
        handle(done.tag, &buffer[..bytes]);
    }

    assert_eq!(seen, [(4096, 4096, 2)]);
    Ok(())
}

#[test]
#[rustfmt::skip]
fn requests_are_cancelled_limited_and_linked_as_the_rust_page_shows() -> Result<(), Error> {
    let (_folder, path) = data();
    let nowait = Nowait::new()?;
    let file = OpenOptions::new().read(true).write(true).open(&nowait, &path)?;
    let mut queue: Queue<u64> = nowait.queue(32)?;
    let record = vec![3; 4096];

    let first = queue.read(&file, vec![0; 4096], 0, 1)?;  // every request has a name
    let second = queue.read(&file, vec![0; 4096], 4096, 2)?;
    queue.cancel(first);                                  // comes back with ECANCELED, if it can
    queue.timeout(second, Duration::from_millis(20))?;    // with ETIMEDOUT, if it can

    let write = queue.write(&file, record, 8192, 3)?;
    let sync = queue.sync_data(&file, 4)?;
    queue.link(write, sync)?;                             // the sync begins when the write is done
    queue.submit();

    let mut tags = BTreeSet::new();
    queue.wait(4, None)?;
    while let Some(done) = queue.pop() {
        tags.insert(done.tag);
    }
    assert_eq!(tags, BTreeSet::from([1, 2, 3, 4]));
    drop((queue, file, nowait));
    assert_eq!(fs::read(path).unwrap()[8192..], [3; 4096]);
    Ok(())
}

#[test]
#[rustfmt::skip]
fn futures_are_awaited_as_the_rust_page_shows() -> Result<(), Error> {
    let (_folder, path) = data();
    let nowait = Nowait::new()?;
    let both = OpenOptions::new().read(true).write(true);
    block_on(async {
        let reader = AsyncFile::open(&nowait, &path).await?;  // or AsyncFile::from(file)
        let (count, buffer) = reader.read_at(vec![0; 4096], 0).await;
        assert_eq!((count?, buffer[0]), (4096, 1));
        let file = both.open_async(&nowait, &path).await?;
        let (count, buffer) = file.write_at(buffer, 4096).timeout(Duration::from_mins(1)).await;
        assert_eq!((count?, buffer[0]), (4096, 1));
        file.sync_data().await?;
        Ok::<(), Error>(())
    })?;
    drop(nowait);
    assert_eq!(fs::read(path).unwrap(), [1; 8192]);
    Ok(())
}

#[test]
#[rustfmt::skip]
fn an_event_loop_sleeps_as_the_rust_page_shows() -> Result<(), Box<dyn std::error::Error>> {
    let (_folder, path) = data();
    let nowait = Nowait::new()?;
    let file = File::open(&nowait, path)?;
    let mut queue: Queue<u64> = nowait.queue(8)?;
    queue.read(&file, vec![0; 4096], 0, 7).map_err(Error::from)?;
    let (epoll, limit) = (Epoll::new()?, Deadline::after_ns(60_000_000_000));
    let (mut ready, mut over) = (Vec::with_capacity(4), Vec::new());

    for fd in queue.descriptors()? {                      // once: they stay the same
        epoll.add(fd.as_raw_fd(), IN, COMPLETIONS)?;      // beside your sockets
    }
    queue.submit();
    queue.sleep(|| epoll.wait(&mut ready, limit))?;       // ends for either; does not wait if some
    while let Some(done) = queue.pop() {                  // request is over already
        over.push((done.tag, done.result?));
    }

    queue.wait(queue.len(), None)?;
    over.extend(queue.pop().map(|done| (done.tag, done.result.unwrap())));
    assert_eq!(over, [(7, 4096)]);
    Ok(())
}

/// Returns the words in backticks in a column of the tables that explain a report: if `column` is
/// 0, in the first column of the rows that begin with such a word; otherwise in that column of the
/// other rows.
fn explained(text: &str, column: usize) -> BTreeSet<&str> {
    let (_, text) = text.split_once("## Reading a report").unwrap();
    let (text, _) = text.split_once("\n## ").unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `") == (column == 0));
    let cells = rows.filter_map(|line| line.strip_prefix('|')?.split('|').nth(column));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_documents_explain_each_counter_and_no_other() {
    let text = include_str!("../../../../docs/running.md");
    let counters = nowait_retry::stats::Counters::default().all();
    let (punts, others): (BTreeSet<_>, BTreeSet<_>) =
        counters.iter().map(|(name, _)| *name).partition(|name| name.starts_with("punt_"));
    assert_eq!(explained(text, 0), punts);
    let mut figures = explained(text, 1);
    let tables = nowait_retry::stats::Served::names().chain(["served"]);
    for other in tables.chain(["backend_reason", "failed_threads", "submit_ns"]) {
        assert!(figures.remove(other), "{other}");
    }
    assert_eq!(figures, others);
}
