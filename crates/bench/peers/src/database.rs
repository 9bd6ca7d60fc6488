//! A database at work: agents change pages in a pool that is too small, and cleaners write them
//! back before an agent has to.
//!
//! ```text
//!   agent: 8 pages a transaction, then a page of the log
//!     └─ not in the pool: the oldest page goes; is it dirty, the agent writes it first ("stolen")
//!   cleaner: the oldest dirty pages of the older half, `depth` at a time
//! ```
//!
//! The pool holds the state of pages only: the peer stamps writes, and the database checks reads in
//! their buffers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::buffers::Arena;
use crate::desk::{Desk, Servers};
use crate::job::{Cleaner, Job, Outcome};
use crate::psync::psync;
use crate::registry::{self, Task};
use crate::run::rates;
use crate::warm;
use crate::{Engine, OnFiles, Peer, Place, Request};
use nowait_harness::error::{BenchError, Result};
use nowait_harness::pattern;
use nowait_harness::random::SplitMix;
use nowait_harness::usage::Used;

/// A page of DB2, as the source has it.
const PAGE_BYTES: u64 = 8192;
const PAGES_A_TRANSACTION: usize = 8;
/// Every other page is changed.
const CHANGED_PERCENT: u64 = 50;
/// The end of the file is the log: one part of so many.
const LOG_SHARE: u64 = 16;

/// The run of a job with cleaners.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cleaner: &'a Cleaner,
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
#[derive(Default)]
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
    type Output = Outcome;

    fn run<E: Engine>(self, engine: &E) -> Result<Outcome> {
        if !engine.moves_data() {
            return Err(BenchError::usage("this engine moves no data"));
        }
        if engine.has_own_cache() {
            warm::with_another_file(engine, self.job, PAGE_BYTES as usize)?;
            return self.with(engine, engine);
        }
        let direct = registry::find(&self.job.engine).is_some_and(|engine| engine.direct);
        let agents = OnFiles::open(&Place { direct, ..self.job.place() }, psync(false, 0))?;
        self.with(&agents, engine)
    }
}

impl Run<'_> {
    fn with<A: Engine, C: Engine>(&self, agents: &A, engine: &C) -> Result<Outcome> {
        let (job, Cleaner { cleaners, depth, agents: count, .. }) = (self.job, *self.cleaner);
        let database = Database::new(job, self.cleaner)?;
        database.fill(job.seed);
        let (before, until) = (Used::now()?, Instant::now() + job.runtime());
        let (arena, block_bytes) = (&Arena::default(), PAGE_BYTES as usize);
        let agent = |index: usize| {
            let mut peer = agents.peer(arena.cut(block_bytes, 1)?)?;
            let random = SplitMix(job.seed.wrapping_mul(7919) + index as u64);
            database.agent(&mut peer, random, until)
        };
        let servers = Servers { engine, count: cleaners, depth, block_bytes, arena };
        let (_, wall) = servers.serve(&database, (count, agent))?;
        database.summarize(wall, before)
    }
}

impl Desk for Database {
    /// Takes the oldest dirty pages of the older half.
    fn take(&self, max: usize, waits: bool) -> Vec<Request> {
        let mut pool = self.pool();
        let taken = loop {
            let taken = pool.take_dirty(max, self.pool_pages);
            if !taken.is_empty() || pool.over || !waits {
                break taken;
            }
            pool = self.work.wait(pool).unwrap_or_else(PoisonError::into_inner);
        };
        drop(pool);
        self.ios.fetch_add(taken.len() as u64, Relaxed);
        let (generation, file) = (self.generation, 0);
        let write = |(page, tag)| Request { offset: page * PAGE_BYTES, generation, tag, file };
        taken.into_iter().map(write).collect()
    }

    fn give_back(&self, ended: &[Request]) {
        self.cleaned.fetch_add(ended.len() as u64, Relaxed);
        let pages = ended.iter().map(|request| (request.offset / PAGE_BYTES, request.tag));
        self.pool().set_clean(pages);
    }

    fn close(&self, _failed: bool) {
        self.pool().over = true;
        self.work.notify_all();
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
        let (pool_pages, generation) = (cleaner.pool_pages, job.generation);
        Ok(Self { pool_pages, pages, log_pages, generation, ..Self::default() })
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

    /// Brings a page into the pool, as its youngest page.
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

    fn summarize(&self, wall: Duration, before: Used) -> Result<Outcome> {
        let (used, wall_s) = (Used::now()?.less(before), wall.as_secs_f64());
        let of = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        let (cleaned, stolen) = (of(&self.cleaned), of(&self.stolen));
        let mut figures = rates(of(&self.ios).max(1.0), PAGE_BYTES as usize, wall_s, used);
        let share = 100.0 * cleaned / (cleaned + stolen).max(1.0);
        figures.insert("transactions_per_s".to_owned(), of(&self.transactions) / wall_s);
        figures.insert("written_by_cleaners_percent".to_owned(), share);
        Ok(figures)
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

    fn set_clean(&mut self, pages: impl Iterator<Item = (u64, u64)>) {
        for (page, entry) in pages {
            // The page may have left the pool meanwhile.
            if let Some(found) = self.resident.get_mut(&page).filter(|found| found.1 == entry) {
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
        pool.set_clean(taken.into_iter());
        assert!(matches!(pool.begin(9), Access::Miss(None)), "0 leaves, clean");
        assert!(matches!(pool.begin(10), Access::Miss(None)), "1 leaves, clean");
        assert!(matches!(pool.begin(11), Access::Miss(Some(2))), "2 is stolen");
        assert!(matches!(pool.begin(11), Access::Hit));
    }

    #[test]
    fn a_pool_begins_as_cleaners_keep_it() {
        let database = Database { pages: 10_000, pool_pages: 1000, ..Database::default() };
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

    #[test]
    fn a_page_that_came_back_is_not_the_one_that_was_taken() {
        let mut pool = Pool::default();
        pool.enter(5, State::Dirty);
        let taken = pool.take_dirty(1, 4);
        assert!(matches!(pool.begin(6), Access::Miss(None)), "a cleaner writes it");
        pool.enter(5, State::Dirty);
        pool.set_clean(taken.into_iter());
        assert_eq!(pool.resident.get(&5).map(|found| found.0), Some(State::Dirty));
    }
}
