//! A context with reads in flight on many files: of nowait, or of the kernel's native AIO.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nowait::{Nowait, Queue};
use nowait_sys::Errno;
use nowait_sys::aio::{AioContext, IoEvent, Iocb, cmd};
use nowait_sys::time::Deadline;

use crate::error::{BenchError, Result, failed};
use crate::peers::buffers::Buffer;
use crate::peers::slots::Slots;
use crate::peers::{Buffers, Request};

/// A context with its buffers; the tag of a request is the number of its file.
pub(super) trait Ring {
    /// Starts reads, at most as many as fit beside those in flight.
    fn submit(&mut self, requests: &[Request]) -> Result<()>;

    /// Waits until `min` reads are over; hands over each one that is, with its bytes.
    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()>;
}

/// One of nowait.
pub(super) struct OwnRing {
    queue: Queue<Request, Buffer>,
    files: Arc<Vec<nowait::File>>,
    spare: Vec<Buffer>,
}

/// One of the kernel. The context comes first: dropping it waits, and the buffers go after that.
pub(super) struct KernelRing {
    context: AioContext,
    files: Arc<Vec<File>>,
    slots: Slots,
    iocbs: Vec<Iocb>,
    pointers: Vec<*mut Iocb>,
    events: Vec<IoEvent>,
}

// SAFETY: the pointers are of one call of `submit`, and mean nothing between two of them.
unsafe impl Send for KernelRing {}

impl OwnRing {
    pub(super) fn new(
        nowait: &Nowait,
        files: Arc<Vec<nowait::File>>,
        buffers: Buffers,
    ) -> Result<Self> {
        let queue = nowait.queue(buffers.depth()).map_err(explain)?;
        Ok(Self { queue, files, spare: buffers.list })
    }
}

impl Ring for OwnRing {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        for request in requests {
            let Some(buffer) = self.spare.pop() else { break };
            let file = &self.files[request.tag as usize];
            let taken = self.queue.read(file, buffer, request.offset, *request);
            taken.map_err(|refused| explain(refused.into()))?;
        }
        self.queue.submit();
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let mut wrong = None;
        let spare = &mut self.spare;
        let reaped = self.queue.reap(min, None, |completion| {
            let Some(buffer) = completion.buffers.one() else { return };
            match completion.result {
                Ok(bytes) if bytes == buffer.len() => each(completion.tag, &buffer),
                Ok(bytes) => wrong = Some(format!("{bytes} bytes were moved")),
                Err(error) => wrong = Some(error.to_string()),
            }
            spare.push(buffer);
        });
        reaped.map_err(explain)?;
        wrong.map_or(Ok(()), |message| Err(BenchError::failed(message)))
    }
}

impl KernelRing {
    pub(super) fn new(files: Arc<Vec<File>>, buffers: Buffers) -> Result<Self> {
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
            opcode: cmd::PREAD,
            reqprio: 0,
            fildes: self.files[request.tag as usize].as_raw_fd() as u32,
            buf: memory.base as u64,
            nbytes: memory.len as u64,
            offset: request.offset as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        }
    }
}

impl Ring for KernelRing {
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
            // SAFETY: the memory of a slot stays in place until its event.
            let started = unsafe { self.context.submit(rest) }.map_err(failed("io_submit"))?;
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
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn explain(error: nowait::Error) -> BenchError {
    BenchError::failed(error.to_string())
}
