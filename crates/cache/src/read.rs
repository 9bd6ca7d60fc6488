//! A read of a cached file.

use crate::FRAME_BYTES;
use crate::copy::User;
use crate::file::CachedFile;
use crate::memory::{Attempt, read_missing};
use crate::page_wait::Reason;
use crate::pin::Pin;
use crate::sync::Arc;
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::Errno;

/// Most pages that one request announces at once, and the share of the pool it may take.
const UPFRONT_PAGES_MAX: u64 = 2048;
const UPFRONT_SHARE: u64 = 4;

/// A read: copies what is there, has the rest read, and waits for it page by page.
///
/// The first iteration that misses creates *all* missing pages of the request and puts their bios
/// on the plug list; retries find them under way and go on where they were. A hit is copied
/// without a lock, an allocation or a wait entry.
#[derive(Debug)]
pub struct ReadOperation {
    file: Arc<CachedFile>,
    user: User,
    start: u64,
    /// The next byte to copy.
    pos: u64,
    end: u64,
    /// The page that was waited for last: if it is not uptodate now, its read failed.
    waited: Option<u64>,
    /// Iterations that ended by waiting.
    retries: u32,
}

impl ReadOperation {
    /// Makes a read from byte `offset` into all of `user`.
    pub fn new(file: Arc<CachedFile>, offset: u64, user: User) -> ReadOperation {
        let end = offset.saturating_add(user.len() as u64);
        ReadOperation { file, user, start: offset, pos: offset, end, waited: None, retries: 0 }
    }

    /// Makes a read of which the first `done` bytes were copied by [`CachedFile::read_cached`],
    /// to the same `user`.
    pub fn resume(file: Arc<CachedFile>, offset: u64, done: usize, user: User) -> ReadOperation {
        let mut read = ReadOperation::new(file, offset, user);
        read.pos += done as u64;
        read
    }

    /// Returns how many iterations ended by waiting.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Runs an iteration. Never blocks. The caller queues what is on `plug` after it, also when
    /// the read is over. The result is the number of bytes, `EIO`,
    /// or `ENOMEM`: all memory holds what could not be written.
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        // The size at the begin of the iteration: a read that overlaps a growing write may see
        // the old end.
        let end = self.end.min(self.file.size());
        while self.pos < end {
            let mapping = self.file.mapping();
            let Some(pin) = mapping.find(page(self.pos)) else {
                match self.read_rest(end, plug, wait) {
                    Ok(Attempt::Again) => continue,
                    Ok(Attempt::Wait) => return self.retry(),
                    Err(errno) => return self.fail(errno),
                }
            };
            let state = pin.state();
            if state.is_uptodate() {
                self.pos += put(&pin, self.pos, end, &mut self.user);
            } else if state.is_locked() {
                if mapping.wait(&pin, Reason::Unlocked, wait) {
                    self.waited = Some(page(self.pos));
                    drop(pin);
                    return self.retry();
                }
            } else if self.waited == Some(page(self.pos)) {
                return self.fail(Errno::IO);
            } else if self.read_rest(end, plug, wait) == Ok(Attempt::Wait) {
                // It has its frame: there is no other error than the one it will have.
                drop(pin);
                return self.retry();
            }
        }
        Step::Done(Ok((self.pos - self.start) as u32))
    }

    /// Creates and reads all that is missing, as far as the pool is not overrun.
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

    fn retry(&mut self) -> Step {
        self.retries += 1;
        Step::Retry
    }

    /// Bytes already read win over an error.
    fn fail(&self, errno: Errno) -> Step {
        match self.pos - self.start {
            0 => Step::Done(Err(errno)),
            bytes => Step::Done(Ok(bytes as u32)),
        }
    }
}

impl CachedFile {
    /// Copies what is cached from byte `offset` on, up to the length of `user`, the end of the
    /// file, or the first page that is missing; returns the number of bytes. For a first attempt
    /// that costs no operation: [`ReadOperation::resume`] goes on from there.
    #[inline]
    pub fn read_cached(&self, offset: u64, user: &mut User) -> usize {
        let end = offset.saturating_add(user.len() as u64).min(self.size());
        let mut pos = offset;
        while pos < end {
            let Some(pin) = self.mapping().find(page(pos)) else { break };
            if !pin.state().is_uptodate() {
                break;
            }
            pos += put(&pin, pos, end, user);
        }
        (pos - offset) as usize
    }
}

/// Copies the bytes from `pos` to before `end`, as far as the folio goes; returns how many.
#[inline]
fn put(pin: &Pin<'_>, pos: u64, end: u64, user: &mut User) -> u64 {
    let (folio, len) = pin.at(pos);
    let len = len.min((end - pos) as usize);
    // SAFETY: pinned, and `len` bytes of it follow from there.
    unsafe { user.put(folio, len) };
    len as u64
}

/// Returns the page that a byte is in.
#[inline]
pub(crate) fn page(offset: u64) -> u64 {
    offset / FRAME_BYTES as u64
}
