//! Group commit: one flush of the device serves all syncs of a file that wait for it.
//!
//! A sync needs a flush that *starts* after the sync's data was written. A sync that finds a flush
//! running waits for its end; the first of the kicked syncs then starts the next flush for all.

use crate::mistake::{Mistake, makes};
use crate::primitives::Mutex;
use nowait_block::BioOp;
use nowait_retry::WaitEntry;
use nowait_sys::{
    Errno,
    mistake::{self as planted, Mistake as Planted},
};

/// The guarantee of a sync when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncLevel {
    /// The pages are written; the device may still cache them (sync_file_range(2)).
    WriteOnly,
    /// The data are durable (fdatasync(2), O_DSYNC).
    Data,
    /// Data and metadata are durable (fsync(2), O_SYNC).
    All,
}

#[derive(Debug)]
pub(crate) struct Flush(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    running: bool,
    /// The number of the flush that was started last.
    started: u64,
    /// The numbers of the last flush that ended, and of the last one that ended and covered
    /// metadata.
    ended_data: u64,
    ended_all: u64,
    /// The next flush must cover metadata, because a sync waits for that.
    wants_all: bool,
    /// The first error because of which written data may be lost.
    error: Option<Errno>,
    /// Since the last flush began, a bio has written data without making it durable itself.
    unflushed: bool,
    failures: u64,
    waiting: Vec<WaitEntry>,
}

impl Default for Flush {
    fn default() -> Flush {
        Flush(Mutex::new(Book::default()))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The data are durable or, if there is an error, may be lost.
    Over(Result<(), Errno>),
    /// The end of the running flush kicks the caller's wait entry.
    Wait,
    /// The caller starts this flush, whose end kicks its wait entry.
    Start(BioOp),
}

impl Flush {
    /// Joins the flush with number `ticket`; `None` stands for the next flush to start, and is
    /// replaced by its number.
    pub(crate) fn join(
        &self,
        ticket: &mut Option<u64>,
        durable: SyncLevel,
        make: impl FnOnce() -> WaitEntry,
    ) -> Turn {
        let entry = make();
        let mut book = self.0.lock();
        let late = makes(Mistake::OldFlush) && book.started > 0;
        let needed = *ticket.get_or_insert(book.started + u64::from(!late));
        let all = durable == SyncLevel::All;
        let ended = if all { book.ended_all } else { book.ended_data };
        if ended >= needed {
            return Turn::Over(book.error.map_or(Ok(()), Err));
        }
        book.wants_all |= all;
        book.waiting.push(entry);
        if book.running {
            return Turn::Wait;
        }
        (book.running, book.unflushed) = (true, false);
        book.started += 1;
        let all = core::mem::take(&mut book.wants_all);
        Turn::Start(if all { BioOp::Fsync } else { BioOp::Fdatasync })
    }

    /// Ends the running flush. Adds to `woken` all entries that wait for a flush.
    pub(crate) fn end(&self, op: BioOp, result: Result<(), Errno>, woken: &mut Vec<WaitEntry>) {
        let mut book = self.0.lock();
        book.running = false;
        book.ended_data = book.started;
        if op == BioOp::Fsync {
            book.ended_all = book.started;
        }
        // The error stays: a later flush that succeeds does not bring back lost data.
        book.error = book.error.or(result.err().filter(|_| !planted::makes(Planted::ForgetError)));
        woken.append(&mut book.waiting);
    }

    pub(crate) fn written(&self) {
        self.0.lock().unflushed = true;
    }

    /// Counts a failed write of level `durable`.
    ///
    /// The pages normally stay dirty. But above `WriteOnly` the bio included a flush. If that flush
    /// may have failed, and the device's cache may have held other data, the call records `errno`.
    pub(crate) fn write_failed(&self, durable: SyncLevel, errno: Errno) {
        let mut book = self.0.lock();
        book.failures += 1;
        let no_room = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        let maybe_the_flush = durable != SyncLevel::WriteOnly && !no_room;
        if maybe_the_flush && (book.unflushed || book.running) {
            book.error = book.error.or(Some(errno));
        }
    }

    pub(crate) fn lost(&self, errno: Errno) {
        let mut book = self.0.lock();
        book.error = book.error.or(Some(errno));
    }

    pub(crate) fn lost_by(&self) -> Option<Errno> {
        self.0.lock().error
    }

    pub(crate) fn failures(&self) -> u64 {
        self.0.lock().failures
    }

    pub(crate) fn forgive(&self) {
        self.0.lock().error = None;
    }
}
