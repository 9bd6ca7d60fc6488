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
use crate::error::{BenchError, Result};
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::pattern;
use crate::peers::aio::AioPeer;
use crate::peers::native::{NativePeer, explain};
use crate::peers::{Arena, Buffers, Peer, Request};
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

/// The work of one thread so far.
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
        // The figure is the memory that the engine adds to this.
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
        let files = files.collect::<Result<Vec<_>>>()?;
        self.measure(buffers, |buffers| NativePeer::new(&nowait, files.clone(), buffers))
    }

    fn in_kernel(&self, buffers: Vec<Vec<Buffers>>) -> Result<Sample> {
        let files = open(&self.job.path, self.growth.files)?;
        let files: Vec<_> = files.into_iter().map(Arc::new).collect();
        self.measure(buffers, |buffers| AioPeer::new(None, files.clone(), buffers))
    }

    /// Starts the threads, and sums up what they have done.
    fn measure<P: Peer>(
        &self,
        buffers: Vec<Vec<Buffers>>,
        peer: impl Fn(Buffers) -> Result<P> + Sync,
    ) -> Result<Sample> {
        let barrier = Barrier::new(buffers.len() + 1);
        let (before, lanes) = std::thread::scope(|scope| {
            let (barrier, peer) = (&barrier, &peer);
            let thread = |(index, own): (usize, Vec<Buffers>)| {
                scope.spawn(move || {
                    let depths: Vec<usize> = own.iter().map(Buffers::depth).collect();
                    let peers: Result<Vec<P>> = own.into_iter().map(peer).collect();
                    barrier.wait();
                    let random = SplitMix(self.job.seed.wrapping_mul(1000) + index as u64);
                    Worker::new(self, random, peers?, depths)?.run()
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
struct Worker<'a, P> {
    run: &'a Run<'a>,
    /// A context each.
    peers: Vec<P>,
    /// For each, the requests that it may have in flight, and those that it has.
    depths: Vec<usize>,
    in_flight: Vec<usize>,
    random: SplitMix,
    /// Blocks of each file.
    blocks: u64,
    lane: Lane,
}

impl<'a, P: Peer> Worker<'a, P> {
    fn new(run: &'a Run<'a>, random: SplitMix, peers: Vec<P>, depths: Vec<usize>) -> Result<Self> {
        let blocks = file_bytes(run.job.set_bytes, run.growth.files) / BLOCK as u64;
        let (requests, wrong, wall) = (0, 0, Duration::ZERO);
        let lane = Lane { requests, wrong, submit: histogram()?, wall, after: Used::default() };
        let in_flight = vec![0; peers.len()];
        Ok(Self { run, peers, depths, in_flight, random, blocks, lane })
    }

    /// Works until the time is over, and nothing is in flight.
    fn run(mut self) -> Result<Lane> {
        let start = Instant::now();
        let runtime = Duration::from_millis(self.run.job.runtime_ms);
        let mut turn = 0;
        loop {
            if start.elapsed() < runtime {
                (0..self.peers.len()).try_for_each(|peer| self.fill(peer))?;
            }
            let mut ended = 0;
            if self.peers.len() > 1 {
                for peer in 0..self.peers.len() {
                    ended += self.reap(peer, 0)?;
                }
            }
            if ended == 0 {
                // Nothing has ended anywhere: the contexts are waited for by turns.
                let count = self.peers.len();
                let waits = (0..count).map(|index| (turn + index) % count);
                let Some(peer) = waits.into_iter().find(|peer| self.in_flight[*peer] > 0) else {
                    break;
                };
                turn = peer + 1;
                self.reap(peer, 1)?;
            }
        }
        (self.lane.wall, self.lane.after) = (start.elapsed(), Used::now()?);
        Ok(self.lane)
    }

    /// Begins reads until as many are in flight as may be.
    fn fill(&mut self, peer: usize) -> Result<()> {
        while self.in_flight[peer] < self.depths[peer] {
            let room = (self.depths[peer] - self.in_flight[peer]).min(BATCH);
            let batch: Vec<Request> = (0..room).map(|_| self.next()).collect();
            let before = Instant::now();
            self.peers[peer].submit(&batch)?;
            self.lane.submit.saturating_record(before.elapsed().as_nanos() as u64);
            self.in_flight[peer] += room;
        }
        Ok(())
    }

    /// Makes a read of any block of any file.
    fn next(&mut self) -> Request {
        let file = (self.random.next() % self.run.growth.files as u64) as u32;
        let offset = self.random.next() % self.blocks * BLOCK as u64;
        Request { offset, file, ..Request::default() }
    }

    /// Takes what has ended in a context, at least `min`; returns how many these were.
    fn reap(&mut self, peer: usize, min: usize) -> Result<usize> {
        let (lane, mut ended) = (&mut self.lane, 0);
        let file_bytes = self.blocks * BLOCK as u64;
        self.peers[peer].reap(min, &mut |request, bytes| {
            ended += 1;
            let place = u64::from(request.file) * file_bytes + request.offset;
            lane.wrong += u64::from(!pattern::is_in_place(place, bytes));
        })?;
        lane.requests += ended as u64;
        self.in_flight[peer] -= ended;
        Ok(ended)
    }
}
