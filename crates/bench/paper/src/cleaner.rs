//! M13: a database whose transactions dirty pages, and cleaners that write them back.
//!
//! Transactions read pages of 8 KiB through a buffer pool of the database, change half of them, and
//! append to a log. If a page is dirty when it leaves the pool, the transaction that needs its
//! place writes it. Cleaners write dirty pages before that. Cleaners take dirty pages from the old
//! end of the pool, and write them synchronously (a cleaner has one write in flight) or by AIO (a
//! cleaner has many).

use crate::{
    costs,
    stage::{self, Stage},
    table::{Row, Source, Table},
    world::{Semaphore, Thread, World},
};
use nowait_block::BioOp;
use nowait_cache::Cache;
use nowait_sim::{Hardware, Prng};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    rc::Rc,
};

const PAGE_BYTES: u64 = 8192;
const POOL_PAGES: usize = 2048;
const DRIVE_PAGES: u64 = 128 << 10;
const AGENTS: usize = 200;
const PROCESSORS: usize = 2;
const PAGES_A_TRANSACTION: usize = 8;
const THINK_NS: u64 = 20_000;
const STREAM: usize = 256;
/// The number of pages at the old end of the pool among which cleaners look for dirty ones.
const CLEANED_PAGES: usize = POOL_PAGES / 2;

#[derive(Clone, Copy, Debug)]
struct Setup {
    cleaners: usize,
    aio: bool,
    /// Writes go through the page cache, with O_SYNC. Otherwise they go to the raw device.
    buffered: bool,
}

/// Transactions a second, and the percentage of page writes that the cleaners did.
type Figures = (f64, f64);

pub(crate) fn table(hardware: &Hardware, transactions: u64, seed: u64) -> Table {
    let run = |cleaners, aio, buffered| {
        run(hardware, Setup { cleaners, aio, buffered }, transactions, seed)
    };
    let row = |what: &str, unit, (low, high): (f64, f64), baseline, nowait| {
        Row::new(what, (unit, true), Source::Figures(low, high), (baseline, nowait))
    };
    let (raw, raw_aio) = (run(55, false, false), run(1, true, false));
    let (file, file_aio) = (run(5, false, true), run(5, true, true));
    let throughput = |what, source, (before, _): Figures, (after, _): Figures| {
        row(what, "transactions/s", source, before, after)
    };
    let share = |what, source, (_, before): Figures, (_, after): Figures| {
        row(what, "% of writes", source, before, after)
    };
    Table {
        row: "M13",
        title: "page cleaners of a database, sync → AIO (kernel summit slides, 2004)".to_owned(),
        notes: vec![format!(
            "{AGENTS} agents, pool of {POOL_PAGES} pages of 8 KiB, {STREAM} writes in flight an \
             AIO cleaner; chosen, as the source does not say"
        )],
        rows: vec![
            throughput("raw, 55 sync → 1 AIO cleaner", (122.0, 133.0), raw, raw_aio),
            share("raw, written by cleaners", (70.0, 100.0), raw, raw_aio),
            throughput("buffered, 5 sync → 5 AIO cleaners", (100.0, 113.7), file, file_aio),
            share("buffered, written by cleaners", (37.0, 100.0), file, file_aio),
        ],
    }
}

fn run(hardware: &Hardware, setup: Setup, transactions: u64, seed: u64) -> Figures {
    let (drives, bytes) = (hardware.drives(), DRIVE_PAGES * PAGE_BYTES);
    // The last file is the log.
    let world = stage::world(hardware, PROCESSORS, drives + 1, bytes, seed);
    let cache = Cache::new(64 << 20).expect("memory for the page cache");
    let stage = |index| Stage::new(&world, &cache, index, bytes, PAGE_BYTES);
    let database = Rc::new(Database {
        stages: (0..drives).map(stage).collect(),
        world: world.clone(),
        setup,
        pool: RefCell::default(),
        resident: RefCell::default(),
        prng: RefCell::new(Prng::new(seed)),
        left: Cell::new(transactions),
        agents: Cell::new(AGENTS),
        log: Cell::new(0),
        cleaned: Cell::new(0),
        stolen: Cell::new(0),
        dirty: Semaphore::new(0),
        end_ns: Cell::new(0),
    });
    database.fill();
    (0..AGENTS).for_each(|_| world.spawn(database.clone().agent()));
    (0..setup.cleaners).for_each(|_| world.spawn(database.clone().cleaner()));
    world.run();
    let (cleaned, stolen) = (database.cleaned.get() as f64, database.stolen.get() as f64);
    let rate = transactions as f64 * 1e9 / database.end_ns.get() as f64;
    (rate, 100.0 * cleaned / (cleaned + stolen).max(1.0))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Clean,
    Dirty,
    /// A cleaner is writing the page.
    Cleaned,
}

struct Database {
    stages: Vec<Stage>,
    world: World,
    setup: Setup,
    /// The pages in the pool, the oldest first.
    pool: RefCell<VecDeque<(u64, State)>>,
    resident: RefCell<BTreeSet<u64>>,
    prng: RefCell<Prng>,
    left: Cell<u64>,
    agents: Cell<usize>,
    log: Cell<u64>,
    cleaned: Cell<u64>,
    stolen: Cell<u64>,
    /// Permits: one for each page that became dirty, and one for each cleaner when an agent ends.
    dirty: Semaphore,
    end_ns: Cell<u64>,
}

impl Database {
    /// Draws as many pages as the pool has places, and puts each page into the pool once, clean.
    fn fill(&self) {
        for _ in 0..POOL_PAGES {
            let page = self.draw();
            if self.resident.borrow_mut().insert(page) {
                self.pool.borrow_mut().push_back((page, State::Clean));
            }
        }
    }

    fn draw(&self) -> u64 {
        self.prng.borrow_mut().below(DRIVE_PAGES * self.stages.len() as u64)
    }

    async fn agent(self: Rc<Self>) {
        let thread = Thread::default();
        while let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            for _ in 0..PAGES_A_TRANSACTION {
                self.world.cpu(&thread, THINK_NS).await;
                let page = self.draw();
                let change = self.prng.borrow_mut().chance(500_000);
                self.access(&thread, page, change).await;
            }
            let at = self.log.replace(self.log.get() + 1) % DRIVE_PAGES * PAGE_BYTES;
            self.device(&thread, BioOp::Write, stage::fd(self.stages.len()), at).await;
        }
        self.agents.set(self.agents.get() - 1);
        if self.agents.get() == 0 {
            self.end_ns.set(self.world.now_ns());
        }
        self.dirty.release(self.setup.cleaners);
    }

    /// Brings a page into the pool. Writes the page that leaves the pool, if that page is dirty.
    async fn access(&self, thread: &Thread, page: u64, change: bool) {
        let state = if change { State::Dirty } else { State::Clean };
        if !self.resident.borrow_mut().insert(page) {
            return;
        }
        let victim = self.pool.borrow_mut().pop_front();
        if let Some((old, state)) = victim {
            if state == State::Dirty {
                self.stolen.set(self.stolen.get() + 1);
                self.write(thread, old, true).await;
            }
            self.resident.borrow_mut().remove(&old);
        }
        let (stage, offset) = self.place(page);
        if self.setup.buffered {
            self.stages[stage].read(thread, offset, PAGE_BYTES, true).await;
        } else {
            self.device(thread, BioOp::Read, stage::fd(stage), offset).await;
        }
        self.pool.borrow_mut().push_back((page, state));
        if change {
            self.dirty.release(1);
        }
    }

    fn place(&self, page: u64) -> (usize, u64) {
        let drives = self.stages.len() as u64;
        ((page % drives) as usize, page / drives * PAGE_BYTES)
    }

    async fn device(&self, thread: &Thread, op: BioOp, fd: i32, offset: u64) {
        self.world.cpu(thread, costs::SYSCALL_NS + costs::device_ns(PAGE_BYTES)).await;
        self.world.transfer(op, fd, offset, PAGE_BYTES).await;
        self.world.cpu(thread, costs::SWITCH_NS).await;
    }

    /// Ends when the device has the page. With `waits`, the thread waits inside the call.
    async fn write(&self, thread: &Thread, page: u64, waits: bool) {
        let (stage, offset) = self.place(page);
        if self.setup.buffered {
            return self.stages[stage].write(thread, offset, PAGE_BYTES, true, waits).await;
        }
        let request_ns = if waits { costs::SYSCALL_NS } else { costs::OWN_REQUEST_NS };
        self.world.cpu(thread, request_ns + costs::device_ns(PAGE_BYTES)).await;
        self.world.transfer(BioOp::Write, stage::fd(stage), offset, PAGE_BYTES).await;
        if waits {
            self.world.cpu(thread, costs::SWITCH_NS).await;
        }
    }

    async fn cleaner(self: Rc<Self>) {
        let thread = Thread::default();
        let slots = Semaphore::new(if self.setup.aio { STREAM } else { 1 });
        while self.agents.get() > 0 {
            let Some(page) = self.take_dirty() else {
                self.dirty.acquire(1).await;
                continue;
            };
            if slots.acquire(1).await {
                self.world.cpu(&thread, costs::SYSCALL_NS + costs::SWITCH_NS).await;
            }
            let one = self.clone().clean(page, thread.clone(), slots.clone());
            if self.setup.aio {
                self.world.spawn(one);
            } else {
                one.await;
            }
        }
    }

    async fn clean(self: Rc<Self>, page: u64, thread: Thread, slots: Semaphore) {
        self.write(&thread, page, !self.setup.aio).await;
        self.cleaned.set(self.cleaned.get() + 1);
        let mut pool = self.pool.borrow_mut();
        // The page may have left the pool meanwhile.
        if let Some(found) = pool.iter_mut().find(|(of, _)| *of == page) {
            found.1 = State::Clean;
        }
        drop(pool);
        slots.release(1);
    }

    fn take_dirty(&self) -> Option<u64> {
        let mut pool = self.pool.borrow_mut();
        let mut old = pool.iter_mut().take(CLEANED_PAGES);
        let (page, state) = old.find(|(_, state)| *state == State::Dirty)?;
        *state = State::Cleaned;
        Some(*page)
    }
}
