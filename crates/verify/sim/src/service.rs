//! The service of a device: its queues, the requests in service and the stuck ones.

use crate::{
    delay::{Model, Work, WorkKind},
    device::{Config, Cut},
    faults::{Fate, Faults, Kind},
    hardware::{Hardware, Job, Machine},
    memory,
    prng::Prng,
    store::{Change, Store},
    trace::{Trace, What, data_hash},
};
use nowait_block::{Bio, BioOp, Completion, VirtualClock};
use nowait_sys::Errno;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pub(crate) trace: Trace,
    pub(crate) queues: Vec<Queue>,
    pub(crate) cut: Option<Cut>,
    /// Set when the power is off: the writes that were in service or stuck, each with the index of
    /// its file.
    pub(crate) off: Option<Vec<(usize, Change)>>,
    pub(crate) accepted: u64,
    pub(crate) fired: u64,
    pub(crate) unstable: u64,
    completed: u64,
    model: Model,
    machine: Option<Machine>,
    in_machine: BTreeMap<u64, Request>,
    pub(crate) contents: bool,
    /// Separate from `times`, so that a fault does not change the times of other requests.
    fates: Prng,
    times: Prng,
    pub(crate) damage: Prng,
    waiting: VecDeque<Request>,
    served: Vec<InService>,
    stuck: Vec<Request>,
    head: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) queued: Vec<Request>,
    pub(crate) ended: Vec<Completion>,
    pub(crate) in_flight: usize,
    pub(crate) woken: bool,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) number: u64,
    queue: usize,
    pub(crate) bio: Bio,
    pub(crate) fate: Fate,
    /// The descriptor, from `commit` on. `mark` is the point up to which a flush covers changes.
    pub(crate) fd: Result<i32, Errno>,
    pub(crate) data: Result<Vec<u8>, Errno>,
    pub(crate) mark: u64,
}

#[derive(Debug)]
struct InService {
    finish_ns: u64,
    /// Orders requests that finish at the same time.
    tie: u64,
    request: Request,
}

pub(crate) const POLLIN_OUT: u16 = 0x1 | 0x4;

const FILE_SPACING_BYTES: u64 = 1 << 32;

impl Service {
    pub(crate) fn new(config: &Config, clock: Arc<VirtualClock>, store: Store) -> Service {
        let mut prng = Prng::new(config.seed);
        Service {
            clock,
            store,
            faults: config.faults.clone(),
            trace: Trace::new(config.trace_events_max),
            queues: Vec::new(),
            cut: None,
            off: None,
            accepted: 0,
            fired: 0,
            unstable: 0,
            completed: 0,
            model: config.model.clone(),
            machine: config.hardware.as_ref().map(Hardware::machine),
            in_machine: BTreeMap::new(),
            contents: config.contents,
            fates: prng.fork(),
            times: prng.fork(),
            damage: prng.fork(),
            waiting: VecDeque::new(),
            served: Vec::new(),
            stuck: Vec::new(),
            head: 0,
        }
    }

    pub(crate) fn accept(&mut self, queue: usize, bio: Bio) {
        let number = self.accepted;
        if self.cut == Some(Cut::Queued(number)) {
            self.cut_power();
        }
        self.accepted += 1;
        let (op, len) = (op_name(bio.op), bio.segments.len());
        let what = What::Queued { request: number, op, fd: bio.fd, offset: bio.offset, len };
        self.trace.note(self.clock.now_ns(), what);
        let sector_bytes = self.store.sector_bytes;
        let fate = self.faults.fate(number, kind_of(&bio), sector_bytes, &mut self.fates);
        let request =
            Request { number, queue, bio, fate, fd: Ok(-1), data: Ok(Vec::new()), mark: 0 };
        self.queues[queue].queued.push(request);
        self.queues[queue].in_flight += 1;
    }

    /// Starts the queued bios: from now on the data of writes must not change.
    pub(crate) fn start(&mut self, queue: usize) {
        for mut request in core::mem::take(&mut self.queues[queue].queued) {
            request.fd = request.bio.number();
            let file = request.fd.and_then(|fd| self.store.by_fd(fd));
            request.mark = file.as_ref().map_or(0, |file| file.mark());
            // A poll without POLLIN and POLLOUT waits for errors and hang-ups, which files never
            // report.
            let forever = matches!(request.bio.op, BioOp::Poll(events) if events & POLLIN_OUT == 0);
            let forever = forever && file.is_ok();
            if request.bio.op == BioOp::Write && self.contents {
                request.data = memory::gather(&request.bio.segments);
            }
            if self.off.is_some() {
                self.finish(&request, Err(Errno::IO), self.clock.now_ns());
            } else if forever {
                self.stuck.push(request);
            } else if request.fate == Fate::Stuck {
                self.note_fault(&request, "stuck", self.clock.now_ns());
                self.stuck.push(request);
            } else {
                self.waiting.push_back(request);
            }
        }
        self.serve(self.clock.now_ns());
    }

    fn serve(&mut self, at_ns: u64) {
        if let Some(machine) = &mut self.machine {
            for request in self.waiting.drain(..) {
                machine.add(job(&self.store, &request), at_ns);
                self.in_machine.insert(request.number, request);
            }
            return;
        }
        while self.served.len() < self.model.units && !self.waiting.is_empty() {
            let works = self.waiting.iter().map(|request| work(&self.store, request));
            let index = self.model.choose(works, at_ns, self.head, &mut self.times);
            let Some(request) = self.waiting.remove(index) else { return };
            let work = work(&self.store, &request);
            let others = self.served.len();
            let time_ns = self.model.time_ns(work, at_ns, self.head, others, &mut self.times);
            if work.kind != WorkKind::Flush {
                self.head = work.address + work.len;
            }
            let tie = self.times.next_u64();
            self.served.push(InService { finish_ns: at_ns + time_ns, tie, request });
        }
    }

    /// With a machine, the next event may end no request.
    pub(crate) fn next_finish_ns(&self) -> Option<u64> {
        match &self.machine {
            Some(machine) => machine.next_ns(),
            None => self.served.iter().map(|served| served.finish_ns).min(),
        }
    }

    /// Returns `true` if a request of `queue` will finish by itself: it is committed and not stuck.
    pub(crate) fn is_awaited(&self, queue: usize) -> bool {
        let served = self.served.iter().map(|served| &served.request);
        let requests = served.chain(&self.waiting).chain(self.in_machine.values());
        requests.into_iter().any(|request| request.queue == queue)
    }

    pub(crate) fn stuck_count(&self) -> usize {
        self.stuck.len()
    }

    pub(crate) fn run_until(&mut self, ns: u64) {
        while let Some((finish_ns, mut request)) = self.take_due(ns) {
            self.clock.advance_to(finish_ns);
            self.take_data(&mut request, finish_ns);
            let result = self.perform(&request, finish_ns);
            self.finish(&request, result, finish_ns);
            // If the chosen request was cancelled, the power fails after the next request that is
            // served.
            if matches!(self.cut, Some(Cut::Completed(n)) if n < self.completed) {
                self.cut_power();
            }
            self.serve(finish_ns);
        }
        self.clock.advance_to(ns);
    }

    fn take_due(&mut self, ns: u64) -> Option<(u64, Request)> {
        if let Some(machine) = &mut self.machine {
            while let Some(at_ns) = machine.next_ns().filter(|at_ns| *at_ns <= ns) {
                let request = machine.step().and_then(|number| self.in_machine.remove(&number));
                if let Some(request) = request {
                    return Some((at_ns, request));
                }
            }
            return None;
        }
        let due = self.served.iter().enumerate().filter(|(_, served)| served.finish_ns <= ns);
        let (index, _) = due.min_by_key(|(_, served)| (served.finish_ns, served.tie))?;
        let InService { finish_ns, request, .. } = self.served.swap_remove(index);
        Some((finish_ns, request))
    }

    /// The device takes a write's data when it performs the write. A device with checksums would
    /// fail a write whose data changed since its commit.
    fn take_data(&mut self, request: &mut Request, at_ns: u64) {
        if request.bio.op != BioOp::Write || !self.contents {
            return;
        }
        let now = memory::gather(&request.bio.segments);
        if now != request.data {
            self.unstable += 1;
            self.trace.note(at_ns, What::Fault { request: request.number, fault: "unstable" });
            request.data = now;
        }
    }

    fn finish(&mut self, request: &Request, result: Result<u32, Errno>, at_ns: u64) {
        let data = match (request.bio.op, result) {
            _ if !self.contents => 0,
            (BioOp::Write, Ok(count)) => {
                request.data.as_ref().map_or(0, |data| data_hash(&data[..count as usize]))
            }
            (BioOp::Read, Ok(count)) => {
                // The data of the read was just copied to the caller's memory.
                let read = memory::gather(&request.bio.segments.first(count as usize));
                read.map_or(0, |data| data_hash(&data))
            }
            _ => 0,
        };
        self.completed += 1;
        self.trace.note(at_ns, What::Completed { request: request.number, result, data });
        let token = request.bio.token;
        self.queues[request.queue].ended.push(Completion { token, result });
    }

    pub(crate) fn note_fault(&mut self, request: &Request, fault: &'static str, at_ns: u64) {
        self.fired += 1;
        self.trace.note(at_ns, What::Fault { request: request.number, fault });
    }

    pub(crate) fn cancel(&mut self, queue: usize, token: u64) {
        let is_it = |request: &Request| request.queue == queue && request.bio.token == token;
        let now_ns = self.clock.now_ns();
        let unserved = if let Some(index) = self.queues[queue].queued.iter().position(is_it) {
            Some(self.queues[queue].queued.remove(index))
        } else if let Some(index) = self.stuck.iter().position(is_it) {
            Some(self.stuck.remove(index))
        } else {
            let index = self.waiting.iter().position(is_it);
            index.and_then(|index| self.waiting.remove(index))
        };
        if let Some(request) = unserved {
            return self.finish(&request, Err(Errno::CANCELED), now_ns);
        }
        let Some(index) = self.served.iter().position(|served| is_it(&served.request)) else {
            return;
        };
        if !self.damage.chance(self.faults.uncancelled_ppm) {
            let mut request = self.served.remove(index).request;
            self.take_data(&mut request, now_ns);
            self.damage(&request, now_ns);
            self.finish(&request, Err(Errno::CANCELED), now_ns);
            self.serve(now_ns);
        }
    }

    pub(crate) fn release_stuck(&mut self) {
        for mut request in core::mem::take(&mut self.stuck) {
            if request.fate == Fate::Stuck {
                request.fate = Fate::Normal;
                self.waiting.push_back(request);
            } else {
                self.stuck.push(request);
            }
        }
        self.serve(self.clock.now_ns());
    }

    /// Turns the power off permanently. A request that is not committed yet ends at its commit.
    pub(crate) fn cut_power(&mut self) {
        if self.off.is_some() {
            return;
        }
        let now_ns = self.clock.now_ns();
        self.trace.note(now_ns, What::PowerCut);
        let mut ended: Vec<Request> = self.served.drain(..).map(|served| served.request).collect();
        ended.append(&mut self.stuck);
        ended.extend(core::mem::take(&mut self.in_machine).into_values());
        ended.sort_by_key(|request| request.number);
        for request in &mut ended {
            self.take_data(request, now_ns);
        }
        let writes = ended.iter().filter_map(|request| self.write_of(request)).collect();
        self.off = Some(writes);
        ended.extend(self.waiting.drain(..));
        ended.sort_by_key(|request| request.number);
        for request in ended {
            self.finish(&request, Err(Errno::IO), now_ns);
        }
    }
}

fn kind_of(bio: &Bio) -> Kind {
    match bio.op {
        BioOp::Read => Kind::Read(bio.segments.len()),
        BioOp::Write => Kind::Write(bio.segments.len()),
        BioOp::Fsync | BioOp::Fdatasync => Kind::Flush,
        BioOp::Poll(_) => Kind::Poll,
    }
}

fn op_name(op: BioOp) -> &'static str {
    match op {
        BioOp::Read => "read",
        BioOp::Write => "write",
        BioOp::Fsync => "fsync",
        BioOp::Fdatasync => "fdatasync",
        BioOp::Poll(_) => "poll",
    }
}

fn work_kind(op: BioOp) -> WorkKind {
    match op {
        BioOp::Read | BioOp::Poll(_) => WorkKind::Read,
        BioOp::Write => WorkKind::Write,
        BioOp::Fsync | BioOp::Fdatasync => WorkKind::Flush,
    }
}

fn job(store: &Store, request: &Request) -> Job {
    Job {
        number: request.number,
        kind: work_kind(request.bio.op),
        file: request.fd.and_then(|fd| store.descriptor(fd)).map_or(0, |one| one.file),
        offset: u64::try_from(request.bio.offset).unwrap_or(0),
        len: request.bio.segments.len() as u64,
    }
}

fn work(store: &Store, request: &Request) -> Work {
    let kind = work_kind(request.bio.op);
    let file = request.fd.and_then(|fd| store.descriptor(fd)).map_or(0, |one| one.file);
    let offset = u64::try_from(request.bio.offset).unwrap_or(0) % FILE_SPACING_BYTES;
    let address = file as u64 * FILE_SPACING_BYTES + offset;
    Work { kind, address, len: request.bio.segments.len() as u64 }
}
