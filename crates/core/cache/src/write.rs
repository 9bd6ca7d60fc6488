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

/// About the number of dirty pages that a writer starts to write when there are too many.
const CLEAN_PAGES: u64 = 1024;
const PAGE: u64 = FRAME_BYTES as u64;

/// A write: copies into folios, which become dirty. A durable write then waits until its pages are
/// durable. The write first reads a missing page of which it does not cover all bytes.
///
/// The write locks a folio while it changes it, and keeps none locked while it waits. It waits for
/// a folio under writeback, because bytes that the device reads must not change (checksums). If a
/// change that bypasses the cache begins meanwhile, the write copies all of its bytes again.
#[derive(Debug)]
pub struct WriteOperation {
    file: Arc<CachedFile>,
    user: User,
    start: u64,
    pos: u64,
    end: u64,
    begun: bool,
    appends: bool,
    told: u64,
    /// The count of `Mapping::changes` at the last check.
    changes: u64,
    waited: Option<u64>,
    durable: Option<SyncLevel>,
    sync: Option<SyncOperation>,
}

impl WriteOperation {
    /// Makes a write of all of `user` at byte `offset`. With `durable` the write ends when its data
    /// are durable.
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

    /// Makes a write of all of `user` at the end of the file. The first iteration looks up that
    /// end. From then on the caller lets no other append run until this write has ended.
    pub fn append(file: Arc<CachedFile>, user: User, durable: Option<SyncLevel>) -> WriteOperation {
        WriteOperation { appends: true, ..WriteOperation::new(file, 0, user, durable) }
    }

    /// Returns `true` if the first iteration will look up the end of the file.
    pub fn appends(&self) -> bool {
        self.appends
    }

    /// Makes the operation for the rest of a write that [`CachedFile::write_cached`] has begun. The
    /// operation completes when it has copied the data into the cache.
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

    fn find_end(&mut self) {
        if core::mem::take(&mut self.appends) {
            let len = self.end - self.start;
            self.start = self.file.size();
            (self.pos, self.told) = (self.start, self.start);
            self.end = self.start.saturating_add(len);
        }
    }

    /// Runs an iteration, as [`crate::read::ReadOperation::iterate`]. The result is the number of
    /// bytes copied. If an error came before the first byte, the result is the error: of a page
    /// that could not be read or written, or `ENOMEM` if all frames hold pages that could not be
    /// written. A durable write also returns the errors of its sync.
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
        let sync = self.sync.as_mut().expect("made above");
        match sync.iterate(plug, wait) {
            Step::Done(Ok(_)) => self.done(),
            step => step,
        }
    }

    /// Returns `None` if the write has left a wait entry.
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

    /// If a change that bypasses the cache has begun since the last check, the copy begins again,
    /// because copied bytes may be gone. If the gate is closed for a page of the write, leaves a
    /// wait entry and returns `true`.
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
        // The last page stands for all: the first pages may share a folio with pages that the
        // change removes.
        self.file.mapping().wait_open(page(self.end - 1), wait)
    }

    /// Starts writeback if that is due. If too many frames are dirty (`share.rs`), leaves a wait
    /// entry, or fails with the error of a page of the file that could not be written.
    fn throttle(
        &mut self,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Result<Attempt, Errno> {
        let file = self.file.clone();
        let cache = file.cache();
        let waits = file.mapping().must_wait();
        // Frames under writeback and failed frames do not count, so that small writes are cleaned
        // in large runs. If this write must wait and the device is idle, writeback starts now.
        let is_due = cache.unwritten_frames() > cache.dirty_background();
        if is_due || waits && file.mapping().has_idle_device() {
            // Leaves out failed folios: the end of another failed writeback would kick this write,
            // which would start it again.
            cache.clean_unless(ERROR, CLEAN_PAGES, plug);
        }
        if !waits {
            return Ok(Attempt::Again);
        }
        // Pages that cannot be written stay dirty, so this write might wait for ever.
        if let Some(errno) = self.file.mapping().write_error(0, u64::MAX) {
            return Err(errno);
        }
        // Comes before the entry: a later call would kick this write's own entry.
        self.tell_progress();
        cache.progress.arm(wait());
        Ok(if file.mapping().must_wait() { Attempt::Wait } else { Attempt::Again })
    }

    /// Kicks the operations that wait for fewer dirty frames, if this write has unlocked folios
    /// since the last call: the writeback of these folios can start now.
    fn tell_progress(&mut self) {
        if core::mem::replace(&mut self.told, self.pos) != self.pos {
            self.file.cache().progress.notice();
        }
    }

    fn read_edges(&self, plug: &mut Vec<Bio>) {
        let (first, last) = (page(self.pos), page(self.end - 1));
        let edges = if first == last { &[first][..] } else { &[first, last] };
        for edge in edges {
            let size = self.file.size();
            if self.covers(edge * PAGE, (edge + 1) * PAGE, size) {
                continue;
            }
            if let Ok(Some(id)) = self.file.mapping().create_one(*edge, edge + 1) {
                self.file.fill(&[id], plug);
            }
        }
    }

    /// Returns `true` if the rest of the write replaces all bytes from `first` to before `end` that
    /// a file of `size` bytes has.
    fn covers(&self, first: u64, end: u64, size: u64) -> bool {
        first >= size || (self.pos <= first && self.end >= end.min(size))
    }

    /// Creates a folio at the position. Copies into it if the write covers its pages, and otherwise
    /// starts reading it.
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
            Some(id) => self.change(&file.mapping().pin_own(id), plug),
            None if file.mapping().wait_open(from, wait) => Ok(Attempt::Wait),
            None => Ok(attempt),
        }
    }

    fn change(&mut self, pin: &Pin<'_>, plug: &mut Vec<Bio>) -> Result<Attempt, Errno> {
        let folio = pin.folio();
        let first = folio.index() * PAGE;
        let bytes = folio.pages() * PAGE;
        let uptodate = pin.state().is_uptodate();
        // Read under the folio's lock: until then another write may have grown the file there.
        if !uptodate && !self.covers(first, first + bytes, self.file.size()) {
            if pin.state().is_error() && self.waited == Some(page(self.pos)) {
                let mut woken = Vec::new();
                self.file.mapping().filled(pin.id(), Err(Errno::IO), &mut woken);
                woken.into_iter().for_each(WaitEntry::wake);
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

    fn fail(&self, errno: Errno) -> Step {
        if self.pos > self.start { self.done() } else { Step::Done(Err(errno)) }
    }
}

/// The result of [`CachedFile::write_cached`].
#[derive(Clone, Copy, Debug)]
pub struct WriteStart {
    /// The number of bytes copied.
    pub bytes: usize,
    changes: u64,
}

impl CachedFile {
    /// Copies `user` to byte `offset` on, into cached pages that are uptodate, and neither locked,
    /// under writeback nor lent. Stops at any other page, when writeback is due, when too many
    /// frames are dirty, or when a change bypasses the cache. [`WriteOperation::resume`] makes an
    /// operation for the rest.
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
                woken.into_iter().for_each(WaitEntry::wake);
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

/// Copies bytes from `pos` on, up to byte `end` or the end of the folio, and unlocks the folio,
/// which the caller has locked. Returns the number of bytes. Zeroes the rest of a folio that is not
/// `uptodate`.
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
    // SAFETY: `before + len + after` bytes are the folio's memory, which the caller has locked.
    unsafe {
        if !uptodate {
            let after = (pin.folio().pages() * PAGE) as usize - before - len;
            copy::zero(memory.sub(before), before);
            copy::zero(memory.add(len), after);
        }
        user.copy_from_user(memory, len);
    }
    // Comes before the folio can be written back, because a writeback stops at the file's size.
    file.grow(pos + len as u64);
    let mut woken = Vec::new();
    file.mapping().changed(pin.id(), Pages::of_bytes(before, before + len), &mut woken);
    woken.into_iter().for_each(WaitEntry::wake);
    len as u64
}
