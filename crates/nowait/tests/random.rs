//! Random operations on one file through several opens, against a vector, on every backend.
//!
//! A seed decides everything but the order in which the system completes. `NOWAIT_SEED=17` runs
//! one; `NOWAIT_SEEDS` and `NOWAIT_STEPS` set how many and how long.

use nowait::{AlignedBuffer, BackendChoice, CacheMode, File, Nowait, OpenOptions, Queue};
use std::path::Path;

/// The file never grows beyond this, four times the cache.
const BYTES_MAX: u64 = 8 << 20;
const CACHE_BYTES: u64 = 2 << 20;
const BLOCK: u64 = 4096;
const LEN_MAX: u64 = 300_000;
/// What is written is a part of a table with this period: no block length, so that shifted bytes
/// do not look right.
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

    /// Small lengths, block lengths, any length: each a third; large ones now and then.
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
}

/// A folder on a real disk: direct I/O on a memory file system is something else.
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
        Run { random, nowait, cached, direct, queue, model: Vec::new(), table }
    }

    fn step(&mut self, path: &Path) {
        match self.random.below(100) {
            0..30 => self.read(),
            30..58 => self.write(),
            58..70 => self.batch(),
            70..76 => self.append(),
            76..82 => self.truncate(),
            82..88 => self.direct_write(),
            88..94 => self.direct_read(),
            94..97 => self.sync(path),
            97..99 => self.durable_write(path),
            _ => self.reopen(path),
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

    /// Writes and then reads that overlap, in one submission: each sees what came before it. A
    /// read behind the old end may find zeroes or nothing, if another request makes the file longer
    /// elsewhere: the two do not overlap, so nothing orders them.
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

    /// After a sync the file has it, whoever looks.
    fn sync(&mut self, path: &Path) {
        self.cached.sync_data().unwrap();
        assert!(std::fs::read(path).unwrap() == self.model, "the file after a sync");
    }

    fn durable_write(&mut self, path: &Path) {
        self.cached.sync_data().unwrap();
        let file = open(&self.nowait, path, CacheMode::User, true);
        let (offset, len) = self.place();
        let bytes = self.bytes(len);
        file.write_all_at(&bytes, offset).unwrap();
        self.put(offset, &bytes);
        assert!(std::fs::read(path).unwrap() == self.model, "the file after a durable write");
    }

    /// The last close writes back; the next open finds what others did meanwhile.
    fn reopen(&mut self, path: &Path) {
        let nothing = folder();
        let elsewhere = nothing.path().join("nothing");
        self.cached = open(&self.nowait, &elsewhere, CacheMode::User, false);
        self.direct = open(&self.nowait, &elsewhere, CacheMode::Direct, false);
        assert!(std::fs::read(path).unwrap() == self.model, "the file after the last close");
        let len = self.random.len();
        self.model = self.bytes(len);
        std::fs::write(path, &self.model).unwrap();
        self.cached = open(&self.nowait, path, CacheMode::User, false);
        self.direct = open(&self.nowait, path, CacheMode::Direct, false);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn runs(backend: BackendChoice) {
    let (seeds, steps) = (number("NOWAIT_SEEDS", 100), number("NOWAIT_STEPS", 2_000));
    let seeds = std::env::var("NOWAIT_SEED")
        .map_or(0..seeds, |seed| seed.parse().map(|seed| seed..seed + 1).unwrap());
    let built = Nowait::builder().backend(backend).cache_bytes(CACHE_BYTES).build();
    let Ok(nowait) = built.inspect_err(|why| println!("skipped: random: {why}")) else { return };
    for seed in seeds {
        println!("{backend:?}, NOWAIT_SEED={seed}");
        let folder = folder();
        let path = folder.path().join("file");
        let mut run = Run::new(&nowait, &path, seed);
        (0..steps).for_each(|_| run.step(&path));
        run.sync(&path);
    }
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
