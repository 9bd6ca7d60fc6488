//! The encoding of bios and of the ring's own requests as submission entries.

use crate::bio::{Bio, BioOp, Segments};
use nowait_sys::uring::{Entry, opcode, types};

/// `user_data` of the entry that waits for a wake-up; keys of requests have bit 63 clear.
pub(super) const ALARM: u64 = 1 << 63;
pub(super) const CANCEL: u64 = 1 << 63 | 1;

/// The most bytes that read(2) and write(2) transfer (`MAX_RW_COUNT`).
const TRANSFER_MAX: usize = 0x7fff_f000;
const FUTEX2_SIZE_U32_PRIVATE: u32 = 0x02 | 0x80;
const FUTEX_BITSET_MATCH_ANY: u64 = 0xffff_ffff;

pub(super) fn of_bio(bio: &Bio, key: u64) -> Entry {
    let fd = types::Fd(bio.fd);
    let entry = match bio.op {
        BioOp::Read => read(bio),
        BioOp::Write => write(bio),
        BioOp::Fsync => opcode::Fsync::new(fd).build(),
        BioOp::Fdatasync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        BioOp::Poll(events) => opcode::PollAdd::new(fd, u32::from(events)).build(),
    };
    entry.user_data(key)
}

fn read(bio: &Bio) -> Entry {
    let (fd, offset, flags) = (types::Fd(bio.fd), bio.offset as u64, bio.rw_flags as i32);
    match &bio.segments {
        Segments::One(one) => opcode::Read::new(fd, one.base, length(one.len))
            .offset(offset)
            .ioprio(bio.priority)
            .rw_flags(flags)
            .build(),
        Segments::Many(list) => opcode::Readv::new(fd, list.as_ptr().cast(), list.len() as u32)
            .offset(offset)
            .ioprio(bio.priority)
            .rw_flags(flags)
            .build(),
    }
}

fn write(bio: &Bio) -> Entry {
    let (fd, offset, flags) = (types::Fd(bio.fd), bio.offset as u64, bio.rw_flags as i32);
    match &bio.segments {
        Segments::One(one) => opcode::Write::new(fd, one.base, length(one.len))
            .offset(offset)
            .ioprio(bio.priority)
            .rw_flags(flags)
            .build(),
        Segments::Many(list) => opcode::Writev::new(fd, list.as_ptr().cast(), list.len() as u32)
            .offset(offset)
            .ioprio(bio.priority)
            .rw_flags(flags)
            .build(),
    }
}

fn length(len: usize) -> u32 {
    len.min(TRANSFER_MAX) as u32
}

pub(super) fn cancel(key: u64) -> Entry {
    opcode::AsyncCancel::new(key).build().user_data(CANCEL)
}

/// Makes an entry that completes when futex(2) wakes the word, or at once if the word is not
/// `seen`.
pub(super) fn wait_on_word(word: *const u32, seen: u32) -> Entry {
    opcode::FutexWait::new(word, u64::from(seen), FUTEX_BITSET_MATCH_ANY, FUTEX2_SIZE_U32_PRIVATE)
        .build()
        .user_data(ALARM)
}

pub(super) fn wait_on_counter(fd: i32) -> Entry {
    const POLLIN: u32 = 1;
    opcode::PollAdd::new(types::Fd(fd), POLLIN).build().user_data(ALARM)
}
