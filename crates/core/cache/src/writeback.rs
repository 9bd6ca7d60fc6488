//! Syncs: operations that make a range of a cached file durable.

use crate::file::CachedFile;
use crate::flush::{SyncLevel, Turn};
use crate::folio::FolioId;
use crate::io::BIO_PAGES_MAX;
use crate::page_wait::Reason;
use crate::primitives::Arc;
use crate::tree::Tag;
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::{
    Errno,
    mistake::{self as planted, Mistake as Planted},
};

/// A sync: of fsync, of fdatasync, at the end of an O_SYNC write, or of a range without a flush.
///
/// The first iteration marks the dirty pages of the range, and starts their writeback in ascending
/// runs. Then the sync waits for the writebacks in flight, folio by folio, but does not write
/// folios that become dirty later. After that the sync needs a flush, which it shares with other
/// syncs of the file (`flush.rs`). It needs none if its level is [`SyncLevel::WriteOnly`], or if
/// its own bios were durable.
///
/// A folio whose writeback failed stays dirty, unless the cache drops its pages (`share.rs`). The
/// next sync of the folio writes it again, and reports the error if that fails.
#[derive(Debug)]
pub struct SyncOperation {
    file: Arc<CachedFile>,
    from: u64,
    last: u64,
    durable: SyncLevel,
    begun: bool,
    per_bio: PerBioSync,
    /// The sync is done with all pages before this one.
    at: u64,
    /// The folio whose writeback the sync waits for, and its count of ended writebacks before the
    /// wait.
    waited: Option<(FolioId, u32)>,
    written: Option<Result<(), Errno>>,
    ticket: Option<u64>,
}

/// How the pages of a sync become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PerBioSync {
    /// By a flush after the writes.
    No,
    /// By their own bios, if this sync can start the writeback of all pages itself.
    Wanted,
    /// By their own bios, which this sync has started. The number is the file's count of failed
    /// writes at that time: if it has grown, one of the writes may have failed and been repeated
    /// without being durable.
    Yes(u64),
}

impl SyncOperation {
    /// Makes a sync of the pages `from..=last`.
    pub fn new(file: Arc<CachedFile>, from: u64, last: u64, durable: SyncLevel) -> SyncOperation {
        let (begun, at, waited, written, ticket) = (false, from, None, None, None);
        let per_bio = PerBioSync::No;
        SyncOperation { file, from, last, durable, begun, per_bio, at, waited, written, ticket }
    }

    /// Makes the sync of a write, which has just made the pages `from..=last` dirty. If many small
    /// writes waited for one flush, they would end together, and the device would be idle until the
    /// next writes come. So the bios of a small write are durable themselves, if possible.
    pub(crate) fn of_write(
        file: Arc<CachedFile>,
        (from, last): (u64, u64),
        durable: SyncLevel,
    ) -> SyncOperation {
        // A longer write has more than one bio: one flush for all of its bios costs less.
        let small = last - from < BIO_PAGES_MAX && durable != SyncLevel::WriteOnly;
        let per_bio = if small { PerBioSync::Wanted } else { PerBioSync::No };
        SyncOperation { per_bio, ..SyncOperation::new(file, from, last, durable) }
    }

    /// Makes a sync of the whole file.
    pub fn whole(file: Arc<CachedFile>, durable: SyncLevel) -> SyncOperation {
        SyncOperation::new(file, 0, u64::MAX, durable)
    }

    /// Runs an iteration, as [`crate::read::ReadOperation::iterate`]. The result is 0, the error of
    /// a page that could not be written or, if the sync needs a flush, the error of
    /// [`CachedFile::lost`].
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        if !core::mem::replace(&mut self.begun, true) {
            self.file.mapping().tag_for_writeback(self.from, self.last);
            self.begin_per_bio(plug);
        }
        if self.written.is_none() {
            if self.write_all(plug, wait) {
                return Step::Retry;
            }
            let error = self.file.mapping().write_error(self.from, self.last);
            self.written = Some(error.map_or(Ok(()), Err));
        }
        match (self.written, self.durable) {
            (Some(Err(errno)), _) => Step::Done(Err(errno)),
            (_, SyncLevel::WriteOnly) => Step::Done(Ok(0)),
            _ if self.per_bio == PerBioSync::Yes(self.file.flush.failures()) => Step::Done(Ok(0)),
            _ => self.flush(plug, wait),
        }
    }

    /// If other operations have locked some of the pages or are writing them, this sync does not
    /// know when they are durable, and needs a flush.
    fn begin_per_bio(&mut self, plug: &mut Vec<Bio>) {
        if self.per_bio == PerBioSync::Wanted {
            let failures = self.file.flush.failures();
            let all = self.issue(self.durable, plug) == self.last - self.from + 1;
            self.per_bio = if all { PerBioSync::Yes(failures) } else { PerBioSync::No };
        }
    }

    /// Starts the writeback of the marked folios. If a marked folio is locked, or a writeback of
    /// the range is not over, leaves a wait entry and returns `true`.
    fn write_all(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> bool {
        let file = self.file.clone();
        let mapping = file.mapping();
        self.issue(SyncLevel::WriteOnly, plug);
        // A folio that is still marked was not started, because an operation has locked it.
        while let Some((_, pin)) = mapping.next_tagged(self.at, self.last, Tag::Towrite) {
            if mapping.wait(&pin, Reason::Unlocked, wait) {
                return true;
            }
            drop(pin);
            self.issue(SyncLevel::WriteOnly, plug);
        }
        while !planted::makes(Planted::CleanTooEarly)
            && let Some((_, pin)) = mapping.next_tagged(self.at, self.last, Tag::Writeback)
        {
            let folio = pin.folio();
            let end = folio.index() + folio.pages();
            // Read before the entry is left, so that the sync notices an end in between.
            let seen = (pin.id(), folio.written());
            if self.waited.is_some_and(|waited| waited.0 == seen.0 && waited.1 != seen.1) {
                // One ended writeback has written the pages of the sync. So it is enough, even if
                // the folio's next writeback has begun.
                self.waited = None;
                self.at = end;
                if end > self.last {
                    break;
                }
                continue;
            }
            self.waited = Some(seen);
            if mapping.wait(&pin, Reason::Written, wait) {
                return true;
            }
        }
        false
    }

    /// Starts the writeback of the marked folios that are neither locked nor under writeback.
    /// Returns the number of dirty pages of these folios in the range.
    fn issue(&self, durable: SyncLevel, plug: &mut Vec<Bio>) -> u64 {
        let (mut from, mut pages, mapping) = (self.at, 0, self.file.mapping());
        while from <= self.last {
            let mut run = Vec::new();
            let most = BIO_PAGES_MAX;
            let next = mapping.start_writeback(from, self.last, Tag::Towrite, most, &mut run);
            let Some(next) = next else { break };
            pages += mapping.dirty_pages(&run, self.from, self.last);
            self.file.write_back_to(durable, &run, plug);
            from = next;
        }
        pages
    }

    fn flush(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        match self.file.flush.join(&mut self.ticket, self.durable, wait) {
            Turn::Over(result) => Step::Done(result.map(|()| 0)),
            Turn::Wait => Step::Retry,
            Turn::Start(op) => {
                self.file.cache().start_flush(&self.file, op, plug);
                Step::Retry
            }
        }
    }
}
