//! One file, several ways to access it: writes and truncations by one way, and the content that
//! another open or program then sees.

mod common;

use common::{BLOCK, folder, on_every_engine};
use futures_lite::future::block_on;
use nowait::{
    Advice, AlignedBuffer, AsyncFile, CacheMode, File, Nowait, OpenOptions, Queue, Zeroing,
};
use std::{
    os::fd::{AsRawFd, FromRawFd},
    path::Path,
    sync::Barrier,
    thread,
};

const MODES: [CacheMode; 3] = [CacheMode::User, CacheMode::Host, CacheMode::Direct];

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

fn all() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = AlignedBuffer::zeroed(16 * BLOCK);
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes[..count].to_vec()
}

/// Writes blocks through one open without a sync; then `second` empties the file.
fn emptied_by(nowait: &Nowait, path: &Path, second: impl Fn() -> File) {
    let first = all().open(nowait, path).unwrap();
    first.write_all_at(&filled(3 * BLOCK, 1), 0).unwrap();
    let second = second();
    assert_eq!(second.size().unwrap(), 0);
    assert_eq!((contents(&first).len(), contents(&second).len()), (0, 0), "it was emptied");
    second.write_all_at(&filled(BLOCK, 2), 0).unwrap();
    assert_eq!(contents(&first), [2; BLOCK]);
    first.sync_all().unwrap();
    drop((first, second));
    assert_eq!(std::fs::read(path).unwrap(), [2; BLOCK], "nothing old is written back");
}

#[test]
fn an_open_that_truncates_cuts_off_what_was_not_written_back() {
    on_every_engine(|nowait| {
        let folder = folder();
        for mode in MODES {
            let path = folder.path().join(format!("{mode:?}"));
            let open = || all().truncate(true).cache(mode).open(nowait, &path).unwrap();
            emptied_by(nowait, &path, open);
            let path = folder.path().join(format!("{mode:?} by async"));
            let open = || {
                let made = all().truncate(true).cache(mode);
                block_on(made.open_async(nowait, &path)).unwrap().file().clone()
            };
            emptied_by(nowait, &path, open);
        }
        let path = folder.path().join("created");
        let writer = || {
            drop(File::create(nowait, &path).unwrap());
            all().open(nowait, &path).unwrap()
        };
        emptied_by(nowait, &path, writer);
    });
}

/// After the drop of an `AsyncFile`, a helper thread writes its data back. The helper thread may
/// begin after another open has emptied the file.
#[test]
fn a_dropped_async_file_writes_nothing_into_one_that_was_emptied() {
    on_every_engine(|nowait| {
        let folder = folder();
        for round in 0..20 {
            let path = folder.path().join(round.to_string());
            let first = block_on(AsyncFile::create(nowait, &path)).unwrap();
            block_on(first.write_at(vec![1; 8 * BLOCK], 0)).0.unwrap();
            drop(first);
            let second = File::create(nowait, &path).unwrap();
            assert_eq!(second.size().unwrap(), 0);
            second.write_all_at(&[2; 5], 0).unwrap();
            second.sync_all().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), [2; 5]);
        }
    });
}

#[test]
fn an_open_that_truncates_leaves_what_is_no_regular_file() {
    let nowait = Nowait::new().unwrap();
    let options = all().truncate(true).cache(CacheMode::Host);
    let file = options.open(&nowait, "/dev/null").unwrap();
    assert_eq!(file.size().unwrap(), 0);
    let without_write = OpenOptions::new().read(true).truncate(true);
    for mode in [CacheMode::Host, CacheMode::Direct] {
        let refused = without_write.clone().cache(mode).open(&nowait, "/dev/null").unwrap_err();
        assert!(refused.to_string().contains("is not opened for writing"), "{refused}");
    }
}

fn beside(one: impl FnOnce() + Send, mut other: impl FnMut() + Send) {
    thread::scope(|scope| {
        let one = scope.spawn(one);
        while !one.is_finished() {
            other();
        }
    });
}

#[test]
fn an_open_never_makes_a_file_shorter_than_what_was_synced() {
    const PAGES: u64 = 60;
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = all().open(nowait, &path).unwrap();
        let write = || {
            for page in 0..PAGES {
                let (at, bytes) = (page * BLOCK as u64, filled(BLOCK, page as u8));
                file.write_all_at(&bytes, at).unwrap();
                file.sync_data().unwrap();
                assert_eq!(file.size().unwrap(), at + BLOCK as u64, "as long as it was synced");
                let mut back = [0; BLOCK];
                file.read_exact_at(&mut back, at).unwrap();
                assert_eq!(back, *bytes, "page {page}");
            }
        };
        beside(write, || drop(File::open(nowait, &path).unwrap()));
        assert_eq!(std::fs::read(&path).unwrap().len() as u64, PAGES * BLOCK as u64);
    });
}

#[test]
fn what_was_zeroed_stays_zero_whatever_was_read_ahead_meanwhile() {
    const BYTES: usize = 64 * BLOCK;
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("file");
        let file = all().open(nowait, &path).unwrap();
        let whole = 0..BYTES as u64;
        let zero = || {
            let mut back = vec![0; BYTES];
            for round in 0..30 {
                file.write_all_at(&filled(BYTES, 7), 0).unwrap();
                file.sync_data().unwrap();
                file.advise(whole.clone(), Advice::DontNeed).unwrap();
                file.advise(whole.clone(), Advice::WillNeed).unwrap();
                file.zero(whole.clone(), Zeroing::Hole).unwrap();
                file.read_exact_at(&mut back, 0).unwrap();
                assert!(back.iter().all(|byte| *byte == 0), "old bytes in round {round}");
            }
        };
        let (other, mut at) = (File::open(nowait, &path).unwrap(), 0);
        beside(zero, || {
            at = (at + 5 * BLOCK) % BYTES;
            other.read_at(&mut [0; BLOCK], at as u64).unwrap();
        });
    });
}

/// The write and the truncation end in either order; but each takes effect as a whole, and the
/// cached content equals the file's.
#[test]
fn a_durable_write_and_a_truncation_take_place_one_after_the_other() {
    const BYTES: usize = 40 * BLOCK;
    on_every_engine(|nowait| {
        let folder = folder();
        for round in 0..30 {
            let path = folder.path().join(round.to_string());
            let (file, writer) = (all().open(nowait, &path).unwrap(), all().sync(true));
            let writer = writer.open(nowait, &path).unwrap();
            file.write_all_at(&filled(BYTES, 1), 0).unwrap();
            file.sync_data().unwrap();
            let (cut, start) = ((round % 7) * BLOCK + 100 * (round % 3), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    writer.write_all_at(&filled(BYTES, 2), 0).unwrap();
                });
                start.wait();
                file.set_len(cut as u64).unwrap();
            });
            let len = file.size().unwrap() as usize;
            assert!(len == cut || len == BYTES, "round {round}: {len} bytes");
            let mut back = vec![0; len];
            file.read_exact_at(&mut back, 0).unwrap();
            assert!(back.iter().all(|byte| *byte == 2), "round {round}: all of the write");
            assert!(std::fs::read(&path).unwrap() == back, "round {round}: as it is in the file");
        }
    });
}

/// The open must wait for the writes in flight in a queue of the same thread, which the thread
/// cannot reap meanwhile.
#[test]
fn an_open_in_the_cache_finds_what_was_in_flight_past_it() {
    on_every_engine(|nowait| {
        let folder = folder();
        for mode in [CacheMode::Host, CacheMode::Direct] {
            let path = folder.path().join(format!("{mode:?}"));
            std::fs::write(&path, vec![1; 8 * BLOCK]).unwrap();
            let past = all().cache(mode).open(nowait, &path).unwrap();
            let mut queue: Queue<usize, AlignedBuffer> = nowait.queue(16).unwrap();
            for block in 0..8 {
                let bytes = filled(BLOCK, 2);
                queue.write(&past, bytes, (block * BLOCK) as u64, block).unwrap();
            }
            queue.submit();
            let cached = all().open(nowait, &path).unwrap();
            assert_eq!(contents(&cached), vec![2; 8 * BLOCK], "{mode:?}");
            queue.reap(8, None, |end| assert_eq!(end.result.unwrap(), BLOCK)).unwrap();
        }
    });
}

/// The file is sealed against growth, so the write-back at the last close fails.
#[test]
fn what_the_last_close_in_the_cache_could_not_write_fails_the_sync_of_another_open() {
    on_every_engine(|nowait| {
        // SAFETY: plain numbers and a literal; the descriptor is owned here alone.
        let memory = unsafe {
            let number = libc::memfd_create(c"file".as_ptr(), libc::MFD_ALLOW_SEALING);
            std::fs::File::from_raw_fd(number)
        };
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let cached = all().open(nowait, &path).unwrap();
        let other = all().cache(CacheMode::Host).open(nowait, &path).unwrap();
        // SAFETY: plain numbers.
        let sealed =
            unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
        assert_eq!(sealed, 0);
        other.write_all_at(&filled(BLOCK, 1), 4 * BLOCK as u64).unwrap();
        drop(cached);
        assert!(other.sync_all().is_err(), "the bytes are not in the file");
        drop(other);
        assert_eq!(memory.metadata().unwrap().len(), 0);
    });
}
