//! io_uring: io_uring_enter submits entries, and waits for completions only with
//! IORING_ENTER_GETEVENTS; programs find completions in memory. Source: io_uring_setup(2),
//! io_uring_enter(2), io_uring_register(2).
//!
//! The memory of a ring is a memfd of the real kernel, which each mmap(2) of the ring maps.

use super::{
    Answer,
    descriptor::{OpenId, What},
    device::Part,
    event,
    file::{self, Wanted},
};
use crate::schedule::{Cpu, Key, Slept, World};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release, SeqCst},
};
use nowait_sys::raw;
use std::collections::{BTreeMap, VecDeque};

mod at {
    pub(super) const SQ_HEAD: u32 = 0;
    pub(super) const SQ_TAIL: u32 = 4;
    pub(super) const SQ_MASK: u32 = 8;
    pub(super) const SQ_ENTRIES: u32 = 12;
    pub(super) const SQ_FLAGS: u32 = 16;
    pub(super) const SQ_DROPPED: u32 = 20;
    pub(super) const CQ_HEAD: u32 = 24;
    pub(super) const CQ_TAIL: u32 = 28;
    pub(super) const CQ_MASK: u32 = 32;
    pub(super) const CQ_ENTRIES: u32 = 36;
    pub(super) const CQ_OVERFLOW: u32 = 40;
    pub(super) const CQ_FLAGS: u32 = 44;
    pub(super) const CQES: u32 = 64;
}

const PAGE: usize = 4096;
/// Offset of the entries for mmap(2).
const OFFSET_OF_ENTRIES: usize = 0x1000_0000;
const SETUP_CQSIZE: u32 = 1 << 3;
const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SQ_TASKRUN: u32 = 1 << 2;

mod op {
    pub(super) const NOP: u8 = 0;
    pub(super) const READV: u8 = 1;
    pub(super) const WRITEV: u8 = 2;
    pub(super) const FSYNC: u8 = 3;
    pub(super) const POLL_ADD: u8 = 6;
    pub(super) const ASYNC_CANCEL: u8 = 14;
    pub(super) const READ: u8 = 22;
    pub(super) const WRITE: u8 = 23;
    pub(super) const FUTEX_WAIT: u8 = 51;
    pub(super) const KNOWN: [u8; 9] =
        [NOP, READV, WRITEV, FSYNC, POLL_ADD, ASYNC_CANCEL, READ, WRITE, FUTEX_WAIT];
}

#[repr(C)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread: [u32; 2],
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    /// Head, tail, mask, entries, flags, dropped, array, reserved; an address.
    sq: [u32; 10],
    /// Head, tail, mask, entries, overflow, completions, flags, reserved; an address.
    cq: [u32; 10],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    reserved: [u64; 3],
}

#[repr(C)]
struct Cqe {
    user_data: u64,
    result: i32,
    flags: u32,
}

#[derive(Default)]
pub(super) struct Rings(BTreeMap<usize, Ring>);

struct Ring {
    /// A memfd of the real kernel.
    memory: i32,
    base: usize,
    entries: usize,
    mapped: usize,
    flags: u32,
    waiting: Vec<Waiting>,
    /// Completions for which the ring has no room, or which wait for io_uring_enter with
    /// IORING_ENTER_GETEVENTS (on a ring with IORING_SETUP_DEFER_TASKRUN).
    held_back: VecDeque<Cqe>,
}

struct Waiting {
    request: Request,
    what: Awaited,
}

enum Awaited {
    Poll(u32),
    Transfer(Wanted),
    Futex(usize),
}

#[derive(Clone, Copy)]
struct Request {
    ring: usize,
    user_data: u64,
    /// The open file, to which the request has a reference until it ends.
    id: Option<OpenId>,
    thread: usize,
}

impl Ring {
    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: in the ring's mapping, which lives as long as the ring.
        unsafe { &*((self.base + at as usize) as *const AtomicU32) }
    }

    fn array(&self) -> u32 {
        at::CQES + 16 * self.word(at::CQ_ENTRIES).load(Acquire)
    }

    fn shown(&self) -> u32 {
        let (head, tail) = (self.word(at::CQ_HEAD), self.word(at::CQ_TAIL));
        tail.load(Acquire).wrapping_sub(head.load(Acquire))
    }

    fn show(&mut self) {
        while self.shown() < self.word(at::CQ_ENTRIES).load(Acquire) {
            let Some(cqe) = self.held_back.pop_front() else { break };
            let tail = self.word(at::CQ_TAIL).load(Acquire);
            let index = tail & self.word(at::CQ_MASK).load(Acquire);
            let place = self.base + at::CQES as usize + 16 * index as usize;
            // SAFETY: in the ring's mapping; no thread reads it before the tail covers it.
            unsafe { (place as *mut Cqe).write(cqe) };
            self.word(at::CQ_TAIL).store(tail.wrapping_add(1), Release);
        }
    }

    fn defers(&self) -> bool {
        self.flags & SETUP_DEFER_TASKRUN != 0
    }

    fn tell_held_back(&self) {
        if self.flags & SETUP_TASKRUN_FLAG != 0 {
            let flags = if self.held_back.is_empty() { 0 } else { SQ_TASKRUN };
            self.word(at::SQ_FLAGS).store(flags, SeqCst);
        }
    }

    fn next(&self) -> Option<Sqe> {
        let (head, tail) = (self.word(at::SQ_HEAD), self.word(at::SQ_TAIL));
        let next = head.load(Acquire);
        if next == tail.load(Acquire) {
            return None;
        }
        let slot = next & self.word(at::SQ_MASK).load(Acquire);
        let index = self.word(self.array() + 4 * slot).load(Acquire);
        let place = self.entries + size_of::<Sqe>() * index as usize;
        // SAFETY: in the ring's mapping; the tail covers it.
        let sqe = unsafe { (place as *const Sqe).read() };
        head.store(next.wrapping_add(1), Release);
        Some(sqe)
    }
}

fn map(memory: i32, len: usize, offset: usize) -> usize {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let args = [0, len, access as usize, flags as usize, memory as usize, offset];
    // SAFETY: a new mapping disturbs nothing.
    let address = unsafe { raw::kernel6(libc::SYS_mmap, args) };
    assert!(address > 0, "the memory of a ring can be mapped");
    address as usize
}

impl World {
    pub(crate) fn map_ring(&mut self, number: usize, len: usize, offset: usize) -> Option<usize> {
        let What::Ring(ring) = self.opened(number).ok().map(|id| self.what(id))? else {
            return None;
        };
        let ring = &self.kernel.rings.0[&ring];
        let offset = if offset == OFFSET_OF_ENTRIES { ring.entries - ring.base } else { 0 };
        Some(map(ring.memory, len.next_multiple_of(PAGE), offset))
    }

    pub(super) fn ring_has_completions(&self, ring: usize) -> bool {
        let ring = &self.kernel.rings.0[&ring];
        ring.shown() > 0 || !ring.held_back.is_empty()
    }

    pub(super) fn drop_ring(&mut self, ring: usize) {
        let Some(gone) = self.kernel.rings.0.remove(&ring) else { return };
        for waiting in gone.waiting {
            waiting.request.id.into_iter().for_each(|id| self.unrefer(id));
        }
        // SAFETY: nothing of the machine uses the address any more; the program has its own
        // mapping.
        unsafe {
            raw::kernel6(libc::SYS_munmap, [gone.base, gone.mapped, 0, 0, 0, 0]);
            raw::kernel6(libc::SYS_close, [gone.memory as usize, 0, 0, 0, 0, 0]);
        }
    }

    fn complete_entry(&mut self, request: Request, answer: Answer) {
        if let Some(ring) = self.kernel.rings.0.get_mut(&request.ring) {
            let result = answer.map_or_else(|errno| -errno, |value| value as i32);
            let user_data = request.user_data;
            ring.held_back.push_back(Cqe { user_data, result, flags: 0 });
            if !ring.defers() {
                ring.show();
            }
            ring.tell_held_back();
        }
        request.id.into_iter().for_each(|id| self.unrefer(id));
        self.wake(Key::Readiness, usize::MAX);
    }

    pub(super) fn retry_entries(&mut self) {
        let rings: Vec<usize> = self.kernel.rings.0.keys().copied().collect();
        for ring in rings {
            let waiting = match self.kernel.rings.0.get_mut(&ring) {
                Some(ring) => core::mem::take(&mut ring.waiting),
                None => continue,
            };
            for Waiting { request, what } in waiting {
                self.attempt_entry(request, what);
            }
        }
    }

    fn attempt_entry(&mut self, request: Request, what: Awaited) {
        const ALWAYS: u32 = (libc::POLLHUP | libc::POLLERR) as u32;
        let id = request.id;
        let again = match (what, id) {
            (Awaited::Poll(events), Some(id)) => match self.readiness(id) & (events | ALWAYS) {
                0 => Awaited::Poll(events),
                ready => return self.complete_entry(request, Ok(ready as usize)),
            },
            (Awaited::Transfer(wanted), Some(_)) => match self.attempt_transfer(request, &wanted) {
                true => return,
                false => Awaited::Transfer(wanted),
            },
            (what, _) => what,
        };
        if let Some(ring) = self.kernel.rings.0.get_mut(&request.ring) {
            ring.waiting.push(Waiting { request, what: again });
        }
    }

    fn attempt_transfer(&mut self, request: Request, wanted: &Wanted) -> bool {
        let What::File(ino) = self.what(wanted.id) else {
            let nonblocking = self.flags(wanted.id) & libc::O_NONBLOCK != 0;
            return match event::try_stream(self, wanted) {
                Err(libc::EAGAIN) if !nonblocking => false,
                answer => {
                    self.complete_entry(request, answer);
                    true
                }
            };
        };
        match file::prepare(self, ino, wanted) {
            Ok(Some(job)) => {
                let then = move |world: &mut World, answer| world.complete_entry(request, answer);
                self.start(job, Box::new(then));
            }
            Ok(None) => return false,
            Err(errno) => self.complete_entry(request, Err(errno)),
        }
        true
    }

    pub(super) fn wake_entries(&mut self, address: usize, count: usize) -> usize {
        let mut woken = Vec::new();
        for ring in self.kernel.rings.0.values_mut() {
            let left = count - woken.len();
            let on_word = |it: &mut Waiting| matches!(it.what, Awaited::Futex(at) if at == address);
            woken.extend(ring.waiting.extract_if(.., on_word).take(left).map(|it| it.request));
        }
        woken.iter().for_each(|request| self.complete_entry(*request, Ok(0)));
        woken.len()
    }

    pub(crate) fn give_up_entries_of(&mut self, thread: usize) {
        let mut given_up = Vec::new();
        for ring in self.kernel.rings.0.values_mut() {
            let of_it = |it: &mut Waiting| it.request.thread == thread;
            given_up.extend(ring.waiting.extract_if(.., of_it).map(|it| it.request));
        }
        for request in given_up {
            self.complete_entry(request, Err(libc::ECANCELED));
        }
    }

    fn cancel_entry(&mut self, ring: usize, user_data: u64) -> Answer {
        let Some(of) = self.kernel.rings.0.get_mut(&ring) else { return Err(libc::ENOENT) };
        let found = of.waiting.iter().position(|it| it.request.user_data == user_data);
        let request = of.waiting.remove(found.ok_or(libc::ENOENT)?).request;
        self.complete_entry(request, Err(libc::ECANCELED));
        Ok(0)
    }
}

pub(super) unsafe fn setup(cpu: &mut Cpu<'_>, [entries, params, ..]: [usize; 6]) -> Answer {
    // SAFETY: the caller's.
    let params = unsafe { &mut *(params as *mut Params) };
    let sq = (entries as u32).next_power_of_two();
    let asked = if params.flags & SETUP_CQSIZE != 0 { params.cq_entries } else { 2 * sq };
    let cq = asked.next_power_of_two();
    let array = at::CQES + 16 * cq;
    let ring_bytes = (array as usize + 4 * sq as usize).next_multiple_of(PAGE);
    let mapped = ring_bytes + (size_of::<Sqe>() * sq as usize).next_multiple_of(PAGE);
    // SAFETY: a name that ends with a zero; the new descriptor is the machine's own.
    let memory =
        unsafe { raw::kernel6(libc::SYS_memfd_create, [c"ring".as_ptr() as usize, 0, 0, 0, 0, 0]) }
            as i32;
    // SAFETY: as above.
    unsafe { raw::kernel6(libc::SYS_ftruncate, [memory as usize, mapped, 0, 0, 0, 0]) };
    let base = map(memory, mapped, 0);
    let (waiting, held_back) = (Vec::new(), VecDeque::new());
    let (entries, flags) = (base + ring_bytes, params.flags);
    let ring = Ring { memory, base, entries, mapped, flags, waiting, held_back };
    for (place, value) in
        [(at::SQ_MASK, sq - 1), (at::SQ_ENTRIES, sq), (at::CQ_MASK, cq - 1), (at::CQ_ENTRIES, cq)]
    {
        ring.word(place).store(value, SeqCst);
    }
    const SINGLE_MMAP: u32 = 1;
    const NODROP: u32 = 1 << 1;
    const EXT_ARG: u32 = 1 << 8;
    (params.sq_entries, params.cq_entries) = (sq, cq);
    params.features = SINGLE_MMAP | NODROP | EXT_ARG;
    params.sq[..8].copy_from_slice(&[
        at::SQ_HEAD,
        at::SQ_TAIL,
        at::SQ_MASK,
        at::SQ_ENTRIES,
        at::SQ_FLAGS,
        at::SQ_DROPPED,
        array,
        0,
    ]);
    params.cq[..8].copy_from_slice(&[
        at::CQ_HEAD,
        at::CQ_TAIL,
        at::CQ_MASK,
        at::CQ_ENTRIES,
        at::CQ_OVERFLOW,
        at::CQES,
        at::CQ_FLAGS,
        0,
    ]);
    let id = cpu.new_id();
    cpu.kernel.rings.0.insert(id, ring);
    cpu.open(What::Ring(id), libc::O_RDWR, 0)
}

/// Registers nothing; only reports the supported operations.
pub(super) unsafe fn register(
    cpu: &mut Cpu<'_>,
    [number, what, room, count, ..]: [usize; 6],
) -> Answer {
    const PROBE: usize = 8;
    let What::Ring(_) = cpu.opened(number).map(|id| cpu.what(id))? else {
        return Err(libc::EOPNOTSUPP);
    };
    if what != PROBE {
        return Err(libc::EINVAL);
    }
    let last = op::KNOWN[op::KNOWN.len() - 1];
    // SAFETY: a head of sixteen bytes and `count` operations of eight, given by the caller.
    unsafe {
        let room = room as *mut u8;
        room.write(last);
        room.add(1).write(last + 1);
        let is_known = |code: &u8| cpu.waits_on_words || *code != op::FUTEX_WAIT;
        for code in
            op::KNOWN.into_iter().filter(|code| usize::from(*code) < count && is_known(code))
        {
            let place = room.add(16 + 8 * usize::from(code));
            place.write(code);
            place.add(2).cast::<u16>().write_unaligned(1);
        }
    }
    Ok(0)
}

pub(super) unsafe fn enter(cpu: &mut Cpu<'_>, args: [usize; 6]) -> Answer {
    const GETEVENTS: usize = 1;
    let [number, submit, min, flags, argument, _] = args;
    let id = cpu.opened(number)?;
    let What::Ring(ring) = cpu.what(id) else { return Err(libc::EOPNOTSUPP) };
    let mut submitted = 0;
    while submitted < submit {
        let Some(sqe) = cpu.kernel.rings.0[&ring].next() else { break };
        begin(cpu, ring, &sqe);
        submitted += 1;
    }
    if flags & GETEVENTS == 0 {
        return Ok(submitted);
    }
    // SAFETY: the third word of the caller's argument is the address of a timespec, or 0.
    let time = unsafe { ((argument + 16) as *const usize).read() };
    // SAFETY: as above.
    let time = unsafe { (time as *const libc::timespec).as_ref() };
    let ns = time.map(|it| (it.tv_sec as u64).saturating_mul(1_000_000_000) + it.tv_nsec as u64);
    let until = ns.map(|ns| cpu.now.saturating_add(ns));
    cpu.refer(id);
    let waited = await_completions(cpu, ring, min as u32, until);
    cpu.unrefer(id);
    match waited {
        Err(errno) if submitted == 0 => Err(errno),
        _ => Ok(submitted),
    }
}

fn await_completions(
    cpu: &mut Cpu<'_>,
    ring: usize,
    min: u32,
    until: Option<u64>,
) -> Result<(), i32> {
    loop {
        let of = cpu.kernel.rings.0.get_mut(&ring).expect("it is held");
        of.show();
        of.tell_held_back();
        if of.shown() >= min {
            return Ok(());
        }
        if until.is_some_and(|until| cpu.now >= until) {
            return Err(libc::ETIME);
        }
        if cpu.sleep(Key::Readiness, until) == Slept::Interrupted {
            return Err(libc::EINTR);
        }
    }
}

fn begin(cpu: &mut Cpu<'_>, ring: usize, sqe: &Sqe) {
    let has_file = !matches!(sqe.opcode, op::NOP | op::ASYNC_CANCEL | op::FUTEX_WAIT);
    let (user_data, thread) = (sqe.user_data, cpu.running());
    let id = match has_file.then(|| cpu.opened(sqe.fd as usize)).transpose() {
        Ok(id) => id,
        Err(errno) => {
            return cpu.complete_entry(Request { ring, user_data, id: None, thread }, Err(errno));
        }
    };
    id.into_iter().for_each(|id| cpu.refer(id));
    let request = Request { ring, user_data, id, thread };
    match (sqe.opcode, id) {
        (op::NOP, _) => cpu.complete_entry(request, Ok(0)),
        (op::ASYNC_CANCEL, _) => {
            let answer = cpu.cancel_entry(ring, sqe.address);
            cpu.complete_entry(request, answer);
        }
        (op::FUTEX_WAIT, _) if cpu.waits_on_words => {
            let address = sqe.address as usize;
            // SAFETY: the program's word.
            let value = unsafe { &*(address as *const AtomicU32) }.load(SeqCst);
            match u64::from(value) == sqe.offset {
                true => cpu.attempt_entry(request, Awaited::Futex(address)),
                false => cpu.complete_entry(request, Err(libc::EAGAIN)),
            }
        }
        (op::FSYNC, Some(id)) => {
            let then = move |world: &mut World, answer| world.complete_entry(request, answer);
            cpu.start_sync(id, Box::new(then));
        }
        (op::POLL_ADD, _) => cpu.attempt_entry(request, Awaited::Poll(sqe.op_flags)),
        (op::READ | op::WRITE | op::READV | op::WRITEV, Some(id)) => {
            let (address, len) = (sqe.address as usize, sqe.len as usize);
            let parts = match sqe.opcode {
                op::READ | op::WRITE => vec![Part { address, len }],
                // SAFETY: the program's list.
                _ => unsafe { file::vector(address, len) },
            };
            let write = matches!(sqe.opcode, op::WRITE | op::WRITEV);
            let (offset, rw_flags) = (sqe.offset, sqe.op_flags);
            let wanted = Wanted { id, write, parts, offset, rw_flags, behind: false };
            cpu.attempt_entry(request, Awaited::Transfer(wanted));
        }
        _ => cpu.complete_entry(request, Err(libc::EINVAL)),
    }
}
