//! Blocks are read and written, by threads that keep a number of requests in flight.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nowait_sys::aligned::AlignedBuffer;

use super::drives::Drives;
use super::job::{Job, Transfer};
use super::run::{fill_pool, joined, rates, require_right};
use crate::error::{BenchError, Context, Result};
use crate::metric::{Metric, Sample};
use crate::pattern;
use crate::peers::registry::Task;
use crate::peers::{Arena, Engine, Peer, Request};
use crate::stats::SplitMix;
use crate::usage::Used;

/// The longest time that is recorded exactly, in nanoseconds.
const NS_MAX: u64 = 60_000_000_000;
/// Writes that are read back: the last of each thread, so many of all together, or so many bytes.
const READ_BACK: usize = 256;
const READ_BACK_BYTES: usize = 64 << 20;

/// The run of a job that transfers.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) transfer: Transfer,
}

/// The work of one thread so far.
struct Lane {
    requests: u64,
    /// Reads whose bytes were not of their place.
    wrong: u64,
    submit: Histogram<u64>,
    latency: Histogram<u64>,
    /// Time of calls with one request, and their number: reads, writes.
    single_ns: [u64; 2],
    singles: [u64; 2],
    /// The offsets written last.
    written: Vec<u64>,
    writes: usize,
    /// Until the last request was over; until all of it was on disk.
    wall: Duration,
    synced: Duration,
    after: Used,
}

impl Task for Run<'_> {
    type Output = Sample;

    fn run<E: Engine>(self, engine: &E) -> Result<Sample> {
        let (job, transfer) = (self.job, &self.transfer);
        fill_pool(engine, job, transfer.block_bytes)?;
        let drives = Drives::new(
            (job.set_bytes, transfer.drives),
            transfer.block_bytes as u64,
            transfer.access,
            transfer.one_lap,
            job.seed,
        );
        let (barrier, arena) = (Barrier::new(transfer.threads + 1), Arena::default());
        let (before, lanes) = std::thread::scope(|scope| {
            let work = |thread: usize| {
                let (barrier, drives, arena) = (&barrier, &drives, &arena);
                move || {
                    let buffers = arena.cut(transfer.block_bytes, transfer.depth);
                    let peer = buffers.and_then(|buffers| engine.peer(buffers));
                    barrier.wait();
                    let worker = Worker::new(job, transfer, drives, thread)?;
                    worker.run(engine.moves_data(), &mut peer?)
                }
            };
            let threads: Vec<_> = (0..transfer.threads).map(|i| scope.spawn(work(i))).collect();
            let before = Used::now();
            barrier.wait();
            let lanes: Result<Vec<Lane>> = threads.into_iter().map(joined).collect();
            before.and_then(|before| Ok((before, lanes?)))
        })?;
        if engine.moves_data() {
            lanes.iter().try_for_each(|lane| read_back(job, transfer, &lane.written))?;
        }
        summarize(transfer, E::Peer::ASYNCHRONOUS, before, &lanes)
    }
}

pub(super) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, NS_MAX, 3)
        .map_err(|error| BenchError::failed(format!("histogram: {error}")))
}

/// A thread at work.
struct Worker<'a> {
    job: &'a Job,
    transfer: &'a Transfer,
    drives: &'a Drives,
    /// How many of its writes will be read back.
    read_back: usize,
    random: SplitMix,
    /// The part that is visited next.
    drive: usize,
    lane: Lane,
}

impl<'a> Worker<'a> {
    fn new(
        job: &'a Job,
        transfer: &'a Transfer,
        drives: &'a Drives,
        thread: usize,
    ) -> Result<Self> {
        let lane = Lane {
            requests: 0,
            wrong: 0,
            submit: histogram()?,
            latency: histogram()?,
            single_ns: [0; 2],
            singles: [0; 2],
            written: Vec::new(),
            writes: 0,
            wall: Duration::ZERO,
            synced: Duration::ZERO,
            after: Used::default(),
        };
        let random = SplitMix(job.seed.wrapping_mul(1000) + thread as u64);
        let blocks = READ_BACK.min(READ_BACK_BYTES / transfer.block_bytes);
        let read_back = (blocks / transfer.threads).max(1);
        let drive = thread % drives.count();
        Ok(Self { job, transfer, drives, read_back, random, drive, lane })
    }
}

impl Worker<'_> {
    /// Works until the time or the lap is over.
    fn run<P: Peer>(mut self, checks: bool, peer: &mut P) -> Result<Lane> {
        let start = Instant::now();
        let (runtime, depth) = (Duration::from_millis(self.job.runtime_ms), self.transfer.depth);
        let mut requests = Vec::with_capacity(depth);
        let (mut in_flight, mut more) = (0, true);
        loop {
            more = more && start.elapsed() < runtime;
            requests.clear();
            while more && in_flight + requests.len() < depth {
                match self.next() {
                    Some(request) => requests.push(request),
                    None => more = false,
                }
            }
            for batch in requests.chunks_mut(self.transfer.batch) {
                self.submit(peer, batch, start)?;
                in_flight += batch.len();
            }
            if in_flight == 0 {
                break;
            }
            let free = if more { self.transfer.refill } else { depth };
            let min = (in_flight + free).saturating_sub(depth).min(in_flight);
            in_flight -= self.reap(peer, min, checks, start)?;
        }
        self.lane.wall = start.elapsed();
        if self.transfer.fsync {
            peer.sync()?;
        }
        self.lane.synced = start.elapsed();
        self.lane.after = Used::now()?;
        if self.transfer.write_percent > 0 {
            peer.sync()?;
        }
        Ok(self.lane)
    }

    /// Makes the next request; `None`: every block was visited.
    fn next(&mut self) -> Option<Request> {
        let count = self.drives.count();
        let turns = if self.transfer.all_drives { count } else { 1 };
        for _ in 0..turns {
            let offset = self.drives.next(self.drive);
            if self.transfer.all_drives {
                self.drive = (self.drive + 1) % count;
            }
            let Some(offset) = offset else { continue };
            let percent = self.transfer.write_percent;
            let write = percent > 0 && self.random.next() % 100 < u64::from(percent);
            let generation = if write { self.job.generation } else { 0 };
            return Some(Request { offset, generation, ..Request::default() });
        }
        None
    }

    fn submit<P: Peer>(
        &mut self,
        peer: &mut P,
        batch: &mut [Request],
        start: Instant,
    ) -> Result<()> {
        let before = start.elapsed().as_nanos() as u64;
        batch.iter_mut().for_each(|request| request.tag = before);
        peer.submit(batch)?;
        let inside_ns = start.elapsed().as_nanos() as u64 - before;
        let lane = &mut self.lane;
        lane.submit.saturating_record(inside_ns);
        if let [only] = batch {
            let kind = usize::from(only.generation > 0);
            lane.single_ns[kind] += inside_ns;
            lane.singles[kind] += 1;
        }
        for write in batch.iter().filter(|request| request.generation > 0) {
            match lane.written.get_mut(lane.writes % self.read_back) {
                Some(place) => *place = write.offset,
                None => lane.written.push(write.offset),
            }
            lane.writes += 1;
        }
        Ok(())
    }

    fn reap<P: Peer>(
        &mut self,
        peer: &mut P,
        min: usize,
        checks: bool,
        start: Instant,
    ) -> Result<usize> {
        let lane = &mut self.lane;
        let before = lane.requests;
        let mut now_ns = None;
        peer.reap(min, &mut |request, bytes| {
            // Those that are reaped together ended at about the same time.
            let now_ns = *now_ns.get_or_insert_with(|| start.elapsed().as_nanos() as u64);
            lane.latency.saturating_record(now_ns.saturating_sub(request.tag));
            lane.requests += 1;
            let read = checks && request.generation == 0;
            lane.wrong += u64::from(read && !pattern::is_in_place(request.offset, bytes));
        })?;
        Ok((lane.requests - before) as usize)
    }
}

/// Reads what was written last from the disk, past all caches where that is possible.
fn read_back(job: &Job, transfer: &Transfer, written: &[u64]) -> Result<()> {
    if written.is_empty() {
        return Ok(());
    }
    let file = open_past_caches(&job.path)?;
    let mut buffer = AlignedBuffer::zeroed(transfer.block_bytes);
    for offset in written {
        let what = || format!("read back {}", job.path.display());
        file.read_exact_at(&mut buffer, *offset).context(what)?;
        if !pattern::is_stamped(*offset, &buffer, job.generation) {
            return Err(BenchError::failed(format!("a write was lost at offset {offset}")));
        }
    }
    Ok(())
}

fn open_past_caches(path: &Path) -> Result<File> {
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    direct.or_else(|_| File::open(path)).context(|| format!("open {}", path.display()))
}

fn summarize(
    transfer: &Transfer,
    asynchronous: bool,
    before: Used,
    lanes: &[Lane],
) -> Result<Sample> {
    require_right(lanes.iter().map(|lane| lane.wrong).sum())?;
    let count: u64 = lanes.iter().map(|lane| lane.requests).sum();
    if count == 0 {
        return Err(BenchError::failed("no request ended within the time of the run"));
    }
    let longest = |of: fn(&Lane) -> Duration| lanes.iter().map(of).max().unwrap_or_default();
    let (wall_s, synced_s) =
        (longest(|lane| lane.wall).as_secs_f64(), longest(|lane| lane.synced).as_secs_f64());
    let used = Used::last(lanes.iter().map(|lane| lane.after)).less(before);
    let mut sample = rates(count as f64, transfer.block_bytes, wall_s, used);
    if transfer.fsync {
        let bytes = count as f64 * transfer.block_bytes as f64;
        sample.insert(Metric::BytesPerSSynced, bytes / synced_s);
    }
    let mut latency = histogram()?;
    lanes.iter().for_each(|lane| latency += &lane.latency);
    let us = |of: &Histogram<u64>, percent| of.value_at_percentile(percent) as f64 / 1e3;
    sample.insert(Metric::LatencyUsP50, us(&latency, 50.0));
    sample.insert(Metric::LatencyUsP99, us(&latency, 99.0));
    if asynchronous {
        submit_times(lanes, &mut sample)?;
    }
    Ok(sample)
}

/// Tells how long the calls took that several threads have made.
pub(super) fn submit_sample<'a>(
    threads: impl Iterator<Item = &'a Histogram<u64>>,
    sample: &mut Sample,
) -> Result<()> {
    let mut submit = histogram()?;
    threads.for_each(|own| submit += own);
    let us = |percent| submit.value_at_percentile(percent) as f64 / 1e3;
    sample.extend([
        (Metric::SubmitUsMean, submit.mean() / 1e3),
        (Metric::SubmitUsP50, us(50.0)),
        (Metric::SubmitUsP99, us(99.0)),
        (Metric::SubmitUsP999, us(99.9)),
        (Metric::SubmitUsP9999, us(99.99)),
        (Metric::SubmitUsMax, submit.max() as f64 / 1e3),
    ]);
    Ok(())
}

fn submit_times(lanes: &[Lane], sample: &mut Sample) -> Result<()> {
    submit_sample(lanes.iter().map(|lane| &lane.submit), sample)?;
    for (kind, metric) in [Metric::SubmitReadUsMean, Metric::SubmitWriteUsMean].iter().enumerate() {
        let calls: u64 = lanes.iter().map(|lane| lane.singles[kind]).sum();
        let ns: u64 = lanes.iter().map(|lane| lane.single_ns[kind]).sum();
        if calls > 0 {
            sample.insert(*metric, ns as f64 / 1e3 / calls as f64);
        }
    }
    Ok(())
}
