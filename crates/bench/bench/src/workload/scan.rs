//! Scans of a database: each uses extents at random places, and asks prefetchers for some ahead.
//!
//! ```text
//!   scan ──wanted──► prefetcher: `depth` reads at a time ──ready──► scan: looks at every page
//! ```
//!
//! The buffer of an extent goes round: asked for, read, looked at, asked for again.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::drives::Drives;
use super::job::{Job, Prefetch};
use super::run::{fill_pool, joined, rates};
use crate::error::{BenchError, Result};
use crate::metric::Sample;
use crate::offsets::Access;
use crate::pattern;
use crate::peers::registry::Task;
use crate::peers::{Arena, Engine, Peer, Request};
use crate::usage::Used;

/// The run of a job with prefetchers.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) prefetch: Prefetch,
}

/// An extent that a scan waits for: where it is, and the number of the buffer.
type Wanted = (u64, usize);

#[derive(Default)]
struct Board {
    wanted: VecDeque<Wanted>,
    /// By scan: buffers that are filled.
    ready: Vec<VecDeque<Wanted>>,
    over: bool,
    failed: bool,
}

struct Shared {
    board: Mutex<Board>,
    more_wanted: Condvar,
    more_ready: Condvar,
    buffers: Vec<Mutex<Vec<u8>>>,
    drives: Drives,
    ahead: usize,
}

impl Task for Run<'_> {
    type Output = Sample;

    fn run<E: Engine>(self, engine: &E) -> Result<Sample> {
        if !engine.moves_data() {
            return Err(BenchError::usage("this engine moves no data"));
        }
        let (job, prefetch) = (self.job, self.prefetch);
        fill_pool(engine, job, prefetch.extent_bytes)?;
        let shared = Shared::new(job, &prefetch);
        let until = Instant::now() + Duration::from_millis(job.runtime_ms);
        let (before, start) = (Used::now()?, Instant::now());
        let (shared, arena) = (&shared, &Arena::default());
        let (extents, wall) = std::thread::scope(|scope| {
            let read = || {
                let buffers = arena.cut(prefetch.extent_bytes, prefetch.depth);
                let peer = buffers.and_then(|buffers| engine.peer(buffers));
                let done = peer.and_then(|mut peer| shared.prefetch(&mut peer, prefetch.depth));
                done.inspect_err(|_| shared.fail())
            };
            let readers: Vec<_> = (0..prefetch.prefetchers).map(|_| scope.spawn(read)).collect();
            let scans: Vec<_> =
                (0..prefetch.scans).map(|i| scope.spawn(move || shared.scan(i, until))).collect();
            let used = scans.into_iter().map(joined).collect::<Result<Vec<u64>>>();
            let wall = start.elapsed();
            shared.end();
            let read = readers.into_iter().map(joined).collect::<Result<Vec<()>>>();
            read.and(used).map(|used| (used.iter().sum::<u64>(), wall))
        })?;
        summarize(&prefetch, extents, wall, before)
    }
}

fn summarize(prefetch: &Prefetch, extents: u64, wall: Duration, before: Used) -> Result<Sample> {
    if extents == 0 {
        return Err(BenchError::failed("no extent was read within the time of the run"));
    }
    let used = Used::now()?.less(before);
    Ok(rates(extents as f64, prefetch.extent_bytes, wall.as_secs_f64(), used))
}

impl Shared {
    fn new(job: &Job, prefetch: &Prefetch) -> Self {
        let extent_bytes = prefetch.extent_bytes;
        let ready = (0..prefetch.scans).map(|_| VecDeque::new()).collect();
        let buffers = prefetch.scans * prefetch.ahead;
        let place = (job.set_bytes, 1);
        Self {
            board: Mutex::new(Board { ready, ..Board::default() }),
            more_wanted: Condvar::new(),
            more_ready: Condvar::new(),
            buffers: (0..buffers).map(|_| Mutex::new(vec![0x5a; extent_bytes])).collect(),
            drives: Drives::new(place, extent_bytes as u64, Access::Random, true, job.seed),
            ahead: prefetch.ahead,
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the next extent into a buffer; false: every one was read.
    fn ask(&self, buffer: usize) -> bool {
        let Some(offset) = self.drives.next(0) else { return false };
        self.board().wanted.push_back((offset, buffer));
        self.more_wanted.notify_one();
        true
    }

    /// Uses extents until the time or the file is over; returns how many.
    fn scan(&self, index: usize, until: Instant) -> Result<u64> {
        let first = index * self.ahead;
        let mut asked = (first..first + self.ahead).filter(|buffer| self.ask(*buffer)).count();
        let mut used = 0;
        while asked > 0 {
            let (offset, buffer) = self.next_ready(index)?;
            asked -= 1;
            let bytes = self.buffers[buffer].lock().unwrap_or_else(PoisonError::into_inner);
            if !pattern::is_in_place(offset, &bytes) {
                self.fail();
                return Err(BenchError::failed("an extent had wrong bytes"));
            }
            drop(bytes);
            used += 1;
            if Instant::now() < until && self.ask(buffer) {
                asked += 1;
            }
        }
        Ok(used)
    }

    fn next_ready(&self, index: usize) -> Result<Wanted> {
        let mut board = self.board();
        loop {
            if board.failed {
                return Err(BenchError::failed("a prefetcher or another scan failed"));
            }
            if let Some(ready) = board.ready[index].pop_front() {
                return Ok(ready);
            }
            board = self.more_ready.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn prefetch<P: Peer>(&self, peer: &mut P, depth: usize) -> Result<()> {
        let mut in_flight = 0;
        loop {
            let requests = self.take_wanted(depth - in_flight, in_flight == 0);
            if requests.is_empty() && in_flight == 0 {
                return Ok(());
            }
            if !requests.is_empty() {
                peer.submit(&requests)?;
                in_flight += requests.len();
            }
            let min = usize::from(requests.is_empty() || in_flight == depth);
            let mut ended = Vec::new();
            peer.reap(min, &mut |request, bytes| {
                let buffer = request.tag as usize;
                let place = self.buffers[buffer].lock();
                place.unwrap_or_else(PoisonError::into_inner).copy_from_slice(bytes);
                ended.push((request.offset, buffer));
            })?;
            in_flight -= ended.len();
            self.deliver(ended);
        }
    }

    fn take_wanted(&self, max: usize, waits: bool) -> Vec<Request> {
        let mut board = self.board();
        while waits && board.wanted.is_empty() && !board.over {
            board = self.more_wanted.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        let count = board.wanted.len().min(max);
        let request =
            |(offset, buffer): Wanted| Request { offset, tag: buffer as u64, ..Request::default() };
        board.wanted.drain(..count).map(request).collect()
    }

    fn deliver(&self, ended: Vec<Wanted>) {
        if ended.is_empty() {
            return;
        }
        let mut board = self.board();
        for wanted in ended {
            board.ready[wanted.1 / self.ahead].push_back(wanted);
        }
        drop(board);
        self.more_ready.notify_all();
    }

    fn end(&self) {
        self.board().over = true;
        self.more_wanted.notify_all();
    }

    fn fail(&self) {
        let mut board = self.board();
        (board.failed, board.over) = (true, true);
        drop(board);
        self.more_wanted.notify_all();
        self.more_ready.notify_all();
    }
}
