//! Copies from memory: from a mapping of the file, and from plain memory, as an upper limit.

use std::io::Read;
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use nowait_sys::memory::{HUGE_PAGE_SIZE, HugeMemory};

use crate::job::Job;
use crate::slots::Slots;
use crate::{Buffers, Engine, Peer, Request, open};
use nowait_harness::error::{Context, Result, failed};

pub(crate) struct Memory {
    source: Arc<Source>,
}

enum Source {
    Huge(HugeMemory),
    Mapped(Mmap),
}

pub(crate) struct MemoryPeer {
    source: Arc<Source>,
    slots: Slots,
    wanted: Vec<Request>,
}

impl Memory {
    /// Without `populate`, the kernel reads pages when the program first touches them.
    pub(crate) fn map(job: &Job, populate: bool) -> Result<Self> {
        let file = open(job, false, &job.paths[0])?;
        let mut options = MmapOptions::new();
        options.len(job.set_bytes as usize);
        if populate {
            options.populate();
        }
        // SAFETY: nothing writes to the file, nor truncates it, while a run only reads.
        let mapping = unsafe { options.map(&file) }.context(|| "mmap".to_owned())?;
        Ok(Self { source: Arc::new(Source::Mapped(mapping)) })
    }

    pub(crate) fn copy(job: &Job) -> Result<Self> {
        let len = job.set_bytes as usize;
        let memory = HugeMemory::new(len.next_multiple_of(HUGE_PAGE_SIZE));
        let memory = memory.map_err(failed("mmap"))?;
        // SAFETY: the mapping is that long, zeroed, and no other thread has it yet.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.base(), len) };
        open(job, false, &job.paths[0])?
            .read_exact(bytes)
            .context(|| "read the file".to_owned())?;
        Ok(Self { source: Arc::new(Source::Huge(memory)) })
    }
}

impl Source {
    fn base(&self) -> *const u8 {
        match self {
            Self::Huge(memory) => memory.base(),
            Self::Mapped(mapping) => mapping.as_ptr(),
        }
    }
}

impl Engine for Memory {
    type Peer = MemoryPeer;

    fn peer(&self, buffers: Buffers) -> Result<MemoryPeer> {
        let wanted = Vec::with_capacity(buffers.depth());
        Ok(MemoryPeer { source: self.source.clone(), slots: Slots::new(buffers), wanted })
    }
}

impl Peer for MemoryPeer {
    const ASYNCHRONOUS: bool = false;

    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        self.wanted.extend_from_slice(requests);
        Ok(())
    }

    fn reap(&mut self, _min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let base = self.source.base();
        for request in self.wanted.drain(..) {
            let Some(slot) = self.slots.take(request) else { break };
            let memory = self.slots.memory(slot);
            // SAFETY: offsets are whole blocks within the set, which the memory holds; the buffer
            // is another allocation of one block.
            unsafe {
                let from = base.add(request.offset as usize);
                from.copy_to_nonoverlapping(memory.base, memory.len);
            }
            self.slots.give_back(slot, each);
        }
        Ok(())
    }
}
