//! The kernel's native AIO by its system calls.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nowait_sys::Errno;
use nowait_sys::aio::{AioContext, IoEvent, Iocb, cmd};
use nowait_sys::time::Deadline;

use super::slots::Slots;
use super::{Buffers, Engine, Peer, Place, Request, failed, require_whole};
use crate::error::{BenchError, Context, Result};

/// The file.
pub(crate) struct Libaio {
    file: Arc<File>,
}

/// A context of one thread. It comes first: dropping it waits, and the buffers go after that.
pub(crate) struct LibaioPeer {
    context: AioContext,
    file: Arc<File>,
    slots: Slots,
    block_bytes: usize,
    iocbs: Vec<Iocb>,
    events: Vec<IoEvent>,
}

impl Libaio {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        Ok(Self { file: Arc::new(super::open(place)?) })
    }
}

impl Engine for Libaio {
    type Peer = LibaioPeer;

    fn peer(&self, buffers: Buffers) -> Result<LibaioPeer> {
        let (block_bytes, depth) = (buffers.block_bytes, buffers.depth());
        let context = AioContext::new(depth as u32).map_err(failed("io_setup"))?;
        Ok(LibaioPeer {
            context,
            file: self.file.clone(),
            slots: Slots::new(buffers),
            block_bytes,
            iocbs: Vec::with_capacity(depth),
            events: vec![IoEvent::default(); depth],
        })
    }
}

impl Peer for LibaioPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        self.iocbs.clear();
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let memory = self.slots.memory(slot);
            let opcode = if request.generation > 0 { cmd::PWRITE } else { cmd::PREAD };
            self.iocbs.push(Iocb {
                data: slot as u64,
                key: 0,
                rw_flags: 0,
                opcode,
                reqprio: 0,
                fildes: self.file.as_raw_fd() as u32,
                buf: memory.base as u64,
                nbytes: memory.len as u64,
                offset: request.offset as i64,
                reserved2: 0,
                flags: 0,
                resfd: 0,
            });
        }
        let mut pointers: Vec<*mut Iocb> = self.iocbs.iter_mut().map(core::ptr::from_mut).collect();
        let mut rest = pointers.as_mut_slice();
        while !rest.is_empty() {
            // SAFETY: the kernel reads the iocbs during the call; the memory of a slot stays in
            // place until its event, for which dropping the context waits.
            let started = unsafe { self.context.submit(rest) }.map_err(failed("io_submit"))?;
            if started == 0 {
                return Err(BenchError::failed("io_submit started nothing"));
            }
            rest = &mut rest[started..];
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let events = self.context.events(min, &mut self.events, Deadline::NEVER);
        let count = events.map_err(failed("io_getevents"))?;
        for event in &self.events[..count] {
            let bytes = usize::try_from(event.res).map_err(|_| Errno::new(-event.res as i32));
            require_whole(bytes, self.block_bytes)?;
            self.slots.give_back(event.data as usize, each);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_all().context(|| "fsync".to_owned())
    }
}
