//! Making a range of a cached file durable.

use crate::file::CachedFile;
use crate::flush::{Durable, Turn};
use crate::folio::FolioId;
use crate::io::BIO_PAGES_MAX;
use crate::page_wait::Reason;
use crate::sync::Arc;
use crate::tree::Tag;
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::Errno;

/// A sync: fsync, fdatasync, the second half of an O_SYNC write, or of a range without a flush.
///
/// The first iteration marks what is dirty in the range, and issues the writeback of all of it in
/// ascending runs. Then it waits, a folio at a time, for what was under way when it looked: no
/// lock is held meanwhile, and pages that become dirty later are not its business. A device flush
/// that begins after that is shared with all syncs that wait for one (`flush.rs`).
///
/// A folio whose writeback failed stays dirty and marked: this sync, and each later one, tries
/// it again, and reports the error if it fails again.
#[derive(Debug)]
pub struct SyncOperation {
    file: Arc<CachedFile>,
    from: u64,
    last: u64,
    durable: Durable,
    begun: bool,
    /// Everything before this page is written.
    at: u64,
    /// The folio whose writeback was waited for, and how many it had had by then.
    waited: Option<(FolioId, u32)>,
    /// The error of the pages, once they were waited for.
    written: Option<Result<(), Errno>>,
    ticket: Option<u64>,
}

impl SyncOperation {
    /// Makes a sync of the pages from `from` to `last`, inclusive.
    pub fn new(file: Arc<CachedFile>, from: u64, last: u64, durable: Durable) -> SyncOperation {
        let (begun, at, waited, written, ticket) = (false, from, None, None, None);
        SyncOperation { file, from, last, durable, begun, at, waited, written, ticket }
    }

    /// Makes a sync of the whole file.
    pub fn whole(file: Arc<CachedFile>, durable: Durable) -> SyncOperation {
        SyncOperation::new(file, 0, u64::MAX, durable)
    }

    /// Runs an iteration, as [`crate::read::ReadOperation::iterate`]. The result is 0, or the
    /// error of a page that could not be written, or of a flush of the device, now or before.
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        if !core::mem::replace(&mut self.begun, true) {
            self.file.mapping().tag_for_writeback(self.from, self.last);
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
            (_, Durable::Written) => Step::Done(Ok(0)),
            _ => self.flush(plug, wait),
        }
    }

    /// Issues what is marked and waits for what is under way. True: an entry was left.
    fn write_all(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> bool {
        let file = self.file.clone();
        let mapping = file.mapping();
        self.issue(plug);
        // Marked and not to be started: somebody changes it at this moment.
        while let Some((_, pin)) = mapping.next_tagged(self.at, self.last, Tag::Towrite) {
            if mapping.wait(&pin, Reason::Unlocked, wait) {
                return true;
            }
            drop(pin);
            self.issue(plug);
        }
        while let Some((_, pin)) = mapping.next_tagged(self.at, self.last, Tag::Writeback) {
            let folio = pin.folio();
            let end = folio.index() + folio.pages();
            // Before arming: an end that comes between is then seen, not missed.
            let seen = (pin.id(), folio.written());
            if self.waited.is_some_and(|waited| waited.0 == seen.0 && waited.1 != seen.1) {
                // One end is enough, also if the next writeback has begun: ours is written.
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

    /// Starts the writeback of all that is marked, in ascending runs.
    fn issue(&self, plug: &mut Vec<Bio>) {
        let (mut from, mapping) = (self.at, self.file.mapping());
        while from <= self.last {
            let mut run = Vec::new();
            let most = BIO_PAGES_MAX;
            let next = mapping.start_writeback(from, self.last, Tag::Towrite, most, &mut run);
            let Some(next) = next else { return };
            self.file.write_back(run, plug);
            from = next;
        }
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
