//! Blocks are read or written in a cached file: warm up, measure, check.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use nowait_sys::aligned::AlignedBuffer;

use super::job::{Cached, Job, Warm};
use super::run::{fill_pool, joined, rates, require_right};
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::metric::{Metric, Sample};
use crate::offsets::{Access, Offsets};
use crate::pattern;
use crate::peers::registry::Task;
use crate::peers::{Buffers, Engine, Peer, Request};
use crate::usage::{self, Used};

/// Our cache is warmed up by reads of this size, so many at a time.
const WARM_BYTES: usize = 256 << 10;
const WARM_DEPTH: usize = 8;
/// Bytes that are cached together when half of a set is.
const HALF_BYTES: usize = 64 << 10;
/// Blocks that are read back after writes.
const READ_BACK: usize = 256;

/// The run of a job on a cached file.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) work: Cached,
}

/// The work of one thread so far.
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
    /// The resources that the process had used when this thread was done.
    after: Used,
}

impl Task for Run<'_> {
    type Output = Sample;

    fn run<E: Engine>(self, engine: &E) -> Result<Sample> {
        let work = &self.work;
        if engine.has_own_cache() {
            self.warm_own(engine)?;
        }
        let barrier = Barrier::new(work.threads + 1);
        std::thread::scope(|scope| {
            let thread = |thread: u64| {
                let (barrier, run) = (&barrier, &self);
                move || {
                    let peer = engine.peer(Buffers::in_small_pages(work.block_bytes, work.depth));
                    barrier.wait();
                    run.measured(&mut peer?, run.job.seed + thread)
                }
            };
            let threads: Vec<_> =
                (0..work.threads as u64).map(|i| scope.spawn(thread(i))).collect();
            let before = Used::now()?;
            barrier.wait();
            let lanes = threads.into_iter().map(joined).collect::<Result<Vec<Lane>>>()?;
            summarize(work, before, &lanes)
        })
    }
}

impl Run<'_> {
    /// The measured part of a thread, then what only makes sure of it.
    fn measured<P: Peer>(&self, peer: &mut P, seed: u64) -> Result<Lane> {
        let (job, work) = (self.job, &self.work);
        let mut lane = Lane::default();
        let mut offsets = Offsets::new(work.access, job.set_bytes, work.block_bytes as u64, seed);
        let blocks = offsets.blocks();
        if work.write {
            lane.generations = vec![0; blocks as usize];
        }
        let start = Instant::now();
        let runtime = Duration::from_millis(job.runtime_ms);
        let lap = if work.one_lap || work.fsync { blocks } else { u64::MAX };
        let more = || work.fsync || start.elapsed() < runtime;
        self.pump(peer, &mut lane, &mut offsets, lap, more)?;
        if work.fsync {
            peer.sync()?;
        }
        (lane.wall, lane.after) = (start.elapsed(), Used::now()?);
        if work.write {
            peer.sync()?;
            self.read_back(&lane.generations)?;
        }
        Ok(lane)
    }

    /// Keeps `depth` requests in flight, up to `lap` of them, until there is no `more` time.
    fn pump<P: Peer>(
        &self,
        peer: &mut P,
        lane: &mut Lane,
        offsets: &mut Offsets,
        lap: u64,
        more: impl Fn() -> bool,
    ) -> Result<()> {
        let work = &self.work;
        let mut batch = Vec::with_capacity(work.depth);
        let (mut taken, mut in_flight) = (0, 0);
        loop {
            batch.clear();
            if more() {
                let room = (work.depth - in_flight) as u64;
                for _ in 0..room.min(lap - taken) {
                    let request = Request { offset: offsets.next(), ..Request::default() };
                    batch.push(if work.write { self.next_write(lane, request) } else { request });
                }
            }
            if !batch.is_empty() {
                // A system call more would show in what takes a few microseconds.
                let before = if work.batches { 0 } else { usage::sleeps()? };
                let start = Instant::now();
                peer.submit(&batch)?;
                lane.submit_ns.push(start.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
                lane.sleeps += if work.batches { 0 } else { usage::sleeps()? - before };
                taken += batch.len() as u64;
                in_flight += batch.len();
            }
            if in_flight == 0 {
                return Ok(());
            }
            let min = if work.batches { in_flight } else { 1 };
            peer.reap(min, &mut |request, bytes| {
                in_flight -= 1;
                lane.requests += 1;
                let right = request.generation > 0 || pattern::is_laid_out(request.offset, bytes);
                lane.wrong += u64::from(!right);
            })?;
        }
    }

    /// Makes a write of the next generation of its block.
    fn next_write(&self, lane: &mut Lane, request: Request) -> Request {
        let block = request.offset / self.work.block_bytes as u64;
        let generation = &mut lane.generations[block as usize];
        *generation += 1;
        Request { generation: *generation, ..request }
    }

    /// Reads some of what was written from the disk, past all caches.
    fn read_back(&self, generations: &[u32]) -> Result<()> {
        let (job, block_bytes) = (self.job, self.work.block_bytes);
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(&job.path);
        let what = || format!("read back {}", job.path.display());
        let file = file.context(what)?;
        let mut buffer = AlignedBuffer::zeroed(block_bytes);
        let mut offsets = Offsets::new(Access::Uniform, job.set_bytes, block_bytes as u64, 99);
        for _ in 0..READ_BACK {
            let offset = offsets.next();
            let generation = generations[(offset / block_bytes as u64) as usize];
            file.read_exact_at(&mut buffer, offset).context(what)?;
            if generation > 0 && !pattern::is_stamped(offset, &buffer, generation) {
                return Err(BenchError::failed(format!("a write was lost at offset {offset}")));
            }
        }
        Ok(())
    }

    /// Fills a cache of this process through it.
    fn warm_own<E: Engine>(&self, engine: &E) -> Result<()> {
        let (job, work) = (self.job, &self.work);
        if work.warm == Warm::Nothing {
            return fill_pool(engine, job, work.block_bytes);
        }
        let bytes = if work.warm == Warm::Half { HALF_BYTES } else { WARM_BYTES };
        let bytes = bytes.min(job.set_bytes as usize);
        let mut peer = engine.peer(Buffers::in_small_pages(bytes, WARM_DEPTH))?;
        let stride = if work.warm == Warm::Half { 2 * bytes } else { bytes };
        let offsets: Vec<u64> =
            (0..job.set_bytes / bytes as u64 * bytes as u64).step_by(stride).collect();
        let (mut in_flight, mut wrong) = (0, 0);
        for offset in offsets {
            peer.submit(&[Request { offset, ..Request::default() }])?;
            in_flight += 1;
            let min = usize::from(in_flight == WARM_DEPTH);
            peer.reap(min, &mut |request, bytes| {
                in_flight -= 1;
                wrong += u64::from(!work.write && !pattern::is_laid_out(request.offset, bytes));
            })?;
        }
        while in_flight > 0 {
            peer.reap(1, &mut |_, _| in_flight -= 1)?;
        }
        require_right(wrong)
    }
}

fn summarize(work: &Cached, before: Used, lanes: &[Lane]) -> Result<Sample> {
    require_right(lanes.iter().map(|lane| lane.wrong).sum())?;
    let requests = lanes.iter().map(|lane| lane.requests).sum::<u64>() as f64;
    let wall_s = lanes.iter().map(|lane| lane.wall).max().unwrap_or_default().as_secs_f64();
    let used = Used::last(lanes.iter().map(|lane| lane.after)).less(before);
    let mut submit_ns: Vec<u32> = lanes.iter().flat_map(|lane| lane.submit_ns.clone()).collect();
    submit_ns.sort_unstable();
    let at = |share: f64| {
        let index = (submit_ns.len() as f64 * share) as usize;
        let ns = submit_ns.get(index.min(submit_ns.len().saturating_sub(1)));
        ns.map_or(0.0, |ns| f64::from(*ns) / 1e3)
    };
    let mut sample = rates(requests.max(1.0), work.block_bytes, wall_s, used);
    sample.extend([
        (Metric::SubmitUsP50, at(0.5)),
        (Metric::SubmitUsP99, at(0.99)),
        (Metric::SubmitUsP999, at(0.999)),
        (Metric::SubmitUsP9999, at(0.9999)),
        (Metric::SubmitUsMax, at(1.0)),
        (Metric::SubmitSleeps, lanes.iter().map(|lane| lane.sleeps).sum::<u64>() as f64),
    ]);
    Ok(sample)
}

/// Fills the kernel's page cache, for a peer that uses it.
pub(crate) fn warm_kernel(job: &Job, work: &Cached) -> Result<()> {
    let (bytes, stride) = match work.warm {
        Warm::Nothing => return Ok(()),
        Warm::All => return cache::make_cached(&job.path, job.set_bytes),
        Warm::Pages => (pattern::STAMP_BYTES, pattern::STAMP_BYTES),
        Warm::Half => (HALF_BYTES, 2 * HALF_BYTES),
    };
    let what = || format!("read {}", job.path.display());
    let file = File::open(&job.path).context(what)?;
    // SAFETY: the descriptor is open during the call, which is advice only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let mut buffer = vec![0; bytes];
    for offset in (0..job.set_bytes).step_by(stride) {
        file.read_at(&mut buffer, offset).context(what)?;
    }
    Ok(())
}
