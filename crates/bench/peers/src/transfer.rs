//! Threads read and write blocks, and keep a number of blocks in flight.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nowait_sys::aligned::AlignedBuffer;

use crate::buffers::{Arena, Buffers};
use crate::job::{Fsync, Job, Looks, Outcome, Transfer};
use crate::places::{Parts, Places};
use crate::registry::Task;
use crate::run::{joined, rates};
use crate::warm;
use crate::{Engine, Peer, Request};
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::pattern;
use nowait_harness::random::SplitMix;
use nowait_harness::usage::{Used, sleeps};

/// The longest time that the histograms hold, in nanoseconds; longer times count as this one.
const NS_MAX: u64 = 60_000_000_000;
/// Most writes that the run reads back, of all threads together: the last writes of each thread,
/// and at least one. `READ_BACK_BYTES` limits their bytes.
const READ_BACK: usize = 256;
const READ_BACK_BYTES: usize = 64 << 20;

pub(crate) struct Run<'a> {
    job: &'a Job,
    transfer: &'a Transfer,
    file_bytes: u64,
    buffers: Vec<Vec<Buffers>>,
}

struct Lane {
    blocks: u64,
    wrong: u64,
    submit: Histogram<u64>,
    latency: Histogram<u64>,
    /// Time of submit calls with one request, for reads and for writes; `singles` is the number of
    /// these calls.
    single_ns: [u64; 2],
    singles: [u64; 2],
    sleeps: u64,
    written: Vec<u64>,
    writes: usize,
    /// The time until the last request and an fsync inside the measured time were over. `synced` is
    /// the time until an fsync after the measured time was over.
    wall: Duration,
    synced: Duration,
    after: Used,
}

impl<'a> Run<'a> {
    pub(crate) fn new(job: &'a Job, transfer: &'a Transfer) -> Result<Self> {
        let Transfer { block_bytes, segments, contexts, depth, .. } = *transfer;
        let (arena, request_bytes) = (Arena::default(), block_bytes * segments);
        let cut = |context: usize| {
            let blocks = depth / contexts + usize::from(context < depth % contexts);
            let requests = blocks / segments;
            let buffers = match transfer.huge {
                true => arena.cut(request_bytes, requests)?,
                false => Buffers::in_small_pages(request_bytes, requests),
            };
            Ok(buffers.in_segments(segments))
        };
        let thread = |_| (0..contexts).map(cut).collect();
        let buffers = (0..transfer.threads).map(thread).collect::<Result<_>>()?;
        Ok(Self { job, transfer, file_bytes: file_bytes(job, block_bytes as u64), buffers })
    }
}

fn file_bytes(job: &Job, block_bytes: u64) -> u64 {
    (job.set_bytes / job.paths.len() as u64 / block_bytes).max(1) * block_bytes
}

impl Task for Run<'_> {
    type Output = Outcome;

    fn run<E: Engine>(self, engine: &E) -> Result<Outcome> {
        let Self { job, transfer, file_bytes, buffers } = self;
        if engine.has_own_cache() {
            warm::own_cache(engine, job, transfer)?;
        }
        let parts = Parts::new(transfer.visits);
        let set_bytes = file_bytes * job.paths.len() as u64;
        let barrier = Barrier::new(transfer.threads + 1);
        let (before, lanes) = std::thread::scope(|scope| {
            let (barrier, parts) = (&barrier, &parts);
            let thread = |(thread, own): (usize, Vec<Buffers>)| {
                scope.spawn(move || {
                    let context = |buffers: Buffers| {
                        let depth = buffers.depth() * transfer.segments;
                        Ok(Ring { peer: engine.peer(buffers)?, depth, in_flight: 0 })
                    };
                    let rings: Result<Vec<_>> = own.into_iter().map(context).collect();
                    barrier.wait();
                    let places = Places::new(parts, transfer, set_bytes, (job.seed, thread));
                    let worker = Worker::new(job, transfer, places, file_bytes, thread)?;
                    worker.run(engine.moves_data(), &mut rings?)
                })
            };
            let threads: Vec<_> = buffers.into_iter().enumerate().map(thread).collect();
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

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, NS_MAX, 3)
        .map_err(|error| Failure::new(format!("histogram: {error}")))
}

struct Ring<P> {
    peer: P,
    depth: usize,
    in_flight: usize,
}

struct Worker<'a> {
    job: &'a Job,
    transfer: &'a Transfer,
    places: Places<'a>,
    file_bytes: u64,
    /// The most writes of the thread that will be read back.
    read_back: usize,
    random: SplitMix,
    requests: Vec<Request>,
    start: Instant,
    lane: Lane,
}

impl<'a> Worker<'a> {
    fn new(
        job: &'a Job,
        transfer: &'a Transfer,
        places: Places<'a>,
        file_bytes: u64,
        thread: usize,
    ) -> Result<Self> {
        let lane = Lane {
            blocks: 0,
            wrong: 0,
            submit: histogram()?,
            latency: histogram()?,
            single_ns: [0; 2],
            singles: [0; 2],
            sleeps: 0,
            written: Vec::new(),
            writes: 0,
            wall: Duration::ZERO,
            synced: Duration::ZERO,
            after: Used::default(),
        };
        let blocks = READ_BACK.min(READ_BACK_BYTES / transfer.block_bytes);
        Ok(Self {
            job,
            transfer,
            places,
            file_bytes,
            read_back: (blocks / transfer.threads).max(1),
            random: SplitMix(job.seed.wrapping_mul(1000) + thread as u64),
            requests: Vec::with_capacity(transfer.depth),
            start: Instant::now(),
            lane,
        })
    }

    fn run<P: Peer>(mut self, checks: bool, rings: &mut [Ring<P>]) -> Result<Lane> {
        let fsync = self.transfer.fsync;
        let (runtime, mut more, mut turn) = (self.job.runtime(), true, 0);
        loop {
            more = more && (fsync == Fsync::Inside || self.start.elapsed() < runtime);
            for ring in rings.iter_mut() {
                more = more && self.fill(ring)?;
            }
            let mut ended = 0;
            if rings.len() > 1 {
                for ring in rings.iter_mut() {
                    ended += self.reap(ring, 0, checks)?;
                }
            }
            if ended == 0 {
                // If no request has ended, the thread waits in one context, and the next time in
                // the next context.
                let count = rings.len();
                let mut waits = (0..count).map(|index| (turn + index) % count);
                let Some(ring) = waits.find(|ring| rings[*ring].in_flight > 0) else { break };
                turn = ring + 1;
                let ring = &mut rings[ring];
                let free = if more { self.transfer.refill } else { ring.depth };
                let min = (ring.in_flight + free).saturating_sub(ring.depth);
                self.reap(ring, min.min(ring.in_flight), checks)?;
            }
        }
        let sync = |rings: &mut [Ring<P>]| rings.iter_mut().try_for_each(|it| it.peer.sync());
        if fsync == Fsync::Inside {
            sync(rings)?;
        }
        self.lane.wall = self.start.elapsed();
        if fsync == Fsync::Apart {
            sync(rings)?;
        }
        (self.lane.synced, self.lane.after) = (self.start.elapsed(), Used::now()?);
        if self.transfer.write_percent > 0 {
            sync(rings)?;
        }
        Ok(self.lane)
    }

    fn fill<P: Peer>(&mut self, ring: &mut Ring<P>) -> Result<bool> {
        let (segments, mut more) = (self.transfer.segments, true);
        let mut requests = std::mem::take(&mut self.requests);
        while more && ring.in_flight + (requests.len() + 1) * segments <= ring.depth {
            match self.next() {
                Some(request) => requests.push(request),
                None => more = false,
            }
        }
        for batch in requests.chunks_mut(self.transfer.batch) {
            self.submit(&mut ring.peer, batch)?;
            ring.in_flight += batch.len() * segments;
        }
        requests.clear();
        self.requests = requests;
        Ok(more)
    }

    fn next(&mut self) -> Option<Request> {
        let place = self.places.next()?;
        let percent = u64::from(self.transfer.write_percent);
        let write = match percent {
            0 => false,
            100 => true,
            _ => self.random.next() % 100 < percent,
        };
        let generation = if write { self.job.generation } else { 0 };
        let (offset, file) = (place % self.file_bytes, (place / self.file_bytes) as u32);
        Some(Request { offset, generation, file, tag: 0 })
    }

    fn submit<P: Peer>(&mut self, peer: &mut P, batch: &mut [Request]) -> Result<()> {
        let counts = self.transfer.looks == Looks::Sleeps;
        let slept = if counts { sleeps()? } else { 0 };
        let before = self.start.elapsed().as_nanos() as u64;
        batch.iter_mut().for_each(|request| request.tag = before);
        peer.submit(batch)?;
        let inside_ns = self.start.elapsed().as_nanos() as u64 - before;
        let lane = &mut self.lane;
        lane.sleeps += if counts { sleeps()? - slept } else { 0 };
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

    /// Waits for at least `min` blocks of a context; returns how many have ended.
    fn reap<P: Peer>(&mut self, ring: &mut Ring<P>, min: usize, checks: bool) -> Result<usize> {
        let (lane, start, file_bytes) = (&mut self.lane, self.start, self.file_bytes);
        let before = lane.blocks;
        let times = self.transfer.looks != Looks::Calls;
        let is_right = if self.job.pristine { pattern::is_laid_out } else { pattern::is_in_place };
        let mut now_ns = None;
        ring.peer.reap(min.div_ceil(self.transfer.segments), &mut |request, bytes| {
            if times {
                // Requests that are reaped together ended at about the same time.
                let now_ns = *now_ns.get_or_insert_with(|| start.elapsed().as_nanos() as u64);
                lane.latency.saturating_record(now_ns.saturating_sub(request.tag));
            }
            lane.blocks += 1;
            let place = u64::from(request.file) * file_bytes + request.offset;
            let wrong = checks && request.generation == 0 && !is_right(place, bytes);
            lane.wrong += u64::from(wrong);
        })?;
        let ended = (lane.blocks - before) as usize;
        ring.in_flight -= ended;
        Ok(ended)
    }
}

/// Reads the blocks written last back from the disk, past all caches if the file system allows it.
fn read_back(job: &Job, transfer: &Transfer, written: &[u64]) -> Result<()> {
    if written.is_empty() {
        return Ok(());
    }
    let file = open_past_caches(&job.paths[0])?;
    let mut buffer = AlignedBuffer::zeroed(transfer.block_bytes);
    for offset in written {
        let what = || format!("read back {}", job.paths[0].display());
        file.read_exact_at(&mut buffer, *offset).context(what)?;
        if !pattern::is_stamped(*offset, &buffer, job.generation) {
            return Err(Failure::new(format!("a write was lost at offset {offset}")));
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
) -> Result<Outcome> {
    let sum = |of: fn(&Lane) -> u64| lanes.iter().map(of).sum::<u64>();
    match (sum(|lane| lane.wrong), sum(|lane| lane.blocks)) {
        (0, 0) => return Err(Failure::new("no request ended within the time of the run")),
        (0, _) => {}
        (wrong, _) => {
            return Err(Failure::new(format!("{wrong} reads returned wrong bytes")));
        }
    }
    let blocks = sum(|lane| lane.blocks) as f64;
    let longest =
        |of: fn(&Lane) -> Duration| lanes.iter().map(of).max().unwrap_or_default().as_secs_f64();
    let used = Used::last(lanes.iter().map(|lane| lane.after)).less(before);
    let mut figures = rates(blocks, transfer.block_bytes, longest(|lane| lane.wall), used);
    let mut add = |name: &str, figure: f64| figures.insert(name.to_owned(), figure);
    if transfer.fsync == Fsync::Apart {
        let synced_s = longest(|lane| lane.synced);
        add("bytes_per_s_synced", blocks * transfer.block_bytes as f64 / synced_s);
    }
    let all = |of: fn(&Lane) -> &Histogram<u64>| {
        let mut all = histogram()?;
        lanes.iter().for_each(|lane| all += of(lane));
        Ok::<_, Failure>(all)
    };
    let us = |of: &Histogram<u64>, percent| of.value_at_percentile(percent) as f64 / 1e3;
    if transfer.looks != Looks::Calls {
        let latency = all(|lane| &lane.latency)?;
        add("latency_us_p50", us(&latency, 50.0));
        add("latency_us_p99", us(&latency, 99.0));
    }
    if !asynchronous {
        return Ok(figures);
    }
    let submit = all(|lane| &lane.submit)?;
    add("submit_us_mean", submit.mean() / 1e3);
    add("submit_us_p50", us(&submit, 50.0));
    add("submit_us_p99", us(&submit, 99.0));
    add("submit_us_p999", us(&submit, 99.9));
    add("submit_us_p9999", us(&submit, 99.99));
    add("submit_us_max", submit.max() as f64 / 1e3);
    for (kind, name) in ["submit_read_us_mean", "submit_write_us_mean"].into_iter().enumerate() {
        let calls: u64 = lanes.iter().map(|lane| lane.singles[kind]).sum();
        let ns: u64 = lanes.iter().map(|lane| lane.single_ns[kind]).sum();
        if calls > 0 {
            add(name, ns as f64 / 1e3 / calls as f64);
        }
    }
    if transfer.looks == Looks::Sleeps {
        add("submit_sleeps", sum(|lane| lane.sleeps) as f64);
    }
    Ok(figures)
}
