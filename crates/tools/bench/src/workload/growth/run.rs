//! One point of a curve: threads that keep reads in flight, each in its contexts.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nowait::{CacheMode, Nowait, OpenOptions};
use nowait_sys::fd;

use super::super::job::{Growth, Job};
use super::super::run::{joined, rates, require_right};
use super::super::transfer::{histogram, submit_sample};
use super::files::{file_bytes, open, paths};
use super::ring::{KernelRing, OwnRing, Ring, explain};
use crate::error::{BenchError, Result};
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::pattern;
use crate::peers::{Arena, Buffers, Request};
use crate::stats::SplitMix;
use crate::usage::Used;

pub(super) const BLOCK: usize = 4096;
/// Requests in one call at most, as a program has that does not wait until all are gathered.
const BATCH: usize = 1024;

/// The run of a job that grows.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) growth: Growth,
}

/// What one thread has done.
struct Lane {
    requests: u64,
    /// Reads whose bytes were not of their place.
    wrong: u64,
    submit: Histogram<u64>,
    wall: Duration,
    after: Used,
}

impl Run<'_> {
    /// Reads until the time is over, and all that were begun.
    ///
    /// # Errors
    /// The engine does not work here (wrong usage), a read failed, or its bytes were wrong.
    pub(crate) fn carry_out(self, kernel: bool) -> Result<Sample> {
        fd::raise_nofile_limit();
        let buffers = self.buffers()?;
        // What is counted is what the engine adds to this.
        memory::forget_peak();
        let before_bytes = memory::peak_bytes();
        let mut sample = match kernel {
            true => self.in_kernel(buffers)?,
            false => self.in_nowait(buffers)?,
        };
        let added = (memory::peak_bytes() - before_bytes).max(0.0);
        sample.insert(Metric::MemoryAddedBytes, added);
        Ok(sample)
    }

    /// Makes the buffers of each thread, those of each of its contexts apart.
    fn buffers(&self) -> Result<Vec<Vec<Buffers>>> {
        let Growth { in_flight, contexts, threads, .. } = self.growth;
        let (arena, all) = (Arena::default(), threads * contexts);
        let of = |index| in_flight / all + usize::from(index < in_flight % all);
        let cut = |thread: usize| {
            let own = (0..contexts).map(|context| of(thread * contexts + context));
            own.map(|depth| arena.cut(BLOCK, depth)).collect()
        };
        (0..threads).map(cut).collect()
    }

    fn in_nowait(&self, buffers: Vec<Vec<Buffers>>) -> Result<Sample> {
        let built = Nowait::builder().backend(self.job.place().backend).build();
        let nowait = built.map_err(|error| BenchError::usage(error.to_string()))?;
        let options = OpenOptions::new().read(true).cache(CacheMode::Direct);
        let paths = paths(&self.job.path, self.growth.files).into_iter();
        let files = paths.map(|path| options.open(&nowait, path).map_err(explain));
        let files = Arc::new(files.collect::<Result<Vec<_>>>()?);
        self.measure(buffers, |buffers| OwnRing::new(&nowait, files.clone(), buffers))
    }

    fn in_kernel(&self, buffers: Vec<Vec<Buffers>>) -> Result<Sample> {
        let files = Arc::new(open(&self.job.path, self.growth.files)?);
        self.measure(buffers, |buffers| KernelRing::new(files.clone(), buffers))
    }

    /// Starts the threads, and sums up what they have done.
    fn measure<R: Ring>(
        &self,
        buffers: Vec<Vec<Buffers>>,
        ring: impl Fn(Buffers) -> Result<R> + Sync,
    ) -> Result<Sample> {
        let barrier = Barrier::new(buffers.len() + 1);
        let (before, lanes) = std::thread::scope(|scope| {
            let (barrier, ring) = (&barrier, &ring);
            let thread = |(index, own): (usize, Vec<Buffers>)| {
                scope.spawn(move || {
                    let depths: Vec<usize> = own.iter().map(Buffers::depth).collect();
                    let rings: Result<Vec<R>> = own.into_iter().map(ring).collect();
                    barrier.wait();
                    let random = SplitMix(self.job.seed.wrapping_mul(1000) + index as u64);
                    Worker::new(self, random, rings?, depths)?.run()
                })
            };
            let threads: Vec<_> = buffers.into_iter().enumerate().map(thread).collect();
            let before = Used::now();
            barrier.wait();
            let lanes: Result<Vec<Lane>> = threads.into_iter().map(joined).collect();
            before.and_then(|before| Ok((before, lanes?)))
        })?;
        require_right(lanes.iter().map(|lane| lane.wrong).sum())?;
        let count: u64 = lanes.iter().map(|lane| lane.requests).sum();
        let wall = lanes.iter().map(|lane| lane.wall).max().unwrap_or_default();
        let used = Used::last(lanes.iter().map(|lane| lane.after)).less(before);
        let mut sample = rates(count.max(1) as f64, BLOCK, wall.as_secs_f64(), used);
        submit_sample(lanes.iter().map(|lane| &lane.submit), &mut sample)?;
        Ok(sample)
    }
}

/// A thread at work.
struct Worker<'a, R> {
    run: &'a Run<'a>,
    rings: Vec<R>,
    /// Of each ring, how many it may have in flight, and how many it has.
    depths: Vec<usize>,
    in_flight: Vec<usize>,
    random: SplitMix,
    /// Blocks of each file.
    blocks: u64,
    lane: Lane,
}

impl<'a, R: Ring> Worker<'a, R> {
    fn new(run: &'a Run<'a>, random: SplitMix, rings: Vec<R>, depths: Vec<usize>) -> Result<Self> {
        let blocks = file_bytes(run.job.set_bytes, run.growth.files) / BLOCK as u64;
        let (requests, wrong, wall) = (0, 0, Duration::ZERO);
        let lane = Lane { requests, wrong, submit: histogram()?, wall, after: Used::default() };
        let in_flight = vec![0; rings.len()];
        Ok(Self { run, rings, depths, in_flight, random, blocks, lane })
    }

    /// Works until the time is over, and nothing is in flight.
    fn run(mut self) -> Result<Lane> {
        let start = Instant::now();
        let runtime = Duration::from_millis(self.run.job.runtime_ms);
        let mut turn = 0;
        loop {
            if start.elapsed() < runtime {
                (0..self.rings.len()).try_for_each(|ring| self.fill(ring))?;
            }
            let mut ended = 0;
            if self.rings.len() > 1 {
                for ring in 0..self.rings.len() {
                    ended += self.reap(ring, 0)?;
                }
            }
            if ended == 0 {
                // Nothing has ended anywhere: the contexts are waited for by turns.
                let rings = self.rings.len();
                let waits = (0..rings).map(|index| (turn + index) % rings);
                let Some(ring) = waits.into_iter().find(|ring| self.in_flight[*ring] > 0) else {
                    break;
                };
                turn = ring + 1;
                self.reap(ring, 1)?;
            }
        }
        (self.lane.wall, self.lane.after) = (start.elapsed(), Used::now()?);
        Ok(self.lane)
    }

    /// Begins reads until as many are in flight as may be.
    fn fill(&mut self, ring: usize) -> Result<()> {
        while self.in_flight[ring] < self.depths[ring] {
            let room = (self.depths[ring] - self.in_flight[ring]).min(BATCH);
            let batch: Vec<Request> = (0..room).map(|_| self.next()).collect();
            let before = Instant::now();
            self.rings[ring].submit(&batch)?;
            self.lane.submit.saturating_record(before.elapsed().as_nanos() as u64);
            self.in_flight[ring] += room;
        }
        Ok(())
    }

    /// Makes a read of any block of any file.
    fn next(&mut self) -> Request {
        let tag = self.random.next() % self.run.growth.files as u64;
        let offset = self.random.next() % self.blocks * BLOCK as u64;
        Request { offset, tag, ..Request::default() }
    }

    /// Takes what has ended in a ring, at least `min`; returns how many these were.
    fn reap(&mut self, ring: usize, min: usize) -> Result<usize> {
        let (lane, mut ended) = (&mut self.lane, 0);
        let file_bytes = self.blocks * BLOCK as u64;
        self.rings[ring].reap(min, &mut |request, bytes| {
            ended += 1;
            let place = request.tag * file_bytes + request.offset;
            lane.wrong += u64::from(!pattern::is_in_place(place, bytes));
        })?;
        lane.requests += ended as u64;
        self.in_flight[ring] -= ended;
        Ok(ended)
    }
}
