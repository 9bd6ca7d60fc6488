//! The program of one run: warm up, measure, check, tell.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use nowait::CacheMode;
use nowait_sys::aligned::AlignedBuffer;
use nowait_sys::uring::Issuer;

use super::spec::{Engine, Outcome, Spec, Warm};
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::offsets::{Access, Offsets};
use crate::pattern;
use crate::peers::{
    self, Buffers, Peer, Request, libaio::Libaio, lower::Lower, memory::Memory, native::Native,
    psync::Psync, ring::Uring,
};
use crate::usage::{self, Used};

/// Our cache is warmed up by reads of this size, so many at a time.
const WARM_BYTES: usize = 256 << 10;
const WARM_DEPTH: usize = 8;
/// What is cached together when half of a set is.
const HALF_BYTES: usize = 64 << 10;
/// The longest window of our readahead.
const AHEAD_BYTES: u64 = 2 << 20;
/// Blocks that are read back after writes.
const READ_BACK: usize = 256;

/// Carries out the run that `text` describes, and writes its outcome where that says.
///
/// # Errors
/// The engine does not work here, a request failed, or the bytes were wrong.
pub(crate) fn run(text: &str) -> Result<()> {
    let spec: Spec = serde_json::from_str(text)
        .map_err(|error| BenchError::usage(format!("no description of a run: {error}")))?;
    let outcome = measure(&spec)?;
    let text = serde_json::to_string(&outcome)
        .map_err(|error| BenchError::failed(format!("outcome: {error}")))?;
    fs::write(&spec.outcome, text).context(|| format!("write {}", spec.outcome.display()))
}

/// Carries out a run in this process.
pub(crate) fn measure(spec: &Spec) -> Result<Outcome> {
    let place = &spec.place();
    match spec.engine {
        Engine::Queue => with(spec, &Native::open(place, CacheMode::User)?),
        Engine::Submission => with(spec, &Lower::open(place, 0)?),
        Engine::Guard => with(spec, &Lower::open(place, spec.block_bytes)?),
        Engine::Psync => with(spec, &Psync::open(place, false)?),
        Engine::PsyncAhead => with(spec, &Psync::open(place, false)?.reading_ahead(AHEAD_BYTES)),
        Engine::Preadv2 => with(spec, &Psync::open(place, true)?),
        Engine::Uring => with(spec, &Uring::open(place, Uring::lazy(Issuer::Any))?),
        Engine::UringDefer => with(spec, &Uring::open(place, Uring::lazy(Issuer::Single))?),
        Engine::Libaio => with(spec, &Libaio::open(place)?),
        Engine::Mmap => {
            warm_kernel(spec)?;
            with(spec, &Memory::map(place, true)?)
        }
        Engine::Memcpy => with(spec, &Memory::copy(place)?),
    }
}

/// What one thread has done.
#[derive(Default)]
struct Lane {
    requests: u64,
    /// Requests whose bytes were not those expected.
    wrong: u64,
    submit_ns: Vec<u32>,
    /// Inside submit.
    sleeps: u64,
    /// By block, the generation written last.
    generations: Vec<u32>,
    wall: Duration,
    /// What the process had used when this thread was done.
    after: Used,
}

fn with<E: peers::Engine>(spec: &Spec, engine: &E) -> Result<Outcome> {
    if engine.has_own_cache() {
        warm_own(spec, engine)?;
    } else {
        warm_kernel(spec)?;
    }
    let barrier = Barrier::new(spec.threads + 1);
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let barrier = &barrier;
            move || {
                let peer = engine.peer(Buffers::in_small_pages(spec.block_bytes, spec.depth));
                barrier.wait();
                measured(spec, &mut peer?, spec.seed + thread)
            }
        };
        let threads: Vec<_> = (0..spec.threads as u64).map(|i| scope.spawn(work(i))).collect();
        let before = Used::now()?;
        barrier.wait();
        let lanes = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(BenchError::failed("a thread panicked")))
        });
        summarize(spec, before, &lanes.collect::<Result<Vec<_>>>()?)
    })
}

/// The measured part of a thread, then what only makes sure of it.
fn measured<P: Peer>(spec: &Spec, peer: &mut P, seed: u64) -> Result<Lane> {
    let mut lane = Lane::default();
    let mut offsets = Offsets::new(spec.access, spec.set_bytes, spec.block_bytes as u64, seed);
    let blocks = offsets.blocks();
    if spec.write {
        lane.generations = vec![0; blocks as usize];
    }
    let start = Instant::now();
    let runtime = Duration::from_millis(spec.runtime_ms);
    let lap = if spec.one_lap || spec.fsync { blocks } else { u64::MAX };
    let more = || spec.fsync || start.elapsed() < runtime;
    pump(spec, peer, &mut lane, &mut offsets, lap, more)?;
    if spec.fsync {
        peer.sync()?;
    }
    (lane.wall, lane.after) = (start.elapsed(), Used::now()?);
    if spec.write {
        peer.sync()?;
        read_back(spec, &lane.generations)?;
    }
    Ok(lane)
}

/// Keeps `depth` requests under way, up to `lap` of them, until there is no `more` time.
fn pump<P: Peer>(
    spec: &Spec,
    peer: &mut P,
    lane: &mut Lane,
    offsets: &mut Offsets,
    lap: u64,
    more: impl Fn() -> bool,
) -> Result<()> {
    let mut batch = Vec::with_capacity(spec.depth);
    let (mut taken, mut in_flight) = (0, 0);
    loop {
        batch.clear();
        if more() {
            let room = (spec.depth - in_flight) as u64;
            for _ in 0..room.min(lap - taken) {
                let request = Request { offset: offsets.next(), ..Request::default() };
                batch.push(if spec.write { next_write(spec, lane, request) } else { request });
            }
        }
        if !batch.is_empty() {
            // A system call more would show in what takes a few microseconds.
            let before = if spec.batches { 0 } else { usage::sleeps()? };
            let start = Instant::now();
            peer.submit(&batch)?;
            lane.submit_ns.push(start.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
            lane.sleeps += if spec.batches { 0 } else { usage::sleeps()? - before };
            taken += batch.len() as u64;
            in_flight += batch.len();
        }
        if in_flight == 0 {
            return Ok(());
        }
        let min = if spec.batches { in_flight } else { 1 };
        peer.reap(min, &mut |request, bytes| {
            in_flight -= 1;
            lane.requests += 1;
            let right = request.generation > 0 || pattern::is_laid_out(request.offset, bytes);
            lane.wrong += u64::from(!right);
        })?;
    }
}

/// Makes a write of the next generation of its block.
fn next_write(spec: &Spec, lane: &mut Lane, request: Request) -> Request {
    let generation = &mut lane.generations[(request.offset / spec.block_bytes as u64) as usize];
    *generation += 1;
    Request { generation: *generation, ..request }
}

/// Reads some of what was written from the disk, past all caches.
fn read_back(spec: &Spec, generations: &[u32]) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(&spec.path);
    let what = || format!("read back {}", spec.path.display());
    let file = file.context(what)?;
    let mut buffer = AlignedBuffer::zeroed(spec.block_bytes);
    let mut offsets = Offsets::new(Access::Uniform, spec.set_bytes, spec.block_bytes as u64, 99);
    for _ in 0..READ_BACK {
        let offset = offsets.next();
        let generation = generations[(offset / spec.block_bytes as u64) as usize];
        file.read_exact_at(&mut buffer, offset).context(what)?;
        if generation > 0 && !pattern::is_stamped(offset, &buffer, generation) {
            return Err(BenchError::failed(format!("a write was lost at offset {offset}")));
        }
    }
    Ok(())
}

fn summarize(spec: &Spec, before: Used, lanes: &[Lane]) -> Result<Outcome> {
    let wrong: u64 = lanes.iter().map(|lane| lane.wrong).sum();
    if wrong > 0 {
        return Err(BenchError::failed(format!("{wrong} reads returned wrong bytes")));
    }
    let requests: u64 = lanes.iter().map(|lane| lane.requests).sum();
    let wall = lanes.iter().map(|lane| lane.wall).max().unwrap_or_default();
    let last =
        |figure: fn(&Used) -> f64| lanes.iter().map(|lane| figure(&lane.after)).fold(0.0, f64::max);
    let mut submit_ns: Vec<u32> = lanes.iter().flat_map(|lane| lane.submit_ns.clone()).collect();
    submit_ns.sort_unstable();
    let at = |share: f64| {
        let index = (submit_ns.len() as f64 * share) as usize;
        submit_ns.get(index.min(submit_ns.len().saturating_sub(1))).map(|ns| f64::from(*ns) / 1e3)
    };
    let submit_us = [at(0.5), at(0.99), at(0.999), at(1.0)].map(Option::unwrap_or_default);
    Ok(Outcome {
        requests,
        bytes: requests * spec.block_bytes as u64,
        wall_us: wall.as_secs_f64() * 1e6,
        cpu_us: last(|used| used.cpu_us) - before.cpu_us,
        switches: last(|used| used.switches) - before.switches,
        submit_us,
        submit_sleeps: lanes.iter().map(|lane| lane.sleeps).sum::<u64>() as f64,
    })
}

/// Fills a cache of this process through it.
fn warm_own<E: peers::Engine>(spec: &Spec, engine: &E) -> Result<()> {
    if spec.warm == Warm::Nothing {
        return engine.fill(&spec.other, spec.pool_bytes);
    }
    let bytes = if spec.warm == Warm::Half { HALF_BYTES } else { WARM_BYTES };
    let bytes = bytes.min(spec.set_bytes as usize);
    let mut peer = engine.peer(Buffers::in_small_pages(bytes, WARM_DEPTH))?;
    let stride = if spec.warm == Warm::Half { 2 * bytes } else { bytes };
    let offsets: Vec<u64> =
        (0..spec.set_bytes / bytes as u64 * bytes as u64).step_by(stride).collect();
    let (mut in_flight, mut wrong) = (0, 0);
    for offset in offsets {
        peer.submit(&[Request { offset, ..Request::default() }])?;
        in_flight += 1;
        let min = usize::from(in_flight == WARM_DEPTH);
        peer.reap(min, &mut |request, bytes| {
            in_flight -= 1;
            wrong += usize::from(!spec.write && !pattern::is_laid_out(request.offset, bytes));
        })?;
    }
    while in_flight > 0 {
        peer.reap(1, &mut |_, _| in_flight -= 1)?;
    }
    if wrong > 0 {
        return Err(BenchError::failed(format!("{wrong} reads returned wrong bytes")));
    }
    Ok(())
}

/// Fills the kernel's page cache, if the peer uses it.
fn warm_kernel(spec: &Spec) -> Result<()> {
    let (bytes, stride) = match spec.warm {
        _ if spec.direct => return Ok(()),
        Warm::Nothing => return Ok(()),
        Warm::All => return cache::make_cached(&spec.path, spec.set_bytes),
        Warm::Pages => (pattern::STAMP_BYTES, pattern::STAMP_BYTES),
        Warm::Half => (HALF_BYTES, 2 * HALF_BYTES),
    };
    let what = || format!("read {}", spec.path.display());
    let file = File::open(&spec.path).context(what)?;
    // SAFETY: the descriptor is open during the call, which is advice only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let mut buffer = vec![0; bytes];
    for offset in (0..spec.set_bytes).step_by(stride) {
        file.read_at(&mut buffer, offset).context(what)?;
    }
    Ok(())
}
