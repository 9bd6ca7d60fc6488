//! An engine, a context and requests, driven in the same process: for what no fio job can ask.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nowait::AlignedBuffer;
use nowait_engine::{
    BackendChoice, Command, Config, Context, Engine, EventTarget, Kind, Segments, Submission,
    command::open_for,
};
use nowait_sys::memory::{HUGE_PAGE_SIZE, HugeMemory};
use nowait_sys::{Errno, file::IoVec, time::Deadline};

use crate::error::{BenchError, Result, failed};
use crate::pattern;

/// Starts an engine with `backend`.
pub fn engine(backend: BackendChoice) -> Result<Arc<Engine>> {
    let config = Config { backend, ..Config::default() };
    Engine::on_machine(config, "named by the benchmark".to_owned())
        .map_err(failed("start an engine"))
}

/// Memory of requests, aligned for direct I/O.
pub enum Memory {
    /// In pages of 4 KiB.
    Small(AlignedBuffer),
    /// In huge pages, as far as the system has them: to the device each is one piece.
    Huge(HugeMemory),
}

impl Memory {
    /// Makes so many bytes of it, in huge pages or not.
    pub fn new(bytes: usize, huge: bool) -> Result<Memory> {
        if !huge {
            return Ok(Memory::Small(AlignedBuffer::zeroed(bytes)));
        }
        let made = HugeMemory::new(bytes.next_multiple_of(HUGE_PAGE_SIZE));
        made.map(Memory::Huge).map_err(failed("huge pages"))
    }

    /// Returns a part of it.
    pub fn segment(&self, offset: usize, len: usize) -> IoVec {
        let base = match self {
            Memory::Small(buffer) => buffer.as_ptr().cast_mut(),
            Memory::Huge(memory) => memory.base(),
        };
        IoVec { base: base.wrapping_add(offset), len }
    }

    /// Returns `true` if a part holds the data at byte `at` of a file with a pattern, by the
    /// beginning of each page; data that writes of other workloads have left there is as good.
    ///
    /// # Safety
    /// The part lies inside the memory, and no request that may write there is in flight.
    pub unsafe fn is_in_place(&self, offset: usize, len: usize, at: u64) -> bool {
        let part = self.segment(offset, len);
        // SAFETY: live memory of ours; the caller keeps all others from writing there.
        let bytes = unsafe { core::slice::from_raw_parts(part.base, part.len) };
        pattern::is_in_place(at, bytes)
    }
}

/// Fails unless a request has moved as many bytes as it was to.
pub fn expect_whole(res: i64, expected_bytes: usize) -> Result<()> {
    if res == expected_bytes as i64 {
        return Ok(());
    }
    Err(BenchError::failed(format!("a request ended with {res} instead of {expected_bytes}")))
}

/// Returns the error of a read whose bytes are not those of its place.
pub fn wrong_bytes(at: u64) -> BenchError {
    BenchError::failed(format!("a read at byte {at} returned wrong bytes"))
}

/// A context and the memory of its requests.
pub struct Rig {
    pub context: Arc<Context>,
    memory: Memory,
}

impl Rig {
    /// Makes a context for `requests` and `bytes` of memory, aligned for direct I/O.
    pub fn new(engine: &Arc<Engine>, requests: usize, bytes: usize) -> Result<Rig> {
        Rig::with_memory(engine, requests, Memory::new(bytes, false)?)
    }

    /// Makes a context for `requests` in this memory.
    pub fn with_memory(engine: &Arc<Engine>, requests: usize, memory: Memory) -> Result<Rig> {
        let context = Context::new(engine, 0, requests as u32).map_err(failed("make a context"))?;
        Ok(Rig { context, memory })
    }

    /// Returns the memory of the requests.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns a part of the memory.
    pub fn segment(&self, offset: usize, len: usize) -> IoVec {
        self.memory.segment(offset, len)
    }

    /// Submits transfers between `file` and parts of this memory in one step; each has a name.
    pub fn submit(
        &self,
        file: &File,
        kind: Kind,
        transfers: impl ExactSizeIterator<Item = (u64, Segments, u64)>,
    ) -> Result<()> {
        let fd = file.as_raw_fd();
        let flags = open_for(fd).map_err(failed("the file"))?;
        let count = transfers.len();
        if self.context.io().reserve(count).map_err(failed("submit"))? < count {
            return Err(BenchError::failed("submit: the context is full"));
        }
        let mut submission = Submission::new(&self.context);
        for (name, segments, offset) in transfers {
            // SAFETY: the segments are parts of this memory, which `Drop` keeps until the end.
            let command = unsafe { Command::new(kind, (fd, flags), segments, offset as i64) };
            let target = EventTarget { data: name, obj: name, eventfd: None };
            submission.submit(command, target).map_err(failed("submit"))?;
        }
        submission.finish();
        Ok(())
    }

    /// Waits for at least one event, takes all that are there, and gives their names to `sink`.
    ///
    /// # Errors
    /// One of them has not moved `expected_bytes`.
    pub fn reap(
        &self,
        max: usize,
        expected_bytes: usize,
        mut sink: impl FnMut(u64),
    ) -> Result<usize> {
        let mut whole = Ok(());
        let taken = self.context.wait_events(1, max, Deadline::NEVER, None, |_, event| {
            if whole.is_ok() {
                whole = expect_whole(event.res, expected_bytes);
            }
            sink(event.data);
            Ok(())
        });
        whole.and_then(|()| taken.map_err(failed("wait")))
    }

    /// Waits for at least one event, and takes up to `max`: names and results.
    pub fn reap_results(&self, max: usize, ended: &mut Vec<(u64, i64)>) -> Result<()> {
        let taken = self.context.wait_events(1, max, Deadline::NEVER, None, |_, event| {
            ended.push((event.data, event.res));
            Ok(())
        });
        match taken {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(failed("wait")(errno)),
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Before the memory goes.
        let _ = self.context.destroy();
    }
}
