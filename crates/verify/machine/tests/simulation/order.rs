//! Requests on one file take effect in the order of their submission, buffered and direct ones.
//! Each read finds exactly the effects of the requests submitted before it.
//!
//! Each thread has its own file and two contexts. The cached pages change meanwhile.

use crate::{
    faces::{set_environment, waits},
    files::contents,
    spawn, swarm,
};
use nowait_libaio::exports as libaio;
use nowait_machine::{note, process, step};
use nowait_sim::Prng;
use nowait_sys::{
    Fd,
    aio::{IoEvent, Iocb, cmd},
    aligned::AlignedBuffer,
    file::{self, Advice, IoVec},
    inspect::{self, O_CREAT, O_DIRECT, O_RDWR},
};
use std::{collections::BTreeMap, ffi::CString};

/// The unit of direct requests and of the model.
const SECTOR: u64 = 512;
const PAGE: u64 = 8;
const SECTORS: u64 = 12 * PAGE;
const STEPS: usize = 15;
const IN_FLIGHT_MAX: usize = 10;
const RWF_APPEND: u32 = 0x10;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Append,
    Sync,
    Cache,
    Drop,
    Take,
}

const KINDS: [(Kind, u32); 7] = [
    (Kind::Read, 4),
    (Kind::Write, 4),
    (Kind::Append, 1),
    (Kind::Sync, 1),
    (Kind::Cache, 1),
    (Kind::Drop, 1),
    (Kind::Take, 2),
];

struct Request {
    context: usize,
    iocb: Box<Iocb>,
    memory: AlignedBuffer,
    kind: Kind,
    expected: Vec<u64>,
}

struct Actor {
    prng: Prng,
    weights: [u32; KINDS.len()],
    direct_ppm: u32,
    path: CString,
    buffered: Fd,
    direct: Fd,
    contexts: [usize; 2],
    model: Vec<u64>,
    in_flight: BTreeMap<u64, Request>,
    next: u64,
}

impl Actor {
    fn new(number: u64, mut prng: Prng) -> Actor {
        let path = CString::new(format!("/order-{number}")).expect("no zero is in it");
        let open = |flags| inspect::open(&path, O_RDWR | O_CREAT | flags, 0o600).unwrap();
        let (buffered, direct) = (open(0), open(O_DIRECT));
        let sectors = prng.below(SECTORS) / if prng.chance(500_000) { PAGE } else { 1 };
        file::set_len(buffered.raw(), sectors * SECTOR).unwrap();
        let contexts = [(); 2].map(|()| {
            let mut context = 0usize;
            assert_eq!(libaio::nowait_io_setup(16, (&raw mut context) as usize), 0);
            context
        });
        Actor {
            weights: swarm(&KINDS, &mut prng),
            direct_ppm: [0, 500_000, 800_000, 1_000_000][prng.index(4)],
            prng,
            path,
            buffered,
            direct,
            contexts,
            model: vec![0; sectors as usize],
            in_flight: BTreeMap::new(),
            next: 1,
        }
    }

    fn act(mut self) {
        for _ in 0..STEPS {
            let mut prng = self.prng.fork();
            let drawn: Vec<(Kind, Prng)> = (0..=prng.index(4))
                .map(|_| (KINDS[prng.weighted(&self.weights)].0, prng.fork()))
                .filter(|(kind, _)| step(|| format!("{kind:?}")))
                .collect();
            self.go_on(drawn);
        }
        self.take(self.in_flight.len());
        for context in self.contexts {
            assert_eq!(waits("io_destroy", || libaio::nowait_io_destroy(context)), 0);
        }
        judge("at the end", &self.model, &contents(&self.path));
    }

    /// Submits together the requests between two other steps.
    fn go_on(&mut self, drawn: Vec<(Kind, Prng)>) {
        let mut batch = Vec::new();
        for (kind, prng) in drawn {
            match kind {
                Kind::Read | Kind::Write | Kind::Append | Kind::Sync => {
                    let request = self.draw(kind, prng);
                    batch.push(request);
                    continue;
                }
                _ => self.submit(&mut batch),
            }
            self.do_beside(kind, prng);
        }
        self.submit(&mut batch);
    }

    fn do_beside(&mut self, kind: Kind, mut prng: Prng) {
        match kind {
            Kind::Cache => {
                let mut memory = AlignedBuffer::zeroed((PAGE * SECTOR) as usize);
                let part = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
                let at = prng.below(SECTORS / PAGE) * PAGE * SECTOR;
                // SAFETY: the memory is live.
                let read = unsafe { file::preadv2(self.buffered.raw(), &[part], at as i64, 0) };
                assert!(read.is_ok());
            }
            Kind::Drop => file::advise(self.buffered.raw(), 0, 0, Advice::DontNeed).unwrap(),
            _ => self.take(prng.index(self.in_flight.len() + 1)),
        }
    }

    fn draw(&mut self, kind: Kind, mut prng: Prng) -> Request {
        let is_direct = prng.chance(self.direct_ppm);
        let by_pages = prng.chance(700_000);
        let unit = if by_pages { PAGE } else { 1 };
        let end = self.model.len() as u64;
        let near = [prng.below(SECTORS), end.saturating_sub(PAGE) + prng.below(3 * PAGE)];
        let at = near[prng.index(2)].min(SECTORS) / unit * unit;
        let len = (1 + prng.below(3)) * unit;
        let name = self.next;
        self.next += 1;
        let mut memory = match kind {
            Kind::Sync => AlignedBuffer::zeroed(0),
            _ => AlignedBuffer::zeroed((len * SECTOR) as usize),
        };
        memory.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&name.to_le_bytes()));
        let (opcode, rw_flags) = match kind {
            Kind::Read => (cmd::PREAD, 0),
            Kind::Append => (cmd::PWRITE, RWF_APPEND),
            Kind::Write => (cmd::PWRITE, 0),
            _ => ([cmd::FSYNC, cmd::FDSYNC][prng.index(2)], 0),
        };
        let is_sync = matches!(kind, Kind::Sync);
        let iocb = Box::new(Iocb {
            data: name,
            key: 0,
            rw_flags,
            opcode,
            reqprio: 0,
            fildes: if is_direct { self.direct.raw() } else { self.buffered.raw() } as u32,
            buf: if is_sync { 0 } else { memory.as_mut_ptr() as u64 },
            nbytes: memory.len() as u64,
            offset: if is_sync { 0 } else { (at * SECTOR) as i64 },
            reserved2: 0,
            flags: 0,
            resfd: 0,
        });
        let context = prng.index(self.contexts.len());
        Request { context, iocb, memory, kind, expected: Vec::new() }
    }

    fn submit(&mut self, batch: &mut Vec<Request>) {
        let room = IN_FLIGHT_MAX.saturating_sub(self.in_flight.len());
        batch.truncate(room);
        for request in batch.iter_mut() {
            note(|| {
                let Iocb { data, fildes, offset, nbytes, .. } = *request.iocb;
                let (at, len) = (offset as u64 / SECTOR, nbytes / SECTOR);
                format!("{data}: {:?} of {len} sectors at {at}, number {fildes}", request.kind)
            });
            request.expected = expect(&mut self.model, request);
        }
        for run in batch.chunk_by(|one, next| one.context == next.context) {
            let list: Vec<usize> = run.iter().map(|it| (&raw const *it.iocb) as usize).collect();
            let (context, count) = (self.contexts[run[0].context], list.len());
            let accepted = libaio::nowait_io_submit(context, count as i64, list.as_ptr() as usize);
            assert_eq!(accepted, count as i32, "io_submit");
        }
        self.in_flight.extend(batch.drain(..).map(|it| (it.iocb.data, it)));
    }

    fn take(&mut self, count: usize) {
        let is_first = |request: &&Request| request.context == 0;
        let of_first = count.min(self.in_flight.values().filter(is_first).count());
        self.take_from(self.contexts[0], of_first);
        self.take_from(self.contexts[1], count - of_first);
    }

    fn take_from(&mut self, context: usize, count: usize) {
        let mut events = vec![IoEvent::default(); count];
        let room = events.as_mut_ptr() as usize;
        let taken = waits("io_getevents", || {
            libaio::nowait_io_getevents(context, count as i64, count as i64, room, 0)
        });
        assert_eq!(taken, count as i32, "io_getevents");
        for event in events {
            let request = self.in_flight.remove(&event.data).expect("an event comes once");
            let what = format!("{}: {:?}", event.data, request.kind);
            match request.kind {
                Kind::Read => {
                    let len = request.expected.len() as u64 * SECTOR;
                    assert_eq!(event.res, len as i64, "{what}");
                    judge(&what, &request.expected, &request.memory[..len as usize]);
                }
                _ => assert_eq!(event.res, request.memory.len() as i64, "{what}"),
            }
        }
    }
}

fn expect(model: &mut Vec<u64>, request: &Request) -> Vec<u64> {
    let at = request.iocb.offset as usize / SECTOR as usize;
    let len = request.memory.len() / SECTOR as usize;
    let at = if matches!(request.kind, Kind::Append) { model.len() } else { at };
    match request.kind {
        Kind::Read => model.iter().skip(at).take(len).copied().collect(),
        Kind::Write | Kind::Append => {
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].fill(request.iocb.data);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn judge(what: &str, expected: &[u64], found: &[u8]) {
    assert_eq!(found.len() as u64, expected.len() as u64 * SECTOR, "{what}: bytes");
    for (index, (stamp, sector)) in
        expected.iter().zip(found.chunks_exact(SECTOR as usize)).enumerate()
    {
        let is_right = sector.chunks_exact(8).all(|word| word == stamp.to_le_bytes());
        let found = sector.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        assert!(is_right, "{what}: sector {index} has {found} instead of {stamp}");
    }
}

pub(crate) fn program(seed: u64) {
    let mut prng = Prng::new(seed ^ 0x07de7);
    set_environment(&mut prng, "");
    // The kernel's AIO ends a short transfer with its count; nowait continues such a transfer.
    nowait_machine::come_whole();
    let actors = prng.range(1..=2);
    let threads: Vec<_> = (0..actors)
        .map(|number| {
            let prng = prng.fork();
            spawn(&format!("actor {number}"), move || Actor::new(number, prng).act())
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    libaio::nowait_at_exit();
    process::exit()
}
