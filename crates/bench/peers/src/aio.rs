//! The kernel's native AIO by its system calls.

use std::os::fd::AsRawFd;

use nowait_sys::Errno;
use nowait_sys::aio::{AioContext, IoEvent, Iocb, cmd};
use nowait_sys::time::Deadline;

use crate::buffers::Buffers;
use crate::slots::Slots;
use crate::{Files, Peer, Request, sync};
use nowait_harness::error::{Failure, Result, failed};

/// The context, as the first field, is dropped before the buffers: its drop waits for its requests.
pub(crate) struct AioPeer {
    context: AioContext,
    files: Files,
    slots: Slots,
    iocbs: Vec<Iocb>,
    pointers: Vec<*mut Iocb>,
    events: Vec<IoEvent>,
}

impl AioPeer {
    pub(crate) fn new(files: Files, buffers: Buffers) -> Result<Self> {
        let depth = buffers.depth();
        Ok(Self {
            context: AioContext::new(depth as u32).map_err(failed("io_setup"))?,
            files,
            slots: Slots::new(buffers),
            iocbs: Vec::with_capacity(depth),
            pointers: Vec::with_capacity(depth),
            events: vec![IoEvent::default(); depth],
        })
    }

    fn iocb(&mut self, slot: usize, request: &Request) -> Iocb {
        let memory = self.slots.memory(slot);
        Iocb {
            data: slot as u64,
            key: 0,
            rw_flags: 0,
            opcode: if request.generation > 0 { cmd::PWRITE } else { cmd::PREAD },
            reqprio: 0,
            fildes: self.files[request.file as usize].as_raw_fd() as u32,
            buf: memory.base as u64,
            nbytes: memory.len as u64,
            offset: request.offset as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        }
    }
}

impl Peer for AioPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        self.iocbs.clear();
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let iocb = self.iocb(slot, request);
            self.iocbs.push(iocb);
        }
        self.pointers.clear();
        self.pointers.extend(self.iocbs.iter_mut().map(core::ptr::from_mut));
        let mut rest = self.pointers.as_mut_slice();
        while !rest.is_empty() {
            // SAFETY: the memory of a slot stays in place until its event, for which dropping the
            // context waits. The kernel reads the iocbs during the call only.
            let started = unsafe { self.context.submit(rest) }.map_err(failed("io_submit"))?;
            if started == 0 {
                return Err(Failure::new("io_submit started nothing"));
            }
            rest = &mut rest[started..];
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let taken = self.context.events(min, &mut self.events, Deadline::NEVER);
        let taken = taken.map_err(failed("io_getevents"))?;
        for event in &self.events[..taken] {
            let bytes = usize::try_from(event.res).map_err(|_| Errno::new(-event.res as i32));
            self.slots.end(event.data as usize, bytes, each)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.files)
    }
}
