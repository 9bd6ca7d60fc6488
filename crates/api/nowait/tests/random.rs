//! Random operations on one file through several opens, against a vector, on every backend.
//!
//! A seed decides all operations, but not when requests complete or dirty pages are written back.
//! `NOWAIT_SEED=17` runs seed 17 alone; `NOWAIT_SEEDS` and `NOWAIT_STEPS` set the number of seeds
//! and of steps. Seeds run in parallel, each on its own engine and file: a run waits for the disk
//! most of the time, and the runs share nothing else.

use nowait::{AlignedBuffer, BackendChoice, CacheMode, File, Nowait, OpenOptions, Queue};
use nowait_block::skip::note_skip;
use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

const BYTES_MAX: u64 = 8 << 20;
const CACHE_BYTES: u64 = 2 << 20;
const BLOCK: u64 = 4096;
const LEN_MAX: u64 = 300_000;
const SIDE_BY_SIDE: usize = 16;
/// Writes take their bytes from a table with this period. The period divides no block length, so
/// bytes at a wrong offset differ.
const PERIOD: u64 = 251;

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }

    fn len(&mut self) -> u64 {
        match self.below(12) {
            0..4 => self.below(200),
            4..8 => (1 + self.below(16)) * BLOCK,
            8 => self.below(LEN_MAX),
            _ => self.below(40_000),
        }
    }

    fn offset(&mut self, size: u64) -> u64 {
        let at = self.below(size.max(1) + BLOCK);
        if self.below(2) == 0 { at & !(BLOCK - 1) } else { at }
    }
}

struct Run {
    random: Random,
    nowait: Nowait,
    cached: File,
    direct: File,
    queue: Queue<u64, Vec<u8>>,
    model: Vec<u8>,
    table: Vec<u8>,
    path: PathBuf,
    /// Reused memory for checks: new pages for each check would cost more than the check.
    found: Vec<u8>,
}

/// Makes a folder in /var/tmp, which is mostly on a disk: direct I/O on a memory file system
/// behaves differently.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn open(nowait: &Nowait, path: &Path, mode: CacheMode, sync: bool) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true).cache(mode).sync(sync);
    options.open(nowait, path).unwrap()
}

impl Run {
    fn new(nowait: &Nowait, path: &Path, seed: u64) -> Run {
        let cached = open(nowait, path, CacheMode::User, false);
        let direct = open(nowait, path, CacheMode::Direct, false);
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (nowait, queue) = (nowait.clone(), nowait.queue(16).unwrap());
        let table = (0..LEN_MAX + 2 * PERIOD + BLOCK).map(|at| (at % PERIOD) as u8 + 1).collect();
        let (model, found, path) = (Vec::new(), Vec::new(), path.to_owned());
        Run { random, nowait, cached, direct, queue, model, table, path, found }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..30 => self.read(),
            30..58 => self.write(),
            58..70 => self.batch(),
            70..76 => self.append(),
            76..82 => self.truncate(),
            82..88 => self.direct_write(),
            88..94 => self.direct_read(),
            94..97 => self.sync(),
            97..99 => self.durable_write(),
            _ => self.reopen(),
        }
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let first = self.random.below(PERIOD);
        self.table[first as usize..(first + len) as usize].to_vec()
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if bytes.is_empty() {
            return; // a write of 0 bytes extends no file
        }
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(bytes);
    }

    fn at(&self, offset: u64, len: u64) -> &[u8] {
        let (from, end) = (offset.min(self.size()), (offset + len).min(self.size()));
        &self.model[from as usize..end as usize]
    }

    fn read(&mut self) {
        let (offset, len) = (self.random.offset(self.size()), self.random.len());
        let mut memory = vec![0xee; len as usize];
        let count = self.cached.read_at(&mut memory, offset).unwrap();
        assert!(memory[..count] == *self.at(offset, len), "read of {len} at {offset}");
    }

    fn place(&mut self) -> (u64, u64) {
        let offset = self.random.offset(self.size()).min(BYTES_MAX - 1);
        (offset, self.random.len().min(BYTES_MAX - offset))
    }

    fn write(&mut self) {
        let (offset, len) = self.place();
        let bytes = self.bytes(len);
        self.cached.write_all_at(&bytes, offset).unwrap();
        self.put(offset, &bytes);
    }

    fn append(&mut self) {
        let offset = self.size();
        let len = self.random.len().min(BYTES_MAX - offset);
        let bytes = self.bytes(len);
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        let slices = [std::io::IoSlice::new(head), std::io::IoSlice::new(tail)];
        assert_eq!(self.cached.write_vectored_at(&slices, offset).unwrap(), bytes.len());
        self.put(offset, &bytes);
    }

    /// Submits, in one batch, writes and reads that may overlap: each read must see the writes
    /// before it. A read beyond the old end may find zeroes or nothing if another request extends
    /// the file elsewhere: the two do not overlap, so they have no order.
    fn batch(&mut self) {
        let (mut expected, size) = (Vec::new(), self.size());
        for tag in 0..=self.random.below(8) {
            let (offset, len) = self.place();
            if self.random.below(2) == 0 {
                let bytes = self.bytes(len);
                self.queue.write(&self.cached, bytes.clone(), offset, tag).unwrap();
                self.put(offset, &bytes);
                expected.push(None);
            } else {
                let buffer = vec![0xdd; len as usize];
                self.queue.read(&self.cached, buffer, offset, tag).unwrap();
                let certain = size.saturating_sub(offset) as usize;
                expected.push(Some((self.at(offset, len).to_vec(), certain)));
            }
        }
        self.queue.submit();
        let count = expected.len();
        let reap = |done: nowait::Completion<u64, Vec<u8>>| {
            let (count, buffer) = (done.result.unwrap(), done.buffers.one().unwrap());
            if let Some((bytes, certain)) = &expected[done.tag as usize] {
                let both = bytes.len().min(count);
                let uncertain = buffer[both..count].iter().chain(&bytes[both..]);
                let right = buffer[..both] == bytes[..both]
                    && count >= bytes.len().min(*certain)
                    && uncertain.copied().all(|byte| byte == 0);
                assert!(right, "request {} of a batch", done.tag);
            }
        };
        assert_eq!(self.queue.reap(count, None, reap).unwrap(), count);
    }

    fn truncate(&mut self) {
        let size = match self.random.below(3) {
            0 => self.random.below(self.size() + 1),
            1 => self.random.below(self.size() + 1) & !(BLOCK - 1),
            _ => (self.size() + self.random.len()).min(BYTES_MAX),
        };
        self.cached.set_len(size).unwrap();
        self.model.resize(size as usize, 0);
        assert_eq!(self.cached.size().unwrap(), size);
    }

    fn blocks(&mut self) -> (u64, AlignedBuffer) {
        let (offset, len) = self.place();
        let offset = (offset & !(BLOCK - 1)).min(BYTES_MAX - BLOCK);
        let len = len.next_multiple_of(BLOCK).clamp(BLOCK, BYTES_MAX - offset);
        let mut buffer = AlignedBuffer::zeroed(len as usize);
        let bytes = self.bytes(len);
        buffer.copy_from_slice(&bytes);
        (offset, buffer)
    }

    fn direct_write(&mut self) {
        let (offset, buffer) = self.blocks();
        self.direct.write_all_at(&buffer, offset).unwrap();
        self.put(offset, &buffer);
    }

    fn direct_read(&mut self) {
        let (offset, mut buffer) = self.blocks();
        let count = self.direct.read_at(&mut buffer, offset).unwrap();
        assert!(buffer[..count] == *self.at(offset, buffer.len() as u64), "direct at {offset}");
    }

    fn sync(&mut self) {
        self.cached.sync_data().unwrap();
        self.look("a sync");
    }

    fn look(&mut self, after: &str) {
        self.found.clear();
        let mut file = std::fs::File::open(&self.path).unwrap();
        file.read_to_end(&mut self.found).unwrap();
        assert!(self.found == self.model, "the file after {after}");
    }

    fn durable_write(&mut self) {
        self.cached.sync_data().unwrap();
        let file = open(&self.nowait, &self.path, CacheMode::User, true);
        let (offset, len) = self.place();
        let bytes = self.bytes(len);
        file.write_all_at(&bytes, offset).unwrap();
        self.put(offset, &bytes);
        self.look("a durable write");
    }

    /// The last close writes back; the next open must find the content that the standard library
    /// has written meanwhile.
    fn reopen(&mut self) {
        let elsewhere = self.path.with_file_name("elsewhere");
        self.cached = open(&self.nowait, &elsewhere, CacheMode::User, false);
        self.direct = open(&self.nowait, &elsewhere, CacheMode::Direct, false);
        self.look("the last close");
        let len = self.random.len();
        self.model = self.bytes(len);
        std::fs::write(&self.path, &self.model).unwrap();
        self.cached = open(&self.nowait, &self.path, CacheMode::User, false);
        self.direct = open(&self.nowait, &self.path, CacheMode::Direct, false);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The seeds that no run has taken yet. After a panic, [`Failure`] takes all of them away.
struct Seeds {
    next: AtomicU64,
    end: u64,
}

impl Seeds {
    fn take(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Relaxed);
        (seed < self.end).then_some(seed)
    }
}

/// If the run of a seed panics, reports the seed, and lets no further seed begin.
struct Failure<'a>(&'a Seeds, BackendChoice, u64);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{:?}: NOWAIT_SEED={}", self.1, self.2);
            self.0.next.store(self.0.end, Relaxed);
        }
    }
}

fn engine(backend: BackendChoice) -> Result<Nowait, nowait::Error> {
    Nowait::builder().backend(backend).cache_bytes(CACHE_BYTES).build()
}

fn run_seeds(backend: BackendChoice, seeds: &Seeds, steps: u64) {
    let nowait = engine(backend).unwrap();
    while let Some(seed) = seeds.take() {
        let _failure = Failure(seeds, backend, seed);
        let folder = folder();
        let mut run = Run::new(&nowait, &folder.path().join("file"), seed);
        (0..steps).for_each(|_| run.step());
        run.sync();
    }
}

fn runs(backend: BackendChoice) {
    if let Err(why) = engine(backend) {
        return note_skip("random", &why.to_string());
    }
    let (seeds, steps) = (number("NOWAIT_SEEDS", 100), number("NOWAIT_STEPS", 2_000));
    let one = |seed: String| seed.parse().map(|seed| (seed, seed + 1)).unwrap();
    let (first, end) = std::env::var("NOWAIT_SEED").map_or((0, seeds), one);
    let seeds = Seeds { next: AtomicU64::new(first), end };
    thread::scope(|scope| {
        (0..SIDE_BY_SIDE).for_each(|_| drop(scope.spawn(|| run_seeds(backend, &seeds, steps))));
    });
}

#[test]
fn a_file_is_what_was_done_to_it_through_all_its_opens_on_uring() {
    runs(BackendChoice::Uring);
}

#[test]
fn a_file_is_what_was_done_to_it_through_all_its_opens_on_kaio() {
    runs(BackendChoice::Kaio);
}

#[test]
fn a_file_is_what_was_done_to_it_through_all_its_opens_on_threads() {
    runs(BackendChoice::Threads);
}
