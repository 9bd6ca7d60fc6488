//! Our page cache one level below the native API: no table of buffers, or no buffer at all.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use nowait_engine::command::Flags;
use nowait_engine::{
    Command, Config, Context, EventTarget, Kind, Segments, Started, Submission, choice,
};
use nowait_file::{Ahead, Lookahead, UserFile};
use nowait_sys::time::Deadline;

use super::slots::Slots;
use super::{Buffers, Engine, Peer, Place, Request};
use crate::error::{BenchError, Result, failed};

/// An engine of ours and the file in its cache.
pub(crate) struct Lower {
    engine: Arc<nowait_engine::Engine>,
    file: Arc<UserFile>,
    /// Lend pages instead of copying them, for blocks up to this size.
    lend_bytes_max: usize,
}

/// A context, with buffers, or without.
pub(crate) struct LowerPeer {
    context: Arc<Context>,
    file: Arc<UserFile>,
    slots: Slots,
    block_bytes: usize,
    lend: bool,
    /// Ended in submit: the slot, and the bytes that were read.
    over: Vec<(usize, usize)>,
    commands: Vec<(usize, Command)>,
    lookahead: Lookahead,
    /// To be lent.
    wanted: Vec<Request>,
}

impl Lower {
    /// `lend_bytes_max` is 0 for copies.
    pub(crate) fn open(place: &Place, lend_bytes_max: usize) -> Result<Self> {
        if place.write {
            return Err(BenchError::usage("this engine only reads"));
        }
        let (backend, cache_bytes) = (place.backend, place.pool_bytes);
        let config = Config { backend, cache_bytes, ..Config::default() };
        let engine = choice::start_exactly(&config)
            .map_err(|(errno, reason)| BenchError::failed(format!("{errno} {reason}")))?;
        let opened = super::open(place)?;
        let file = UserFile::open(&engine, opened.as_raw_fd()).map_err(failed("open"))?;
        Ok(Self { engine, file, lend_bytes_max })
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

impl Engine for Lower {
    type Peer = LowerPeer;

    fn peer(&self, buffers: Buffers) -> Result<LowerPeer> {
        let (block_bytes, depth) = (buffers.block_bytes, buffers.depth());
        let context = Context::new(&self.engine, 0, depth as u32).map_err(failed("context"))?;
        let lend = block_bytes <= self.lend_bytes_max;
        Ok(LowerPeer {
            lookahead: Lookahead::of(if lend { Ahead::Look } else { Ahead::Copy }),
            context,
            file: self.file.clone(),
            slots: Slots::new(buffers),
            block_bytes,
            lend,
            over: Vec::with_capacity(depth),
            commands: Vec::with_capacity(depth),
            wanted: Vec::with_capacity(depth),
        })
    }

    fn has_own_cache(&self) -> bool {
        true
    }
}

impl Peer for LowerPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        if self.lend {
            self.wanted.extend_from_slice(requests);
            return Ok(());
        }
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let segments = Segments::One(self.slots.memory(slot));
            // SAFETY: the memory of a slot stays in place until the slot is given back, which is
            // after the request is over; `drop` waits for the others.
            let command = unsafe {
                Command::new(Kind::Read, (-1, Flags::Read(0)), segments, request.offset as i64)
            };
            self.commands.push((slot, command));
        }
        self.start()
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        if self.lend {
            return self.lend_all(each);
        }
        let need = min.saturating_sub(self.over.len());
        let over = self.over.len();
        for (slot, bytes) in self.over.drain(..) {
            self.slots.end(slot, Ok(bytes), each)?;
        }
        let deadline = if over >= min { Deadline::NOW } else { Deadline::NEVER };
        let mut ended = Vec::new();
        let waited = self.context.wait_events(need, usize::MAX >> 1, deadline, None, |_, event| {
            ended.push((event.data as usize, event.res));
            Ok(())
        });
        waited.map_err(failed("wait"))?;
        for (slot, result) in ended {
            let bytes = usize::try_from(result).map_err(|_| nowait::Errno::IO);
            self.slots.end(slot, bytes, each)?;
        }
        Ok(())
    }
}

impl LowerPeer {
    /// Starts the commands that were made, as the native queue does.
    fn start(&mut self) -> Result<()> {
        let io = self.context.io();
        let count = self.commands.len();
        if io.reserve(count).map_err(failed("submit"))? < count {
            return Err(BenchError::failed("the context is full"));
        }
        let mut submission = Submission::new(&self.context);
        let file = &self.file;
        let read = |(_, command): &(usize, Command)| {
            Some((file.as_ref(), command.offset as u64, command.len as usize))
        };
        self.lookahead.look(self.commands.iter().map(read));
        let mut free = 0;
        for (index, (slot, command)) in self.commands.iter().enumerate() {
            self.lookahead.step(index, |index| self.commands.get(index).and_then(read));
            let target = EventTarget { data: *slot as u64, obj: *slot as u64, eventfd: None };
            let started = submission.start_on(file, command, &target);
            if let Some(bytes) = Started::result(started).transpose().map_err(failed("submit"))? {
                self.over.push((*slot, bytes as usize));
                free += 1;
            }
        }
        self.commands.clear();
        io.release(free);
        submission.finish();
        Ok(())
    }

    /// Lends and looks at what is wanted, as [`nowait::File::lend_each`] does.
    fn lend_all(&mut self, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let (file, len) = (&self.file, self.block_bytes);
        let read = |request: &Request| Some((file.as_ref(), request.offset, len));
        self.lookahead.look(self.wanted.iter().map(read));
        for (index, request) in self.wanted.iter().enumerate() {
            self.lookahead.step(index, |index| self.wanted.get(index).and_then(read));
            let Some(range) = file.cached().pin_range(request.offset, len) else {
                return Err(BenchError::failed("a page was not in the cache"));
            };
            if range.len() != len {
                return Err(BenchError::failed(format!("{} of {len} bytes", range.len())));
            }
            for chunk in range.chunks() {
                each(*request, chunk);
            }
        }
        self.wanted.clear();
        Ok(())
    }
}

impl Drop for LowerPeer {
    fn drop(&mut self) {
        // Waits for what is in flight; the only error is that another thread does it.
        let _ = self.context.destroy();
        self.context.io().ring().memory().unmap_theirs(self.context.address());
    }
}
