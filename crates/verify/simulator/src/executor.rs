//! Runs operations on the cache in one thread: the seed decides if an operation or the device runs
//! next.
//! Runnable operations run in any order. Bios wait in the executor while the backend is full.

use crate::{
    canary::Canary,
    kicker::{Kicker, RunList},
    medium::Medium,
    op::Op,
    task::{Place, Task, World},
};
use core::ops::Range;
use nowait_block::{Bio, BioOp, Completion, Segments};
use nowait_cache::{Cache, CachedFile, FRAME_BYTES, OpenFile};
use nowait_file::order::{Access, Orders, Reach};
use nowait_retry::Step;
use nowait_sim::Prng;
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
    time::Deadline,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const THE_FILE: (u64, u64) = (1, 1);
/// Token of a bio that belongs to no operation: even, unlike the cache's tokens.
const STRANGE: u64 = u64::MAX >> 1 & !1;

/// An event of an operation. The executor records the event before a conflicting operation begins.
#[derive(Debug)]
pub struct Event {
    /// Number of the operation, in the order of submission.
    pub id: u64,
    /// The operation.
    pub op: Op,
    /// The operation's offset in the file.
    pub offset: u64,
    /// The kind of event.
    pub what: What,
}

/// The kind of event.
#[derive(Debug)]
pub enum What {
    /// The operation begins; the bytes are the data that it writes, if any.
    Begun(Vec<u8>),
    /// The operation has ended, with its result and its memory: the data read or written. The
    /// memory is empty if a failed write has written nothing.
    Ended(Result<u32, Errno>, Vec<u8>),
    /// The operation was dropped; this data, if any, may have been written.
    Dropped(Vec<u8>),
}

/// Counters of the executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations accepted.
    pub accepted: u64,
    /// Operations that ended, or were dropped.
    pub ended: u64,
    /// Dropped operations.
    pub dropped: u64,
    /// Iterations.
    pub iterations: u64,
    /// Kicks.
    pub kicks: u64,
    /// Kicks of operations that were runnable already, or over.
    pub redundant: u64,
    /// Bios that a backend accepted.
    pub bios: u64,
    /// Bios that the backend completed.
    pub bios_ended: u64,
}

/// A hang: nothing can run, nothing is in flight, and operations wait.
#[derive(Debug)]
pub struct Hang {
    /// The waiting operations.
    pub waiting: Vec<String>,
}

/// A file, the cache, and the operations in flight.
pub struct Executor<'m> {
    medium: &'m dyn Medium,
    file: Arc<CachedFile>,
    open: Option<Arc<OpenFile>>,
    orders: Arc<Orders>,
    prng: Prng,
    tasks: BTreeMap<u64, Task>,
    list: Arc<RunList>,
    pending: VecDeque<Bio>,
    events: Vec<Event>,
    counts: Counts,
    canary: Option<Canary>,
    block_bytes: u32,
}

impl<'m> Executor<'m> {
    /// Makes an executor for the file of `medium`, `size` bytes long.
    pub fn new(
        medium: &'m dyn Medium,
        cache: &Arc<Cache>,
        size: u64,
        block_bytes: u32,
        seed: u64,
    ) -> Executor<'m> {
        Executor {
            file: CachedFile::new(cache, medium.backing(block_bytes), size),
            medium,
            open: None,
            orders: Arc::default(),
            prng: Prng::new(seed),
            tasks: BTreeMap::new(),
            list: Arc::default(),
            pending: VecDeque::new(),
            events: Vec::new(),
            counts: Counts::default(),
            canary: None,
            block_bytes,
        }
    }

    /// Lets reads read ahead by at most `pages_max` pages. Readahead has no place in the order, so
    /// direct writes and truncations may meet it.
    pub fn set_readahead(&mut self, pages_max: u32) {
        self.open = (pages_max > 0).then(|| Arc::new(OpenFile::new(pages_max)));
    }

    /// Makes a deliberate mistake from now on.
    pub fn set_canary(&mut self, canary: Option<Canary>) {
        self.canary = canary;
        if canary == Some(Canary::LoseKicks) {
            self.list.lose_kicks();
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &Arc<CachedFile> {
        &self.file
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let (kicks, redundant) = self.list.kicks();
        Counts { kicks, redundant, ..self.counts }
    }

    /// Takes the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Accepts an operation, which runs in [`Executor::step`]; returns its number. `Forget`,
    /// `Reclaim`, `Clean` and `Cancel` are done at once, and have no number.
    pub fn submit(&mut self, op: &Op) -> Option<u64> {
        let cache = self.file.cache().clone();
        match *op {
            Op::Forget { from, last } => drop(self.file.mapping().invalidate(from, last)),
            Op::Reclaim => {
                let mut plug = Vec::new();
                cache.reclaim(1, &mut plug);
                self.pending.extend(plug);
            }
            Op::Clean { pages } => {
                let mut plug = Vec::new();
                cache.clean(pages, &mut plug);
                self.pending.extend(plug);
            }
            Op::Cancel { nth } => self.cancel(nth),
            Op::Reopen | Op::Rival { .. } => unreachable!("the caller waits, and does it"),
            _ => return Some(self.accept(op)),
        }
        None
    }

    fn accept(&mut self, op: &Op) -> u64 {
        let id = self.counts.accepted;
        self.counts.accepted += 1;
        let mut task = Task::new(id, op.clone(), Kicker::new(id, &self.list));
        if let Some((range, access)) = self.range(op) {
            let entry = || task.kicker.entry();
            let (ticket, _) = self.orders.enter(THE_FILE, Reach::new(range, access), entry);
            task.place = Some(Place { orders: self.orders.clone(), ticket });
        }
        if !task.is_blocked() {
            task.kicker.schedule();
        }
        self.tasks.insert(id, task);
        id
    }

    /// A change of the size touches everything from the smaller size on. A direct read touches
    /// whole pages: a page partly in its range must not become dirty meanwhile. A direct write
    /// inside the file touches only its bytes.
    fn range(&self, op: &Op) -> Option<(Range<u64>, Access)> {
        let page = FRAME_BYTES as u64;
        let truncations = self.tasks.values().filter_map(|task| match task.op {
            Op::Truncate { size } => Some(size),
            _ => None,
        });
        let size = truncations.fold(self.file.size(), u64::min);
        let exclusive = |offset: u64, end: u64| {
            let range = if end > size { offset.min(size)..u64::MAX } else { offset..end };
            Some((range, Access::Write))
        };
        if self.canary == Some(Canary::NoOrder) && !matches!(op, Op::Read { .. } | Op::Write { .. })
        {
            return None;
        }
        match *op {
            Op::Read { offset, len, .. } => Some((offset..offset + len as u64, Access::Read)),
            Op::Write { offset: Some(offset), len, .. } | Op::DirectWrite { offset, len, .. } => {
                exclusive(offset, offset + len as u64)
            }
            Op::Write { offset: None, .. } => exclusive(size, u64::MAX),
            Op::DirectRead { offset, len } => {
                let end = (offset + len as u64).next_multiple_of(page);
                Some((offset / page * page..end, Access::Read))
            }
            Op::Truncate { size } => exclusive(size, u64::MAX),
            _ => None,
        }
    }

    fn cancel(&mut self, nth: usize) {
        let count = self.tasks.len().max(1);
        let Some((id, task)) = self.tasks.iter().nth(nth % count) else { return };
        if let Some(token) = task.token() {
            return self.medium.backend().cancel(token);
        }
        if !task.can_be_dropped() {
            return;
        }
        let id = *id;
        let Some(task) = self.tasks.remove(&id) else { return };
        task.kicker.retire();
        let may_be = if task.may_have_written() { task.buffer.as_slice() } else { &[] };
        let what = What::Dropped(may_be.to_vec());
        self.events.push(Event { id, op: task.op.clone(), offset: task.offset, what });
        self.counts.ended += 1;
        self.counts.dropped += 1;
    }

    /// Runs one operation, or lets the device finish a request. Returns `false` if there is nothing
    /// to do.
    ///
    /// # Errors
    /// Operations wait, and nothing will ever kick them.
    pub fn step(&mut self) -> Result<bool, Hang> {
        let runnable = self.list.len();
        let device = self.medium.backend().in_flight() > 0 || !self.pending.is_empty();
        if runnable == 0 && !device {
            let describe = |task: &Task| format!("#{} {}: {task:?}", task.id, task.op);
            let waiting: Vec<String> = self.tasks.values().map(describe).collect();
            return if waiting.is_empty() { Ok(false) } else { Err(Hang { waiting }) };
        }
        // The device has its turn in 40 % of the draws: otherwise long run lists would starve it.
        let operation = runnable > 0 && (!device || self.prng.chance(600_000));
        if operation {
            let id = self.list.take(self.prng.index(runnable));
            self.iterate(id);
        } else {
            self.reap();
        }
        Ok(true)
    }

    /// Runs until nothing is in flight; fails like [`Executor::step`].
    pub fn drain(&mut self) -> Result<(), Hang> {
        while self.step()? {}
        Ok(())
    }

    /// Drops all operations, as the end of the process does, after the device has finished all
    /// bios.
    pub fn abandon(&mut self) {
        for task in self.tasks.values() {
            task.kicker.retire();
        }
        while self.medium.backend().in_flight() > 0 || !self.pending.is_empty() {
            self.reap();
        }
        self.counts.ended += self.tasks.len() as u64;
        self.counts.dropped += self.tasks.len() as u64;
        self.tasks.clear();
    }

    fn iterate(&mut self, id: u64) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        task.kicker.begin();
        if task.is_blocked() {
            self.tasks.insert(id, task);
            return;
        }
        let fresh = !task.has_begun();
        let mut plug = Vec::new();
        let (file, medium, canary) = (&self.file, self.medium, self.canary);
        let open = self.open.as_ref();
        let step = task.iterate(&mut World { file, open, medium, plug: &mut plug, canary });
        self.counts.iterations += 1;
        self.pending.extend(plug);
        if fresh {
            let data = if task.op.is_write() { task.buffer.as_slice() } else { &[] };
            let what = What::Begun(data.to_vec());
            self.events.push(Event { id, op: task.op.clone(), offset: task.offset, what });
        }
        match step {
            Step::Done(result) => self.end(&task, result),
            Step::Queued | Step::Retry => drop(self.tasks.insert(id, task)),
        }
        if self.prng.chance(500_000) {
            self.feed();
        }
    }

    fn end(&mut self, task: &Task, result: Result<u32, Errno>) {
        task.kicker.retire();
        self.counts.ended += 1;
        // An error before the first byte was written leaves the file unchanged.
        let untouched = result.is_err() && task.op.is_write() && !task.may_have_written();
        let memory = if untouched { Vec::new() } else { task.buffer.as_slice().to_vec() };
        let what = What::Ended(result, memory);
        self.events.push(Event { id: task.id, op: task.op.clone(), offset: task.offset, what });
    }

    fn feed(&mut self) {
        let backend = self.medium.backend();
        while let Some(bio) = self.pending.pop_front() {
            if let Err(bio) = backend.queue(bio) {
                self.pending.push_front(bio);
                break;
            }
            self.counts.bios += 1;
        }
        backend.commit();
    }

    fn reap(&mut self) {
        self.feed();
        let mut done = Vec::new();
        let result = self.medium.backend().reap(&mut done, 1, Deadline::NEVER);
        debug_assert_eq!(result, Ok(()), "nothing interrupts a simulation");
        for Completion { token, result } in done {
            self.counts.bios_ended += 1;
            if token & 1 == 1 {
                let mut plug = Vec::new();
                self.file.cache().complete(token, result, &mut plug);
                self.pending.extend(plug);
            } else if let Some(task) = self.tasks.get_mut(&(token >> 1)) {
                debug_assert!(task.answer.is_none(), "a bio completes once");
                task.answer = Some(result);
                task.kicker.schedule();
            }
        }
    }

    /// Writes to the device as another process would; the caller has nothing in flight.
    pub fn write_past(&mut self, offset: u64, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let segments = Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() });
        let fd = self.file.writes().expect("open for writing").tail.fd;
        // No task has this token. SAFETY: the bytes live until the device has finished, below.
        let mut bio = unsafe { Bio::new(BioOp::Write, fd, segments, offset as i64, STRANGE) };
        bio.rw_flags = rwf::DSYNC;
        self.pending.push_back(bio);
        while self.medium.backend().in_flight() > 0 || !self.pending.is_empty() {
            self.reap();
        }
    }

    /// Closes the file and opens it again; returns the new size. Panics if operations are in
    /// flight.
    pub fn reopen(&mut self) -> u64 {
        assert!(self.tasks.is_empty() && self.pending.is_empty(), "operations are in flight");
        let size = self.medium.size().unwrap_or_else(|| self.file.size());
        let backing = self.medium.backing(self.block_bytes);
        self.file = CachedFile::new(&self.file.cache().clone(), backing, size);
        size
    }
}
