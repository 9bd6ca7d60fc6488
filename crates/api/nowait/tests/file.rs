//! Blocking requests and loans of files, and the threads and descriptors of an engine after the
//! drop of its last handle.

mod common;

use common::{BACKENDS, BLOCK, everywhere, folder, on_every_engine, open};
use nowait::{
    AlignedBuffer, AsyncFile, BackendChoice, CacheMode, Errno, File, Nowait, OpenOptions, POLL_IN,
    Stream,
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    time::{Duration, Instant},
};

#[test]
fn a_file_describes_itself_in_a_line_whatever_is_cached_of_it() {
    let (folder, nowait) = (folder(), Nowait::new().unwrap());
    for mode in [CacheMode::User, CacheMode::Host, CacheMode::Direct] {
        let file = open(&nowait, mode, &folder.path().join("file"));
        let mut page = AlignedBuffer::zeroed(BLOCK);
        page.fill(7);
        file.write_all_at(&page, 0).unwrap();
        let text = format!("{file:?}");
        assert!(text.contains(&format!("cache: {mode:?}")) && text.len() < 300, "{text}");
    }
}

#[test]
fn what_is_written_is_read_and_short_at_the_end_only() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let mut bytes = AlignedBuffer::zeroed(3 * BLOCK);
        bytes.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n / 7) as u8);
        file.write_all_at(&bytes, 0).unwrap();
        assert_eq!(file.size().unwrap(), 3 * BLOCK as u64);
        file.set_len(2 * BLOCK as u64 + 100).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();

        let mut read = AlignedBuffer::zeroed(4 * BLOCK);
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 2 * BLOCK + 100);
        assert_eq!(read[..2 * BLOCK + 100], bytes[..2 * BLOCK + 100]);
        assert_eq!(file.read_at(&mut read, 4 * BLOCK as u64).unwrap(), 0);
        file.read_exact_at(&mut read[..BLOCK], BLOCK as u64).unwrap();
        assert_eq!(read[..BLOCK], bytes[BLOCK..2 * BLOCK]);
        let error = file.read_exact_at(&mut read, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
        assert!(error.to_string().contains("the file ends after 8292 bytes"), "{error}");
    });
}

#[test]
fn vectored_requests_fill_buffers_in_order() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let [mut one, mut two] = [AlignedBuffer::zeroed(BLOCK), AlignedBuffer::zeroed(2 * BLOCK)];
        one.fill(1);
        two.fill(2);
        let slices = [IoSlice::new(&one), IoSlice::new(&two)];
        assert_eq!(file.write_vectored_at(&slices, 0).unwrap(), 3 * BLOCK);
        let mut slices = [IoSliceMut::new(&mut two), IoSliceMut::new(&mut one)];
        assert_eq!(file.read_vectored_at(&mut slices, 0).unwrap(), 3 * BLOCK);
        assert!(two[..BLOCK].iter().all(|byte| *byte == 1));
        assert!(two[BLOCK..].iter().chain(&*one).all(|byte| *byte == 2));
    });
}

#[test]
fn a_file_is_used_only_for_what_it_was_opened_for() {
    let (folder, nowait) = (folder(), Nowait::new().unwrap());
    let path = folder.path().join("file");
    let writer = File::create(&nowait, &path).unwrap();
    let error = writer.read_at(&mut [0; 8], 5).unwrap_err();
    assert_eq!(error.errno(), Errno::BADF);
    let text = format!("read of 8 bytes at 5 of {}: Bad file descriptor", path.display());
    assert!(error.to_string().starts_with(&text), "{error}");
    assert!(error.to_string().ends_with("the file is not open for reading"), "{error}");
    let reader = File::open(&nowait, &path).unwrap();
    assert_eq!(reader.write_at(&[0; 8], 0).unwrap_err().errno(), Errno::BADF);
    assert_eq!(reader.read_at(&mut [0; 8], u64::MAX).unwrap_err().errno(), Errno::INVAL);
    let missing = File::open(&nowait, folder.path().join("missing")).unwrap_err();
    assert_eq!(io::Error::from(missing).kind(), io::ErrorKind::NotFound);
    let options = OpenOptions::new().write(true).create_new(true);
    assert_eq!(options.open(&nowait, &path).unwrap_err().errno(), Errno::EXIST);
}

#[test]
fn the_error_of_a_direct_request_names_the_alignment() {
    let (folder, nowait) = (folder(), Nowait::new().unwrap());
    let path = folder.path().join("file");
    let file = open(&nowait, CacheMode::Direct, &path);
    let alignment = file.alignment().unwrap();
    assert!(alignment.offset.is_power_of_two() && alignment.offset <= BLOCK);
    let mut buffer = AlignedBuffer::zeroed(2 * BLOCK);
    let error = file.read_at(&mut buffer, 5).unwrap_err();
    assert_eq!(error.errno(), Errno::INVAL);
    let multiple = format!("offset to be a multiple of {}", alignment.offset);
    assert!(error.to_string().contains(&multiple), "{error}");
    let error = file.write_at(&buffer[..100], 0).unwrap_err();
    assert!(error.to_string().contains("the length to be"), "{error}");
    if alignment.memory > 1 {
        let error = file.read_at(&mut buffer[1..=BLOCK], 0).unwrap_err();
        assert!(error.to_string().contains("the address to be"), "{error}");
    }
    assert_eq!(open(&nowait, CacheMode::Host, &path).alignment(), None);
}

#[test]
fn what_is_not_there_is_refused_with_a_sentence() {
    let (folder, nowait) = (folder(), Nowait::new().unwrap());
    let directory = OpenOptions::new().read(true).open(&nowait, folder.path()).unwrap_err();
    assert!(directory.to_string().contains("only regular files can be cached"), "{directory}");
    let error = Nowait::builder().workers(0).build().unwrap_err();
    assert!(error.to_string().contains("workers must be 1 to 1024"), "{error}");
}

#[test]
fn writes_through_a_file_opened_for_sync_arrive() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let options = OpenOptions::new().write(true).create(true).sync(true).cache(mode);
        let file = options.open(nowait, &path).unwrap();
        let bytes = AlignedBuffer::from(&[9; BLOCK][..]);
        file.write_all_at(&bytes, BLOCK as u64).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[BLOCK..], [9; BLOCK]);
    });
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("nowait-")).count()
}

/// Waits up to ten seconds until no thread of an engine is left, and returns `true` if so: a thread
/// that was joined stays in /proc for a moment.
fn no_thread_is_left() -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while threads() > 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    threads() == 0
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// This test runs in a process of its own, because other tests of this file have engines too.
#[test]
#[ignore = "counts the threads of the process; run by the test below"]
fn alone_the_last_handle_ends_the_threads() {
    let folder = folder();
    std::fs::write(folder.path().join("file"), [7; 3 * BLOCK]).unwrap();
    drop(Nowait::new().unwrap()); // starts what the process keeps until it ends
    assert!(no_thread_is_left());
    let before = descriptors();
    for backend in BACKENDS {
        let Ok(nowait) = Nowait::builder().backend(backend).build() else { continue };
        let file = File::open(&nowait, folder.path().join("file")).unwrap();
        let mut queue = nowait.queue(8).unwrap();
        drop(nowait);
        for block in 0..3 {
            queue.read(&file, vec![0; BLOCK], block * BLOCK as u64, ()).unwrap();
        }
        queue.sync_all(&file, ()).unwrap();
        queue.submit();
        assert_eq!(queue.reap(4, None, |done| assert!(done.result.is_ok())).unwrap(), 4);
        assert!(threads() > 0);
        drop(file);
        drop(queue);
        assert!(no_thread_is_left(), "{backend:?}");
        assert_eq!(descriptors(), before, "{backend:?}");
        let path = folder.path().join("file");
        // A thread that has submitted keeps reusable resources until it ends.
        let futures = std::thread::spawn(move || futures_end_their_threads(backend, &path));
        futures.join().unwrap();
        assert!(no_thread_is_left(), "{backend:?}");
        assert_eq!(descriptors(), before, "{backend:?}");
    }
}

fn futures_end_their_threads(backend: BackendChoice, path: &std::path::Path) {
    use futures_lite::future::{block_on, poll_once};
    for abandons in [false, true] {
        let nowait = Nowait::builder().backend(backend).build().unwrap();
        block_on(async {
            let file = AsyncFile::open(&nowait, path).await.unwrap();
            let limit = Duration::from_secs(1000);
            let (result, _) = file.read_at(vec![0; BLOCK], 0).timeout(limit).await;
            assert_eq!(result.unwrap(), BLOCK);
            let (reader, _writer) = std::io::pipe().unwrap();
            let mut wait = Stream::new(&nowait, reader).ready(POLL_IN).timeout(limit);
            assert!(poll_once(&mut wait).await.is_none());
            let mut read = file.read_at(vec![0; BLOCK], BLOCK as u64);
            let first = if abandons { poll_once(&mut read).await } else { Some(read.await) };
            drop(first);
        });
    }
}

#[test]
fn the_last_handle_ends_the_threads() {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "alone_the_last_handle_ends_the_threads", "--include-ignored"]);
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_engine_says_what_it_runs_on() {
    let nowait = Nowait::builder().backend(BackendChoice::Threads).workers(2).build().unwrap();
    assert_eq!(nowait.backend(), BackendChoice::Threads);
    assert_eq!(format!("{nowait:?}"), "Nowait on threads: asked for");
}

#[test]
fn cached_bytes_are_lent_and_a_write_to_them_waits_for_their_return() {
    let (folder, nowait) = (folder(), Nowait::new().unwrap());
    let file = open(&nowait, CacheMode::User, &folder.path().join("file"));
    file.write_all_at(&[1; 3 * BLOCK], 0).unwrap();
    let lent = file.lend(100, 2 * BLOCK).unwrap().expect("it has just been written");
    assert_eq!(lent.chunks().map(<[u8]>::len).sum::<usize>(), 2 * BLOCK);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_all_at(&[2; BLOCK], 0));
        file.write_all_at(&[3; BLOCK], 16 * BLOCK as u64).unwrap();
        assert!(lent.chunks().flatten().all(|byte| *byte == 1), "nothing moves under a guard");
        drop(lent);
        writer.join().unwrap().unwrap();
    });
    let mut back = [0; BLOCK];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, [2; BLOCK]);
    assert!(file.lend(1 << 30, 10).unwrap().is_some_and(|lent| lent.is_empty()));
    drop(file);
    let host = open(&nowait, CacheMode::Host, &folder.path().join("file"));
    assert!(host.lend(0, 10).unwrap().is_none(), "it is not cached any more");
}

#[test]
fn a_synced_range_is_in_the_file_for_others_to_see() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = open(nowait, mode, &path);
        let mut bytes = AlignedBuffer::zeroed(8 * BLOCK);
        bytes.fill(7);
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_range(3 * BLOCK as u64 - 1, 2).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[2 * BLOCK..4 * BLOCK], bytes[..2 * BLOCK]);
        file.sync_range(4 * BLOCK as u64, 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4 * BLOCK..], bytes[..4 * BLOCK]);
        file.sync_range(u64::MAX, u64::MAX).unwrap();
    });
}

#[test]
fn permissions_and_flags_go_to_open() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (folder, nowait) = (folder(), Nowait::new().unwrap());
    let path = folder.path().join("file");
    let options = OpenOptions::new().write(true).create(true).mode(0o600);
    options.open(&nowait, &path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    options.open(&nowait, &link).unwrap();
    let options = options.flags(nowait_sys::file::O_NOFOLLOW);
    assert_eq!(options.open(&nowait, &link).unwrap_err().errno(), Errno::new(40)); // ELOOP
}

/// Each file has two descriptors in the engine's table, and the channel to this table has room for
/// fewer than 300 descriptors.
#[test]
#[cfg_attr(miri, ignore = "the page cache needs direct I/O")]
fn many_files_can_be_opened_at_once_in_the_page_cache() {
    on_every_engine(|nowait| {
        let folder = folder();
        let path = |number: usize| folder.path().join(number.to_string());
        let files = (0..250).map(|number| open(nowait, CacheMode::User, &path(number)));
        drop(files.collect::<Vec<_>>());
    });
}
