//! Compares the speed of cached reads with the bare speed of memory.
//!
//! `BENCH=1 cargo test --release -p nowait-cache --test bench_cached_copy -- --nocapture`

use nowait_block::Segments;
use nowait_cache::copy::{self, User};
use nowait_cache::{Ahead, Backing, Cache, CachedFile, FRAME_BYTES, Mapping, Target};
use nowait_sys::{aligned::AlignedBuffer, file::IoVec, memory::HugeMemory, time::thread_cpu_ns};
use std::sync::Arc;

const BATCH: usize = 32;
/// The benchmark prefetches the data of a page so many copies before it copies the page.
const AHEAD: usize = 4;

/// xorshift64, Marsaglia 2003.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

/// A cached file whose pages lie in frames of 4 KiB, in random order.
struct Set {
    file: Arc<CachedFile>,
    mapping: Arc<Mapping>,
    pages: u64,
    target: Vec<u8>,
}

impl Set {
    fn new(bytes: u64) -> Set {
        let cache = Cache::new(bytes).unwrap();
        let target = Target { fd: -1, file: None };
        let file = CachedFile::new(&cache, Backing::of(&target), bytes);
        let mapping = file.mapping().clone();
        let pages = bytes / FRAME_BYTES as u64;
        let mut order: Vec<u64> = (0..pages).collect();
        let mut random = Random(7);
        for at in (1..pages).rev() {
            order.swap(at as usize, random.below(at + 1) as usize);
        }
        for index in order {
            let mut created = Vec::new();
            mapping.create_missing(index, index + 1, &mut created).unwrap();
            let data = cache.frames().data(created[0]);
            // SAFETY: a frame of 4 KiB, which this thread has locked.
            unsafe { data.write_bytes(index as u8, FRAME_BYTES) };
            mapping.filled(created[0], Ok(()), &mut Vec::new());
        }
        Set { file, mapping, pages, target: vec![1; BATCH * FRAME_BYTES] }
    }

    fn slot(&mut self, at: usize) -> *mut u8 {
        self.target[at * FRAME_BYTES..][..FRAME_BYTES].as_mut_ptr()
    }

    fn memcpy(&mut self, batch: &[u64; BATCH]) {
        let base = self.mapping.cache().frames().memory().base();
        for (at, index) in batch.iter().enumerate() {
            // SAFETY: a page inside the pool and a slot of a page, which do not overlap.
            unsafe {
                let page = base.add(*index as usize * FRAME_BYTES);
                core::ptr::copy_nonoverlapping(page, self.slot(at), FRAME_BYTES);
            }
        }
    }

    fn one_by_one(&mut self, batch: &[u64; BATCH]) {
        let mapping = self.mapping.clone();
        for (at, index) in batch.iter().enumerate() {
            let pin = mapping.find(*index).unwrap();
            assert!(pin.state().is_uptodate());
            // SAFETY: a pinned page and a slot of a page, which do not overlap.
            unsafe { copy::to_user(pin.at(0).0, self.slot(at), FRAME_BYTES) };
        }
    }

    fn prefetched(&mut self, batch: &[u64; BATCH]) {
        let mapping = self.mapping.clone();
        let numbers = batch.map(|index| mapping.prefetch(index));
        for (number, index) in numbers[..AHEAD].iter().zip(batch) {
            mapping.prefetch_data(*number, index * FRAME_BYTES as u64, FRAME_BYTES, Ahead::Copy);
        }
        for (at, index) in batch.iter().enumerate() {
            if let Some(number) = numbers.get(at + AHEAD) {
                let ahead = batch[at + AHEAD] * FRAME_BYTES as u64;
                mapping.prefetch_data(*number, ahead, FRAME_BYTES, Ahead::Copy);
            }
            let pin = mapping.pin(numbers[at], *index).unwrap();
            assert!(pin.state().is_uptodate());
            // SAFETY: as above.
            unsafe { copy::to_user(pin.at(0).0, self.slot(at), FRAME_BYTES) };
        }
    }

    fn reads(&mut self, batch: &[u64; BATCH]) {
        let file = self.file.clone();
        let numbers = batch.map(|index| file.mapping().prefetch(index));
        for (number, index) in numbers[..AHEAD].iter().zip(batch) {
            file.mapping().prefetch_data(
                *number,
                index * FRAME_BYTES as u64,
                FRAME_BYTES,
                Ahead::Copy,
            );
        }
        for (at, index) in batch.iter().enumerate() {
            if let Some(number) = numbers.get(at + AHEAD) {
                let ahead = batch[at + AHEAD] * FRAME_BYTES as u64;
                file.mapping().prefetch_data(*number, ahead, FRAME_BYTES, Ahead::Copy);
            }
            let segment = IoVec { base: self.slot(at), len: FRAME_BYTES };
            // SAFETY: the slot lives longer than `user`.
            let mut user = unsafe { User::new(Segments::One(segment)) };
            let copied = file.read_cached(index * FRAME_BYTES as u64, &mut user);
            assert_eq!(copied, FRAME_BYTES);
        }
    }
}

type Way = (&'static str, fn(&mut Set, &[u64; BATCH]));

const WAYS: [Way; 4] = [
    ("memcpy", Set::memcpy),
    ("find", Set::one_by_one),
    ("prefetch", Set::prefetched),
    ("read", Set::reads),
];

/// Returns the processor time in ns, and a hash of the target buffer.
fn run(set: &mut Set, way: Way, batches: u64, seed: u64) -> (u64, u64) {
    let mut random = Random(seed | 1);
    let start = thread_cpu_ns();
    for _ in 0..batches {
        let batch = core::array::from_fn(|_| random.below(set.pages));
        way.1(set, &batch);
    }
    let time = thread_cpu_ns() - start;
    let hash = set.target.iter().step_by(509).fold(0u64, |h, b| h.rotate_left(5) ^ u64::from(*b));
    (time, hash)
}

/// Prints the least, median and greatest rate of each way, in million copies a second of processor
/// time. The rounds of the ways are interleaved, so that all meet the same disturbances.
fn compare(name: &str, bytes: u64, batches: u64, rounds: u64) {
    let mut set = Set::new(bytes);
    let mut rates: [Vec<f64>; WAYS.len()] = Default::default();
    let mut hashes = 0;
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..WAYS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            let (time, hash) = run(&mut set, WAYS[way], batches, round + 99);
            rates[way].push((batches * BATCH as u64) as f64 * 1e3 / time as f64);
            hashes ^= hash;
        }
    }
    for rates in &mut rates {
        rates.sort_by(f64::total_cmp);
    }
    let median = |way: usize| rates[way][rates[way].len() / 2];
    for (way, (what, _)) in WAYS.iter().enumerate() {
        let (low, high) = (rates[way][0], rates[way][rates[way].len() - 1]);
        let (middle, share) = (median(way), median(way) / median(0));
        println!("{name:>8} {what:>9}: {low:6.2}/{middle:6.2}/{high:6.2} M/s, {share:.2} x memcpy");
    }
    println!("{name:>8} hash {hashes:x}");
}

#[test]
fn bench_cached_copies_of_random_pages() {
    if cfg!(miri) {
        return compare("miri", 2 << 20, 1, 1);
    }
    if std::env::var_os("BENCH").is_none() {
        return compare("smoke", 4 << 20, 20, 2);
    }
    compare("1 MiB", 1 << 20, 4_000, 41);
    compare("64 MiB", 64 << 20, 4_000, 41);
    compare("2 GiB", 2 << 30, 4_000, 41);
}

/// Target minus source, modulo 4096.
const DISTANCES: [usize; 8] = [0, 1, 8, 16, 31, 32, 2048, 4080];

/// Prints the processor time of a copy by memcpy(3) and by the cache's function, each the median of
/// interleaved rounds.
fn compare_distances(pool: &HugeMemory, len: usize, copies: u64, rounds: u64) {
    let mut to = AlignedBuffer::zeroed(64 * (len + 4096));
    for distance in DISTANCES {
        let mut times: [Vec<u64>; 2] = Default::default();
        for round in 0..2 * rounds {
            let by_cache = round % 4 == 1 || round % 4 == 2;
            let mut random = Random(round / 2 + 1);
            let start = thread_cpu_ns();
            for copy in 0..copies {
                let at = random.below((pool.len() / len) as u64) as usize * len;
                let slot = (copy % 64) as usize * len.next_multiple_of(4096) + distance;
                let (from, to) = (pool.base().wrapping_add(at), to[slot..][..len].as_mut_ptr());
                // SAFETY: both have `len` bytes, and they do not overlap.
                unsafe {
                    match by_cache {
                        true => copy::to_user(from, to, len),
                        false => core::ptr::copy_nonoverlapping(from, to, len),
                    }
                }
            }
            times[usize::from(by_cache)].push((thread_cpu_ns() - start) / copies);
            assert!(to[distance..][..len].iter().all(|byte| *byte == 1), "the bytes of the pool");
        }
        let [memcpy, cache] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        println!("{len:>6} bytes, {distance:>4} above: memcpy {memcpy} ns, the cache {cache} ns");
    }
}

#[test]
fn bench_copies_by_distance() {
    if cfg!(miri) {
        return;
    }
    let real = std::env::var_os("BENCH").is_some();
    let pool = HugeMemory::new(if real { 512 << 20 } else { 2 << 20 }).unwrap();
    // SAFETY: the memory belongs to the pool, and nothing else uses it.
    unsafe { pool.base().write_bytes(1, pool.len()) };
    if !real {
        return compare_distances(&pool, 4096, 64, 1);
    }
    compare_distances(&pool, 64 << 10, 4_000, 11);
    compare_distances(&pool, 4 << 10, 60_000, 11);
}
