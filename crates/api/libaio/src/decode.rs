//! Decodes the application's iocb to a command, with the kernel's checks in the kernel's order
//! (`io_submit_one` and the functions that it calls, fs/aio.c).

use nowait_engine::{
    Command, EventTarget, Kind, Segments,
    command::{Flags, LEN_MAX},
};
use nowait_process::{looks::Looks, memory};
use nowait_sys::{
    Errno,
    aio::{FLAG_IOPRIO, FLAG_RESFD, Iocb, cmd},
    file::{self, IOV_MAX, IoVec, rwf},
    thread,
};

/// The content of a checked iocb.
pub struct DecodedIocb {
    /// The command of the request.
    pub command: Command,
    /// Destination of the event.
    pub target: EventTarget,
}

/// Reads the iocb at `address`, and makes the checks that the kernel makes before it looks for a
/// free slot.
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub fn read(address: usize) -> Result<Iocb, Errno> {
    // SAFETY: an iocb is plain data.
    let iocb: Iocb = unsafe { memory::read(address) }?;
    let is_right = iocb.reserved2 == 0 && (iocb.nbytes as i64) >= 0;
    if is_right { Ok(iocb) } else { Err(Errno::INVAL) }
}

/// Reads the iocb at `address`, checks it, stores 0 in its `key`, and references its eventfd.
///
/// # Errors
/// `EFAULT`, `EINVAL`, `EBADF`, `EOPNOTSUPP`, `EPERM`, as io_submit(2).
pub fn decode(looks: &mut Looks<'_>, address: usize) -> Result<DecodedIocb, Errno> {
    let iocb = read(address)?;
    let fd = iocb.fildes as i32;
    let flags = match iocb.opcode {
        cmd::PREAD | cmd::PREADV => looks.status_flags(Kind::Read, fd)?,
        cmd::PWRITE | cmd::PWRITEV => looks.status_flags(Kind::Write, fd)?,
        _ => looks.status_flags(Kind::Fsync, fd)?,
    };
    let file = (fd, flags);
    let eventfd = event_counter(looks, &iocb)?;
    // SAFETY: the kernel also stores its mark (zero) in the application's iocb at this point.
    unsafe { memory::write(address + core::mem::offset_of!(Iocb, key), 0u32) }?;
    let command = command(&iocb, file)?;
    let target = EventTarget { data: iocb.data, obj: address as u64, eventfd };
    Ok(DecodedIocb { command, target })
}

/// Decodes a transfer with an eventfd, without a reference to the eventfd. `None`: the iocb is for
/// another kind of request, has no eventfd, or has an error.
pub fn decode_counted(looks: &mut Looks<'_>, address: usize) -> Option<DecodedIocb> {
    let iocb = read(address).ok().filter(|iocb| iocb.flags & FLAG_RESFD != 0)?;
    let fd = iocb.fildes as i32;
    let kind = match iocb.opcode {
        cmd::PREAD | cmd::PREADV => Kind::Read,
        cmd::PWRITE | cmd::PWRITEV => Kind::Write,
        _ => return None,
    };
    let file = (fd, looks.status_flags(kind, fd).ok()?);
    let command = command(&iocb, file).ok()?;
    // SAFETY: as in `decode`.
    unsafe { memory::write(address + core::mem::offset_of!(Iocb, key), 0u32) }.ok()?;
    let eventfd = Some(iocb.resfd as i32);
    Some(DecodedIocb {
        command,
        target: EventTarget { data: iocb.data, obj: address as u64, eventfd },
    })
}

fn event_counter(looks: &mut Looks<'_>, iocb: &Iocb) -> Result<Option<i32>, Errno> {
    if iocb.flags & FLAG_RESFD == 0 {
        return Ok(None);
    }
    looks.event_counter(iocb.resfd as i32).map(Some)
}

type File = (i32, Flags);

fn command(iocb: &Iocb, file: File) -> Result<Command, Errno> {
    match iocb.opcode {
        cmd::PREAD => transfer(iocb, file, Kind::Read, one_segment),
        cmd::PWRITE => transfer(iocb, file, Kind::Write, one_segment),
        cmd::PREADV => transfer(iocb, file, Kind::Read, many_segments),
        cmd::PWRITEV => transfer(iocb, file, Kind::Write, many_segments),
        cmd::FSYNC => sync(iocb, file, Kind::Fsync),
        cmd::FDSYNC => sync(iocb, file, Kind::Fdatasync),
        cmd::POLL => poll(iocb, file),
        _ => Err(Errno::INVAL),
    }
}

fn transfer(
    iocb: &Iocb,
    file: File,
    kind: Kind,
    segments: fn(&Iocb) -> Result<Segments, Errno>,
) -> Result<Command, Errno> {
    let priority = priority(iocb)?;
    check_flags(iocb.rw_flags, file.0, kind)?;
    file.1.check(kind)?;
    let segments = segments(iocb)?;
    let len = (segments.len() as u64).min(LEN_MAX) as i64;
    if iocb.offset < 0 || iocb.offset.checked_add(len).is_none() {
        return Err(Errno::INVAL);
    }
    // SAFETY: libaio's contract: the buffers live until the event. A program that breaks the
    // contract would fail with the kernel's AIO as well.
    let mut command = unsafe { Command::new(kind, file, segments, iocb.offset) };
    // Like the kernel's AIO, ignore `HIPRI`: no thread polls for the completion.
    command.rw_flags = iocb.rw_flags & !rwf::HIPRI;
    command.priority = priority;
    Ok(command)
}

/// Checks the flags of one request as `kiocb_set_rw_flags` (include/linux/fs.h) does in the running
/// kernel.
fn check_flags(flags: u32, fd: i32, kind: Kind) -> Result<(), Errno> {
    const BOTH: u32 = rwf::APPEND | rwf::NOAPPEND;
    if flags & !rwf::OLD == 0 {
        return Ok(());
    }
    if flags & !file::known_flags() != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if flags & BOTH == BOTH {
        return Err(Errno::INVAL);
    }
    if flags & rwf::ATOMIC != 0 && !(kind == Kind::Write && file::takes_atomic_writes(fd)) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(())
}

fn one_segment(iocb: &Iocb) -> Result<Segments, Errno> {
    let len = iocb.nbytes.min(LEN_MAX);
    memory::check_range(iocb.buf, len)?;
    Ok(Segments::One(IoVec { base: iocb.buf as *mut u8, len: len as usize }))
}

fn many_segments(iocb: &Iocb) -> Result<Segments, Errno> {
    let count = iocb.nbytes as usize;
    if count > IOV_MAX {
        return Err(Errno::INVAL);
    }
    let mut segments = Vec::with_capacity(count);
    for index in 0..count {
        let address = (iocb.buf as usize).wrapping_add(index * size_of::<IoVec>());
        // SAFETY: an iovec is plain data.
        let segment: IoVec = unsafe { memory::read(address) }?;
        if (segment.len as isize) < 0 {
            return Err(Errno::INVAL);
        }
        segments.push(segment);
    }
    // Check the segments only after all of them were read, as `__import_iovec` (lib/iov_iter.c)
    // does.
    let checked = |it: &IoVec| memory::check_range(it.base as u64, it.len as u64);
    segments.iter().try_for_each(checked)?;
    Ok(match segments.as_slice() {
        [one] => Segments::One(*one),
        _ => Segments::Many(segments.into()),
    })
}

fn sync(iocb: &Iocb, file: File, kind: Kind) -> Result<Command, Errno> {
    if iocb.buf != 0 || iocb.offset != 0 || iocb.nbytes != 0 || iocb.rw_flags != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: no segments.
    Ok(unsafe { Command::new(kind, file, Segments::NONE, 0) })
}

fn poll(iocb: &Iocb, file: File) -> Result<Command, Errno> {
    let events = u16::try_from(iocb.buf).map_err(|_| Errno::INVAL)?;
    if iocb.offset != 0 || iocb.nbytes != 0 || iocb.rw_flags != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: no segments.
    Ok(unsafe { Command::new(Kind::Poll(events), file, Segments::NONE, 0) })
}

/// Returns the I/O priority of a transfer, checked as `ioprio_check_cap` (block/ioprio.c) does; 0
/// if the iocb has none. The running kernel checks priorities that this function does not know.
fn priority(iocb: &Iocb) -> Result<u16, Errno> {
    const NONE: u16 = 0;
    const BEST_EFFORT: u16 = 2;
    const IDLE: u16 = 3;
    const HINTS: u16 = 0x1ff8;
    if iocb.flags & FLAG_IOPRIO == 0 {
        return Ok(0);
    }
    let priority = iocb.reqprio as u16;
    let is_plain = match priority >> 13 {
        NONE => priority == 0,
        BEST_EFFORT => priority & HINTS == 0,
        class => class == IDLE,
    };
    if !is_plain {
        thread::check_io_priority(priority)?;
    }
    Ok(priority)
}
