//! Readiness of eventfds, pipes, sockets and epoll sets; and waiting for readiness.

use super::{
    Answer,
    descriptor::{OpenId, What},
    file::Wanted,
};
use crate::schedule::{Cpu, Key, Slept, World};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(super) struct Sets {
    counters: BTreeMap<u64, u64>,
    pipes: BTreeMap<usize, Pipe>,
    watched: BTreeMap<usize, BTreeMap<Entry, Watched>>,
}

/// An open file and one of its numbers: a set may have the file once for each number.
type Entry = (OpenId, i32);

#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    readers: usize,
    writers: usize,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    events: u32,
    data: u64,
}

const PIPE_BYTES: usize = 65_536;

const IN: u32 = libc::POLLIN as u32;
const OUT: u32 = libc::POLLOUT as u32;
const HUP: u32 = libc::POLLHUP as u32;
const ERR: u32 = libc::POLLERR as u32;

pub(super) fn release(world: &mut World, id: OpenId, what: What) {
    match what {
        What::File(_) | What::Process => {}
        What::Counter(counter) => drop(world.kernel.sets.counters.remove(&counter)),
        What::End { own, .. } => world.drop_messages(own),
        What::Stream { own, other } => world.close_stream(own, other),
        What::Reader(pipe) => world.kernel.sets.pipes.get_mut(&pipe).expect("a pipe").readers -= 1,
        What::Writer(pipe) => world.kernel.sets.pipes.get_mut(&pipe).expect("a pipe").writers -= 1,
        What::Set(set) => drop(world.kernel.sets.watched.remove(&set)),
        What::Ring(ring) => world.drop_ring(ring),
    }
    for set in world.kernel.sets.watched.values_mut() {
        set.retain(|(of, _), _| *of != id);
    }
    world.has_become_ready();
}

impl World {
    pub(super) fn has_become_ready(&mut self) {
        self.wake(Key::Readiness, usize::MAX);
        self.complete_polls();
        self.retry_entries();
    }

    pub(super) fn readiness(&self, id: OpenId) -> u32 {
        let given = |condition, event| if condition { event } else { 0 };
        let Some(what) = self.what_is_left(id) else { return HUP };
        match what {
            What::File(_) => IN | OUT,
            What::Process => 0,
            What::Counter(counter) => {
                let count = self.kernel.sets.counters[&counter];
                given(count > 0, IN) | given(count < u64::MAX - 1, OUT)
            }
            What::End { own, other } => {
                given(self.has_messages(own), IN) | given(self.has_room(other), OUT)
            }
            What::Stream { own, other } => self.stream_readiness(own, other),
            What::Reader(pipe) => {
                let pipe = &self.kernel.sets.pipes[&pipe];
                given(!pipe.bytes.is_empty(), IN) | given(pipe.writers == 0, HUP)
            }
            What::Writer(pipe) => {
                let pipe = &self.kernel.sets.pipes[&pipe];
                given(pipe.bytes.len() < PIPE_BYTES, OUT) | given(pipe.readers == 0, ERR)
            }
            What::Set(set) => given(!self.ready_of(set).is_empty(), IN),
            What::Ring(ring) => given(self.ring_has_completions(ring), IN),
        }
    }

    fn ready_of(&self, set: usize) -> Vec<(Entry, u32, u64)> {
        let watched = self.kernel.sets.watched[&set].iter();
        let ready = watched.map(|(id, watched)| {
            (*id, self.readiness(id.0) & (watched.events | HUP | ERR), watched.data)
        });
        let is_armed = |id: &Entry| self.kernel.sets.watched[&set][id].events != 0;
        ready.filter(|(id, events, _)| *events != 0 && is_armed(id)).collect()
    }

    pub(super) fn signal(&mut self, id: OpenId, value: u64) {
        if let Some(What::Counter(counter)) = self.what_is_left(id) {
            *self.kernel.sets.counters.get_mut(&counter).expect("a counter") += value;
            self.has_become_ready();
        }
    }
}

pub(super) unsafe fn eventfd2(cpu: &mut Cpu<'_>, [value, flags, ..]: [usize; 6]) -> Answer {
    let counter = cpu.new_id() as u64;
    cpu.kernel.sets.counters.insert(counter, value as u64);
    cpu.open(What::Counter(counter), libc::O_RDWR | flags as i32 & libc::O_NONBLOCK, 0)
}

pub(super) unsafe fn pipe2(cpu: &mut Cpu<'_>, [ends, flags, ..]: [usize; 6]) -> Answer {
    let pipe = cpu.new_id();
    let flags = flags as i32 & (libc::O_NONBLOCK | libc::O_DIRECT);
    cpu.kernel.sets.pipes.insert(pipe, Pipe { readers: 1, writers: 1, ..Pipe::default() });
    let reader = cpu.open(What::Reader(pipe), libc::O_RDONLY | flags, 0)?;
    let writer = cpu.open(What::Writer(pipe), libc::O_WRONLY | flags, 0)?;
    // SAFETY: room for two, given by the caller.
    unsafe { (ends as *mut [i32; 2]).write([reader as i32, writer as i32]) };
    Ok(0)
}

/// Moves bytes without waiting; fails with EAGAIN if it would have to wait for the first byte.
pub(super) fn try_stream(world: &mut World, wanted: &Wanted) -> Answer {
    if wanted.write {
        // SAFETY: the caller's memory.
        let bytes = wanted.parts.iter().flat_map(|part| unsafe { part.bytes() }.to_vec());
        let bytes: Vec<u8> = bytes.collect();
        return give(world, wanted.id, &bytes);
    }
    let len = wanted.parts.iter().map(|part| part.len).sum();
    let bytes = take(world, wanted.id, len)?;
    let mut rest = bytes.as_slice();
    for part in &wanted.parts {
        let (now, later) = rest.split_at(part.len.min(rest.len()));
        // SAFETY: the caller's memory.
        unsafe { part.write(0, now) };
        rest = later;
    }
    Ok(bytes.len())
}

fn take(world: &mut World, id: OpenId, len: usize) -> Result<Vec<u8>, i32> {
    let taken = match world.what(id) {
        What::Counter(counter) => {
            let count = world.kernel.sets.counters.get_mut(&counter).expect("a counter");
            match core::mem::take(count) {
                0 => return Err(libc::EAGAIN),
                value => value.to_ne_bytes().to_vec(),
            }
        }
        What::Stream { own, .. } => world.take_from_stream(own, len)?,
        What::Reader(pipe) => {
            let pipe = world.kernel.sets.pipes.get_mut(&pipe).expect("a pipe");
            let len = len.min(pipe.bytes.len());
            if len == 0 && pipe.writers > 0 {
                return Err(libc::EAGAIN);
            }
            pipe.bytes.drain(..len).collect()
        }
        _ => return Err(libc::EINVAL),
    };
    world.has_become_ready();
    Ok(taken)
}

fn give(world: &mut World, id: OpenId, bytes: &[u8]) -> Answer {
    match world.what(id) {
        What::Counter(_) => {
            let value = bytes.first_chunk().ok_or(libc::EINVAL)?;
            world.signal(id, u64::from_ne_bytes(*value));
            Ok(8)
        }
        What::Stream { other, .. } => world.give_to_stream(other, bytes),
        What::Writer(pipe) => {
            let pipe = world.kernel.sets.pipes.get_mut(&pipe).expect("a pipe");
            if pipe.readers == 0 {
                return Err(libc::EPIPE);
            }
            let len = bytes.len().min(PIPE_BYTES - pipe.bytes.len());
            if len == 0 && !bytes.is_empty() {
                return Err(libc::EAGAIN);
            }
            pipe.bytes.extend(&bytes[..len]);
            world.has_become_ready();
            Ok(len)
        }
        _ => Err(libc::EINVAL),
    }
}

pub(super) unsafe fn ppoll(cpu: &mut Cpu<'_>, [fds, count, time, ..]: [usize; 6]) -> Answer {
    // SAFETY: the caller's array.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds as *mut libc::pollfd, count) };
    // SAFETY: a timespec, or none.
    let time = unsafe { (time as *const libc::timespec).as_ref() };
    let until = time.map(|it| cpu.now + it.tv_sec as u64 * 1_000_000_000 + it.tv_nsec as u64);
    loop {
        let mut ready = 0;
        for fd in &mut *fds {
            fd.revents = match cpu.opened(fd.fd as usize) {
                Ok(id) => {
                    let events = fd.events as u32 | HUP | ERR;
                    (cpu.readiness(id) & events) as libc::c_short
                }
                Err(_) => libc::POLLNVAL,
            };
            ready += usize::from(fd.revents != 0);
        }
        if ready > 0 || until.is_some_and(|until| cpu.now >= until) {
            return Ok(ready);
        }
        if cpu.sleep(Key::Readiness, until) == Slept::Interrupted {
            return Err(libc::EINTR);
        }
    }
}

pub(super) unsafe fn epoll_create1(cpu: &mut Cpu<'_>, _: [usize; 6]) -> Answer {
    let set = cpu.new_id();
    cpu.kernel.sets.watched.insert(set, BTreeMap::new());
    cpu.open(What::Set(set), libc::O_RDWR, 0)
}

pub(super) unsafe fn epoll_ctl(
    cpu: &mut Cpu<'_>,
    [set, op, number, event, ..]: [usize; 6],
) -> Answer {
    let set = cpu.opened(set)?;
    let What::Set(set) = cpu.what(set) else { return Err(libc::EINVAL) };
    let id = cpu.opened(number)?;
    if matches!(cpu.what(id), What::File(_)) {
        return Err(libc::EPERM);
    }
    let id = (id, number as i32);
    let watched = cpu.kernel.sets.watched.get_mut(&set).expect("a set");
    // SAFETY: the caller's, or none.
    let event = unsafe { (event as *const libc::epoll_event).as_ref() };
    match (op as i32, event) {
        (libc::EPOLL_CTL_ADD, _) if watched.contains_key(&id) => return Err(libc::EEXIST),
        (libc::EPOLL_CTL_DEL, _) => drop(watched.remove(&id).ok_or(libc::ENOENT)?),
        (libc::EPOLL_CTL_MOD, _) if !watched.contains_key(&id) => return Err(libc::ENOENT),
        (_, Some(event)) => {
            let (events, data) = (event.events, event.u64);
            watched.insert(id, Watched { events, data });
        }
        (_, None) => return Err(libc::EFAULT),
    }
    cpu.has_become_ready();
    Ok(0)
}

pub(super) unsafe fn epoll_pwait(
    cpu: &mut Cpu<'_>,
    [set, events, count, milliseconds, ..]: [usize; 6],
) -> Answer {
    let set = cpu.opened(set)?;
    let What::Set(set) = cpu.what(set) else { return Err(libc::EINVAL) };
    let waits = milliseconds as i32;
    let until = (waits >= 0).then(|| cpu.now + waits as u64 * 1_000_000);
    loop {
        let ready = cpu.ready_of(set);
        if !ready.is_empty() || until.is_some_and(|until| cpu.now >= until) {
            for (index, (id, ready, data)) in ready.iter().take(count).enumerate() {
                let event = libc::epoll_event { events: *ready, u64: *data };
                // SAFETY: room for `count`, given by the caller.
                unsafe { (events as *mut libc::epoll_event).add(index).write(event) };
                let watched = cpu.kernel.sets.watched.get_mut(&set).and_then(|set| set.get_mut(id));
                let watched = watched.expect("it is ready");
                if watched.events & libc::EPOLLONESHOT as u32 != 0 {
                    watched.events = 0;
                }
            }
            return Ok(ready.len().min(count));
        }
        if cpu.sleep(Key::Readiness, until) == Slept::Interrupted {
            return Err(libc::EINTR);
        }
    }
}
