//! A database at work: agents change pages in a pool that is too small, and cleaners write them
//! back before an agent has to.
//!
//! ```text
//!   agent: 8 pages a transaction, then a page of the log
//!     └─ not in the pool: the oldest page goes; is it dirty, the agent writes it first ("stolen")
//!   cleaner: the oldest dirty pages of the older half, `depth` at a time
//! ```
//!
//! The pool holds the state of pages only: what is written is stamped by the peer, and what is
//! read is checked in its buffer.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::job::{Cleaner, Job};
use super::run::{fill_pool, joined, rates};
use crate::error::{BenchError, Result};
use crate::metric::{Metric, Sample};
use crate::pattern;
use crate::peers::psync::psync;
use crate::peers::registry::{self, Task};
use crate::peers::{Arena, Engine, OnFile, Peer, Place, Request};
use crate::stats::SplitMix;
use crate::usage::Used;

/// A page of DB2, as the source has it.
pub(crate) const PAGE_BYTES: u64 = 8192;
const PAGES_A_TRANSACTION: usize = 8;
/// Every other page is changed.
const CHANGED_PERCENT: u64 = 50;
/// The end of the file is the log: one part of so many.
const LOG_SHARE: u64 = 16;

/// The run of a job with cleaners.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cleaner: Cleaner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// An agent reads it.
    Loading,
    Clean,
    Dirty,
    /// A cleaner writes it.
    Cleaned,
}

/// The pages in memory. A number counts those that entered before, so that a page which left and
/// came back is not mistaken for what it was.
#[derive(Default)]
struct Pool {
    /// Oldest first.
    queue: VecDeque<(u64, u64)>,
    resident: HashMap<u64, (State, u64)>,
    dirty: VecDeque<(u64, u64)>,
    entered: u64,
    over: bool,
}

/// The state that agents and cleaners share.
struct Database {
    pool: Mutex<Pool>,
    /// A page of the older half is dirty, or it is over.
    work: Condvar,
    pool_pages: usize,
    pages: u64,
    log_pages: u64,
    log: AtomicU64,
    generation: u32,
    transactions: AtomicU64,
    ios: AtomicU64,
    cleaned: AtomicU64,
    stolen: AtomicU64,
}

/// The work of an agent for a page.
enum Access {
    Hit,
    /// Read it; write this one first, if there is one.
    Miss(Option<u64>),
}

impl Task for Run<'_> {
    type Output = Sample;

    fn run<E: Engine>(self, engine: &E) -> Result<Sample> {
        if !engine.moves_data() {
            return Err(BenchError::usage("this engine moves no data"));
        }
        if engine.has_own_cache() {
            fill_pool(engine, self.job, PAGE_BYTES as usize)?;
            return self.with(engine, engine);
        }
        let direct = registry::find(&self.job.engine)?.direct;
        let agents = OnFile::open(&Place { direct, ..self.job.place() }, psync(false, 0))?;
        self.with(&agents, engine)
    }
}

impl Run<'_> {
    fn with<A: Engine, C: Engine>(&self, agents: &A, cleaners: &C) -> Result<Sample> {
        let database = Database::new(self.job, &self.cleaner)?;
        database.fill(self.job.seed);
        let runtime = Duration::from_millis(self.job.runtime_ms);
        let before = Used::now()?;
        let start = Instant::now();
        let (database, arena) = (&database, &Arena::default());
        let (job, cleaner) = (self.job, self.cleaner);
        let wall = std::thread::scope(|scope| {
            let agent = |index: usize| {
                move || {
                    let mut peer = agents.peer(arena.cut(PAGE_BYTES as usize, 1)?)?;
                    let random = SplitMix(job.seed.wrapping_mul(7919) + index as u64);
                    database.agent(&mut peer, random, start + runtime)
                }
            };
            let clean = || {
                let mut peer = cleaners.peer(arena.cut(PAGE_BYTES as usize, cleaner.depth)?)?;
                database.clean(&mut peer, cleaner.depth)
            };
            let agents: Vec<_> = (0..cleaner.agents).map(|i| scope.spawn(agent(i))).collect();
            let cleaners: Vec<_> = (0..cleaner.cleaners).map(|_| scope.spawn(clean)).collect();
            let worked = agents.into_iter().map(joined).collect::<Result<Vec<()>>>();
            let wall = start.elapsed();
            database.end();
            let cleaned = cleaners.into_iter().map(joined).collect::<Result<Vec<()>>>();
            worked.and(cleaned).map(|_| wall)
        })?;
        database.summarize(wall, before)
    }
}

impl Database {
    fn new(job: &Job, cleaner: &Cleaner) -> Result<Self> {
        let all = job.set_bytes / PAGE_BYTES;
        let log_pages = all / LOG_SHARE;
        let pages = all - log_pages;
        if log_pages == 0 || pages < 2 * cleaner.pool_pages as u64 {
            return Err(BenchError::failed(format!(
                "a file of {all} pages is too small for a pool of {}; pass a larger --size",
                cleaner.pool_pages
            )));
        }
        Ok(Self {
            pool: Mutex::default(),
            work: Condvar::new(),
            pool_pages: cleaner.pool_pages,
            pages,
            log_pages,
            log: AtomicU64::new(0),
            generation: job.generation,
            transactions: AtomicU64::new(0),
            ios: AtomicU64::new(0),
            cleaned: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
        })
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a pool as cleaners keep it: the older half is clean, of the younger half the
    /// changed pages are dirty. Else a short run would end before there is something to clean.
    fn fill(&self, seed: u64) {
        let (mut random, mut pool) = (SplitMix(seed), self.pool());
        while pool.queue.len() < self.pool_pages {
            let page = random.next() % self.pages;
            let young = pool.queue.len() >= self.pool_pages / 2;
            let dirty = young && random.next() % 100 < CHANGED_PERCENT;
            if !pool.resident.contains_key(&page) {
                pool.enter(page, if dirty { State::Dirty } else { State::Clean });
            }
        }
    }

    fn agent<P: Peer>(&self, peer: &mut P, mut random: SplitMix, until: Instant) -> Result<()> {
        while Instant::now() < until {
            for _ in 0..PAGES_A_TRANSACTION {
                let page = random.next() % self.pages;
                let change = random.next() % 100 < CHANGED_PERCENT;
                self.access(peer, page, change)?;
            }
            let at = self.pages + self.log.fetch_add(1, Relaxed) % self.log_pages;
            self.transfer(peer, at, self.generation)?;
            self.transactions.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Brings a page into the pool, where it is the youngest then.
    fn access<P: Peer>(&self, peer: &mut P, page: u64, change: bool) -> Result<()> {
        let access = self.pool().begin(page);
        let Access::Miss(victim) = access else { return Ok(()) };
        if let Some(victim) = victim {
            self.transfer(peer, victim, self.generation)?;
            self.stolen.fetch_add(1, Relaxed);
        }
        self.transfer(peer, page, 0)?;
        let mut pool = self.pool();
        pool.enter(page, if change { State::Dirty } else { State::Clean });
        if pool.has_work(self.pool_pages) {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Reads or writes a page, and waits for it.
    fn transfer<P: Peer>(&self, peer: &mut P, page: u64, generation: u32) -> Result<()> {
        let offset = page * PAGE_BYTES;
        peer.submit(&[Request { offset, generation, ..Request::default() }])?;
        self.ios.fetch_add(1, Relaxed);
        let mut right = true;
        peer.reap(1, &mut |request, bytes| {
            right = request.generation > 0 || pattern::is_in_place(request.offset, bytes);
        })?;
        if right { Ok(()) } else { Err(BenchError::failed("a page had wrong bytes")) }
    }

    fn clean<P: Peer>(&self, peer: &mut P, depth: usize) -> Result<()> {
        let (mut in_flight, mut requests) = (0, Vec::with_capacity(depth));
        loop {
            let pages = self.take_dirty(depth - in_flight, in_flight == 0);
            if pages.is_empty() && in_flight == 0 {
                return Ok(());
            }
            requests.clear();
            requests.extend(pages.iter().map(|(page, entry)| Request {
                offset: page * PAGE_BYTES,
                generation: self.generation,
                tag: *entry,
                ..Request::default()
            }));
            if !requests.is_empty() {
                peer.submit(&requests)?;
                in_flight += requests.len();
                self.ios.fetch_add(requests.len() as u64, Relaxed);
            }
            let min = usize::from(pages.is_empty() || in_flight == depth);
            let mut ended = Vec::new();
            peer.reap(min, &mut |request, _| {
                ended.push((request.offset / PAGE_BYTES, request.tag));
            })?;
            in_flight -= ended.len();
            self.cleaned.fetch_add(ended.len() as u64, Relaxed);
            self.pool().set_clean(&ended);
        }
    }

    /// Takes the oldest dirty pages of the older half; `waits` until there are some or it is over.
    fn take_dirty(&self, max: usize, waits: bool) -> Vec<(u64, u64)> {
        let mut pool = self.pool();
        loop {
            let taken = pool.take_dirty(max, self.pool_pages);
            if !taken.is_empty() || pool.over || !waits {
                return taken;
            }
            pool = self.work.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        self.pool().over = true;
        self.work.notify_all();
    }

    fn summarize(&self, wall: Duration, before: Used) -> Result<Sample> {
        let (used, wall_s) = (Used::now()?.less(before), wall.as_secs_f64());
        let of = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        let (cleaned, stolen) = (of(&self.cleaned), of(&self.stolen));
        let mut sample = rates(of(&self.ios).max(1.0), PAGE_BYTES as usize, wall_s, used);
        sample.extend([
            (Metric::TransactionsPerS, of(&self.transactions) / wall_s),
            (Metric::WrittenByCleaners, 100.0 * cleaned / (cleaned + stolen).max(1.0)),
        ]);
        Ok(sample)
    }
}

impl Pool {
    /// Makes a page the youngest, in the given state.
    fn enter(&mut self, page: u64, state: State) {
        let entry = self.entered;
        self.entered += 1;
        self.resident.insert(page, (state, entry));
        self.queue.push_back((page, entry));
        if state == State::Dirty {
            self.dirty.push_back((page, entry));
        }
    }

    /// Begins an access: makes room for a page that is not there.
    fn begin(&mut self, page: u64) -> Access {
        if self.resident.contains_key(&page) {
            return Access::Hit;
        }
        self.resident.insert(page, (State::Loading, u64::MAX));
        let oldest = self.queue.pop_front();
        let state = oldest.and_then(|(oldest, _)| Some((oldest, self.resident.remove(&oldest)?.0)));
        Access::Miss(state.filter(|(_, state)| *state == State::Dirty).map(|(oldest, _)| oldest))
    }

    /// Returns `true` if an entry belongs to the older half of the pool.
    fn is_old(&self, entry: u64, pool_pages: usize) -> bool {
        let oldest = self.queue.front().map_or(self.entered, |(_, entry)| *entry);
        entry < oldest + pool_pages as u64 / 2
    }

    fn has_work(&self, pool_pages: usize) -> bool {
        self.dirty.front().is_some_and(|(_, entry)| self.is_old(*entry, pool_pages))
    }

    fn take_dirty(&mut self, max: usize, pool_pages: usize) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        while taken.len() < max && self.has_work(pool_pages) {
            let Some((page, entry)) = self.dirty.pop_front() else { break };
            match self.resident.get_mut(&page) {
                Some(found) if *found == (State::Dirty, entry) => {
                    found.0 = State::Cleaned;
                    taken.push((page, entry));
                }
                // An agent has written it, and it left.
                _ => {}
            }
        }
        taken
    }

    fn set_clean(&mut self, pages: &[(u64, u64)]) {
        for (page, entry) in pages {
            // It may have left the pool meanwhile.
            if let Some(found) = self.resident.get_mut(page).filter(|found| found.1 == *entry) {
                found.0 = State::Clean;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_dirty_page_is_cleaned_once_and_then_leaves_clean() {
        let mut pool = Pool::default();
        for page in 0..4 {
            pool.enter(page, if page == 1 { State::Clean } else { State::Dirty });
        }
        let taken = pool.take_dirty(8, 4);
        assert_eq!(taken, [(0, 0)], "2 and 3 are of the younger half");
        assert!(pool.take_dirty(8, 4).is_empty());
        pool.set_clean(&taken);
        assert!(matches!(pool.begin(9), Access::Miss(None)), "0 leaves, clean");
        assert!(matches!(pool.begin(10), Access::Miss(None)), "1 leaves, clean");
        assert!(matches!(pool.begin(11), Access::Miss(Some(2))), "2 is stolen");
        assert!(matches!(pool.begin(11), Access::Hit));
    }

    #[test]
    fn a_pool_begins_as_cleaners_keep_it() {
        let database = Database { pages: 10_000, pool_pages: 1000, ..empty() };
        database.fill(1);
        let mut pool = database.pool();
        assert_eq!((pool.queue.len(), pool.has_work(1000)), (1000, false));
        assert!((200..300).contains(&pool.dirty.len()), "{}", pool.dirty.len());
        // Half of the pool later its oldest dirty pages are of the older half.
        for page in 10_000..10_500 {
            let begun = pool.begin(page);
            assert!(matches!(begun, Access::Miss(None)));
            pool.enter(page, State::Clean);
        }
        assert!(pool.has_work(1000));
    }

    fn empty() -> Database {
        Database {
            pool: Mutex::default(),
            work: Condvar::new(),
            pool_pages: 0,
            pages: 0,
            log_pages: 1,
            log: AtomicU64::new(0),
            generation: 1,
            transactions: AtomicU64::new(0),
            ios: AtomicU64::new(0),
            cleaned: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
        }
    }

    #[test]
    fn a_page_that_came_back_is_not_the_one_that_was_taken() {
        let mut pool = Pool::default();
        pool.enter(5, State::Dirty);
        let taken = pool.take_dirty(1, 4);
        assert!(matches!(pool.begin(6), Access::Miss(None)), "a cleaner writes it");
        pool.enter(5, State::Dirty);
        pool.set_clean(&taken);
        assert_eq!(pool.resident.get(&5).map(|found| found.0), Some(State::Dirty));
    }
}
