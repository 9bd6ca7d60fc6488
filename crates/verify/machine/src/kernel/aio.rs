//! Native AIO. As in Linux, io_submit may wait for the lock of an inode, and for the blocks of a
//! direct write into a hole. A transfer continues after io_submit returns only if it is direct and
//! holds no exclusive lock.

use super::{
    Answer,
    descriptor::{OpenId, What},
    device::Part,
    file::Wanted,
};
use crate::schedule::{Cpu, Key, Slept, World};
use nowait_sys::aio::{IoEvent, Iocb, RING_COMPAT, RING_MAGIC, RingHeader, cmd};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Contexts(BTreeMap<usize, Context>);

struct Context {
    capacity: usize,
    in_flight: usize,
    ring: Ring,
    polls: Vec<Poll>,
}

/// A ring in the program's memory; the program may take events out itself.
#[derive(Clone, Copy)]
struct Ring {
    header: *mut RingHeader,
    slots: u32,
}

// SAFETY: a ring holds only an address, which `Ring::new` made and nothing frees.
unsafe impl Send for Ring {}

impl Ring {
    fn new(capacity: usize) -> Ring {
        const HEADER: usize = size_of::<RingHeader>();
        let slots = capacity + 1; // so that a full ring differs from an empty one
        let words = (HEADER + slots * size_of::<IoEvent>()) / size_of::<u64>();
        let header = Vec::leak(vec![0u64; words]).as_mut_ptr().cast::<RingHeader>();
        let ring = Ring { header, slots: slots as u32 };
        let (magic, header_length) = (RING_MAGIC, HEADER as u32);
        let (compat, nr) = (RING_COMPAT, ring.slots);
        let begin =
            RingHeader { id: 0, nr, head: 0, tail: 0, magic, compat, incompat: 0, header_length };
        // SAFETY: room for one.
        unsafe { header.write(begin) };
        ring
    }

    fn slot(self, index: u32) -> *mut IoEvent {
        // SAFETY: below `slots`.
        unsafe { self.header.add(1).cast::<IoEvent>().add(index as usize) }
    }

    fn ends(self) -> (u32, u32) {
        // SAFETY: `new` made it, and nothing frees it.
        unsafe {
            (
                (&raw const (*self.header).head).read_volatile(),
                (&raw const (*self.header).tail).read_volatile(),
            )
        }
    }

    fn len(self) -> usize {
        let (head, tail) = self.ends();
        ((tail + self.slots - head) % self.slots) as usize
    }

    fn push(self, event: IoEvent) {
        let (_, tail) = self.ends();
        // SAFETY: no event is in the slot; only the kernel moves the tail.
        unsafe {
            self.slot(tail).write(event);
            (&raw mut (*self.header).tail).write_volatile((tail + 1) % self.slots);
        }
    }

    fn pop(self) -> Option<IoEvent> {
        let (head, tail) = self.ends();
        if head == tail {
            return None;
        }
        // SAFETY: there is an event; no thread of the program runs at this moment.
        unsafe {
            let event = self.slot(head).read();
            (&raw mut (*self.header).head).write_volatile((head + 1) % self.slots);
            Some(event)
        }
    }
}

#[derive(Clone, Copy)]
struct Poll {
    iocb: usize,
    id: OpenId,
    events: u32,
    request: Request,
}

#[derive(Clone, Copy)]
struct Request {
    context: usize,
    data: u64,
    obj: u64,
    counter: Option<OpenId>,
    id: OpenId,
}

impl World {
    fn context(&mut self, address: usize) -> Result<&mut Context, i32> {
        self.kernel.contexts.0.get_mut(&address).ok_or(libc::EINVAL)
    }

    fn complete(&mut self, request: Request, answer: Answer) {
        let res = answer.map_or_else(|errno| -i64::from(errno), |value| value as i64);
        let event = IoEvent { data: request.data, obj: request.obj, res, res2: 0 };
        if let Ok(context) = self.context(request.context) {
            context.in_flight -= 1;
            context.ring.push(event);
        }
        self.unrefer(request.id);
        if let Some(counter) = request.counter {
            self.signal(counter, 1);
            self.unrefer(counter);
        }
        self.wake(Key::Readiness, usize::MAX);
    }

    pub(super) fn complete_polls(&mut self) {
        let polls = self.kernel.contexts.0.values().flat_map(|context| context.polls.clone());
        let polls: Vec<Poll> = polls.collect();
        for poll in polls {
            const ALWAYS: u32 = (libc::POLLHUP | libc::POLLERR) as u32;
            let ready = self.readiness(poll.id) & (poll.events | ALWAYS);
            if ready != 0 && self.remove_poll(poll.request.context, poll.iocb) {
                self.complete(poll.request, Ok(ready as usize));
            }
        }
    }

    fn remove_poll(&mut self, address: usize, iocb: usize) -> bool {
        let Ok(context) = self.context(address) else { return false };
        let before = context.polls.len();
        context.polls.retain(|poll| poll.iocb != iocb);
        context.polls.len() < before
    }
}

pub(super) unsafe fn setup(cpu: &mut Cpu<'_>, [count, room, ..]: [usize; 6]) -> Answer {
    let ring = Ring::new(count);
    let address = ring.header as usize;
    let context = Context { capacity: count, in_flight: 0, ring, polls: Vec::new() };
    cpu.kernel.contexts.0.insert(address, context);
    // SAFETY: room for one, given by the caller.
    unsafe { (room as *mut usize).write(address) };
    Ok(0)
}

pub(super) unsafe fn submit(cpu: &mut Cpu<'_>, [address, count, iocbs, ..]: [usize; 6]) -> Answer {
    cpu.context(address)?;
    for index in 0..count {
        // SAFETY: the caller's array.
        let iocb = unsafe { (iocbs as *const *const Iocb).add(index).read() };
        // SAFETY: as above.
        let started = begin(cpu, address, iocb as usize, unsafe { &*iocb });
        match started {
            Ok(()) => {}
            Err(_) if index > 0 => return Ok(index),
            Err(errno) => return Err(errno),
        }
    }
    Ok(count)
}

fn begin(cpu: &mut Cpu<'_>, address: usize, at: usize, iocb: &Iocb) -> Result<(), i32> {
    const RESFD: u32 = 1;
    const RWF_NOWAIT: u32 = 8;
    let context = cpu.context(address)?;
    if context.in_flight + context.ring.len() >= context.capacity {
        return Err(libc::EAGAIN);
    }
    let id = cpu.opened(iocb.fildes as usize)?;
    let nowait = iocb.rw_flags & RWF_NOWAIT != 0;
    if nowait && cpu.knows_no_nowait && matches!(cpu.what(id), What::File(_)) {
        return Err(libc::EOPNOTSUPP);
    }
    let counter = (iocb.flags & RESFD != 0).then(|| cpu.opened(iocb.resfd as usize)).transpose()?;
    let parts = match iocb.opcode {
        cmd::PREAD | cmd::PWRITE => {
            vec![Part { address: iocb.buf as usize, len: iocb.nbytes as usize }]
        }
        cmd::PREADV | cmd::PWRITEV => {
            let (vector, count) = (iocb.buf as *const libc::iovec, iocb.nbytes as usize);
            // SAFETY: the caller's array.
            let vector = unsafe { core::slice::from_raw_parts(vector, count) };
            vector
                .iter()
                .map(|it| Part { address: it.iov_base as usize, len: it.iov_len })
                .collect()
        }
        _ => Vec::new(),
    };
    cpu.context(address)?.in_flight += 1;
    cpu.refer(id);
    counter.into_iter().for_each(|counter| cpu.refer(counter));
    let request = Request { context: address, data: iocb.data, obj: at as u64, counter, id };
    match (iocb.opcode, cpu.what(id)) {
        (cmd::POLL, _) => {
            let poll = Poll { iocb: at, id, events: iocb.buf as u32, request };
            cpu.context(address)?.polls.push(poll);
            cpu.complete_polls();
        }
        (cmd::FSYNC | cmd::FDSYNC, _) => {
            cpu.start_sync(id, Box::new(move |world, answer| world.complete(request, answer)));
        }
        (cmd::PREAD | cmd::PREADV | cmd::PWRITE | cmd::PWRITEV, What::File(ino)) => {
            let write = matches!(iocb.opcode, cmd::PWRITE | cmd::PWRITEV);
            let (offset, rw_flags) = (iocb.offset as u64, iocb.rw_flags);
            let wanted = Wanted { id, write, parts, offset, rw_flags, behind: true };
            match cpu.prepare_now(ino, &wanted) {
                Err(errno) => cpu.complete(request, Err(errno)),
                Ok(job) if job.locked.exclusive == Some(false) => {
                    if cpu.allocates(ino, write, job.offset..job.offset + job.len) {
                        let found = cpu.now + cpu.drawn_time();
                        cpu.sleep_until(found);
                    }
                    let then = move |world: &mut World, answer| world.complete(request, answer);
                    match nowait && cpu.refuses_later(&job) {
                        true => cpu.refuse_later(job, Box::new(then)),
                        false => cpu.start(job, Box::new(then)),
                    }
                }
                Ok(job) => {
                    let answer = cpu.move_now(job);
                    cpu.complete(request, answer);
                }
            }
        }
        _ => cpu.complete(request, Err(libc::EINVAL)),
    }
    Ok(())
}

pub(super) unsafe fn getevents(cpu: &mut Cpu<'_>, args: [usize; 6]) -> Answer {
    let [address, min, max, room, time, _] = args;
    // SAFETY: a timespec, or none; the caller may shorten it until the call has begun.
    let time = unsafe { (time as *const libc::timespec).as_ref() };
    let ns = time.map(|it| (it.tv_sec as u64).saturating_mul(1_000_000_000) + it.tv_nsec as u64);
    let until = ns.map(|ns| cpu.now.saturating_add(ns));
    let mut taken = 0;
    loop {
        while taken < max {
            let Some(event) = cpu.context(address)?.ring.pop() else { break };
            // SAFETY: room for `max`, given by the caller.
            unsafe { (room as *mut IoEvent).add(taken).write(event) };
            taken += 1;
        }
        if taken >= min || until.is_some_and(|until| cpu.now >= until) {
            return Ok(taken);
        }
        if cpu.sleep(Key::Readiness, until) == Slept::Interrupted {
            return if taken > 0 { Ok(taken) } else { Err(libc::EINTR) };
        }
    }
}

pub(super) unsafe fn cancel(cpu: &mut Cpu<'_>, [address, iocb, ..]: [usize; 6]) -> Answer {
    let polls = &cpu.context(address)?.polls;
    let poll = polls.iter().find(|poll| poll.iocb == iocb).copied().ok_or(libc::EINVAL)?;
    cpu.remove_poll(address, iocb);
    cpu.complete(poll.request, Ok(0));
    Err(libc::EINPROGRESS)
}

pub(super) unsafe fn destroy(cpu: &mut Cpu<'_>, [address, ..]: [usize; 6]) -> Answer {
    for poll in cpu.context(address)?.polls.clone() {
        cpu.remove_poll(address, poll.iocb);
        cpu.complete(poll.request, Ok(0));
    }
    loop {
        if cpu.context(address)?.in_flight == 0 {
            cpu.kernel.contexts.0.remove(&address);
            return Ok(0);
        }
        cpu.sleep(Key::Readiness, None);
    }
}
