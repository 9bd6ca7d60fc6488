//! Files on several devices in one cache. A seed decides which devices are full or do not answer
//! for a while.
//!
//! Checked: a write, a sync and a read of a file on a healthy device never wait for other devices,
//! and the write succeeds unless the file lost data, or its sync failed, before. A device that does
//! not answer holds at most the permitted number of bios. The sync of a file on a full device fails
//! with ENOSPC, or has the result of the write before it.

use nowait_block::{Bio, BioOp, Segments};
use nowait_cache::{
    Backing, Cache, CachedFile, FRAME_BYTES, InFlightMax, ReadOperation, SyncLevel, SyncOperation,
    Target, WriteOperation, copy::User, mistake,
};
use nowait_retry::{Step, WaitEntry};
use nowait_sim::Prng;
use nowait_sys::{Errno, file::IoVec};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

/// Frames of the cache: many times the largest folio.
const FRAMES: u32 = 4096;
const STEPS_MAX: usize = 100_000;

/// A device's handling of bios: it performs all (`Well`), fails writes with ENOSPC (`Full`), or
/// keeps all (`Still`). Reads leave memory unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    Full,
    Still,
}

#[derive(Default)]
struct Kick(AtomicBool);

impl Wake for Kick {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Over(Result<u32, Errno>),
    /// Nothing will kick the operation, or the operation took too many steps.
    Stuck,
}

struct World {
    cache: Arc<Cache>,
    most: InFlightMax,
    health: Vec<Health>,
    files: Vec<Arc<CachedFile>>,
    has_failed: Vec<bool>,
    held: Vec<Bio>,
    prng: Prng,
    bytes: Vec<u8>,
}

/// Runs a seed, with or without a mistake of the cache.
pub fn run(seed: u64, made: Option<mistake::Mistake>) -> Result<(), String> {
    mistake::make(made);
    let mut world = World::new(seed);
    let verdict = world.work();
    world.end();
    mistake::make(None);
    verdict.map_err(|wrong| format!("seed {seed}: {wrong}"))
}

impl World {
    fn new(seed: u64) -> World {
        let mut prng = Prng::new(seed);
        let devices = 2 + prng.index(5);
        let cache = Cache::with_frames(FRAMES);
        let few = InFlightMax { reads: 1 + prng.index(8) as u32, writes: 1 + prng.index(8) as u32 };
        let most = if prng.chance(500_000) { few } else { InFlightMax::NONE };
        cache.limit_in_flight(most);
        let file = |device: usize| {
            let target = Target { fd: device as i32, file: None };
            let backing = Backing { device: device as u64, ..Backing::of(&target) };
            CachedFile::new(&cache, backing, 0)
        };
        // The limit of bios in flight applies to a device, which has several files.
        let files: Vec<_> = (0..devices * 3).map(|number| file(number % devices)).collect();
        let (bytes, has_failed) =
            (vec![7; FRAMES as usize * FRAME_BYTES], vec![false; files.len()]);
        let (health, held) = (vec![Health::Well; devices], Vec::new());
        World { cache, most, health, files, has_failed, held, prng, bytes }
    }

    fn work(&mut self) -> Result<(), String> {
        for _ in 0..30 {
            // The last device is always healthy.
            let device = self.prng.index(self.health.len() - 1);
            let kinds = [Health::Well, Health::Full, Health::Still];
            let health = kinds[self.prng.index(3)];
            self.turn(device, health);
            for _ in 0..self.prng.range(1..=6) {
                let file = self.prng.index(self.files.len());
                let pages = 1 + self.prng.index(2 * FRAMES as usize / 3);
                let ends = [self.write(file, pages), self.sync(file), self.read(file)];
                self.judge(file, ends)?;
                self.judge_held()?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, file: usize, ends: [End; 3]) -> Result<(), String> {
        let health = self.health[file % self.health.len()];
        let [written, synced, read] = ends;
        let had_failed = core::mem::replace(&mut self.has_failed[file], synced != End::Over(Ok(0)));
        let lost = had_failed || self.files[file].lost().is_some();
        match health {
            Health::Well if ends.contains(&End::Stuck) => {
                Err(format!("file {file} on a healthy device waits: {ends:?}, {:?}", self.health))
            }
            Health::Well if !matches!(written, End::Over(Ok(_))) && !lost => {
                Err(format!("file {file} on a healthy device fails: {ends:?}, {:?}", self.health))
            }
            Health::Full
                if !matches!(synced, End::Over(Err(Errno::NOSPC))) && written != synced =>
            {
                Err(format!("file {file} on a full device is not told: {ends:?}"))
            }
            Health::Full if read == End::Stuck => {
                let (free, dirty) = (self.cache.frames().free_frames(), self.cache.dirty_frames());
                let held = self.held.len();
                let why = format!("{free} frames free, {dirty} dirty, {held} bios held");
                Err(format!("file {file}: a read waits: {why}, {:?}", self.health))
            }
            _ => Ok(()),
        }
    }

    fn judge_held(&self) -> Result<(), String> {
        for device in 0..self.health.len() {
            let held = self.held.iter().filter(|bio| bio.fd as usize == device);
            let (reads, writes): (Vec<_>, Vec<_>) = held.partition(|bio| bio.op == BioOp::Read);
            let (reads, writes) = (reads.len() as u32, writes.len() as u32);
            if reads > self.most.reads || writes > self.most.writes {
                return Err(format!("device {device} has {reads} reads and {writes} writes"));
            }
        }
        Ok(())
    }

    /// A device that answers again performs the bios that it has held.
    fn turn(&mut self, device: usize, health: Health) {
        self.health[device] = health;
        if health == Health::Still {
            return;
        }
        let (now, later) = self.held.drain(..).partition(|bio: &Bio| bio.fd as usize == device);
        self.held = later;
        let now: Vec<Bio> = now;
        self.perform(now);
    }

    fn perform(&mut self, mut plug: Vec<Bio>) {
        while let Some(bio) = plug.pop() {
            let result = match (self.health[bio.fd as usize], bio.op) {
                (Health::Still, _) => {
                    self.held.push(bio);
                    continue;
                }
                (Health::Full, BioOp::Write) => Err(Errno::NOSPC),
                _ => Ok(bio.segments.len() as u32),
            };
            self.cache.complete(bio.token, result, &mut plug);
        }
    }

    fn drive(
        &mut self,
        mut iterate: impl FnMut(&mut Vec<Bio>, &dyn Fn() -> WaitEntry) -> Step,
    ) -> End {
        for _ in 0..STEPS_MAX {
            let (mut plug, kick) = (Vec::new(), Arc::<Kick>::default());
            let waker = Waker::from(kick.clone());
            let step = iterate(&mut plug, &|| waker.clone());
            self.perform(plug);
            match step {
                Step::Done(result) => return End::Over(result),
                _ if !kick.0.load(SeqCst) => return End::Stuck,
                _ => {}
            }
        }
        End::Stuck
    }

    fn user(&mut self, pages: usize) -> User {
        let segment = IoVec { base: self.bytes.as_mut_ptr(), len: pages * FRAME_BYTES };
        // SAFETY: the bytes live as long as the world, whose operations do not outlive a call.
        unsafe { User::new(Segments::One(segment)) }
    }

    fn write(&mut self, file: usize, pages: usize) -> End {
        let user = self.user(pages);
        let offset = self.prng.below(64) * FRAME_BYTES as u64;
        let mut write = WriteOperation::new(self.files[file].clone(), offset, user, None);
        self.drive(|plug, wait| write.iterate(plug, wait))
    }

    fn sync(&mut self, file: usize) -> End {
        let mut sync = SyncOperation::whole(self.files[file].clone(), SyncLevel::Data);
        self.drive(|plug, wait| sync.iterate(plug, wait))
    }

    fn read(&mut self, file: usize) -> End {
        let user = self.user(8);
        let mut read = ReadOperation::new(self.files[file].clone(), 0, user);
        self.drive(|plug, wait| read.iterate(plug, wait))
    }

    /// Ends the held bios: each references its file, and the cache.
    fn end(&mut self) {
        (0..self.health.len()).for_each(|device| self.turn(device, Health::Well));
    }
}
