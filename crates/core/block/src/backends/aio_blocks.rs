//! Control blocks of native AIO at fixed addresses, and the encoding of bios as control blocks.

use crate::bio::{Bio, BioOp, Segments};
use core::cell::UnsafeCell;
use nowait_sys::aio::{FLAG_IOPRIO, FLAG_RESFD, Iocb, cmd};

/// One control block per slot, at a fixed address: io_cancel identifies a request by the address of
/// its block.
pub(super) struct Blocks(Box<[UnsafeCell<Iocb>]>);

// SAFETY: blocks are only reached through `address`, whose users state which thread may touch which
// one.
unsafe impl Sync for Blocks {}

impl Blocks {
    pub(super) fn new(count: usize) -> Blocks {
        Blocks((0..count).map(|_| UnsafeCell::new(EMPTY)).collect())
    }

    /// Returns the address of the block of a slot, valid while `self` lives.
    pub(super) fn address(&self, index: usize) -> *mut Iocb {
        self.0[index].get()
    }
}

const EMPTY: Iocb = Iocb {
    data: 0,
    key: 0,
    rw_flags: 0,
    opcode: 0,
    reqprio: 0,
    fildes: 0,
    buf: 0,
    nbytes: 0,
    offset: 0,
    reserved2: 0,
    flags: 0,
    resfd: 0,
};

pub(super) fn of_bio(bio: &Bio, key: u64, rw_flags: u32) -> Iocb {
    let block = Iocb { data: key, fildes: bio.fd as u32, ..EMPTY };
    match bio.op {
        BioOp::Read => transfer(block, bio, [cmd::PREAD, cmd::PREADV], rw_flags),
        BioOp::Write => transfer(block, bio, [cmd::PWRITE, cmd::PWRITEV], rw_flags),
        BioOp::Fsync => Iocb { opcode: cmd::FSYNC, ..block },
        BioOp::Fdatasync => Iocb { opcode: cmd::FDSYNC, ..block },
        BioOp::Poll(events) => poll(bio.fd, events, key),
    }
}

fn transfer(mut block: Iocb, bio: &Bio, opcodes: [u16; 2], rw_flags: u32) -> Iocb {
    (block.opcode, block.buf, block.nbytes) = match &bio.segments {
        Segments::One(one) => (opcodes[0], one.base as u64, one.len as u64),
        Segments::Many(list) => (opcodes[1], list.as_ptr() as u64, list.len() as u64),
    };
    block.offset = bio.offset;
    block.rw_flags = bio.rw_flags | rw_flags;
    if bio.priority != 0 {
        block.reqprio = bio.priority as i16;
        block.flags |= FLAG_IOPRIO;
    }
    if let Some(counter) = bio.counter {
        block.resfd = counter as u32;
        block.flags |= FLAG_RESFD;
    }
    block
}

/// If `events` is 0, only an error, a hang-up or a cancellation ends the poll.
pub(super) fn poll(fd: i32, events: u16, data: u64) -> Iocb {
    Iocb { data, opcode: cmd::POLL, fildes: fd as u32, buf: u64::from(events), ..EMPTY }
}
