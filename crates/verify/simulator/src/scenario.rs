//! The scenario of one run, drawn by a seed.

use crate::{canary::Canary, op::Op};
use nowait_cache::{FRAME_BYTES, SyncLevel, mistake::Mistake};
use nowait_sim::{Config, Faults, Model, Prng};

/// The medium below the cache.
#[derive(Clone, Debug)]
pub enum Below {
    /// A simulated device.
    Sim(Box<Config>),
    /// An array in memory with a queue.
    Mem {
        /// Bytes of the longest file.
        bytes: usize,
        /// Most bios in flight.
        depth: usize,
    },
}

/// The environment of one run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The medium below the cache.
    pub below: Below,
    /// Frames of the cache, of 4 KiB.
    pub frames: u32,
    /// Size of the file at first.
    pub size: u64,
    /// Alignment of direct requests.
    pub block_bytes: u32,
    /// Most operations in flight.
    pub in_flight_max: usize,
    /// The unit of all offsets, lengths and sizes; above 1, an oracle checks, too.
    pub granule: u64,
    /// Most pages to read ahead; 0: none.
    pub readahead_pages: u32,
    /// A deliberate mistake of the layer above the cache, which some seeds must detect.
    pub canary: Option<Canary>,
    /// A deliberate mistake of the cache itself, which some seeds must detect.
    pub mistake: Option<Mistake>,
}

impl Setup {
    /// Returns `true` if the device may make operations fail.
    pub fn is_faulty(&self) -> bool {
        matches!(&self.below, Below::Sim(config) if config.faults != quiet(&config.faults))
    }
}

/// Returns only the faults of power cuts, of cancellation, and the lies.
pub fn quiet(faults: &Faults) -> Faults {
    let Faults { lost_ppm, torn_ppm, reorder, uncancelled_ppm, lies, .. } = *faults;
    Faults { lost_ppm, torn_ppm, reorder, uncancelled_ppm, lies, ..Faults::none() }
}

/// The kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A device without faults: no operation fails, though some are cancelled.
    Exact,
    /// Like `Exact`, but on an array in memory and without cancellations.
    Memory,
    /// A device that fails.
    Faulty,
    /// A device that fails, with many cancellations and up to 64 operations in flight.
    Storm,
    /// Like `Exact`, while another process writes to the file.
    Rival,
    /// A small file, for power cuts: a volatile cache, and writes aligned to 64 bytes.
    Power,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 6] = [
        Profile::Exact,
        Profile::Memory,
        Profile::Faulty,
        Profile::Storm,
        Profile::Rival,
        Profile::Power,
    ];
}

/// A list of operations and their environment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The kind of run.
    pub profile: Profile,
    /// The seed by which the scenario was drawn.
    pub seed: u64,
    /// Decides the order of events; the seed, except while shrinking.
    pub order: u64,
    /// The environment.
    pub setup: Setup,
    /// The operations, in the order of submission.
    pub ops: Vec<Op>,
}

/// The weight of each kind of operation, in the order of [`Draw::op`].
const WEIGHTS: [u32; 13] = [40, 40, 12, 12, 12, 10, 16, 8, 8, 10, 8, 3, 0];
const CANCEL: usize = 10;
const RIVAL: usize = 12;

impl Scenario {
    /// Draws `count` operations and their environment by `seed`.
    pub fn draw(seed: u64, count: usize, profile: Profile) -> Scenario {
        let mut prng = Prng::new(seed);
        let setup = draw_setup(&mut prng, seed, profile);
        let spans: &[u64] = match profile {
            Profile::Power => &[8, 32],
            _ => &[8, 32, 64, 256],
        };
        let span = spans[prng.index(spans.len())] << 10;
        let lens: &[u64] = match profile {
            Profile::Power => &[512, 9000],
            _ => &[100, 512, 5000, 9000, 40_000],
        };
        let len_max = lens[prng.index(lens.len())].min(span);
        let mut weights = WEIGHTS;
        prng.swarm(&mut weights[2..RIVAL]);
        let swap = prng.index(3);
        (weights[0], weights[1]) = (weights[0] << swap, weights[1] << prng.index(3));
        if profile == Profile::Storm {
            weights[CANCEL] = weights.iter().sum::<u32>() / 2;
        }
        if profile == Profile::Rival {
            weights[RIVAL] = 40;
        }
        if profile == Profile::Memory {
            // A dropped truncation would leave a file longer than the array.
            weights[CANCEL] = 0;
        }
        let mut setup = setup;
        if let Below::Mem { bytes, .. } = &mut setup.below {
            *bytes = (4 * span + (1 << 17)) as usize;
        }
        let block = u64::from(setup.block_bytes);
        let mut draw =
            Draw { prng, span, len_max, granule: setup.granule, block, size: setup.size };
        let ops = (0..count).map(|_| draw.op(&weights)).collect();
        Scenario { profile, seed, order: seed, setup, ops }
    }
}

fn draw_setup(prng: &mut Prng, seed: u64, profile: Profile) -> Setup {
    let sector_bytes = if prng.chance(800_000) { 4096 } else { 512 };
    // A faulty device ends transfers at the end of a sector, which must then end a block.
    let large = prng.chance(500_000) && !matches!(profile, Profile::Faulty | Profile::Storm);
    let block_bytes = if large { 4096 } else { sector_bytes as u32 };
    let models = [Model::any_order(), Model::constant(1_000), Model::flash(), Model::disk()];
    let model = models[prng.index(models.len())].clone();
    let depth = [1, 2, 4, 16, 64][prng.index(5)];
    let faults = match profile {
        Profile::Faulty | Profile::Storm => Faults { bad_sector_ppm: 0, ..Faults::swarm(prng) },
        Profile::Power => Faults::volatile_cache(),
        Profile::Exact | Profile::Memory | Profile::Rival => Faults::none(),
    };
    let below = match profile {
        Profile::Memory => Below::Mem { bytes: 0, depth },
        _ => {
            Below::Sim(Box::new(Config { sector_bytes, model, depth, faults, ..Config::new(seed) }))
        }
    };
    let granule = if profile == Profile::Power { 64 } else { 1 };
    let size = if prng.chance(300_000) { 0 } else { prng.below(20_000) / granule * granule };
    // A larger file has large folios, which the other process overwrites in part.
    let size = if profile == Profile::Rival { size * 10 } else { size };
    let frames = [8, 16, 24, 64, 512][prng.index(5)];
    let readahead_pages = [0, 0, 4, 32][prng.index(4)];
    let mut in_flight_max = [1, 2, 4, 8, 16][prng.index(5)];
    if profile == Profile::Storm {
        in_flight_max *= 4;
    }
    Setup {
        below,
        frames,
        size,
        block_bytes,
        in_flight_max,
        granule,
        readahead_pages,
        canary: None,
        mistake: None,
    }
}

struct Draw {
    prng: Prng,
    span: u64,
    len_max: u64,
    granule: u64,
    block: u64,
    /// The size of the file if all operations succeed.
    size: u64,
}

impl Draw {
    fn op(&mut self, weights: &[u32]) -> Op {
        if self.size > 2 * self.span {
            return self.truncate();
        }
        match self.prng.weighted(weights) {
            0 => {
                let (offset, len) = self.range();
                Op::Read { offset, len, pieces: self.pieces() }
            }
            1 => {
                let (offset, len) = self.range();
                self.size = self.size.max(offset + len as u64);
                Op::Write { offset: Some(offset), len, pieces: self.pieces(), durable: self.sync() }
            }
            2 => {
                let (_, len) = self.range();
                self.size += len as u64;
                Op::Write { offset: None, len, pieces: self.pieces(), durable: self.sync() }
            }
            3 => {
                let (offset, len) = self.blocks();
                Op::DirectRead { offset, len }
            }
            4 => {
                let (offset, len) = self.blocks();
                self.size = self.size.max(offset + len as u64);
                Op::DirectWrite { offset, len, sync: self.prng.chance(200_000) }
            }
            5 => self.truncate(),
            6 => self.fsync(),
            7 => {
                let (from, last) = self.pages();
                Op::Forget { from, last }
            }
            8 => Op::Reclaim,
            9 => Op::Clean { pages: self.prng.range(1..=16) },
            10 => Op::Cancel { nth: self.prng.index(16) },
            11 => Op::Reopen,
            _ => {
                let (from, last) = self.pages();
                Op::Rival { from, last }
            }
        }
    }

    /// Draws a range; some begin at a page, are whole pages, append to the file, or are short.
    fn range(&mut self) -> (u64, usize) {
        let page = FRAME_BYTES as u64;
        let mut offset = self.prng.below(self.span);
        let mut len = self.prng.range(1..=self.len_max);
        match self.prng.index(6) {
            0 => offset = offset / page * page,
            1 => (offset, len) = (offset / page * page, len.next_multiple_of(page)),
            2 => offset = self.size.min(2 * self.span),
            3 => len = self.prng.range(1..=64.min(self.len_max)),
            _ => {}
        }
        let granule = self.granule;
        (offset / granule * granule, len.next_multiple_of(granule) as usize)
    }

    fn blocks(&mut self) -> (u64, usize) {
        let (offset, len) = self.range();
        (offset / self.block * self.block, (len as u64).next_multiple_of(self.block) as usize)
    }

    fn pages(&mut self) -> (u64, u64) {
        let pages = self.span / FRAME_BYTES as u64;
        let from = self.prng.below(pages);
        (from, from + self.prng.below(pages))
    }

    fn pieces(&mut self) -> usize {
        if self.prng.chance(750_000) { 1 } else { 2 + self.prng.index(7) }
    }

    fn sync(&mut self) -> Option<SyncLevel> {
        match self.prng.index(16) {
            0 => Some(SyncLevel::Data),
            1 => Some(SyncLevel::All),
            _ => None,
        }
    }

    fn truncate(&mut self) -> Op {
        let (offset, _) = self.range();
        self.size = offset.min(self.span);
        Op::Truncate { size: self.size / self.granule * self.granule }
    }

    fn fsync(&mut self) -> Op {
        let durable = match self.prng.index(8) {
            0 => SyncLevel::WriteOnly,
            1..4 => SyncLevel::Data,
            _ => SyncLevel::All,
        };
        let whole = self.prng.chance(700_000);
        let (from, last) = if whole { (0, u64::MAX) } else { self.pages() };
        Op::Sync { from, last, durable }
    }
}
