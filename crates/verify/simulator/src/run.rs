//! Runs a scenario and checks its results.
//!
//! ```text
//!   at each end    reads against the model; no error without a fault; nothing hangs
//!   a rival        the writes of another process stay, unless the cache writes to the same page
//!   at the end     a sync succeeds once the faults have stopped; the file on the device is the
//!                  model's, and durable; accepted = ended; no frame and no node is left over
//!   power cut      the oracle: promised content is there, other content is old or new
//! ```

use crate::{
    executor::{Counts, Event, Executor, Hang, What},
    medium::{FD, Medium, prepare},
    model::Model,
    op::Op,
    scenario::{Below, Profile, Scenario, quiet},
};
use nowait_block::backends::mem::Mem;
use nowait_cache::{Cache, FRAME_BYTES, Mapping, SyncLevel, mistake};
use nowait_sim::{Config, Cut, Failure, Oracle, Prng, SimDevice};
use nowait_sys::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The counters of the executor.
    pub counts: Counts,
    /// Operations that ended with an error.
    pub errors: u64,
    /// Syncs, and writes that promised to be durable, that ended with an error.
    pub sync_errors: u64,
    /// Requests that the device accepted; 0 for an array.
    pub requests: u64,
    /// Number of faults that `SimDevice::fired` counts.
    pub fired: u64,
    /// A hash of all events of the device.
    pub trace_hash: u64,
}

/// Most steps of one operation, on average: more is an endless loop.
const STEPS_MAX: u64 = 4_000;

type Verdict<T = ()> = Result<T, String>;

/// Runs a scenario as its profile demands: once, or with power cuts at each of its requests.
pub fn check(scenario: &Scenario) -> Result<Report, Failure> {
    match scenario.profile {
        Profile::Power => every_power_cut(scenario),
        _ => run(scenario),
    }
}

/// Runs a scenario to its end; a panic counts as a failure.
pub fn run(scenario: &Scenario) -> Result<Report, Failure> {
    match &scenario.setup.below {
        Below::Sim(config) => {
            let device = SimDevice::new(config);
            prepare(&device, scenario.setup.size);
            guarded(scenario, &device, || {
                let mut runner = Runner::new(scenario, &device, Some(&device));
                runner.work()?;
                device.set_faults(quiet(&config.faults));
                runner.close()
            })
        }
        Below::Mem { bytes, depth } => {
            let mem = Mem::new(*bytes, *depth, scenario.order);
            guarded(scenario, &mem, || {
                let mut runner = Runner::new(scenario, &mem, None);
                runner.work()?;
                runner.close()
            })
        }
    }
}

/// Runs a scenario on a simulated device whose power fails at `cut`, and checks what remains.
pub fn power_cut(scenario: &Scenario, cut: Cut) -> Result<Report, Failure> {
    let Below::Sim(config) = &scenario.setup.below else { panic!("only a device can be cut off") };
    let device = SimDevice::new(config);
    prepare(&device, scenario.setup.size);
    device.cut_at(cut);
    guarded(scenario, &device, || {
        let mut runner = Runner::new(scenario, &device, Some(&device));
        runner.work()?;
        if !device.is_off() {
            runner.drain()?;
        }
        device.cut_power();
        runner.executor.abandon();
        let oracle = runner.oracle.as_ref().expect("aligned for an oracle");
        // Read the remains without faults.
        let calm = Config { faults: quiet(&config.faults), ..(**config).clone() };
        for draw in 0..4 {
            let mut prng = Prng::new(scenario.order ^ draw);
            let after = device.reboot(&calm, &mut prng);
            let left = SimDevice::contents(&after, FD).map_err(|errno| format!("{errno:?}"))?;
            let verdict = oracle.judge(FD, &left);
            verdict.map_err(|violation| format!("{cut:?}: {violation}"))?;
            recovered(scenario, &after, &left)?;
        }
        Ok(runner.report())
    })
}

/// Runs a scenario once for each power cut: before each of its requests, and after each.
pub fn every_power_cut(scenario: &Scenario) -> Result<Report, Failure> {
    let mut n = 0;
    loop {
        power_cut(scenario, Cut::Completed(n))?;
        let report = power_cut(scenario, Cut::Queued(n))?;
        n += 1;
        if n > report.requests {
            return Ok(report);
        }
    }
}

fn recovered(scenario: &Scenario, device: &SimDevice, left: &[u8]) -> Verdict {
    let size = left.len() as u64;
    let cache = Cache::with_frames(scenario.setup.frames);
    let block_bytes = scenario.setup.block_bytes;
    let mut executor = Executor::new(device, &cache, size, block_bytes, scenario.seed);
    executor.submit(&Op::Read { offset: 0, len: left.len() + 1, pieces: 1 });
    executor.drain().map_err(|stuck| hang(&stuck))?;
    let events = executor.take_events();
    match &events.last().expect("one read").what {
        What::Ended(Ok(bytes), data) if data[..*bytes as usize] == *left => Ok(()),
        what => Err(format!("after the power cut, {size} bytes read as {what:?}")),
    }
}

fn guarded(
    scenario: &Scenario,
    medium: &dyn Medium,
    work: impl FnOnce() -> Verdict<Report>,
) -> Result<Report, Failure> {
    let verdict = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    let seed = scenario.seed;
    verdict.map_err(|message| Failure { seed, message, trace: medium.trace() })
}

fn hang(hang: &Hang) -> String {
    format!("hangs: nothing is in flight, and these wait\n{}", hang.waiting.join("\n"))
}

struct Runner<'m> {
    scenario: &'m Scenario,
    medium: &'m dyn Medium,
    device: Option<&'m SimDevice>,
    cache: Arc<Cache>,
    executor: Executor<'m>,
    model: Model,
    oracle: Option<Oracle>,
    prng: Prng,
    faulty: bool,
    steps: u64,
    errors: u64,
    sync_errors: u64,
}

impl<'m> Runner<'m> {
    fn new(
        scenario: &'m Scenario,
        medium: &'m dyn Medium,
        device: Option<&'m SimDevice>,
    ) -> Runner<'m> {
        let setup = &scenario.setup;
        let cache = Cache::with_frames(setup.frames);
        let (size, block_bytes, seed) = (setup.size, setup.block_bytes, scenario.order);
        let mut executor = Executor::new(medium, &cache, size, block_bytes, seed);
        mistake::make(setup.mistake);
        executor.set_canary(setup.canary);
        executor.set_readahead(setup.readahead_pages);
        let oracle = (setup.granule > 1).then(|| {
            let mut oracle = Oracle::new(setup.granule as usize);
            oracle.create(FD, size);
            oracle
        });
        Runner {
            scenario,
            medium,
            device,
            cache,
            executor,
            model: Model::new(size),
            oracle,
            prng: Prng::new(!seed),
            faulty: setup.is_faulty(),
            steps: 0,
            errors: 0,
            sync_errors: 0,
        }
    }

    fn work(&mut self) -> Verdict {
        let scenario = self.scenario;
        for op in &scenario.ops {
            while self.executor.in_flight() >= scenario.setup.in_flight_max && self.step()? {}
            while self.prng.chance(400_000) && self.step()? {}
            if self.is_off() {
                return Ok(());
            }
            match *op {
                Op::Reopen => self.reopen()?,
                Op::Rival { from, last } => self.rival(from, last)?,
                _ => {
                    self.executor.submit(op);
                    self.judge_events()?;
                }
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Verdict<bool> {
        if self.is_off() {
            return Ok(false);
        }
        self.steps += 1;
        if self.steps > STEPS_MAX * (self.scenario.ops.len() as u64 + 10) {
            return Err(String::from("runs in circles"));
        }
        let more = self.executor.step().map_err(|stuck| hang(&stuck))?;
        self.judge_events()?;
        Ok(more)
    }

    fn drain(&mut self) -> Verdict {
        while self.step()? {}
        Ok(())
    }

    fn is_off(&self) -> bool {
        self.device.is_some_and(SimDevice::is_off)
    }

    fn settle(&mut self) -> Verdict<bool> {
        self.drain()?;
        let before = self.sync_errors;
        self.executor.submit(&Op::Sync { from: 0, last: u64::MAX, durable: SyncLevel::All });
        self.drain()?;
        Ok(self.sync_errors == before)
    }

    /// The cache must not write the old content of these pages back, unless an operation writes to
    /// the same page.
    fn rival(&mut self, from: u64, last: u64) -> Verdict {
        self.drain()?;
        let in_file = self.medium.size().unwrap_or(0).min(self.model.size());
        let end = (in_file / FRAME_BYTES as u64).min(last + 1);
        for page in from..end {
            if is_dirty(self.executor.file().mapping(), page) {
                continue;
            }
            let bytes = vec![self.prng.below(256) as u8; FRAME_BYTES];
            let offset = page * FRAME_BYTES as u64;
            self.executor.write_past(offset, &bytes);
            self.model.write_by_rival(offset, &bytes);
        }
        Ok(())
    }

    fn reopen(&mut self) -> Verdict {
        if !self.settle()? || self.is_off() {
            return Ok(());
        }
        self.judge_file(true)?;
        let size = self.executor.reopen();
        self.model.reopen();
        if size != self.model.size() {
            return Err(format!("opened again, it has {size} bytes, not {}", self.model.size()));
        }
        Ok(())
    }

    /// Checks the final state; the device has no faults any more.
    fn close(mut self) -> Verdict<Report> {
        let first = self.settle()?;
        if !first {
            if !self.faulty {
                return Err(String::from("the last sync fails"));
            }
            // The error of a failed flush may stay for ever: clear it.
            self.executor.file().forgive();
            if !self.settle()? {
                return Err(String::from("a sync fails though the faults have stopped"));
            }
        }
        self.judge_file(first)?;
        let report = self.report();
        let Counts { accepted, ended, bios, bios_ended, .. } = report.counts;
        if accepted != ended || bios != bios_ended {
            return Err(format!("{accepted} accepted, {ended} ended; bios {bios}, {bios_ended}"));
        }
        let (dirty, cache) = (self.cache.dirty_frames(), self.cache.clone());
        drop(self);
        let frames = cache.frames();
        let (free, total) = (frames.free_frames(), u64::from(frames.total()));
        if dirty != 0 || free != total || cache.tree_nodes() != 0 {
            let nodes = cache.tree_nodes();
            return Err(format!("{dirty} dirty, {free} of {total} free, {nodes} nodes left"));
        }
        Ok(report)
    }

    fn judge_file(&self, durable: bool) -> Verdict {
        let mut contents = self.medium.contents();
        if self.medium.size().is_none() {
            contents.truncate(self.model.size() as usize);
        }
        let size = self.executor.file().size();
        if contents.len() as u64 != self.model.size() || size != self.model.size() {
            let (disk, model) = (contents.len(), self.model.size());
            return Err(format!("{disk} bytes on disk, {size} in the cache, {model} expected"));
        }
        self.model.judge_disk(0, &contents).map_err(|wrong| mismatch("on disk", wrong))?;
        let Some(left) = self.medium.durable_contents() else { return Ok(()) };
        if durable && left != contents {
            return Err(String::from("synced, not durable"));
        }
        let verdict = self.oracle.as_ref().map_or(Ok(()), |oracle| oracle.judge(FD, &left));
        verdict.map_err(|violation| format!("durable: {violation}"))
    }

    fn report(&self) -> Report {
        Report {
            counts: self.executor.counts(),
            errors: self.errors,
            sync_errors: self.sync_errors,
            requests: self.device.map_or(0, SimDevice::requests),
            fired: self.device.map_or(0, SimDevice::fired),
            trace_hash: self.device.map_or(0, SimDevice::trace_hash),
        }
    }

    fn judge_events(&mut self) -> Verdict {
        if self.device.is_some_and(|device| device.unstable() > 0) {
            return Err(String::from("a page was changed while it was written"));
        }
        for event in self.executor.take_events() {
            self.judge_event(&event).map_err(|why| format!("#{} {}: {why}", event.id, event.op))?;
        }
        Ok(())
    }

    fn judge_event(&mut self, event: &Event) -> Verdict {
        let result = match &event.what {
            What::Begun(data) => {
                self.tell_begin(event, data);
                return Ok(());
            }
            What::Dropped(data) => {
                self.doubt(event.offset, data);
                return Ok(());
            }
            What::Ended(result, _) => *result,
        };
        self.tell_end(event, result);
        let What::Ended(_, data) = &event.what else { return Ok(()) };
        if result.is_err() {
            self.errors += 1;
            self.sync_errors += u64::from(is_promise(&event.op));
        }
        if self.is_off() {
            // The power cut has ended the process, too: no caller sees the result.
            return Ok(());
        }
        match (result, &event.op) {
            (Err(Errno::CANCELED), Op::DirectRead { .. } | Op::DirectWrite { .. }) => {}
            (Err(errno), _) if !self.faulty => return Err(format!("fails with {errno:?}")),
            _ => {}
        }
        match (&event.op, result) {
            (Op::Truncate { size }, Ok(_)) => self.model.set_size(*size),
            (op, Ok(bytes)) if op.is_write() => self.written(event.offset, data, bytes as usize)?,
            (op, Err(_)) if op.is_write() => self.doubt(event.offset, data),
            (op, Ok(bytes)) if op.is_read() => self.read(event.offset, data, bytes as usize)?,
            _ => {}
        }
        Ok(())
    }

    fn written(&mut self, offset: u64, data: &[u8], bytes: usize) -> Verdict {
        if bytes > data.len() || bytes == 0 || (bytes < data.len() && !self.faulty) {
            return Err(format!("{bytes} of {} bytes written", data.len()));
        }
        self.model.write(offset, &data[..bytes]);
        // A short write may have copied more bytes than it reports, in an earlier attempt.
        self.doubt(offset + bytes as u64, &data[bytes..]);
        Ok(())
    }

    /// Any of `data` may have been written at `offset`, and the file may be longer.
    fn doubt(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.model.doubt(offset, data);
        let (size, end) = (self.executor.file().size(), offset + data.len() as u64);
        // Another write in flight may have made the file even longer.
        self.model.grow(size.min(end));
    }

    fn read(&mut self, offset: u64, data: &[u8], bytes: usize) -> Verdict {
        let expected = self.model.readable(offset, data.len());
        let short = self.faulty && bytes > 0 && bytes < expected;
        if bytes != expected && !short {
            return Err(format!("{bytes} bytes read, {expected} expected"));
        }
        self.model.judge(offset, &data[..bytes]).map_err(|wrong| mismatch("read", wrong))
    }

    fn tell_begin(&mut self, event: &Event, data: &[u8]) {
        let Some(oracle) = &mut self.oracle else { return };
        match event.op {
            Op::Write { durable, .. } => {
                let sync = durable >= Some(SyncLevel::Data);
                oracle.begin_write(event.id, FD, event.offset, data, sync);
            }
            Op::DirectWrite { sync, .. } => {
                oracle.begin_write(event.id, FD, event.offset, data, sync);
            }
            Op::Sync { from, last, .. } if is_flush(&event.op) => {
                let page = FRAME_BYTES as u64;
                let end = last.saturating_add(1).saturating_mul(page);
                oracle.begin_flush_of(event.id, FD, from * page..end);
            }
            _ => {}
        }
    }

    fn tell_end(&mut self, event: &Event, result: Result<u32, Errno>) {
        let Some(oracle) = &mut self.oracle else { return };
        match event.op {
            Op::Truncate { size } if result.is_ok() => oracle.set_len(FD, size),
            _ if event.op.is_write() || is_flush(&event.op) => oracle.end(event.id, result),
            _ => {}
        }
    }
}

fn is_flush(op: &Op) -> bool {
    matches!(op, Op::Sync { durable, .. } if *durable >= SyncLevel::Data)
}

fn is_promise(op: &Op) -> bool {
    matches!(op, Op::Sync { .. } | Op::Write { durable: Some(_), .. })
}

fn is_dirty(mapping: &Mapping, page: u64) -> bool {
    mapping.look_up(page).is_some_and(|pin| {
        let folio = pin.folio();
        folio.state().is_dirty() && folio.dirty_pages().has((page - folio.index()) as u32)
    })
}

fn mismatch(what: &str, (at, expected): (u64, u8)) -> String {
    format!("{what}: the byte at {at} ({at:#x}) is wrong, expected {expected:#04x}")
}
