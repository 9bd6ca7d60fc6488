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

use crate::buffers::Arena;
use crate::desk::{Desk, Servers};
use crate::job::{Job, Outcome, Prefetch};
use crate::registry::Task;
use crate::run::rates;
use crate::warm;
use crate::{Engine, Request};
use nowait_harness::error::{BenchError, Result};
use nowait_harness::order::{Access, Order};
use nowait_harness::pattern;
use nowait_harness::usage::Used;

/// The run of a job with prefetchers.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) prefetch: &'a Prefetch,
}

#[derive(Default)]
struct Board {
    /// Extents that a scan waits for; the tag is the number of the buffer.
    wanted: VecDeque<Request>,
    /// By scan: the extents that are there.
    ready: Vec<VecDeque<Request>>,
    /// Extents that were asked for so far.
    asked: u64,
    over: bool,
    failed: bool,
}

struct Scans {
    board: Mutex<Board>,
    more_wanted: Condvar,
    more_ready: Condvar,
    buffers: Vec<Mutex<Vec<u8>>>,
    order: Order,
    ahead: usize,
}

impl Task for Run<'_> {
    type Output = Outcome;

    fn run<E: Engine>(self, engine: &E) -> Result<Outcome> {
        if !engine.moves_data() {
            return Err(BenchError::usage("this engine moves no data"));
        }
        let (job, Prefetch { prefetchers, depth, scans, extent_bytes, .. }) =
            (self.job, *self.prefetch);
        warm::with_another_file(engine, job, extent_bytes)?;
        let shared = Scans::new(job, self.prefetch);
        let (before, until) = (Used::now()?, Instant::now() + job.runtime());
        let (count, block_bytes, arena) = (prefetchers, extent_bytes, &Arena::default());
        let servers = Servers { engine, count, depth, block_bytes, arena };
        let (used, wall) = servers.serve(&shared, (scans, |scan| shared.scan(scan, until)))?;
        summarize(used.iter().sum(), extent_bytes, wall, before)
    }
}

fn summarize(extents: u64, extent_bytes: usize, wall: Duration, before: Used) -> Result<Outcome> {
    if extents == 0 {
        return Err(BenchError::failed("no extent was read within the time of the run"));
    }
    let used = Used::now()?.less(before);
    Ok(rates(extents as f64, extent_bytes, wall.as_secs_f64(), used))
}

impl Scans {
    fn new(job: &Job, prefetch: &Prefetch) -> Self {
        let extent_bytes = prefetch.extent_bytes;
        let ready = (0..prefetch.scans).map(|_| VecDeque::new()).collect();
        let buffers = prefetch.scans * prefetch.ahead;
        Self {
            board: Mutex::new(Board { ready, ..Board::default() }),
            more_wanted: Condvar::new(),
            more_ready: Condvar::new(),
            buffers: (0..buffers).map(|_| Mutex::new(vec![0x5a; extent_bytes])).collect(),
            order: Order::new(Access::Random, job.set_bytes, extent_bytes as u64, job.seed),
            ahead: prefetch.ahead,
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the next extent into a buffer; returns `false` if every one was read.
    fn ask(&self, buffer: usize) -> bool {
        let mut board = self.board();
        if board.asked == self.order.blocks() {
            return false;
        }
        let offset = self.order.at(board.asked);
        board.asked += 1;
        board.wanted.push_back(Request { offset, tag: buffer as u64, ..Request::default() });
        drop(board);
        self.more_wanted.notify_one();
        true
    }

    /// Uses extents until the time or the file is over; returns how many.
    fn scan(&self, index: usize, until: Instant) -> Result<u64> {
        let first = index * self.ahead;
        let mut asked = (first..first + self.ahead).filter(|buffer| self.ask(*buffer)).count();
        let mut used = 0;
        while asked > 0 {
            let Request { offset, tag, .. } = self.next_ready(index)?;
            let buffer = tag as usize;
            asked -= 1;
            let bytes = self.buffers[buffer].lock().unwrap_or_else(PoisonError::into_inner);
            if !pattern::is_in_place(offset, &bytes) {
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

    fn next_ready(&self, index: usize) -> Result<Request> {
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
}

impl Desk for Scans {
    fn take(&self, max: usize, waits: bool) -> Vec<Request> {
        let mut board = self.board();
        while waits && board.wanted.is_empty() && !board.over {
            board = self.more_wanted.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        let count = board.wanted.len().min(max);
        board.wanted.drain(..count).collect()
    }

    fn look(&self, request: Request, bytes: &[u8]) {
        let buffer = self.buffers[request.tag as usize].lock();
        buffer.unwrap_or_else(PoisonError::into_inner).copy_from_slice(bytes);
    }

    fn give_back(&self, ended: &[Request]) {
        if ended.is_empty() {
            return;
        }
        let mut board = self.board();
        for request in ended {
            board.ready[request.tag as usize / self.ahead].push_back(*request);
        }
        drop(board);
        self.more_ready.notify_all();
    }

    fn close(&self, failed: bool) {
        let mut board = self.board();
        (board.over, board.failed) = (true, board.failed || failed);
        drop(board);
        self.more_wanted.notify_all();
        self.more_ready.notify_all();
    }
}
