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

/// A read without a readahead window starts reading at most so many pages together, and at most
/// 1/`UPFRONT_SHARE` of the pool.
const UPFRONT_PAGES_MAX: u64 = 2048;
const UPFRONT_SHARE: u64 = 4;

/// A read: copies cached pages, starts reading the missing ones, and waits for these page by page.
///
/// The first iteration that misses starts reading *all* missing pages of the request, up to 2048
/// and up to a quarter of the pool. Later iterations normally find these pages in flight. If the
/// read belongs to an open file, [`crate::readahead`] limits these pages to a window, and adds
/// pages to read ahead.
#[derive(Debug)]
pub struct ReadOperation {
    file: Arc<CachedFile>,
    user: User,
    start: u64,
    /// The next byte to copy.
    pos: u64,
    end: u64,
    /// The read has met a page that was missing, marked or not uptodate. From then on it counts no
    /// accesses, because later pages were read for this request, or read ahead.
    missed: bool,
    /// The page for which this read waited last. If the page is unlocked and not uptodate now, its
    /// fill has failed.
    waited: Option<u64>,
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

    /// Makes a read whose first `done` bytes [`CachedFile::read_cached`] has copied to the same
    /// `user`.
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

    /// Returns the number of iterations that ended by waiting.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Runs an iteration, which never waits for I/O. The caller then queues the bios on `plug`,
    /// also when the read is over. `Retry`: the read has left a wait entry. The result is the
    /// number of bytes copied; if there are none because of an error, `EIO`, or `ENOMEM` if all
    /// frames hold pages that could not be written.
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        // A read that overlaps a growing write may take the old size as the end.
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

    /// Copies until byte `end`, or until a page that is missing or not uptodate. A read of an open
    /// file also stops at a marked page. Returns `true` if the read copied up to `end`.
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
        // Comes before the check of the page's state, because a mark counts even if its page is
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
        // The request's own pages get bios of their own, so that the request does not wait for
        // pages that are read ahead.
        let own = plan.read.end.min(page(end - 1) + 1);
        let attempt = read_missing(&file, index, own, plug, wait)?;
        if attempt == Attempt::Again {
            read_ahead(&file, &Plan { read: own..plan.read.end, marker: plan.marker }, plug);
        }
        Ok(attempt)
    }

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

    fn fail(&self, errno: Errno) -> Step {
        if self.pos > self.start { self.done() } else { Step::Done(Err(errno)) }
    }
}

impl CachedFile {
    /// Copies cached bytes from byte `offset` on: up to the length of `user`, the end of the file,
    /// or a page that is missing, not uptodate or marked for readahead. Returns the number of
    /// bytes. [`ReadOperation::resume`] makes an operation for the rest.
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

#[inline]
fn copy_to_user(pin: &Pin<'_>, pos: u64, end: u64, user: &mut User) -> u64 {
    let (folio, len) = pin.at(pos);
    let len = len.min((end - pos) as usize);
    // SAFETY: the folio is pinned, and has `len` bytes from there on.
    unsafe { user.copy_to_user(folio, len) };
    len as u64
}

#[inline]
pub(crate) fn page(offset: u64) -> u64 {
    offset / FRAME_BYTES as u64
}
