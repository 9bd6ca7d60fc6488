//! Changes of a cached file that bypass its cache: blocks that are allocated or removed, and writes
//! by other programs. An [`Exclusion`] holds back the engine's requests meanwhile.
//!
//! `UserFile::settle`, `UserFile::exclude` and `UserFile::set_len` may sleep.

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
use nowait_sys::{
    Errno,
    file::Version,
    mistake::{self, Mistake},
};
use std::{ops::Range, sync::Arc, task::Waker};

/// Holds back requests to a user file while the file is changed without the cache. The drop of an
/// exclusion reads the new size and times of the file.
pub struct Exclusion {
    engine: Arc<Engine>,
    file: Arc<UserFile>,
    ticket: Ticket,
    change: Option<Change>,
}

impl UserFile {
    /// Waits for the writes that were submitted before, and until their data are in the file.
    ///
    /// # Errors
    /// The error of a write to the file: data that could not be written stay cached.
    pub fn settle(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), Errno> {
        if engine.orders.conflicts(self.key(), &Reach::new(WHOLE, Access::Sync)) || self.is_dirty()
        {
            let ticket = wait_for_turn(engine, self, WHOLE, Access::Sync);
            let written = UserOperation::sync(self, SyncLevel::WriteOnly).run(engine);
            leave(engine, &ticket);
            written?;
        }
        self.release_if_clean();
        Ok(())
    }

    /// Waits for the reads and writes that were submitted before, and until the written data are in
    /// the file. Later requests wait for the end of the exclusion.
    ///
    /// # Errors
    /// The error of a write to the file: then nothing is excluded.
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

    /// Truncates the file to `bytes`, or extends it with zeroes. Waits for the earlier reads and
    /// writes that reach beyond the smaller of the old and the new size. Holds back later requests
    /// there until the size has changed.
    ///
    /// # Errors
    /// The errors of ftruncate(2); `EBADF`: the file has no writer.
    pub fn set_len(self: &Arc<Self>, engine: &Arc<Engine>, bytes: u64) -> Result<(), Errno> {
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

    pub(crate) fn is_dirty(&self) -> bool {
        self.cached().is_dirty() || self.cached().size() != self.cached().disk_size()
    }
}

impl Exclusion {
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

pub(crate) fn run_change(engine: &Arc<Engine>, change: &mut Change) -> Result<(), Errno> {
    sleep_through(engine, |bios, wait| change.iterate(bios, wait)).map(drop)
}

const WHOLE: Range<u64> = 0..u64::MAX;

/// Sleeps until the earlier requests that conflict with `access` to `range` are over.
pub(crate) fn wait_for_turn(
    engine: &Arc<Engine>,
    file: &UserFile,
    range: Range<u64>,
    access: Access,
) -> Ticket {
    let parker = Parker::new();
    let waker = Waker::from(parker.clone());
    let entry = || waker.clone();
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
