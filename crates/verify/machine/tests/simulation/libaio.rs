//! A thread that uses libaio, on its own context: each accepted request has one event, or ends with
//! the context.

use crate::{
    accepted::{Known, Legal, Promise, Version},
    faces::{OWN_PAGES, Opened, Setup, waits},
    model::PAGE,
};
use nowait_libaio::exports as libaio;
use nowait_machine::{note, step};
use nowait_sim::Prng;
use nowait_sys::{
    Errno, Fd,
    aio::{IoEvent, Iocb, cmd},
    aligned::AlignedBuffer,
    pipe,
};
use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
    sync::Arc,
};

const STEPS: usize = 20;
const IN_FLIGHT_MAX: usize = 8;
const POLLIN: u64 = 1;
const RWF_DSYNC: u32 = 2;

#[derive(Debug)]
enum What {
    Read(Legal),
    Write(Version),
    Sync(Promise),
    Poll,
}

struct Request {
    iocb: Box<Iocb>,
    memory: AlignedBuffer,
    what: What,
    pages: Range<u64>,
    is_doubtful: bool,
}

pub(crate) fn act(setup: Arc<Setup>, mut prng: Prng, number: u64) {
    let mut context = 0usize;
    let address = (&raw mut context) as usize;
    let failed = waits("io_setup", || libaio::nowait_io_setup(16, address));
    assert!(failed == 0 || setup.exits(), "io_setup: {failed}");
    let file = setup.open(&mut prng);
    let own = number * OWN_PAGES..(number + 1) * OWN_PAGES;
    let pipe = pipe::packets().unwrap();
    let (source, in_flight) = (prng.fork(), BTreeMap::new());
    let mut actor = Actor { setup, source, prng, context, file, pipe, own, in_flight, next: 1 };
    (0..STEPS).for_each(|_| actor.step());
    actor.finish();
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Submit,
    Take,
    Cancel,
    Exec,
    /// Waits for more events than will come, until another thread ends the process.
    Overwait,
}

pub(crate) const KINDS: [(Kind, u32); 5] =
    [(Kind::Submit, 4), (Kind::Take, 2), (Kind::Cancel, 1), (Kind::Exec, 1), (Kind::Overwait, 1)];

/// [`Actor::draw_what`] draws any request from `ALL`, and only reads and polls from `UNORDERED`.
const ALL: RangeInclusive<usize> = 0..=8;
const UNORDERED: RangeInclusive<usize> = 5..=8;

struct Actor {
    setup: Arc<Setup>,
    /// Each step forks its generator from this one, so a step left out changes no other step.
    source: Prng,
    prng: Prng,
    context: usize,
    file: Opened,
    pipe: (Fd, Fd),
    own: Range<u64>,
    in_flight: BTreeMap<u64, Request>,
    next: u64,
}

impl Actor {
    fn step(&mut self) {
        self.prng = self.source.fork();
        let (kind, _) = KINDS[self.prng.weighted(&self.setup.libaio_weights)];
        if !step(|| format!("{kind:?}, {} in flight", self.in_flight.len())) {
            return;
        }
        match kind {
            Kind::Submit if self.in_flight.len() < IN_FLIGHT_MAX => self.submit(ALL),
            Kind::Cancel => self.cancel(),
            Kind::Exec if self.prng.chance(200_000) => self.setup.fail_to_exec(),
            Kind::Overwait if self.setup.ends => {
                self.take_all();
                self.submit(UNORDERED);
                let too_many = self.in_flight.len() + 1;
                self.take_events(too_many, too_many, None);
            }
            Kind::Submit | Kind::Exec | Kind::Take | Kind::Overwait => self.take(),
        }
    }

    /// Returns `true` if a request conflicts with an unfinished one, and their order is not kept.
    fn is_in_the_way(&self, drawn: &[Request], pages: &Range<u64>, write: bool) -> bool {
        let conflicts = |it: &Request| {
            let writes = write || matches!(it.what, What::Write(_));
            writes && it.pages.start < pages.end && pages.start < it.pages.end
        };
        !self.setup.is_ordered() && self.in_flight.values().chain(drawn).any(conflicts)
    }

    fn draw_what(
        &mut self,
        drawn: &[Request],
        of: RangeInclusive<usize>,
    ) -> (What, AlignedBuffer, Range<u64>) {
        let memory = |pages: u64| AlignedBuffer::zeroed((pages * PAGE) as usize);
        loop {
            match of.start() + self.prng.index(of.end() - of.start() + 1) {
                0..=3 => {
                    let page = self.own.start + self.prng.below(OWN_PAGES);
                    if !self.is_in_the_way(drawn, &(page..page + 1), true) {
                        let (memory, version) = self.setup.model.begin_write(page);
                        return (What::Write(version), memory, page..page + 1);
                    }
                }
                4 => {
                    let promise = self.setup.model.begin_sync(self.setup.synced(&(0..0)));
                    return (What::Sync(promise), memory(0), 0..0);
                }
                5..=7 => {
                    let first = self.prng.below(self.setup.pages);
                    let pages = first..(first + self.prng.range(1..=3)).min(self.setup.pages);
                    if !self.is_in_the_way(drawn, &pages, false) {
                        let own = self.setup.is_ordered().then_some(&self.own);
                        let legal = self.setup.model.begin_read(pages.clone(), own);
                        return (What::Read(legal), memory(pages.end - pages.start), pages);
                    }
                }
                _ => return (What::Poll, memory(0), 0..0),
            }
        }
    }

    fn draw(&mut self, drawn: &[Request], of: RangeInclusive<usize>) -> Request {
        let (what, mut memory, pages) = self.draw_what(drawn, of);
        let (opcode, fd, buf) = match what {
            What::Read(_) => (cmd::PREAD, &self.file.fd, memory.as_mut_ptr() as u64),
            What::Write(_) => (cmd::PWRITE, &self.file.fd, memory.as_mut_ptr() as u64),
            What::Sync(_) => ([cmd::FSYNC, cmd::FDSYNC][self.prng.index(2)], &self.file.fd, 0),
            What::Poll => (cmd::POLL, &self.pipe.0, POLLIN),
        };
        let durable = matches!(what, What::Write(_)) && self.prng.chance(150_000);
        let iocb = Box::new(Iocb {
            data: self.next,
            key: 0,
            rw_flags: if durable { RWF_DSYNC } else { 0 },
            opcode,
            reqprio: 0,
            fildes: fd.raw() as u32,
            buf,
            nbytes: memory.len() as u64,
            offset: (pages.start * PAGE) as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        });
        self.next += 1;
        Request { iocb, memory, what, pages, is_doubtful: false }
    }

    fn submit(&mut self, of: RangeInclusive<usize>) {
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..self.prng.range(1..=4) {
            requests.push(self.draw(&requests, of.clone()));
        }
        let iocbs: Vec<usize> = requests.iter().map(|it| (&raw const *it.iocb) as usize).collect();
        let (list, count) = (iocbs.as_ptr() as usize, iocbs.len());
        let accepted = libaio::nowait_io_submit(self.context, count as i64, list);
        let what: Vec<&What> = requests.iter().map(|it| &it.what).collect();
        note(|| format!("io_submit of {count}: {accepted} of {what:?}"));
        if accepted < 0 {
            let refused = self.setup.may_refuse() && accepted == -Errno::AGAIN.raw();
            assert!(refused || self.setup.exits(), "io_submit: {accepted}");
            return;
        }
        for request in requests.into_iter().take(accepted as usize) {
            if let What::Write(version) = request.what {
                self.setup.model.learn(version, Known::Accepted);
            }
            self.in_flight.insert(request.iocb.data, request);
        }
    }

    fn cancel(&mut self) {
        let names: Vec<u64> = self.in_flight.keys().copied().collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.prng.index(names.len())];
        let request = self.in_flight.get_mut(&name).expect("it is there");
        request.is_doubtful = true;
        if let What::Write(version) = request.what {
            self.setup.model.learn(version, Known::Doubtful);
        }
        let iocb = (&raw const *request.iocb) as usize;
        let said = libaio::nowait_io_cancel(self.context, iocb, 0);
        let expected = [Errno::INPROGRESS, Errno::INVAL].map(|errno| -errno.raw());
        assert!(expected.contains(&said), "io_cancel: {said}");
    }

    /// Returns the number of requests that will end: polls end only because they were cancelled.
    fn ending(&self) -> usize {
        let ends = |it: &&Request| it.is_doubtful || !matches!(it.what, What::Poll);
        self.in_flight.values().filter(ends).count()
    }

    fn take(&mut self) {
        let max = 1 + self.prng.index(6);
        let min = self.prng.index(max + 1);
        let ns = [0, 1, 1_000_000, 20_000_000][self.prng.index(4)];
        // The call may wait without end for too many events only if another thread ends the
        // process.
        let comes = self.setup.ends || min <= self.ending();
        let endless = comes && self.prng.chance(500_000);
        self.take_events(min, max, (!endless).then_some(ns));
    }

    fn take_events(&mut self, min: usize, max: usize, ns: Option<i64>) {
        let mut events = vec![IoEvent::default(); max];
        let timeout = [0, ns.unwrap_or(0)];
        let timeout = if ns.is_some() { timeout.as_ptr() as usize } else { 0 };
        let context = self.context;
        let room = events.as_mut_ptr() as usize;
        note(|| format!("io_getevents of {min} to {max}, {ns:?}"));
        let taken = waits("io_getevents", || {
            libaio::nowait_io_getevents(context, min as i64, max as i64, room, timeout)
        });
        if self.setup.signals && taken == -Errno::INTR.raw() {
            return;
        }
        assert!(taken >= 0, "io_getevents: {taken}");
        let may_be_fewer = ns.is_some() || self.setup.signals;
        assert!(may_be_fewer || taken as usize >= min, "{taken} of {min} events");
        events.truncate(taken as usize);
        events.iter().for_each(|event| self.end(*event));
    }

    fn end(&mut self, event: IoEvent) {
        let request = self.in_flight.remove(&event.data).expect("an event comes once");
        assert_eq!(event.obj, (&raw const *request.iocb) as u64);
        let model = &self.setup.model;
        let (what, len) = (&request.what, request.memory.len() as i64);
        if event.res == -i64::from(Errno::CANCELED.raw()) {
            return assert!(request.is_doubtful, "{what:?} was cancelled");
        }
        match what {
            What::Read(legal) => {
                assert!((1..=len).contains(&event.res), "{what:?}: {}", event.res);
                model.end_read(legal, &request.memory[..event.res as usize]);
            }
            What::Write(version) => {
                assert_eq!(event.res, len, "{what:?}");
                model.learn(*version, Known::Ended);
                if self.file.durable || request.iocb.rw_flags == RWF_DSYNC {
                    model.is_durable(*version);
                    self.setup.judge_cut();
                }
            }
            What::Sync(promise) => {
                assert_eq!(event.res, 0, "{what:?}");
                model.end_sync(promise);
                self.setup.judge_cut();
            }
            What::Poll => assert!(request.is_doubtful && event.res == 0, "{}", event.res),
        }
    }

    fn take_all(&mut self) {
        while self.ending() > 0 {
            self.take_events(1, 8, None);
        }
    }

    fn finish(&mut self) {
        if self.prng.chance(700_000) {
            self.take_all();
        }
        let context = self.context;
        let failed = waits("io_destroy", || libaio::nowait_io_destroy(context));
        assert!(failed == 0 || self.setup.exits(), "io_destroy: {failed}");
    }
}
