//! Descriptors of the engine: how they come into the other table, and are closed there.

use super::Engine;
use crate::hold::{BothTables, HeldFd, OpenCount};
use nowait_sys::{Errno, Fd, time::Deadline};
use std::sync::Arc;

/// How long a thread sleeps before it looks again for what it waits for.
const MOMENT_NS: u64 = 10_000_000;
/// How long a close waits at most: a device that hangs may keep a descriptor open.
const CLOSE_NS: u64 = 1_000_000_000;

impl Engine {
    /// Holds a file of our own in the engine's table; waits a second at most for room on the way.
    pub(crate) fn hold_for_good(
        &self,
        number: i32,
        count: Option<&Arc<OpenCount>>,
    ) -> Result<Arc<HeldFd>, Errno> {
        const MOMENTS: usize = 100;
        self.with_room_in(MOMENTS, || self.holds.hold_counted(number, count.map(OpenCount::count)))
    }

    /// Calls `hold`, which sends the file of a request to the engine's threads. The channel has
    /// room for some hundred files. If it is full, the driver or a worker takes them in; the caller
    /// waits a tenth of a second for that at most.
    ///
    /// # Errors
    /// The errors of [`Holds::hold`](crate::hold::Holds::hold).
    pub(crate) fn with_room<T>(&self, hold: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        const MOMENTS: usize = 10;
        self.with_room_in(MOMENTS, hold)
    }

    /// Like [`Self::with_room`], but waits at most so many times ten milliseconds.
    fn with_room_in<T>(
        &self,
        moments: usize,
        mut hold: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for _ in 0..moments {
            match hold() {
                Err(Errno::AGAIN) => self.await_receiver(),
                held => return held,
            }
        }
        hold()
    }

    /// Waits for a moment until the engine's threads have taken in files in flight.
    pub(crate) fn await_receiver(&self) {
        self.holds.wait_for_room(|| self.threads.rouse());
    }

    /// Says that the application is about to close or replace `number`; `None`: any. Waits for a
    /// thread that is about to use it.
    pub fn closing(&self, number: Option<i32>) {
        match number {
            Some(number) => self.closes().closed(number),
            None => self.closes().closed_many(),
        }
        if !self.holds.forget(number) {
            // A program may unmount when it has closed its files.
            self.await_receiver();
        }
    }

    /// Duplicates a descriptor of the application's table into the engine's table. `count` counts
    /// the two descriptors separately.
    pub(crate) fn in_both_tables(
        &self,
        here: Fd,
        count: Option<&Arc<OpenCount>>,
    ) -> Result<Arc<BothTables>, Errno> {
        let there = self.hold_for_good(here.raw(), count)?;
        let counted = count.map(OpenCount::count);
        Ok(Arc::new(BothTables::new(here, counted, there, self.holds.deferred.clone())))
    }

    /// Leaves something to be dropped on a thread of the application: its descriptors are in the
    /// application's table.
    pub(crate) fn defer_drop(&self, value: impl Send + 'static) {
        self.holds.deferred.put(Box::new(value));
    }

    /// Drops the values whose drop was deferred; on a thread of the application.
    pub fn drop_deferred(&self) {
        drop(self.holds.deferred.take());
    }

    /// Waits until the descriptors are closed in both tables, or used again: by a handle, or as
    /// `is_used` says. Waits a second at most. The caller is a thread of the application that has
    /// dropped its own reference to the descriptors.
    pub(crate) fn wait_until_closed(
        self: &Arc<Self>,
        counts: &[&Arc<OpenCount>],
        is_used: impl Fn() -> bool,
    ) {
        let until = Deadline::after_ns(CLOSE_NS);
        loop {
            self.drop_deferred();
            let seen = counts.iter().map(|count| (count, count.news())).collect::<Vec<_>>();
            let unsettled = seen.into_iter().find(|(count, _)| !count.is_settled());
            let Some((count, seen)) = unsettled else { return };
            if is_used() || until.has_passed() {
                return;
            }
            self.holds.close_soon(|| self.threads.rouse());
            if !self.turn_for_sleeper() {
                count.wait(seen, until.min(Deadline::after_ns(MOMENT_NS)));
            }
        }
    }
}
