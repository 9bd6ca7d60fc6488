//! Descriptors of the engine: how they are sent to the engine's descriptor table and closed there.

use super::Engine;
use crate::hold::{BothTables, HeldFd, OpenCount};
use nowait_sys::{Errno, Fd, time::Deadline};
use std::sync::Arc;

const MOMENT_NS: u64 = 10_000_000;
/// The longest wait of a close: a device that hangs may keep a descriptor open.
const CLOSE_NS: u64 = 1_000_000_000;

impl Engine {
    /// Sends a file of the engine itself to the engine's table; waits at most a second for room in
    /// the channel.
    pub(crate) fn hold_for_good(
        &self,
        number: i32,
        count: Option<&Arc<OpenCount>>,
    ) -> Result<Arc<HeldFd>, Errno> {
        const MOMENTS: usize = 100;
        self.with_room_in(MOMENTS, || self.holds.hold_counted(number, count.map(OpenCount::count)))
    }

    /// The channel has room for some hundred files. If the channel is full, waits at most 0.1 s
    /// until the driver or a worker has received files.
    pub(crate) fn with_room<T>(&self, hold: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        const MOMENTS: usize = 10;
        self.with_room_in(MOMENTS, hold)
    }

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

    /// Waits at most ten milliseconds until the engine's threads have received files from the
    /// channel.
    pub(crate) fn await_receiver(&self) {
        self.holds.wait_for_room(|| self.threads.driver.wake());
    }

    /// Called before the application closes or replaces the descriptor `number`, or any (`None`).
    /// Waits at most a second for threads that use the number, and at most ten milliseconds for the
    /// engine to close a file kept for the number.
    pub fn closing(&self, number: Option<i32>) {
        match number {
            Some(number) => self.closes().closed(number),
            None => self.closes().closed_many(),
        }
        if !self.holds.forget(number) {
            // A thread of the engine must close the file, and the program may unmount after its
            // close.
            self.await_receiver();
        }
    }

    /// `count` counts the two descriptors separately.
    pub(crate) fn in_both_tables(
        &self,
        here: Fd,
        count: Option<&Arc<OpenCount>>,
    ) -> Result<Arc<BothTables>, Errno> {
        let there = self.hold_for_good(here.raw(), count)?;
        let counted = count.map(OpenCount::count);
        Ok(Arc::new(BothTables::new(here, counted, there, self.holds.deferred.clone())))
    }

    /// Stores a value that must be dropped on a thread of the application, because its descriptors
    /// are in the application's table.
    pub(crate) fn defer_drop(&self, value: impl Send + 'static) {
        self.holds.deferred.put(Box::new(value));
    }

    /// Drops the values whose drop was deferred. Called on threads of the application.
    pub fn drop_deferred(&self) {
        drop(self.holds.deferred.take());
    }

    /// Waits at most a second until the descriptors are closed in both tables, or a new handle uses
    /// them, or `is_used` returns `true`. The caller is a thread of the application that has
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
            self.holds.close_soon(|| self.threads.driver.wake());
            if !self.turn_for_sleeper() {
                count.wait(seen, until.min(Deadline::after_ns(MOMENT_NS)));
            }
        }
    }
}
