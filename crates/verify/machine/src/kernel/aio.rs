//! Native AIO. As the real one, io_submit waits for whatever is not ready; only direct transfers
//! that need no lock of their own go on behind it.

use super::{
    Answer,
    descriptor::{OpenId, What},
    device::Part,
    file::Wanted,
};
use crate::schedule::{Cpu, Key, Slept, World};
use nowait_sys::aio::{IoEvent, Iocb, RingHeader, cmd};
use std::collections::{BTreeMap, VecDeque};

/// The contexts, by their address.
#[derive(Default)]
pub(super) struct Contexts(BTreeMap<usize, Context>);

struct Context {
    capacity: usize,
    /// Accepted, their events not taken.
    owed: usize,
    events: VecDeque<IoEvent>,
    polls: Vec<Poll>,
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

    /// Says in the header, which programs look at, whether there are events.
    fn show_events(&mut self, address: usize) {
        if let Ok(context) = self.context(address) {
            let ring = address as *mut RingHeader;
            let tail = u32::from(!context.events.is_empty());
            // SAFETY: made by `setup`, and never freed.
            unsafe { (&raw mut (*ring).tail).write_volatile(tail) };
        }
    }

    fn complete(&mut self, request: Request, answer: Answer) {
        let res = answer.map_or_else(|errno| -i64::from(errno), |value| value as i64);
        let event = IoEvent { data: request.data, obj: request.obj, res, res2: 0 };
        if let Ok(context) = self.context(request.context) {
            context.events.push_back(event);
        }
        self.show_events(request.context);
        self.unrefer(request.id);
        if let Some(counter) = request.counter {
            self.signal(counter, 1);
            self.unrefer(counter);
        }
        self.wake(Key::Readiness, usize::MAX);
    }

    /// Ends the polls of what is ready now.
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
    let header = Box::leak(Box::new([0u64; 512]));
    let address = header.as_mut_ptr() as usize;
    let (events, polls) = (VecDeque::new(), Vec::new());
    let context = Context { capacity: count, owed: 0, events, polls };
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
    let context = cpu.context(address)?;
    if context.owed >= context.capacity {
        return Err(libc::EAGAIN);
    }
    let id = cpu.opened(iocb.fildes as usize)?;
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
    cpu.context(address)?.owed += 1;
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
            let wanted = Wanted { id, write, parts, offset, rw_flags };
            match cpu.prepare_now(ino, &wanted) {
                Err(errno) => cpu.complete(request, Err(errno)),
                Ok(job) if job.locked.exclusive == Some(false) => {
                    let then = move |world: &mut World, answer| world.complete(request, answer);
                    cpu.start(job, Box::new(then));
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
            let context = cpu.context(address)?;
            let Some(event) = context.events.pop_front() else { break };
            context.owed -= 1;
            // SAFETY: room for `max`, given by the caller.
            unsafe { (room as *mut IoEvent).add(taken).write(event) };
            taken += 1;
        }
        cpu.show_events(address);
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
        let context = cpu.context(address)?;
        if context.owed == context.events.len() {
            cpu.kernel.contexts.0.remove(&address);
            return Ok(0);
        }
        cpu.sleep(Key::Readiness, None);
    }
}
