//! An engine without threads: its owner calls the loops' turns, which threads would make otherwise.
//!
//! The owner's descriptor table is the application's. During a turn, the owner's thread counts as
//! one of the engine's threads; otherwise it counts as one of the application's.

use super::{Engine, section::Section};
use crate::{
    hold::AsEngine,
    parts::{Clock, Executor},
    route::driver,
    turn::{Loop, Next},
};
use nowait_sys::Errno;
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The advance of a virtual clock when all loops would sleep, in nanoseconds.
const IDLE_NS: u64 = 10_000;

/// One of the engine's loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The driver's loop.
    Driver,
    /// The workers' loops, all in one turn.
    Workers,
}

/// The driver's loop, if the owner makes its turns.
pub(crate) type Owned = Mutex<Option<driver::Run>>;

impl Engine {
    /// Makes a turn of one of the engine's loops, see [`Executor::Owner`]; does not sleep.
    pub fn turn(self: &Arc<Self>, role: Role) -> Next {
        let _role = AsEngine::begin();
        let _section = Section::enter(self);
        match (role, &mut *self.threads.owned.lock()) {
            (_, None) => Next::End,
            (Role::Workers, _) => self.threads.workers().turn(),
            (Role::Driver, Some(driver)) => driver.turn(),
        }
    }

    /// Makes one turn of each loop instead of a sleep of the caller; if no turn had work, advances
    /// a virtual clock. Returns `false`, and makes no turn, if the engine has threads for its
    /// turns.
    pub(crate) fn turn_for_sleeper(self: &Arc<Self>) -> bool {
        if self.parts.executor == Executor::Threads {
            return false;
        }
        let slept = [Role::Driver, Role::Workers].map(|role| self.turn(role) != Next::Turn);
        if let (Clock::Virtual(clock), [true, true]) = (self.clock(), slept) {
            clock.advance(IDLE_NS);
        }
        true
    }

    pub(crate) fn start_owned(self: &Arc<Self>) -> Result<(), Errno> {
        self.holds.share_table();
        *self.threads.owned.lock() = Some(driver::new_loop(self, None)?);
        Ok(())
    }

    /// Called after the driver was told to stop.
    pub(crate) fn end_owned(self: &Arc<Self>) {
        if self.parts.executor == Executor::Threads {
            return;
        }
        while self.turn(Role::Driver) != Next::End || self.turn(Role::Workers) == Next::Turn {}
        let owned = self.threads.owned.lock().take();
        owned.into_iter().for_each(|run| self.threads.driver.give_up(run));
        self.holds.tidy();
    }
}
