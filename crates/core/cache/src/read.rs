//! A read of a cached file.

use crate::FRAME_BYTES;
use crate::copy::User;
use crate::file::CachedFile;
use crate::memory::{Attempt, read_missing};
use crate::open_file::{OpenFile, read_ahead};
use crate::page_wait::Reason;
use crate::pin::Pin;
use crate::primitives::Arc;
use crate::readahead::{Plan, Request};
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::Errno;

/// The most pages that one request reads at once, and the part of the pool that it may take: a
/// quarter.
const UPFRONT_PAGES_MAX: u64 = 2048;
const UPFRONT_SHARE: u64 = 4;

/// A read: copies cached pages, starts reading the missing ones, and waits for these page by page.
///
/// The first iteration that misses creates *all* missing pages of the request, up to a quarter of
/// the pool, and puts their bios on the plug list; later iterations find them in flight and
/// continue where the last one stopped. A hit is copied without a lock, an allocation or a wait
/// entry. If the read belongs to an open file, [`crate::readahead`] decides what is read ahead
/// besides.
#[derive(Debug)]
pub struct ReadOperation {
    file: Arc<CachedFile>,
    user: User,
    start: u64,
    /// The next byte to copy.
    pos: u64,
    end: u64,
    /// `true`: a page was missing. The pages after it were read for this request, or read ahead, so
    /// they count no access.
    missed: bool,
    /// The page that was waited for last: if it is not uptodate now, its read failed.
    waited: Option<u64>,
    /// Iterations that ended by waiting.
    retries: u32,
    open: Option<(Arc<OpenFile>, Request)>,
}

impl ReadOperation {
    /// Makes a read from byte `offset` into all of `user`.
    pub fn new(file: Arc<CachedFile>, offset: u64, user: User) -> ReadOperation {
        let end = offset.saturating_add(user.len() as u64);
        let (start, pos, missed, waited, retries, open) = (offset, offset, false, None, 0, None);
        ReadOperation { file, user, start, pos, end, missed, waited, retries, open }
    }

    /// Makes a read of which the first `done` bytes were copied by [`CachedFile::read_cached`],
    /// to the same `user`.
    pub fn resume(file: Arc<CachedFile>, offset: u64, done: usize, user: User) -> ReadOperation {
        let mut read = ReadOperation::new(file, offset, user);
        read.pos += done as u64;
        read
    }

    /// Lets the read use the readahead state of an open file. `asynchronous`: the submitter does
    /// not wait for this read.
    #[must_use]
    pub fn with_readahead(mut self, open: Arc<OpenFile>, asynchronous: bool) -> ReadOperation {
        let pages = page(self.start)..self.end.div_ceil(FRAME_BYTES as u64);
        self.open = Some((open, Request::new(pages, asynchronous)));
        self
    }

    /// Returns how many iterations ended by waiting.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Runs an iteration. Never blocks. The caller then queues the bios on `plug`, also when the
    /// read is over. The result is the number of bytes, `EIO`, or `ENOMEM`: all frames hold pages
    /// that could not be written.
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        // The size at the begin of the iteration: a read that overlaps a growing write may see
        // the old end.
        let end = self.end.min(self.file.size());
        while !self.copy_present(end) {
            match self.handle_miss(end, plug, wait) {
                Ok(Attempt::Again) => {}
                Ok(Attempt::Wait) => {
                    self.retries += 1;
                    return Step::Retry;
                }
                Err(errno) => return self.fail(errno),
            }
        }
        self.done()
    }

    /// Copies up to byte `end`, or to a page that is missing, not uptodate, or marked for the
    /// readahead of this open. Returns `true` if it copied up to `end`.
    #[inline]
    fn copy_present(&mut self, end: u64) -> bool {
        let mapping = self.file.mapping();
        while self.pos < end {
            let index = page(self.pos);
            let found = if self.missed { mapping.find_cold(index) } else { mapping.find(index) };
            let Some(pin) = found else { return false };
            let state = pin.state();
            if !state.is_uptodate() || (state.is_marker() && self.open.is_some()) {
                return false;
            }
            self.pos += copy_to_user(&pin, self.pos, end, &mut self.user);
        }
        true
    }

    /// Starts or awaits the read of the page at the position. `Again`: the page can be copied now,
    /// or has changed.
    fn handle_miss(
        &mut self,
        end: u64,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Result<Attempt, Errno> {
        let (file, index) = (self.file.clone(), page(self.pos));
        self.missed = true;
        let Some(pin) = file.mapping().look_up(index) else {
            if file.mapping().wait_open(index, wait) {
                return Ok(Attempt::Wait);
            }
            return self.read_missing(end, plug, wait);
        };
        // Before the page's state is checked: the pages to read ahead are read even if this page is
        // uptodate.
        if let Some((open, request)) = &mut self.open {
            let plan = open.take_mark(&file, request, &pin, index);
            read_ahead(&file, &plan, plug);
        }
        let state = pin.state();
        if state.is_uptodate() {
            return Ok(Attempt::Again);
        }
        if state.is_locked() {
            if !file.mapping().wait(&pin, Reason::Unlocked, wait) {
                return Ok(Attempt::Again);
            }
            self.waited = Some(index);
            return Ok(Attempt::Wait);
        }
        if self.waited == Some(index) {
            return Err(Errno::IO);
        }
        drop(pin);
        if file.mapping().wait_open(index, wait) {
            return Ok(Attempt::Wait);
        }
        self.read_rest(end, plug, wait)
    }

    /// Reads the missing page at the position, the rest of the request and, without waiting for it,
    /// what is worth reading ahead.
    fn read_missing(
        &mut self,
        end: u64,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Result<Attempt, Errno> {
        let (file, index) = (self.file.clone(), page(self.pos));
        let plan = match &mut self.open {
            Some((open, request)) => open.miss(&file, request, index),
            None => Plan::NONE,
        };
        if plan.read.is_empty() {
            return self.read_rest(end, plug, wait);
        }
        // The request's own pages get their own bios, so that it does not wait for pages that are
        // read ahead.
        let own = plan.read.end.min(page(end - 1) + 1);
        let attempt = read_missing(&file, index, own, plug, wait)?;
        if attempt == Attempt::Again {
            read_ahead(&file, &Plan { read: own..plan.read.end, marker: plan.marker }, plug);
        }
        Ok(attempt)
    }

    /// Creates and reads the missing pages of the request, up to its part of the pool.
    fn read_rest(
        &self,
        end: u64,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Result<Attempt, Errno> {
        let from = page(self.pos);
        let share = u64::from(self.file.cache().frames().total()) / UPFRONT_SHARE;
        let most = UPFRONT_PAGES_MAX.min(share).max(1);
        let end = page(end - 1) + 1;
        read_missing(&self.file, from, end.min(from + most), plug, wait)
    }

    fn done(&self) -> Step {
        Step::Done(Ok((self.pos - self.start) as u32))
    }

    /// Ends the read: with the bytes already read, or else with `errno`.
    fn fail(&self, errno: Errno) -> Step {
        if self.pos > self.start { self.done() } else { Step::Done(Err(errno)) }
    }
}

impl CachedFile {
    /// Copies cached bytes from byte `offset` on, up to the length of `user`, the end of the file,
    /// the first page that is missing, or one that is marked for readahead; returns the number of
    /// bytes. A first attempt that makes no operation; [`ReadOperation::resume`] continues after
    /// it.
    #[inline]
    pub fn read_cached(&self, offset: u64, user: &mut User) -> usize {
        let end = offset.saturating_add(user.len() as u64).min(self.size());
        let mut pos = offset;
        while pos < end {
            let Some(pin) = self.mapping().find(page(pos)) else { break };
            let state = pin.state();
            if !state.is_uptodate() || state.is_marker() {
                break;
            }
            pos += copy_to_user(&pin, pos, end, user);
        }
        (pos - offset) as usize
    }
}

/// Copies the bytes from `pos` to before `end`, as far as the folio goes; returns how many.
#[inline]
fn copy_to_user(pin: &Pin<'_>, pos: u64, end: u64, user: &mut User) -> u64 {
    let (folio, len) = pin.at(pos);
    let len = len.min((end - pos) as usize);
    // SAFETY: pinned, and `len` bytes of it follow from there.
    unsafe { user.copy_to_user(folio, len) };
    len as u64
}

/// Returns the page that a byte is in.
#[inline]
pub(crate) fn page(offset: u64) -> u64 {
    offset / FRAME_BYTES as u64
}
