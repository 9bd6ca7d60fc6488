//! Stores and loads of blocks, on the disk and in memory.

use nowait::Nowait;
use nowait_blocks::{BlockFolder, Config, Direction, Finished, Region};
use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, SystemTime},
};
use walkdir::WalkDir;

const BLOCK: usize = 16 << 10;
const SLOTS: usize = 32;

/// A folder of blocks, and its memory, which is dropped after the folder.
struct Tier {
    folder: BlockFolder,
    memory: Box<[Page]>,
}

#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; 4096]);

impl Tier {
    fn open(root: &Path, capacity_bytes: Option<u64>, shift: usize) -> Tier {
        let mut memory = vec![Page([0; 4096]); SLOTS * BLOCK / 4096 + 1].into_boxed_slice();
        let config = Config {
            root: root.into(),
            folder: root.join("model_r0"),
            block_bytes: BLOCK,
            capacity_bytes,
            in_flight_bytes: 8 * BLOCK as u64,
            tells_evictions: true,
        };
        let at = memory.as_mut_ptr().cast::<u8>().wrapping_add(shift);
        // SAFETY: the memory is on the heap, one page larger, and dropped after the folder; the
        // tests touch it between jobs only.
        let region = unsafe { Region::new(at, SLOTS * BLOCK) };
        let folder = BlockFolder::open(&Nowait::new().unwrap(), region, config).unwrap();
        Tier { folder, memory }
    }

    fn fill(&mut self, slot: usize, seed: u8) {
        let pages = &mut self.memory[slot * BLOCK / 4096..(slot + 1) * BLOCK / 4096];
        pages.iter_mut().for_each(|page| page.0.fill(seed));
    }

    fn has(&self, slot: usize, seed: u8) -> bool {
        let pages = &self.memory[slot * BLOCK / 4096..(slot + 1) * BLOCK / 4096];
        pages.iter().all(|page| page.0.iter().all(|&byte| byte == seed))
    }

    fn run(&self, direction: Direction, blocks: &[(u8, i64)]) -> Finished {
        let blocks = blocks.iter().map(|&(number, slot)| (key(number), slot)).collect();
        self.folder.submit(7, direction, blocks);
        assert!(self.folder.wait_idle(Duration::from_mins(1)));
        let mut finished = self.folder.take_finished();
        assert_eq!(finished.len(), 1);
        finished.remove(0)
    }

    fn store(&mut self, numbers: impl Iterator<Item = u8>) {
        for number in numbers {
            self.fill(0, number);
            let finished = self.run(Direction::Store, &[(number, 0)]);
            assert_eq!(finished.failures, []);
        }
    }

    fn path(&self, number: u8) -> PathBuf {
        self.folder.file_of(&key(number)).unwrap()
    }
}

fn key(number: u8) -> Vec<u8> {
    vec![number, 0x11, 0x22, 0x33, 0, 0, 0, 1]
}

fn reasons(finished: &Finished) -> Vec<(usize, &str)> {
    finished.failures.iter().map(|it| (it.index, it.reason.as_str())).collect()
}

/// Returns the sum of the sizes of the files of blocks below `root`.
fn bytes_below(root: &Path) -> u64 {
    let entries = WalkDir::new(root.join("model_r0")).into_iter().flatten();
    entries.filter(|it| it.file_type().is_file()).map(|it| it.metadata().unwrap().len()).sum()
}

#[test]
fn a_batch_comes_back_into_other_slots() {
    for root in ["/var/tmp", "/dev/shm"] {
        for shift in [0, 8] {
            let root = tempfile::tempdir_in(root).unwrap();
            let mut tier = Tier::open(root.path(), None, shift);
            (0..8).for_each(|slot| tier.fill(slot, 10 + slot as u8));
            let stored = tier.run(Direction::Store, &[(1, 0), (2, 1), (3, 2), (4, 3)]);
            assert_eq!((stored.job, stored.direction), (7, Direction::Store));
            assert_eq!((stored.bytes, reasons(&stored)), (4 * BLOCK as u64, vec![]));
            let again = tier.run(Direction::Store, &[(1, 5)]);
            assert_eq!(again.bytes, 0, "it is stored already");
            let loaded = tier.run(Direction::Load, &[(4, 10), (3, 11), (1, 12)]);
            assert_eq!((loaded.bytes, reasons(&loaded)), (3 * BLOCK as u64, vec![]));
            if shift == 0 {
                assert!(tier.has(10, 13) && tier.has(11, 12) && tier.has(12, 10));
            }
            assert_eq!(tier.folder.contains(&[key(4), key(9)]), [true, false]);
            assert!(shift == 0 || !tier.folder.is_direct(), "memory is not aligned");
        }
    }
}

#[test]
fn files_are_for_their_owner_alone() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut tier = Tier::open(root.path(), Some(1 << 20), 0);
    tier.store(1..2);
    let bits = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for entry in WalkDir::new(root.path()).min_depth(1).into_iter().flatten() {
        let expected = if entry.file_type().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(bits(entry.path()), expected, "{}", entry.path().display());
    }
}

#[test]
fn missing_and_short_blocks_fail_alone_and_short_files_go() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut tier = Tier::open(root.path(), None, 0);
    tier.store(1..4);
    fs::write(tier.path(2), b"short").unwrap();
    assert_eq!(tier.folder.contains(&[key(2)]), [false]);
    tier.fill(5, 0);
    let loaded = tier.run(Direction::Load, &[(9, 3), (2, 4), (3, 5)]);
    let [(0, missing), (1, short)] = reasons(&loaded)[..] else { panic!("{loaded:?}") };
    assert!(missing.contains("(ENOENT)"), "{missing}");
    assert!(short.contains("has 5 of 16384 bytes"), "{short}");
    assert!(tier.has(5, 3));
    assert!(!tier.path(2).exists());
    tier.store(2..3);
    assert_eq!(tier.folder.contains(&[key(2)]), [true]);
}

#[test]
fn a_job_of_nothing_ends_and_a_block_outside_the_memory_fails_alone() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut tier = Tier::open(root.path(), None, 0);
    tier.fill(0, 7);
    assert_eq!(tier.run(Direction::Load, &[]).failures, []);
    for slot in [-1, SLOTS as i64, i64::MAX] {
        let failed = tier.run(Direction::Store, &[(1, 0), (2, slot)]);
        let [(1, reason)] = reasons(&failed)[..] else { panic!("{failed:?}") };
        assert!(reason.contains(&format!("no slot {slot} in")), "{reason}");
        assert_eq!(tier.folder.contains(&[key(1), key(2)]), [true, false]);
    }
    let failed = tier.run(Direction::Load, &[(1, 3), (1, -1), (1, 4)]);
    assert!(matches!(reasons(&failed)[..], [(1, _)]), "{failed:?}");
    assert!(tier.has(3, 7) && tier.has(4, 7), "a block that is not named is loaded");
    tier.folder.submit(8, Direction::Load, vec![(vec![1], 0)]);
    assert!(tier.folder.wait_idle(Duration::from_mins(1)));
    assert!(reasons(&tier.folder.take_finished()[0])[0].1.contains("its key is too short"));
}

#[test]
fn a_closed_folder_fails_what_waits_and_uses_no_memory() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = Tier::open(root.path(), None, 0);
    for job in 0..16 {
        let blocks = (0..16).map(|slot| (key(job as u8 * 16 + slot as u8), slot)).collect();
        tier.folder.submit(job, Direction::Store, blocks);
    }
    tier.folder.close();
    assert!(tier.folder.wait_idle(Duration::ZERO));
    assert_eq!(tier.folder.take_finished().len(), 16);
    tier.folder.submit(99, Direction::Load, vec![(key(1), 0)]);
    let failed = &tier.folder.take_finished()[0];
    assert!(reasons(failed)[0].1.contains("the folder is closed"));
    let names = WalkDir::new(root.path()).into_iter().flatten();
    assert!(names.into_iter().all(|it| !it.file_name().to_string_lossy().ends_with(".tmp")));
}

#[test]
fn every_caller_of_close_waits_for_the_blocks_in_flight() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = Tier::open(root.path(), Some(1 << 20), 0);
    // A store waits while another process holds the lock of the count.
    let count = File::open(root.path().join(".nowait/usage")).unwrap();
    count.lock().unwrap();
    tier.folder.submit(1, Direction::Store, vec![(key(1), 0)]);
    while !is_waited_for(&count) {
        thread::yield_now(); // `close` fails a block that is not in flight at once
    }
    let (closed, ends) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (closed, folder) = (closed.clone(), &tier.folder);
            scope.spawn(move || {
                folder.close();
                closed.send(()).unwrap();
            });
        }
        // The caller of `close` that returns first would release the memory.
        let early = ends.recv_timeout(Duration::from_millis(100));
        count.unlock().unwrap();
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
    });
}

/// Returns `true` if a thread waits for the lock of this file (proc_locks(5)).
fn is_waited_for(file: &File) -> bool {
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|lock| lock.contains(" -> ") && lock.contains(&inode))
}

#[test]
fn no_signal_handler_of_the_program_runs_on_the_threads_of_a_folder() {
    const SIGNALS: u64 = 1 << (2 - 1) | 1 << (10 - 1) | 1 << (15 - 1); // INT, USR1, TERM
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let _tier = Tier::open(root.path(), None, 0);
    for name in ["nowait-loads", "nowait-stores", "nowait-evictor"] {
        while !statuses(name).any(|status| {
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
            assert_eq!(blocked & SIGNALS, SIGNALS, "{name}");
            true
        }) {
            thread::yield_now(); // it names itself
        }
    }
}

/// Returns the status (proc_pid_status(5)) of each thread with this name.
fn statuses(name: &str) -> impl Iterator<Item = String> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let statuses = threads.filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
    statuses.filter(move |status| status.starts_with(&format!("Name:\t{name}\n")))
}

#[test]
fn two_folders_share_a_capacity_and_evict_what_was_used_last() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let capacity = 16 * BLOCK as u64;
    let mut one = Tier::open(root.path(), Some(capacity), 0);
    let mut other = Tier::open(root.path(), Some(capacity), 0);
    one.store(1..9);
    for number in 1..9 {
        let then = SystemTime::now() - Duration::from_secs(1000 - u64::from(number));
        let times = FileTimes::new().set_accessed(then).set_modified(then);
        File::options().write(true).open(one.path(number)).unwrap().set_times(times).unwrap();
    }
    // The block with the oldest last use is used again, so it must stay.
    one.folder.touch(std::iter::once(key(1)));
    let is_noted = || {
        let used = fs::metadata(one.path(1)).unwrap().accessed().unwrap();
        used.elapsed().is_ok_and(|age| age < Duration::from_secs(500))
    };
    while !is_noted() {
        thread::yield_now();
    }
    // These stores evict some of the blocks that were not used again, but not all of them.
    for number in 0..3 {
        one.store(20 + number..21 + number);
        other.store(40 + number..41 + number);
        assert!(bytes_below(root.path()) <= capacity);
    }
    let mut evicted = Vec::new();
    while !evicted.contains(&key(2)) {
        evicted.extend(one.folder.take_evicted().into_iter().chain(other.folder.take_evicted()));
    }
    assert!(one.path(1).exists() && !evicted.contains(&key(1)), "used again");
    assert!(!one.path(2).exists(), "not used for the longest time");
}

#[test]
fn a_block_larger_than_the_capacity_is_refused() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = Tier::open(root.path(), Some(BLOCK as u64 - 1), 0);
    let failed = tier.run(Direction::Store, &[(1, 0)]);
    assert!(reasons(&failed)[0].1.contains("no room in the folder"), "{failed:?}");
    assert_eq!(bytes_below(root.path()), 0);
}
