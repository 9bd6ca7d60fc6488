//! Group commit: one flush of the device serves all syncs of a file that wait for it.
//!
//! A sync needs a flush that *starts* after the sync's data was written. A sync that finds a flush
//! running waits for its end. The first of the kicked syncs then starts the next flush for all.

use crate::mistake::{Mistake, makes};
use crate::primitives::Mutex;
use nowait_block::BioOp;
use nowait_retry::WaitEntry;
use nowait_sys::{
    Errno,
    mistake::{self as planted, Mistake as Planted},
};

/// The guarantee that a sync gives when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncLevel {
    /// The pages of its range are written; the device may still cache them (sync_file_range(2)).
    WriteOnly,
    /// The data are durable (fdatasync(2), O_DSYNC).
    Data,
    /// Data and metadata are durable (fsync(2), O_SYNC).
    All,
}

/// The flushes of one file.
#[derive(Debug)]
pub(crate) struct Flush(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    running: bool,
    /// The number of flushes started so far, which is also the number of the last one.
    started: u64,
    /// `ended_data` is the number of the last flush that ended, `ended_all` the number of the last
    /// one that covered metadata, too.
    ended_data: u64,
    ended_all: u64,
    /// `true`: the next flush to start must cover metadata, because a sync waits for that.
    wants_all: bool,
    /// The first error because of which written data may be lost: of a flush, of a durable write,
    /// or of data that the cache dropped.
    error: Option<Errno>,
    /// `true`: since the last flush began, a bio has written data without making it durable itself.
    unflushed: bool,
    /// The number of writes of the file that have failed.
    failures: u64,
    waiting: Vec<WaitEntry>,
}

impl Default for Flush {
    fn default() -> Flush {
        Flush(Mutex::new(Book::default()))
    }
}

/// The next step of a sync.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The sync is over: the data are durable or, if there is an error, may be lost.
    Over(Result<(), Errno>),
    /// A flush is running, whose end kicks the caller's wait entry.
    Wait,
    /// The caller starts this flush, whose end kicks the caller's wait entry.
    Start(BioOp),
}

impl Flush {
    /// Joins the flush with number `ticket`. If `ticket` is `None`, first sets it to the number of
    /// the next flush to start.
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

    /// Ends the running flush. Adds all entries that wait for a flush to `woken`.
    pub(crate) fn end(&self, op: BioOp, result: Result<(), Errno>, woken: &mut Vec<WaitEntry>) {
        let mut book = self.0.lock();
        book.running = false;
        book.ended_data = book.started;
        if op == BioOp::Fsync {
            book.ended_all = book.started;
        }
        // The error stays: a later flush that succeeds does not bring back the data that this flush
        // lost.
        book.error = book.error.or(result.err().filter(|_| !planted::makes(Planted::ForgetError)));
        woken.append(&mut book.waiting);
    }

    /// Records that a bio wrote data without a flush, so the device may still have them in its
    /// cache.
    pub(crate) fn written(&self) {
        self.0.lock().unflushed = true;
    }

    /// Records that a write failed whose bios were to be `durable`.
    ///
    /// If a bio includes a flush, the flush may have failed. The pages of the bio normally stay
    /// dirty, and the cache can write them again. But data that other writes had left in the
    /// device's cache may be lost.
    pub(crate) fn write_failed(&self, durable: SyncLevel, errno: Errno) {
        let mut book = self.0.lock();
        book.failures += 1;
        let no_room = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        let maybe_the_flush = durable != SyncLevel::WriteOnly && !no_room;
        if maybe_the_flush && (book.unflushed || book.running) {
            book.error = book.error.or(Some(errno));
        }
    }

    /// Records that the cache dropped data that it could not write: the data is lost.
    pub(crate) fn lost(&self, errno: Errno) {
        let mut book = self.0.lock();
        book.error = book.error.or(Some(errno));
    }

    /// Returns the error because of which written data may be lost.
    pub(crate) fn lost_by(&self) -> Option<Errno> {
        self.0.lock().error
    }

    /// Returns how many writes of the file have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.0.lock().failures
    }

    /// Forgets the error that [`Flush::lost_by`] returns.
    pub(crate) fn forgive(&self) {
        self.0.lock().error = None;
    }
}
