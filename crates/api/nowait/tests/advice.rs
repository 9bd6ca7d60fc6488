//! Advice, as for posix_fadvise(2), and its effect on a cached file.

mod common;

use common::{BLOCK, everywhere, folder, open};
use nowait::{Advice, CacheMode, File, Lent, Nowait};
use std::time::{Duration, Instant};

/// Length of a file, larger than the page cache of the engines in [`everywhere`].
const BYTES: usize = 8 << 20;
const MIB: u64 = 1 << 20;

fn uncached(nowait: &Nowait, path: &std::path::Path) -> File {
    std::fs::write(path, vec![7; BYTES]).unwrap();
    open(nowait, CacheMode::User, path)
}

fn is_cached(file: &File, offset: u64) -> bool {
    file.lend(offset, 1).unwrap().is_some()
}

fn arrives(file: &File, offset: u64) {
    let begin = Instant::now();
    while !is_cached(file, offset) {
        assert!(begin.elapsed() < Duration::from_mins(1), "no thread reads it");
        std::thread::yield_now();
    }
}

#[test]
fn advice_is_taken_in_every_mode_and_changes_no_byte() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; BYTES]).unwrap();
        let file = open(nowait, mode, &path);
        for advice in [Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed] {
            file.advise(0..u64::MAX, advice).unwrap();
            file.advise(MIB..MIB, advice).unwrap();
            let mut buffer = nowait::AlignedBuffer::zeroed(BLOCK);
            assert_eq!(file.read_at(&mut buffer, MIB).unwrap(), BLOCK);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    });
}

#[test]
fn an_open_advised_of_random_access_reads_nothing_ahead_and_another_does() {
    let (folder, nowait) = (folder(), Nowait::builder().cache_bytes(4 << 20).build().unwrap());
    let random = uncached(&nowait, &folder.path().join("file"));
    random.advise(0..0, Advice::Random).unwrap();
    let other = open(&nowait, CacheMode::User, &folder.path().join("file"));
    let mut buffer = [0; BLOCK];
    for page in 0..8 {
        random.read_exact_at(&mut buffer, page * BLOCK as u64).unwrap();
    }
    assert!(!is_cached(&random, 8 * BLOCK as u64), "only what was asked for");
    for page in 0..8 {
        other.read_exact_at(&mut buffer, MIB + page * BLOCK as u64).unwrap();
    }
    arrives(&other, MIB + 8 * BLOCK as u64);
}

#[test]
fn what_will_be_needed_is_read_and_what_is_not_needed_goes() {
    let (folder, nowait) = (folder(), Nowait::builder().cache_bytes(4 << 20).build().unwrap());
    let file = uncached(&nowait, &folder.path().join("file"));
    file.advise(0..BLOCK as u64 * 16, Advice::WillNeed).unwrap();
    arrives(&file, 15 * BLOCK as u64);
    arrives(&file, 0);

    let lent: Lent = file.lend(0, BLOCK).unwrap().unwrap();
    file.write_all_at(&[9; BLOCK], 32 * BLOCK as u64).unwrap();
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    assert!(lent.chunks().flatten().all(|byte| *byte == 7), "lent bytes stay");
    drop(lent);
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    assert!(!is_cached(&file, 15 * BLOCK as u64));
    let mut buffer = [0; BLOCK];
    file.read_exact_at(&mut buffer, 32 * BLOCK as u64).unwrap();
    assert_eq!(buffer, [9; BLOCK], "what is not on disk yet is kept");
}
