//! The table of jobs: blocks that wait, blocks in flight, and jobs that are over.

use crate::admission::{self, Direction, Traffic};
use nowait_sys::mutex::{Condvar, Mutex};
use std::{
    collections::{HashMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

/// A job that is over.
#[derive(Debug)]
pub struct Finished {
    /// The number that the program gave the job.
    pub job: i64,
    /// The direction of the job's blocks.
    pub direction: Direction,
    /// Blocks that were not transferred, in the order of the job's keys.
    pub failures: Vec<BlockFailure>,
    /// Bytes read or written: 0 for blocks that were stored before.
    pub bytes: u64,
    /// Time from the start of the first block to the end of the last block.
    pub transfer: Duration,
    /// Time before the first block started.
    pub queued: Duration,
}

/// A block that was not transferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFailure {
    /// The position of the block in its job.
    pub index: usize,
    /// The failed action, its file, and the reason.
    pub reason: String,
}

/// One block of a job.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) job: u64,
    pub(crate) index: usize,
    pub(crate) key: Vec<u8>,
    /// Offset of the block's slot in the memory.
    pub(crate) offset: usize,
}

#[derive(Debug)]
struct Job {
    number: i64,
    direction: Direction,
    left: usize,
    failures: Vec<BlockFailure>,
    bytes: u64,
    submitted: Instant,
    begun: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    jobs: HashMap<u64, Job>,
    loads: VecDeque<Task>,
    stores: VecDeque<Task>,
    traffic: Traffic,
    finished: Vec<Finished>,
    is_closing: bool,
}

/// The jobs, which the threads that carry blocks share with the program.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<State>,
    /// Wakes the thread of the loads.
    loads: Condvar,
    /// Wakes the thread of the stores.
    stores: Condvar,
    /// Wakes the callers that wait until no job is left.
    idle: Condvar,
    /// Most blocks in flight in both directions together.
    limit: usize,
}

impl Board {
    pub(crate) fn new(limit: usize) -> Board {
        Board {
            state: Mutex::default(),
            loads: Condvar::new(),
            stores: Condvar::new(),
            idle: Condvar::new(),
            limit,
        }
    }

    fn thread_of(&self, direction: Direction) -> &Condvar {
        match direction {
            Direction::Load => &self.loads,
            Direction::Store => &self.stores,
        }
    }

    /// Adds a job, some of whose blocks may have failed already. Sets the job's key in each of its
    /// tasks.
    pub(crate) fn submit(
        &self,
        number: i64,
        direction: Direction,
        mut tasks: Vec<Task>,
        failures: Vec<BlockFailure>,
    ) {
        let mut state = self.state.lock();
        let key = state.next;
        state.next += 1;
        let (left, submitted) = (tasks.len(), Instant::now());
        tasks.iter_mut().for_each(|task| task.job = key);
        let job = Job { number, direction, left, failures, bytes: 0, submitted, begun: None };
        state.jobs.insert(key, job);
        if left == 0 || state.is_closing {
            state.fail_all(tasks);
            state.finish_if_over(key);
        } else {
            state.waiting(direction).extend(tasks);
            self.thread_of(direction).notify_one();
        }
    }

    /// Returns the tasks that may start. If there are none, returns an empty list to a thread with
    /// blocks in flight (`is_busy`); any other thread waits for a task. `None`: the board closes,
    /// and the thread has nothing in flight.
    pub(crate) fn next(&self, direction: Direction, is_busy: bool) -> Option<Vec<Task>> {
        let mut state = self.state.lock();
        loop {
            let tasks = state.start(direction, self.limit);
            if !tasks.is_empty() || is_busy {
                return Some(tasks);
            }
            if state.is_closing {
                return None;
            }
            self.thread_of(direction).wait(&mut state);
        }
    }

    /// Ends a task that [`Board::next`] has returned; `result` has the bytes, or the reason of a
    /// failure.
    pub(crate) fn end(&self, direction: Direction, task: &Task, result: Result<u64, String>) {
        let mut state = self.state.lock();
        match direction {
            Direction::Load => state.traffic.loads -= 1,
            Direction::Store => state.traffic.stores -= 1,
        }
        state.end(task, result);
        // The thread of the other direction needs no wake-up: it sleeps only if no block waits for
        // it, because its first block may always start.
        if state.jobs.is_empty() {
            self.idle.notify_all();
        }
    }

    /// Returns the jobs that have ended since the last call.
    pub(crate) fn take_finished(&self) -> Vec<Finished> {
        mem::take(&mut self.state.lock().finished)
    }

    /// Waits at most `timeout` until no job is waiting or in flight; returns `true` if no job is
    /// left.
    pub(crate) fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !state.jobs.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.idle.wait_for(&mut state, left);
        }
        true
    }

    /// Fails the tasks that wait; the threads end when they have nothing in flight.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        let waiting = mem::take(&mut state.loads).into_iter().chain(mem::take(&mut state.stores));
        let waiting: Vec<Task> = waiting.collect();
        state.fail_all(waiting);
        for changed in [&self.loads, &self.stores, &self.idle] {
            changed.notify_all();
        }
    }
}

impl State {
    fn waiting(&mut self, direction: Direction) -> &mut VecDeque<Task> {
        match direction {
            Direction::Load => &mut self.loads,
            Direction::Store => &mut self.stores,
        }
    }

    /// Takes the tasks that may start out of the queue.
    fn start(&mut self, direction: Direction, limit: usize) -> Vec<Task> {
        let mut tasks = Vec::new();
        loop {
            self.traffic.loads_waiting = self.loads.len();
            if !admission::may_start(direction, self.traffic, limit) {
                return tasks;
            }
            let Some(task) = self.waiting(direction).pop_front() else { return tasks };
            match direction {
                Direction::Load => self.traffic.loads += 1,
                Direction::Store => self.traffic.stores += 1,
            }
            if let Some(job) = self.jobs.get_mut(&task.job) {
                job.begun.get_or_insert_with(Instant::now);
            }
            tasks.push(task);
        }
    }

    fn end(&mut self, task: &Task, result: Result<u64, String>) {
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        job.left -= 1;
        match result {
            Ok(bytes) => job.bytes += bytes,
            Err(reason) => job.failures.push(BlockFailure { index: task.index, reason }),
        }
        self.finish_if_over(task.job);
    }

    fn fail_all(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            self.end(&task, Err("cannot transfer a block: the folder is closed".into()));
        }
    }

    fn finish_if_over(&mut self, key: u64) {
        if self.jobs.get(&key).is_none_or(|job| job.left > 0) {
            return;
        }
        let Some(mut job) = self.jobs.remove(&key) else { return };
        job.failures.sort_unstable_by_key(|failure| failure.index);
        let begun = job.begun.unwrap_or(job.submitted);
        self.finished.push(Finished {
            job: job.number,
            direction: job.direction,
            failures: job.failures,
            bytes: job.bytes,
            transfer: begun.elapsed(),
            queued: begun - job.submitted,
        });
    }
}
