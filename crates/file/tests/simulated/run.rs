//! One run: an engine on a simulated machine, and steps drawn from a seed.

use crate::{
    machine::{Files, Machine, Mistake},
    model::{Model, Op},
};
use nowait_file::{
    Config, Context, Engine, Kind, Parts, SubmitMode,
    owner::Role,
    parts::{Clock, Executor},
    submit::{Reply, Submission},
    throttle::Limits,
};
use nowait_sim::{Config as DeviceConfig, Faults, Model as Timing, Prng, SimDevice};
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

/// Bytes of a file.
const FILE_BYTES: u64 = 64 << 10;
const FILES: usize = 2;
/// Requests are made of these.
const UNIT_BYTES: u64 = 512;
/// Most units of a request.
const UNITS_MAX: u64 = 16;
/// Requests submitted in a run, about.
const REQUESTS: usize = 100;
/// Steps after which what has not ended never will.
const STEPS_MAX: usize = 200_000;

/// A file that stands for one of the device, and the same opened for direct requests.
struct Stand {
    buffered: File,
    direct: File,
}

/// What a run came to; drop order: the engine before the memory of its requests.
pub(crate) struct Run {
    seed: u64,
    prng: Prng,
    device: SimDevice,
    engine: Arc<Engine>,
    contexts: Vec<Arc<Context>>,
    may_fail: bool,
    /// Weights of the steps.
    weights: [u32; 6],
    /// By their names.
    ops: Vec<Op>,
    /// The context of each.
    homes: Vec<usize>,
    in_flight: Vec<usize>,
    events: Vec<(u64, i64)>,
    refused: u64,
}

/// What happened in some runs.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: u64,
    failed: u64,
    cancelled: u64,
    short: u64,
    direct: u64,
    refused: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.short += other.short;
        self.direct += other.direct;
        self.refused += other.refused;
    }

    pub(crate) fn is_everything(&self) -> bool {
        let Counts { requests, failed, cancelled, short, direct, refused } = *self;
        [requests, failed, cancelled, short, direct, refused].iter().all(|count| *count > 0)
    }
}

impl Run {
    /// Makes an engine as the seed says.
    pub(crate) fn new(seed: u64, mistake: Option<Mistake>) -> Run {
        let mut prng = Prng::new(seed);
        let faults = faults(&mut prng);
        let may_fail = faults != Faults::none();
        let model = [Timing::any_order(), Timing::constant(1_000), Timing::flash()];
        let model = model[prng.index(3)].clone();
        let device = SimDevice::new(&DeviceConfig { model, faults, ..DeviceConfig::new(seed) });
        (0..FILES).for_each(|file| device.create(file as i32, FILE_BYTES));
        let depth = prng.range(2..=12) as usize;
        let limits = nowait_block::Limits {
            buffered_reads: prng.chance(500_000),
            writes: prng.chance(500_000),
            readiness: prng.chance(500_000),
            ..nowait_block::Limits::of_all_kinds(depth)
        };
        let files = Files::new(&stands().iter().map(|stand| &stand.buffered).collect::<Vec<_>>());
        let clock = Clock::Virtual(device.clock());
        let machine = Machine { device: device.clone(), files, limits, mistake };
        let parts = Parts {
            backends: Box::new(machine),
            reason: "simulated".to_owned(),
            clock,
            executor: Executor::Owner,
        };
        // Inside submit, what is not direct would be attempted on the files that stand for others.
        let submit = [SubmitMode::Auto, SubmitMode::Offload][prng.index(2)];
        let context_limits = Limits { requests: prng.range(1..=50) as usize, ..Limits::NONE };
        let config = Config { submit, context_limits, ..Config::default() };
        let engine = Engine::start(config, parts).unwrap();
        let context = |id| Context::new(&engine, id, REQUESTS as u32).unwrap();
        let contexts = (0..2).map(context).collect();
        let weights = std::array::from_fn(|_| 1 + prng.below(20) as u32);
        Run {
            seed,
            prng,
            device,
            engine,
            contexts,
            may_fail,
            weights,
            ops: Vec::new(),
            homes: Vec::new(),
            in_flight: Vec::new(),
            events: Vec::new(),
            refused: 0,
        }
    }

    /// Runs until all requests have ended; an error says what is wrong.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let submits = self.ops.len() < REQUESTS;
            match self.prng.weighted(&self.weights) {
                0 if submits => self.submit(),
                1 if submits => self.cancel(),
                0 | 1 if self.in_flight.is_empty() => return self.judge(),
                2 => drop(self.engine.turn(Role::Driver)),
                3 => drop(self.engine.turn(Role::Workers)),
                4 => self.look()?,
                _ => self.device.clock().advance(self.prng.below(20_000)),
            }
        }
        Err(format!("hangs: {:?}", self.in_flight))
    }

    /// Submits a few requests at once.
    fn submit(&mut self) {
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
            let reply = Reply { data: name as u64, obj: name as u64, eventfd: None };
            if let Err(errno) = submission.start(command, reply) {
                assert_eq!(errno, Errno::AGAIN, "nothing is wrong with it");
                self.refused += 1;
                self.ops.pop();
                context.io().release(1);
                break;
            }
            self.homes.push(home);
            self.in_flight.push(name);
        }
        submission.finish();
    }

    /// Draws a request; `None`: what was drawn has no order with one in flight.
    fn draw(&mut self) -> Option<Op> {
        let prng = &mut self.prng;
        let offload = self.engine.config().submit == SubmitMode::Offload;
        let direct = !offload || prng.chance(200_000);
        let file = prng.index(FILES);
        if prng.chance(50_000) {
            return Some(Op::new(file, Kind::Fsync, false, 0, Vec::new()));
        }
        let kind = [Kind::Read, Kind::Write][prng.index(2)];
        let units = prng.range(1..=UNITS_MAX);
        let first = prng.below(FILE_BYTES / UNIT_BYTES - units);
        let data = (0..units * UNIT_BYTES).map(|_| prng.next_u64() as u8).collect();
        let op = Op::new(file, kind, direct, first * UNIT_BYTES, data);
        let mut others = self.in_flight.iter().map(|name| &self.ops[*name]);
        (!others.any(|other| other.direct && other.overlaps(&op))).then_some(op)
    }

    fn cancel(&mut self) {
        if !self.in_flight.is_empty() {
            let name = self.in_flight[self.prng.index(self.in_flight.len())];
            let cancelled = self.contexts[self.homes[name]].cancel(name as u64);
            self.ops[name].cancelled |= cancelled.is_ok();
        }
    }

    /// Takes the events that a context has.
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
            self.in_flight.retain(|other| *other as u64 != name);
            let op = self.ops.get_mut(name as usize).ok_or("an event of no request")?;
            if op.result.replace(result).is_some() {
                return Err(format!("request {name} has two events"));
            }
        }
        Ok(())
    }

    /// Says what is wrong now that all has ended.
    fn judge(&mut self) -> Result<(), String> {
        let mut files: Vec<_> = (0..FILES).map(|_| Model::new(FILE_BYTES)).collect();
        for (name, op) in self.ops.iter().enumerate() {
            let applied = files[op.file].apply(op, self.may_fail);
            applied.map_err(|what| format!("request {name}: {what}"))?;
        }
        for (number, file) in files.iter_mut().enumerate() {
            let contents = self.device.contents(number as i32).unwrap();
            file.judge(&contents).map_err(|what| format!("file {number} in the end: {what}"))?;
        }
        match self.engine.failures() {
            0 => Ok(()),
            failures => Err(format!("{failures} failures")),
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
            refused: self.refused,
        }
    }

    /// Returns a number that tells runs apart.
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
        // What a mistake of the machine keeps in flight is never destroyed.
        if self.in_flight.is_empty() {
            self.contexts.drain(..).for_each(|context| context.destroy().unwrap());
            self.engine.shutdown();
        } else {
            std::mem::forget((std::mem::take(&mut self.ops), std::mem::take(&mut self.contexts)));
        }
    }
}

/// Draws what goes wrong: in every third run nothing.
fn faults(prng: &mut Prng) -> Faults {
    if prng.index(3) == 0 {
        return Faults::none();
    }
    Faults {
        read_error_ppm: prng.swarm_ppm(500_000),
        write_error_ppm: prng.swarm_ppm(500_000),
        flush_error_ppm: prng.swarm_ppm(500_000),
        partial_ppm: prng.swarm_ppm(500_000),
        short_ppm: prng.swarm_ppm(1_000_000),
        uncancelled_ppm: prng.swarm_ppm(500_000),
        ..Faults::none()
    }
}

/// Returns the files that stand for those of the device: all of their blocks are allocated.
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
