//! Exclusion of a cached file's requests, for changes past its cache: blocks that are allocated or
//! taken out, and what others have written.
//!
//! ```text
//! settle      what was written is in the file: before it is read elsewhere
//! exclude     the same, nothing stays cached, and no request runs until the file has been changed
//!             elsewhere
//! set_len     cuts the file off, or extends it
//! ```
//! All of it waits: for calls that wait anyway.

use super::{UserFile, UserOperation};
use crate::{
    Engine,
    engine::{
        parker::{Parker, sleep_through},
        section::Section,
    },
    order::{Access, Reach, Ticket},
};
use nowait_cache::{Change, SyncLevel};
use nowait_retry::WaitEntry;
use nowait_sys::{
    Errno,
    file::Version,
    mistake::{self, Mistake},
};
use std::{ops::Range, sync::Arc, task::Waker};

/// Keeps requests to a user file waiting while something else changes it. Its drop reads size and
/// times of the changed file.
pub struct Exclusion {
    engine: Arc<Engine>,
    file: Arc<UserFile>,
    ticket: Ticket,
    /// The change, until it ends.
    change: Option<Change>,
}

impl UserFile {
    /// Waits for the writes submitted before, and until what they wrote is in the file.
    ///
    /// # Errors
    /// The error of a write to the file: what it could not take stays cached.
    pub fn settle(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), Errno> {
        if engine.orders.conflicts(self.key(), &Reach::new(WHOLE, Access::Sync)) || self.is_dirty()
        {
            let ticket = wait_for_turn(engine, self, WHOLE, Access::Sync);
            let written = UserOperation::sync(self, SyncLevel::WriteOnly).run(engine);
            leave(engine, &ticket);
            written?;
        }
        self.let_go();
        Ok(())
    }

    /// Waits for all requests submitted before, and until what they wrote is in the file; those
    /// that come later wait for the end of the exclusion.
    ///
    /// # Errors
    /// The error of a write to the file: nothing is excluded.
    pub fn exclude(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<Exclusion, Errno> {
        let ticket = wait_for_turn(engine, self, WHOLE, Access::Write);
        let mut change = Change::outside(self.cached());
        if let Err(errno) = run_change(engine, &mut change) {
            drop(change);
            leave(engine, &ticket);
            return Err(errno);
        }
        let (engine, file, change) = (engine.clone(), self.clone(), Some(change));
        Ok(Exclusion { engine, file, ticket, change })
    }

    /// Cuts the file off at `bytes`, or extends it with zeroes; waits for the requests submitted
    /// before that write behind the new end, and blocks. All other requests take place either
    /// before or after it.
    ///
    /// # Errors
    /// The errors of ftruncate(2); `EBADF`: it has no writer.
    pub fn set_len(self: &Arc<Self>, engine: &Arc<Engine>, bytes: u64) -> Result<(), Errno> {
        // All that is behind the smaller end, before and after.
        let from = bytes.min(self.cached.size());
        let from = if mistake::makes(Mistake::CutOutOfOrder) { u64::MAX } else { from };
        let ticket = wait_for_turn(engine, self, from..u64::MAX, Access::Write);
        let mut change = Change::cut(&self.cached, bytes);
        let cut = run_change(engine, &mut change).and_then(|()| self.set_len_behind(bytes));
        let _section = Section::enter(engine);
        match cut {
            Ok(()) => change.finish(bytes),
            Err(_) => drop(change),
        }
        leave(engine, &ticket);
        cut
    }

    /// Returns `true` if the file is not what the cache says.
    pub(crate) fn is_dirty(&self) -> bool {
        self.cached().is_dirty() || self.cached().size() != self.cached().disk_size()
    }
}

impl Exclusion {
    /// Ends it, and takes the file as it was when `version` was looked at.
    pub(super) fn take_as(mut self, version: Version) {
        if let Some(change) = self.change.take() {
            let _section = Section::enter(&self.engine);
            self.file.take_as(change, version);
        }
    }
}

impl core::fmt::Debug for Exclusion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Exclusion of {:?}", self.file.key())
    }
}

impl Drop for Exclusion {
    fn drop(&mut self) {
        let _section = Section::enter(&self.engine);
        if let Some(change) = self.change.take() {
            self.file.take_as_it_is(change);
        }
        leave(&self.engine, &self.ticket);
    }
}

/// Prepares a change of a file past its cache, on the calling thread, which sleeps while it waits.
///
/// # Errors
/// The errors of [`Change::iterate`].
pub(crate) fn run_change(engine: &Arc<Engine>, change: &mut Change) -> Result<(), Errno> {
    sleep_through(engine, |bios, wait| change.iterate(bios, wait)).map(drop)
}

const WHOLE: Range<u64> = 0..u64::MAX;

/// Registers behind all requests that are in flight, and sleeps until they are over.
pub(crate) fn wait_for_turn(
    engine: &Arc<Engine>,
    file: &UserFile,
    range: Range<u64>,
    access: Access,
) -> Ticket {
    let parker = Parker::new();
    let waker = Waker::from(parker.clone());
    let entry = || WaitEntry::from(waker.clone());
    let (ticket, _) = engine.orders.enter(file.key(), Reach::new(range, access), entry);
    while ticket.is_blocked() {
        parker.sleep(engine);
    }
    ticket
}

pub(crate) fn leave(engine: &Arc<Engine>, ticket: &Ticket) {
    let _section = Section::enter(engine);
    engine.orders.leave(ticket);
}
