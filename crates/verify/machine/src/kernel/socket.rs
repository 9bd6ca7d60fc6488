//! Connected Unix sockets that carry a stream of bytes. Source: unix(7), socketpair(2).
//!
//! A write may take fewer bytes than it is given, and a read may return fewer than there are: a
//! program must not rely on where a stream is split.

use super::{
    Answer,
    descriptor::{OpenId, What},
    device::Part,
    file::{self, Wanted},
};
use crate::schedule::{Cpu, World};
use std::collections::{BTreeMap, VecDeque};

/// The lanes (one for each direction of a pair), by the identifier of the end that reads.
#[derive(Debug, Default)]
pub(super) struct Sockets(BTreeMap<usize, Lane>);

#[derive(Debug)]
struct Lane {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// No more bytes come: the lane's writer has closed or shut down, or its reader has shut down.
    ended: bool,
    deaf: bool,
    /// The lane's writer has closed its end without reading all bytes sent to it.
    reset: bool,
}

const IN: u32 = libc::POLLIN as u32;
const OUT: u32 = libc::POLLOUT as u32;
const HUP: u32 = libc::POLLHUP as u32;

impl World {
    fn lane(&mut self, end: usize) -> &mut Lane {
        self.kernel.sockets.0.get_mut(&end).expect("a lane lives as long as the machine")
    }

    pub(super) fn new_streams(&mut self) -> [What; 2] {
        let (own, other) = (self.new_id(), self.new_id());
        for end in [own, other] {
            let capacity = [700, 9_000, 200_000][self.prng.index(3)];
            let bytes = VecDeque::new();
            let lane = Lane { bytes, capacity, ended: false, deaf: false, reset: false };
            self.kernel.sockets.0.insert(end, lane);
        }
        [What::Stream { own, other }, What::Stream { own: other, other: own }]
    }

    pub(super) fn stream_readiness(&self, own: usize, other: usize) -> u32 {
        let (from, to) = (&self.kernel.sockets.0[&own], &self.kernel.sockets.0[&other]);
        let is_over = to.ended || to.deaf;
        let given = |condition, event| if condition { event } else { 0 };
        given(!from.bytes.is_empty() || from.ended || from.reset, IN)
            | given(is_over || to.bytes.len() < to.capacity, OUT)
            | given(is_over && from.ended, HUP)
    }

    /// An empty lane gives ECONNRESET once if its writer has reset it, then no bytes if the lane
    /// has ended, else EAGAIN.
    pub(super) fn take_from_stream(&mut self, own: usize, len: usize) -> Result<Vec<u8>, i32> {
        let comes_short = self.prng.chance(200_000);
        let drawn = self.prng.below(1 << 30) as usize;
        let lane = self.lane(own);
        let mut count = len.min(lane.bytes.len());
        if count > 0 && comes_short {
            count = 1 + drawn % count;
        }
        match count {
            0 if len == 0 => Ok(Vec::new()),
            0 if core::mem::take(&mut lane.reset) => Err(libc::ECONNRESET),
            0 if lane.ended => Ok(Vec::new()),
            0 => Err(libc::EAGAIN),
            _ => Ok(lane.bytes.drain(..count).collect()),
        }
    }

    pub(super) fn give_to_stream(&mut self, other: usize, bytes: &[u8]) -> Answer {
        let comes_short = self.prng.chance(200_000);
        let drawn = self.prng.below(1 << 30) as usize;
        let lane = self.lane(other);
        if lane.ended || lane.deaf {
            return Err(libc::EPIPE);
        }
        let mut count = bytes.len().min(lane.capacity - lane.bytes.len());
        if count == 0 && !bytes.is_empty() {
            return Err(libc::EAGAIN);
        }
        if count > 0 && comes_short {
            count = 1 + drawn % count;
        }
        lane.bytes.extend(&bytes[..count]);
        self.has_become_ready();
        Ok(count)
    }

    pub(super) fn close_stream(&mut self, own: usize, other: usize) {
        let from = self.lane(own);
        from.deaf = true;
        let unread = !core::mem::take(&mut from.bytes).is_empty();
        let to = self.lane(other);
        to.ended = true;
        to.reset |= unread;
    }
}

fn transfer(cpu: &mut Cpu<'_>, id: OpenId, write: bool, parts: Vec<Part>, flags: usize) -> Answer {
    let What::Stream { .. } = cpu.what(id) else { return Err(libc::ENOTSOCK) };
    assert_eq!(flags as i32 & libc::MSG_PEEK, 0, "bytes are taken");
    let waits = flags as i32 & libc::MSG_DONTWAIT == 0;
    let wanted = Wanted { id, write, parts, offset: 0, rw_flags: 0, behind: false };
    file::transfer_of_stream(cpu, &wanted, waits)
}

pub(super) unsafe fn recvfrom(
    cpu: &mut Cpu<'_>,
    [number, address, len, flags, ..]: [usize; 6],
) -> Answer {
    let id = cpu.opened(number)?;
    transfer(cpu, id, false, vec![Part { address, len }], flags)
}

pub(super) unsafe fn sendto(
    cpu: &mut Cpu<'_>,
    [number, address, len, flags, ..]: [usize; 6],
) -> Answer {
    let id = cpu.opened(number)?;
    transfer(cpu, id, true, vec![Part { address, len }], flags)
}

/// sendmsg(2), without control data.
pub(super) unsafe fn sendmsg(
    cpu: &mut Cpu<'_>,
    id: OpenId,
    message: usize,
    flags: usize,
) -> Answer {
    // SAFETY: the caller's message.
    let message = unsafe { &*(message as *const libc::msghdr) };
    // SAFETY: the list of the caller's message.
    let parts = unsafe { file::vector(message.msg_iov as usize, message.msg_iovlen) };
    transfer(cpu, id, true, parts, flags)
}

pub(super) unsafe fn shutdown(cpu: &mut Cpu<'_>, [number, how, ..]: [usize; 6]) -> Answer {
    let id = cpu.opened(number)?;
    let What::Stream { own, other } = cpu.what(id) else { return Err(libc::ENOTSOCK) };
    if how as i32 != libc::SHUT_WR {
        let lane = cpu.lane(own);
        (lane.ended, lane.deaf) = (true, true);
    }
    if how as i32 != libc::SHUT_RD {
        cpu.lane(other).ended = true;
    }
    cpu.has_become_ready();
    Ok(0)
}

/// ioctl(2): only the switch between blocking and non-blocking mode is simulated.
pub(super) unsafe fn ioctl(
    cpu: &mut Cpu<'_>,
    [number, request, argument, ..]: [usize; 6],
) -> Answer {
    let id = cpu.opened(number)?;
    if request as u64 != libc::FIONBIO {
        return Err(libc::ENOTTY);
    }
    // SAFETY: the caller's number.
    let on = unsafe { *(argument as *const i32) } != 0;
    cpu.set_nonblocking(id, on);
    Ok(0)
}
