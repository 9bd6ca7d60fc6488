//! One run: an engine on a simulated machine, and steps drawn from a seed.

use crate::{
    machine::{Files, Machine, Mistake},
    model::{May, Model, Op},
};
use nowait_cache::SyncLevel;
use nowait_file::{
    Config, Context, Engine, Kind, Parts, SubmitMode, UserFile, UserOperation,
    engine::owner::Role,
    limits::Limits,
    parts::{Clock, Executor},
    submit::{EventTarget, Submission},
};
use nowait_sim::{Config as DeviceConfig, Faults, Model as Timing, Oracle, Prng, SimDevice};
use nowait_sys::{Errno, file::O_DIRECT, time::Deadline};
use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    fs::File,
    hash::{Hash, Hasher},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    sync::{Arc, OnceLock},
};

/// The size is not a whole number of pages.
const FILE_BYTES: u64 = (64 << 10) - 3 * UNIT_BYTES;
const FILES: usize = 2;
const UNIT_BYTES: u64 = 512;
const UNITS_MAX: u64 = 16;
const REQUESTS: usize = 100;
/// A run that makes more steps than this is taken to hang.
const STEPS_MAX: usize = 200_000;

/// A real file that stands for a file of the simulated device.
struct Stand {
    buffered: File,
    direct: File,
}

/// The fields are dropped in order: the engine before the memory of its requests.
pub(crate) struct Run {
    seed: u64,
    prng: Prng,
    device: SimDevice,
    engine: Arc<Engine>,
    contexts: Vec<Arc<Context>>,
    /// `None`: the run opens this file without the page cache.
    users: [Option<Arc<UserFile>>; FILES],
    oracle: Oracle,
    /// `true`: requests to the device may fail. If `is_short` is set, requests may be short.
    fails: bool,
    is_short: bool,
    cut: Option<usize>,
    weights: [u32; 7],
    /// The index of each operation is its name.
    ops: Vec<Op>,
    homes: Vec<usize>,
    in_flight: Vec<usize>,
    events: Vec<(u64, i64)>,
    /// Blocking calls on files in the page cache.
    calls: u64,
    passed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: u64,
    failed: u64,
    cancelled: u64,
    short: u64,
    direct: u64,
    refused: u64,
    calls: u64,
    cuts: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.short += other.short;
        self.direct += other.direct;
        self.refused += other.refused;
        self.calls += other.calls;
        self.cuts += other.cuts;
    }

    pub(crate) fn is_everything(&self) -> bool {
        let Counts { requests, failed, cancelled, short, direct, refused, calls, cuts } = *self;
        let all = [requests, failed, cancelled, short, direct, refused, calls, cuts];
        all.iter().all(|count| *count > 0)
    }
}

impl Run {
    pub(crate) fn new(seed: u64, mistake: Option<Mistake>) -> Run {
        let mut prng = Prng::new(seed);
        let faults = faults(&mut prng);
        let fails = [faults.read_error_ppm, faults.write_error_ppm, faults.flush_error_ppm];
        let (fails, is_short) = (fails.iter().any(|ppm| *ppm > 0), faults.short_ppm > 0);
        let model = [Timing::any_order(), Timing::constant(1_000), Timing::flash()];
        let model = model[prng.index(3)].clone();
        let device = SimDevice::new(&DeviceConfig { model, faults, ..DeviceConfig::new(seed) });
        let mut oracle = Oracle::new(UNIT_BYTES as usize);
        for file in 0..FILES as i32 {
            device.create(file, FILE_BYTES);
            oracle.create(file, FILE_BYTES);
        }
        let depth = prng.range(2..=12) as usize;
        let limits = nowait_block::Limits {
            buffered_reads: prng.chance(500_000),
            writes: prng.chance(500_000),
            readiness: prng.chance(500_000),
            ..nowait_block::Limits::of_all_kinds(depth)
        };
        let files = Files::new(&stands().iter().map(|stand| &stand.buffered).collect::<Vec<_>>());
        let machine = Machine { seed, device: device.clone(), files, limits, mistake };
        let engine = start(machine, &mut prng);
        let users = std::array::from_fn(|file| {
            let fd = stands()[file].buffered.as_raw_fd();
            prng.chance(500_000).then(|| UserFile::open(&engine, fd).unwrap())
        });
        let context = |id| Context::new(&engine, id, REQUESTS as u32).unwrap();
        let contexts = (0..2).map(context).collect();
        let weights = std::array::from_fn(|_| 1 + prng.below(20) as u32);
        let cut = prng.chance(300_000).then(|| prng.below(3000) as usize);
        Run {
            seed,
            prng,
            device,
            engine,
            contexts,
            users,
            oracle,
            fails,
            is_short,
            cut,
            weights,
            ops: Vec::new(),
            homes: Vec::new(),
            in_flight: Vec::new(),
            events: Vec::new(),
            calls: 0,
            passed: false,
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        let verdict = self.steps();
        self.passed = verdict.is_ok();
        verdict
    }

    fn steps(&mut self) -> Result<(), String> {
        for step in 0..STEPS_MAX {
            if self.cut == Some(step) {
                self.device.cut_power();
                self.fails = true;
            }
            let submits = self.ops.len() < REQUESTS;
            match self.prng.weighted(&self.weights) {
                0 if submits => self.submit()?,
                1 if submits => self.cancel(),
                0 | 1 if self.in_flight.is_empty() => return self.judge(),
                2 => drop(self.engine.turn(Role::Driver)),
                3 => drop(self.engine.turn(Role::Workers)),
                4 => self.look()?,
                5 if submits && self.prng.chance(100_000) => self.call()?,
                // Sometimes long enough for dirty data to be written back.
                _ if self.prng.chance(10_000) => self.device.clock().advance(1_100_000_000),
                _ => self.device.clock().advance(self.prng.below(20_000)),
            }
        }
        Err(format!("hangs: {:?}", self.in_flight))
    }

    fn submit(&mut self) -> Result<(), String> {
        let home = self.prng.index(self.contexts.len());
        let context = self.contexts[home].clone();
        let mut submission = Submission::new(&context);
        for _ in 0..=self.prng.below(4) {
            let Some(op) = self.draw() else { continue };
            context.io().reserve(1).expect("there are slots for all");
            let name = self.ops.len();
            self.ops.push(op);
            let op = &mut self.ops[name];
            let stand = &stands()[op.file];
            let command = op.command(if op.direct { &stand.direct } else { &stand.buffered });
            let target = EventTarget { data: name as u64, obj: name as u64, eventfd: None };
            let (id, fd) = (name as u64, op.file as i32);
            match op.kind {
                Kind::Write => {
                    self.oracle.begin_write(id, fd, op.offset, op.data(), op.durable);
                }
                Kind::Fsync => self.oracle.begin_flush(id, fd),
                _ => {}
            }
            self.homes.push(home);
            let started = submission.submit(command, target);
            if started.is_ok() {
                self.in_flight.push(name);
                continue;
            }
            op.refused = true;
            context.io().release(1);
            self.end(name, -i64::from(started.unwrap_err().raw()))?;
            break;
        }
        submission.finish();
        Ok(())
    }

    /// Returns `None` if the request has no defined order with one in flight.
    fn draw(&mut self) -> Option<Op> {
        let prng = &mut self.prng;
        let offload = self.engine.config().submit == SubmitMode::Offload;
        let file = prng.index(FILES);
        let cached = self.users[file].is_some();
        let direct = !offload && !cached || prng.chance(200_000);
        if prng.chance(50_000) {
            return Some(Op::new(file, Kind::Fsync, false, 0, Vec::new()));
        }
        let kind = [Kind::Read, Kind::Write][prng.index(2)];
        let units = prng.range(1..=UNITS_MAX);
        let first = prng.below(FILE_BYTES / UNIT_BYTES - units);
        let data = (0..units * UNIT_BYTES).map(|_| prng.next_u64() as u8).collect();
        let mut op = Op::new(file, kind, direct, first * UNIT_BYTES, data);
        op.durable = kind == Kind::Write && prng.chance(200_000);
        let mut others = self.in_flight.iter().map(|name| &self.ops[*name]);
        let in_order = |other: &Op| cached || !other.direct || !other.overlaps(&op);
        others.all(in_order).then_some(op)
    }

    fn cancel(&mut self) {
        if !self.in_flight.is_empty() {
            let name = self.in_flight[self.prng.index(self.in_flight.len())];
            let cancelled = self.contexts[self.homes[name]].cancel(name as u64);
            self.ops[name].cancelled |= cancelled.is_ok();
        }
    }

    fn call(&mut self) -> Result<(), String> {
        let number = self.prng.index(FILES);
        let (Some(file), engine) = (&self.users[number], &self.engine) else { return Ok(()) };
        self.calls += 1;
        let called = match self.prng.index(3) {
            0 => file.settle(engine),
            1 => {
                let id = 1 << 32 | self.calls;
                self.oracle.begin_flush(id, number as i32);
                let synced = UserOperation::sync(file, SyncLevel::All).run(engine);
                self.oracle.end(id, synced);
                synced.map(drop)
            }
            _ => file.exclude(engine).map(|exclusion| {
                let first = self.prng.below(FILE_BYTES / UNIT_BYTES);
                let last = self.prng.range(first..=FILE_BYTES / UNIT_BYTES);
                let hole = first * UNIT_BYTES..last * UNIT_BYTES;
                if self.device.punch(number as i32, hole.clone()).is_ok() {
                    self.oracle.punch(number as i32, hole.clone());
                    self.ops.push(Op::hole(number, &hole));
                    self.homes.push(0);
                }
                drop(exclusion);
            }),
        };
        match called {
            Err(errno) if errno != Errno::IO || !(self.fails || self.is_short) => {
                Err(format!("a call: {errno}"))
            }
            _ => Ok(()),
        }
    }

    fn look(&mut self) -> Result<(), String> {
        let context = &self.contexts[self.prng.index(self.contexts.len())];
        let mut events = Vec::new();
        let max = 1 + self.prng.below(8) as usize;
        let taken = context.wait_events(0, max, Deadline::NOW, None, |_, event| {
            events.push((event.data, event.res));
            Ok(())
        });
        assert_eq!(taken, Ok(events.len()));
        for (name, result) in events {
            self.events.push((name, result));
            let name = name as usize;
            self.in_flight.retain(|other| *other != name);
            self.end(name, result)?;
        }
        Ok(())
    }

    fn end(&mut self, name: usize, result: i64) -> Result<(), String> {
        let op = self.ops.get_mut(name).ok_or("an event of no request")?;
        if op.result.replace(result).is_some() {
            return Err(format!("request {name} has two events"));
        }
        if op.kind != Kind::Read {
            let errno = || Errno::new(-result as i32);
            self.oracle.end(name as u64, u32::try_from(result).map_err(|_| errno()));
        }
        Ok(())
    }

    /// A direct request may be short: if the engine knows its file only by the number, it does not
    /// transfer the rest.
    fn may(&self, op: &Op) -> May {
        let cached = self.users[op.file].is_some();
        let fail = self.fails || self.is_short && cached;
        May { fail, be_short: fail || self.is_short && op.direct }
    }

    fn judge(&mut self) -> Result<(), String> {
        let mut files: Vec<_> = (0..FILES).map(|_| Model::new(FILE_BYTES)).collect();
        for (name, op) in self.ops.iter().enumerate() {
            let applied = files[op.file].apply(op, self.may(op));
            applied.map_err(|what| format!("request {name}: {what}"))?;
        }
        if self.device.is_off() {
            let after = self.device.reboot(&DeviceConfig::new(self.seed), &mut self.prng);
            for fd in 0..FILES as i32 {
                let left = after.contents(fd).unwrap();
                self.oracle.judge(fd, &left).map_err(|wrong| format!("{wrong:?}"))?;
            }
        } else {
            self.device.set_faults(Faults::none());
            for file in self.users.iter().flatten() {
                // Requests in flight may still fail.
                if (0..3).all(|_| file.settle(&self.engine).is_err()) {
                    return Err("what is dirty cannot be written".to_owned());
                }
            }
            for (number, file) in files.iter_mut().enumerate() {
                let contents = self.device.contents(number as i32).unwrap();
                file.judge(&contents)
                    .map_err(|what| format!("file {number} in the end: {what}"))?;
            }
        }
        let (engine, device) = (&self.engine, &self.device);
        let requests: usize = self.contexts.iter().map(|context| context.requests()).sum();
        match (engine.failures(), requests, device.unstable()) {
            (0, 0, 0) => Ok(()),
            wrong => Err(format!("failures, requests counted, writes that changed: {wrong:?}")),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |is: &dyn Fn(&Op, i64) -> bool| {
            let ops = self.ops.iter().filter(|op| op.result.is_some_and(|result| is(op, result)));
            ops.count() as u64
        };
        let said = |errno: Errno| -i64::from(errno.raw());
        Counts {
            requests: self.ops.len() as u64,
            failed: count(&|_, result| result == said(Errno::IO)),
            cancelled: count(&|_, result| result == said(Errno::CANCELED)),
            short: count(&|op, result| {
                let len = (op.range().end - op.range().start) as i64;
                0 < result && result < len
            }),
            direct: count(&|op, _| op.direct),
            refused: count(&|op, _| op.refused),
            calls: self.calls,
            cuts: u64::from(self.device.is_off()),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.events, self.device.trace_hash()).hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "SIM_SEED={}, {:?}", self.seed, self.engine.config().submit)?;
        for (name, op) in self.ops.iter().enumerate() {
            writeln!(f, "{name:4} {op:?}")?;
        }
        write!(f, "{}", self.device.trace())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // After a wrong result some requests may never end, and a destroy would wait for them.
        if self.passed {
            self.contexts.drain(..).for_each(|context| context.destroy().unwrap());
            self.users = Default::default();
            self.engine.shutdown();
        } else {
            let users = std::mem::take(&mut self.users);
            let contexts = std::mem::take(&mut self.contexts);
            std::mem::forget((std::mem::take(&mut self.ops), contexts, users, self.engine.clone()));
        }
    }
}

fn start(machine: Machine, prng: &mut Prng) -> Arc<Engine> {
    let parts = Parts {
        clock: Clock::Virtual(machine.device.clock()),
        backends: Box::new(machine),
        reason: "simulated".to_owned(),
        executor: Executor::Owner,
    };
    // In a submit mode with attempts, buffered requests would be attempted on the real files.
    let submit = [SubmitMode::Auto, SubmitMode::Offload][prng.index(2)];
    let context_limits = Limits { requests: prng.range(1..=50) as usize, ..Limits::NONE };
    let cache_bytes = 2 << 20;
    let config = Config { submit, context_limits, cache_bytes, ..Config::default() };
    Engine::start(config, parts).unwrap()
}

/// In a third of the runs or more, nothing fails while the power is on.
fn faults(prng: &mut Prng) -> Faults {
    let at_cut = Faults { reorder: prng.chance(500_000), ..Faults::volatile_cache() };
    if prng.index(3) == 0 {
        return at_cut;
    }
    Faults {
        read_error_ppm: prng.swarm_ppm(500_000),
        write_error_ppm: prng.swarm_ppm(500_000),
        flush_error_ppm: prng.swarm_ppm(500_000),
        partial_ppm: prng.swarm_ppm(500_000),
        short_ppm: prng.swarm_ppm(1_000_000),
        uncancelled_ppm: prng.swarm_ppm(500_000),
        ..at_cut
    }
}

/// All blocks of the files are allocated.
fn stands() -> &'static [Stand] {
    static STANDS: OnceLock<Vec<Stand>> = OnceLock::new();
    let make = |_| {
        let buffered = tempfile::tempfile_in("/var/tmp").unwrap();
        buffered.write_all_at(&vec![0; FILE_BYTES as usize], 0).unwrap();
        buffered.sync_all().unwrap();
        let path = format!("/proc/self/fd/{}", buffered.as_raw_fd());
        let mut options = File::options();
        let direct = options.read(true).write(true).custom_flags(O_DIRECT).open(path).unwrap();
        Stand { buffered, direct }
    };
    STANDS.get_or_init(|| (0..FILES).map(make).collect())
}
