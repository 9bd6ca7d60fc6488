//! `io_uring`, as a program would use it: one system call submits and waits.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nowait_sys::Errno;
use nowait_sys::time::Deadline;
use nowait_sys::uring::{Issuer, Ring, opcode, types};

use super::slots::Slots;
use super::{Engine, Peer, Request, failed, require_whole};
use crate::cached::spec::Spec;
use crate::error::{BenchError, Context, Result};

/// The file, and how rings are made.
pub(crate) struct Uring {
    file: Arc<File>,
    issuer: Issuer,
}

/// A ring of one thread.
pub(crate) struct UringPeer {
    ring: Ring,
    file: Arc<File>,
    slots: Slots,
    block_bytes: usize,
    /// In the submission queue, not yet handed over.
    pending: u32,
    in_flight: usize,
}

impl Uring {
    pub(crate) fn open(spec: &Spec, issuer: Issuer) -> Result<Self> {
        Ok(Self { file: Arc::new(super::open(spec)?), issuer })
    }
}

impl Engine for Uring {
    type Peer = UringPeer;

    fn peer(&self, block_bytes: usize, depth: usize) -> Result<UringPeer> {
        Ok(UringPeer {
            ring: Ring::new(depth as u32, self.issuer).map_err(failed("io_uring_setup"))?,
            file: self.file.clone(),
            slots: Slots::new(block_bytes, depth),
            block_bytes,
            pending: 0,
            in_flight: 0,
        })
    }
}

impl Peer for UringPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let memory = self.slots.memory(slot);
            let (base, len, offset) = (memory.base, memory.len as u32, request.offset);
            let entry = match request.generation {
                0 => opcode::Read::new(fd, base, len).offset(offset).build(),
                _ => opcode::Write::new(fd, base, len).offset(offset).build(),
            };
            // SAFETY: this thread alone uses the ring; the memory of a slot stays in place until
            // its completion, for which `drop` waits.
            if !unsafe { self.ring.push(&entry.user_data(slot as u64)) } {
                return Err(BenchError::failed("the submission queue is full"));
            }
            self.pending += 1;
            self.in_flight += 1;
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        match self.ring.enter(self.pending, min as u32, Deadline::NEVER) {
            Ok(entered) => self.pending -= entered as u32,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("io_uring_enter")(errno)),
        }
        // SAFETY: this thread alone uses the ring.
        while let Some(completion) = unsafe { self.ring.pop() } {
            self.in_flight -= 1;
            let bytes = usize::try_from(completion.result);
            let bytes = bytes.map_err(|_| Errno::new(-completion.result));
            require_whole(bytes, self.block_bytes)?;
            self.slots.give_back(completion.user_data as usize, each);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_all().context(|| "fsync".to_owned())
    }
}

impl Drop for UringPeer {
    fn drop(&mut self) {
        while self.in_flight > 0 && self.reap(1, &mut |_, _| ()).is_ok() {}
    }
}
