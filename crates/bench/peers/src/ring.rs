//! `io_uring`, as a program would use it: either one system call submits and waits, or submit makes
//! a system call of its own.

use std::os::fd::AsRawFd;

use nowait_sys::Errno;
use nowait_sys::file::IoVec;
use nowait_sys::time::Deadline;
use nowait_sys::uring::{Entry, Issuer, Ring, opcode, types};

use crate::buffers::Buffers;
use crate::slots::Slots;
use crate::{Files, Peer, Request, sync};
use nowait_harness::error::{Failure, Result, failed};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Style {
    issuer: Issuer,
    /// Submit enters the kernel. Otherwise the call that waits also submits.
    eager: bool,
    registered: bool,
}

pub(crate) struct UringPeer {
    ring: Ring,
    files: Files,
    style: Style,
    slots: Slots,
    /// Lists of several segments by slot, which the kernel may read until the request ends.
    lists: Vec<Vec<IoVec>>,
    /// Number of entries in the submission queue that the kernel does not have yet.
    pending: u32,
    in_flight: usize,
}

impl Style {
    pub(crate) const fn lazy(issuer: Issuer) -> Self {
        Self { issuer, eager: false, registered: false }
    }

    pub(crate) const fn eager(registered: bool) -> Self {
        // Registered rings get all options that make a ring cheap.
        let issuer = if registered { Issuer::InTurn } else { Issuer::Any };
        Self { issuer, eager: true, registered }
    }
}

impl UringPeer {
    pub(crate) fn new(style: Style, files: Files, buffers: Buffers) -> Result<Self> {
        let depth = buffers.depth();
        let ring = Ring::new(depth as u32, style.issuer).map_err(failed("io_uring_setup"))?;
        let several = buffers.segments > 1;
        let mut slots = Slots::new(buffers);
        let segments = (0..depth).filter(|_| several).map(|slot| slots.segments(slot));
        let lists = segments.collect();
        if style.registered {
            let buffers: Vec<IoVec> = (0..depth).map(|slot| slots.memory(slot)).collect();
            // SAFETY: the ring is dropped before the slots, which do not move their memory.
            let registered = unsafe { ring.register(&buffers, files[0].as_raw_fd()) };
            registered.map_err(|errno| {
                Failure::usage(format!("buffers cannot be registered here: {errno}"))
            })?;
        }
        Ok(Self { ring, files, style, slots, lists, pending: 0, in_flight: 0 })
    }
}

impl Peer for UringPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let memory = self.slots.memory(slot);
            let entry = self.entry(slot, memory, request);
            // SAFETY: this thread alone uses the ring; the memory of a slot stays in place until
            // its completion, for which `drop` waits.
            if !unsafe { self.ring.push(&entry.user_data(slot as u64)) } {
                return Err(Failure::new("the submission queue is full"));
            }
            self.pending += 1;
            self.in_flight += 1;
        }
        while self.style.eager && self.pending > 0 {
            self.enter(0)?;
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        // SAFETY: this thread alone uses the ring.
        if !self.style.eager || min > 0 && !unsafe { self.ring.has_completions() } || min > 1 {
            self.enter(min as u32)?;
        }
        // SAFETY: this thread alone uses the ring.
        while let Some(completion) = unsafe { self.ring.pop() } {
            self.in_flight -= 1;
            let bytes = usize::try_from(completion.result);
            let bytes = bytes.map_err(|_| Errno::new(-completion.result));
            self.slots.end(completion.user_data as usize, bytes, each)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.files)
    }
}

impl UringPeer {
    /// Submits the pending entries, and waits for `min` completions or a signal.
    fn enter(&mut self, min: u32) -> Result<()> {
        match self.ring.enter(self.pending, min, Deadline::NEVER) {
            Ok(entered) => self.pending -= entered as u32,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("io_uring_enter")(errno)),
        }
        Ok(())
    }

    fn entry(&self, slot: usize, memory: IoVec, request: &Request) -> Entry {
        let (base, len, offset) = (memory.base, memory.len as u32, request.offset);
        let write = request.generation > 0;
        if self.style.registered {
            let (file, index) = (types::Fixed(0), slot as u16);
            return match write {
                false => opcode::ReadFixed::new(file, base, len, index).offset(offset).build(),
                true => opcode::WriteFixed::new(file, base, len, index).offset(offset).build(),
            };
        }
        let fd = types::Fd(self.files[0].as_raw_fd());
        if let Some(list) = self.lists.get(slot) {
            let (first, count) = (list.as_ptr().cast(), list.len() as u32);
            return match write {
                false => opcode::Readv::new(fd, first, count).offset(offset).build(),
                true => opcode::Writev::new(fd, first, count).offset(offset).build(),
            };
        }
        match write {
            false => opcode::Read::new(fd, base, len).offset(offset).build(),
            true => opcode::Write::new(fd, base, len).offset(offset).build(),
        }
    }
}

impl Drop for UringPeer {
    fn drop(&mut self) {
        while self.in_flight > 0 && self.reap(1, &mut |_, _| ()).is_ok() {}
    }
}
