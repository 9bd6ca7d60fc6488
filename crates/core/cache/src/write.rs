//! A write to a cached file.

use crate::FRAME_BYTES;
use crate::copy::{self, User};
use crate::file::CachedFile;
use crate::flush::SyncLevel;
use crate::folio::ERROR;
use crate::gate;
use crate::memory::{Attempt, with_frames};
use crate::page_wait::Reason;
use crate::pages::Pages;
use crate::pin::Pin;
use crate::primitives::Arc;
use crate::read::page;
use crate::writeback::SyncOperation;
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::Errno;

/// Dirty pages that a writer cleans at a time, when there are too many.
const CLEAN_PAGES: u64 = 1024;
const PAGE: u64 = FRAME_BYTES as u64;

/// A write: copies into folios, which become dirty; with O_SYNC it then waits until they are
/// durable. Pages at the edges are read first where the write does not cover what the file has.
///
/// A folio is locked while it is changed, and waited for while it is written back: what the
/// device reads must not change (checksums). Nothing is held across a wait. If the file is changed
/// past the cache meanwhile, the copy begins again after that.
#[derive(Debug)]
pub struct WriteOperation {
    file: Arc<CachedFile>,
    user: User,
    start: u64,
    pos: u64,
    end: u64,
    begun: bool,
    /// The offset is the size of the file when the first byte is copied.
    appends: bool,
    /// The position of the last call of [`WriteOperation::tell_progress`].
    told: u64,
    /// The changes of the file past the cache when the first byte was copied, or looked at since.
    changes: u64,
    waited: Option<u64>,
    durable: Option<SyncLevel>,
    sync: Option<SyncOperation>,
}

impl WriteOperation {
    /// Makes a write of all of `user` at byte `offset`; with `durable` it ends when that is so.
    pub fn new(
        file: Arc<CachedFile>,
        offset: u64,
        user: User,
        durable: Option<SyncLevel>,
    ) -> WriteOperation {
        let end = offset.saturating_add(user.len() as u64);
        let (start, pos, begun, waited, sync) = (offset, offset, false, None, None);
        let (appends, told, changes) = (false, offset, file.mapping().changes());
        WriteOperation {
            file,
            user,
            start,
            pos,
            end,
            begun,
            appends,
            told,
            changes,
            waited,
            durable,
            sync,
        }
    }

    /// Makes a write of all of `user` at the end that the file has when it begins: the caller
    /// lets no other write run between that and its end.
    pub fn append(file: Arc<CachedFile>, user: User, durable: Option<SyncLevel>) -> WriteOperation {
        WriteOperation { appends: true, ..WriteOperation::new(file, 0, user, durable) }
    }

    /// Makes a write of which [`CachedFile::write_cached`] has copied the beginning, from the same
    /// `user`.
    pub fn resume(
        file: Arc<CachedFile>,
        offset: u64,
        begun: WriteStart,
        user: User,
    ) -> WriteOperation {
        let mut write = WriteOperation::new(file, offset, user, None);
        write.pos += begun.bytes as u64;
        (write.told, write.changes) = (write.pos, begun.changes);
        write
    }

    /// Learns where an append goes.
    fn find_end(&mut self) {
        if core::mem::take(&mut self.appends) {
            let len = self.end - self.start;
            self.start = self.file.size();
            (self.pos, self.told) = (self.start, self.start);
            self.end = self.start.saturating_add(len);
        }
    }

    /// Runs an iteration, as [`crate::read::ReadOperation::iterate`]. The result is the number
    /// of bytes; `EIO`: a page at an edge could not be read, or what a durable write failed with;
    /// `ENOMEM`: all memory holds what could not be written.
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        self.find_end();
        if self.sync.is_none() {
            let copied = self.copy_all(plug, wait);
            self.tell_progress();
            match copied {
                Some(Step::Done(Ok(bytes))) if self.durable.is_some() && bytes > 0 => {}
                Some(step) => return step,
                None => return Step::Retry,
            }
            let (from, last) = (page(self.start), page(self.pos - 1));
            let durable = self.durable.unwrap_or(SyncLevel::Data);
            self.sync = Some(SyncOperation::of_write(self.file.clone(), (from, last), durable));
        }
        // Never copied again: retries only wait.
        let sync = self.sync.as_mut().expect("made above");
        match sync.iterate(plug, wait) {
            Step::Done(Ok(_)) => self.done(),
            step => step,
        }
    }

    /// Copies until all is copied; `None`: it waits.
    fn copy_all(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Option<Step> {
        if self.pos == self.end {
            return Some(self.done());
        }
        if !core::mem::replace(&mut self.begun, true) {
            self.read_edges(plug);
        }
        let file = self.file.clone();
        while self.pos < self.end {
            if self.meets_change(wait) {
                return None;
            }
            match self.throttle(plug, wait) {
                Ok(Attempt::Again) => {}
                Ok(Attempt::Wait) => return None,
                Err(errno) => return Some(self.fail(errno)),
            }
            let step = match file.mapping().find_to_write(page(self.pos)) {
                None => self.create(plug, wait),
                Some((pin, Ok(()))) => self.change(&pin, plug),
                Some((pin, Err(reason))) => Ok(self.wait(&pin, reason, wait)),
            };
            match step {
                Ok(Attempt::Again) => {}
                Ok(Attempt::Wait) => return None,
                Err(errno) => return Some(self.fail(errno)),
            }
        }
        Some(self.done())
    }

    /// Looks whether the file is changed past the cache: what was copied before that may be gone.
    /// True: an entry was left for the end of the change.
    fn meets_change(&mut self, wait: &dyn Fn() -> WaitEntry) -> bool {
        let now = self.file.mapping().changes();
        if now == self.changes && now.is_multiple_of(2) {
            return false;
        }
        let before = core::mem::replace(&mut self.changes, now);
        if gate::has_begun(before, now) && self.pos > self.start {
            self.tell_progress();
            self.user.rewind();
            (self.pos, self.told) = (self.start, self.start);
        }
        // Waits for the whole range: its first pages may share a folio with the pages that are
        // changed.
        self.file.mapping().wait_open(page(self.end - 1), wait)
    }

    /// Waits until less is dirty (`share.rs`). Before that, some of it is on its way to the disk.
    fn throttle(
        &mut self,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Result<Attempt, Errno> {
        let file = self.file.clone();
        let cache = file.cache();
        let waits = file.mapping().must_wait();
        // Only by what is not being written yet: small writes are then cleaned in large runs. But
        // what this one waits for must come.
        let is_due = cache.unwritten_frames() > cache.dirty_background();
        if is_due || waits && file.mapping().has_idle_device() {
            // Leaves out pages whose writeback failed: this write may be waiting for the end of
            // such a page.
            cache.clean_unless(ERROR, CLEAN_PAGES, plug);
        }
        if !waits {
            return Ok(Attempt::Again);
        }
        // Pages that cannot be written stay dirty, so a wait would never end.
        if let Some(errno) = self.file.mapping().write_error(0, u64::MAX) {
            return Err(errno);
        }
        // Before the entry is left: it would kick this very write, for ever.
        self.tell_progress();
        cache.progress.arm(wait());
        Ok(if file.mapping().must_wait() { Attempt::Wait } else { Attempt::Again })
    }

    /// Kicks the operations that wait until less is dirty, if this write has given folios back
    /// since the last time: they can be cleaned now.
    fn tell_progress(&mut self) {
        if core::mem::replace(&mut self.told, self.pos) != self.pos {
            self.file.cache().progress.notice();
        }
    }

    /// Starts reading the pages at both ends, if they are missing and needed.
    fn read_edges(&self, plug: &mut Vec<Bio>) {
        let (first, last) = (page(self.pos), page(self.end - 1));
        let edges = if first == last { &[first][..] } else { &[first, last] };
        for edge in edges {
            let size = self.file.size();
            if self.covers(edge * PAGE, (edge + 1) * PAGE, size) {
                continue;
            }
            // If no frame is free now, the write creates the folio when it reaches the page.
            if let Ok(Some(id)) = self.file.mapping().create_one(*edge, edge + 1) {
                self.file.fill(&[id], plug);
            }
        }
    }

    /// Returns `true` if the write replaces all bytes that a file of `size` bytes has from `first`
    /// to before `end`.
    fn covers(&self, first: u64, end: u64, size: u64) -> bool {
        first >= size || (self.pos <= first && self.end >= end.min(size))
    }

    /// Puts a folio at the position, for what the write covers; else one that is read first.
    fn create(
        &mut self,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Result<Attempt, Errno> {
        let (file, from, size) = (self.file.clone(), page(self.pos), self.file.size());
        let end = match self.covers(from * PAGE, (from + 1) * PAGE, size) {
            true if self.end >= size => self.end.div_ceil(PAGE),
            true => page(self.end),
            false => from + 1,
        };
        let mut created = None;
        let attempt = with_frames(&file, plug, wait, |_| {
            created = file.mapping().create_one(from, end)?;
            Ok(())
        })?;
        match created {
            // Locked by us: what `find_to_write` gives for a folio that is there.
            Some(id) => self.change(&file.mapping().pin_own(id), plug),
            None if file.mapping().wait_open(from, wait) => Ok(Attempt::Wait),
            None => Ok(attempt),
        }
    }

    /// Changes a folio that this write has locked, or has it read.
    fn change(&mut self, pin: &Pin<'_>, plug: &mut Vec<Bio>) -> Result<Attempt, Errno> {
        let folio = pin.folio();
        let first = folio.index() * PAGE;
        let bytes = folio.pages() * PAGE;
        let uptodate = pin.state().is_uptodate();
        // Only now that it is locked, the size says for sure what the file has there.
        if !uptodate && !self.covers(first, first + bytes, self.file.size()) {
            if pin.state().is_error() && self.waited == Some(page(self.pos)) {
                let mut woken = Vec::new();
                self.file.mapping().filled(pin.id(), Err(Errno::IO), &mut woken);
                woken.into_iter().for_each(WaitEntry::kick);
                return Err(Errno::IO);
            }
            self.file.fill(&[pin.id()], plug);
            return Ok(Attempt::Again);
        }
        self.copy(pin, uptodate);
        Ok(Attempt::Again)
    }

    fn copy(&mut self, pin: &Pin<'_>, uptodate: bool) {
        self.pos += copy_from_user(&self.file, pin, self.pos, self.end, &mut self.user, uptodate);
    }

    fn wait(&mut self, pin: &Pin<'_>, reason: Reason, wait: &dyn Fn() -> WaitEntry) -> Attempt {
        if !self.file.mapping().wait(pin, reason, wait) {
            return Attempt::Again;
        }
        self.waited = (!pin.state().is_uptodate()).then_some(page(self.pos));
        Attempt::Wait
    }

    fn done(&self) -> Step {
        Step::Done(Ok((self.pos - self.start) as u32))
    }

    /// Bytes already written win over an error.
    fn fail(&self, errno: Errno) -> Step {
        if self.pos > self.start { self.done() } else { Step::Done(Err(errno)) }
    }
}

/// The beginning of a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteStart {
    /// The number of bytes copied.
    pub bytes: usize,
    /// The count of changes of the file that bypassed the cache, before the copy.
    changes: u64,
}

impl CachedFile {
    /// Copies `user`, from byte `offset` on, into cached pages that are filled, and neither locked,
    /// in writeback nor lent. Stops at the first other page. Copies none when so much is dirty that
    /// writeback is due. A first attempt that makes no operation; [`WriteOperation::resume`]
    /// continues after it.
    pub fn write_cached(&self, offset: u64, user: &mut User) -> WriteStart {
        let end = offset.saturating_add(user.len() as u64);
        let (mut pos, cache, changes) = (offset, self.cache(), self.mapping().changes());
        while pos < end {
            let due = cache.unwritten_frames() > cache.dirty_background();
            let now = self.mapping().changes();
            let must_wait = due || self.mapping().must_wait();
            if must_wait || now != changes || !now.is_multiple_of(2) {
                break;
            }
            let Some((pin, Ok(()))) = self.mapping().find_to_write(page(pos)) else { break };
            if !pin.state().is_uptodate() {
                let mut woken = Vec::new();
                self.mapping().unlock(pin.id(), &mut woken);
                woken.into_iter().for_each(WaitEntry::kick);
                break;
            }
            pos += copy_from_user(self, &pin, pos, end, user, true);
        }
        if pos > offset {
            cache.progress.notice();
        }
        WriteStart { bytes: (pos - offset) as usize, changes }
    }
}

/// Copies the bytes from `pos` to before `end` to a folio that the caller has locked, as far as it
/// goes, and unlocks it; returns how many. Zeroes the rest of one that is not `uptodate`.
#[inline]
fn copy_from_user(
    file: &CachedFile,
    pin: &Pin<'_>,
    pos: u64,
    end: u64,
    user: &mut User,
    uptodate: bool,
) -> u64 {
    let (memory, len) = pin.at(pos);
    let len = len.min((end - pos) as usize);
    let before = (pos - pin.folio().index() * PAGE) as usize;
    // SAFETY: the folio's memory, locked by the caller: `before`, `len` and `after` bytes.
    unsafe {
        if !uptodate {
            let after = (pin.folio().pages() * PAGE) as usize - before - len;
            copy::zero(memory.sub(before), before);
            copy::zero(memory.add(len), after);
        }
        user.copy_from_user(memory, len);
    }
    // Before it can be written back, which goes up to the size.
    file.grow(pos + len as u64);
    let mut woken = Vec::new();
    file.mapping().changed(pin.id(), Pages::of_bytes(before, before + len), &mut woken);
    woken.into_iter().for_each(WaitEntry::kick);
    len as u64
}
