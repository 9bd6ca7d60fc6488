//! Open files on their way into the engine's descriptor table.

use super::{Counted, Deferred, in_engine_table};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno, Fd, fd, fdtable, futex,
    mistake::{self, Mistake},
    time::Deadline,
};
use rustc_hash::FxHashMap;
use std::{collections::VecDeque, sync::OnceLock};

/// Carries open files into the engine's table.
#[derive(Debug)]
pub(super) struct FdChannel {
    /// The end in the application's table.
    pub(super) local: Fd,
    /// The number of the other end, in the engine's table.
    remote: i32,
    /// That end in the application's table.
    remote_here: OnceLock<Fd>,
    arrived: Mutex<Arrived>,
    /// 1: a thread waits: files are to be taken in before their requests' turn, and those given up
    /// to be closed. Changes when that was done.
    congested: AtomicU32,
    /// Numbers in the engine's table that a thread outside gave up.
    closing: Deferred<(i32, Option<Counted>)>,
}

#[derive(Debug, Default)]
struct Arrived {
    /// Tags of the files in flight, in their order.
    in_flight: VecDeque<u64>,
    /// Numbers in the engine's table: only a thread of the engine may close them. `None`: there was
    /// none free for the file, which is lost.
    files: FxHashMap<u64, Option<i32>>,
    /// Given up before they arrived.
    unwanted: Vec<(u64, Option<Counted>)>,
}

impl Arrived {
    fn take_in(&mut self, tag: u64, fd: Option<Fd>) {
        debug_assert_eq!(self.in_flight.front(), Some(&tag), "files arrive in order");
        self.in_flight.pop_front();
        if let Some(index) = self.unwanted.iter().position(|(other, _)| *other == tag) {
            drop(fd);
            self.unwanted.swap_remove(index);
        } else {
            self.files.insert(tag, fd.map(Fd::into_raw));
        }
    }
}

impl FdChannel {
    /// Makes the channel from `local` into the table in which `remote` will be kept.
    pub(super) fn new(local: Fd, remote: i32) -> FdChannel {
        FdChannel {
            local,
            remote,
            remote_here: OnceLock::new(),
            arrived: Mutex::default(),
            congested: AtomicU32::new(0),
            closing: Deferred::default(),
        }
    }

    /// Returns the numbers of both ends in the application's table.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = i32> {
        core::iter::once(self.local.raw()).chain(self.remote_here.get().map(Fd::raw))
    }

    /// Keeps the remote end in the application's table.
    pub(super) fn keep_remote(&self, remote: Fd) {
        let _ = self.remote_here.set(remote);
    }

    /// Sends the open file behind the application's `number`.
    ///
    /// # Errors
    /// `EAGAIN`: too many files are in flight. `EBADF`: not open.
    pub(super) fn send(&self, number: i32, tag: u64) -> Result<(), Errno> {
        let mut arrived = self.arrived.lock();
        fdtable::send(self.local.raw(), number, tag).map_err(|errno| match errno {
            Errno::BADF => Errno::BADF,
            _ => Errno::AGAIN,
        })?;
        arrived.in_flight.push_back(tag);
        Ok(())
    }

    /// Drops a file that is in flight, if no other file is before it; on a thread of the
    /// application. Returns `false` if it is still there.
    pub(super) fn discard(&self, tag: u64) -> bool {
        let Some(remote) = self.remote_here.get() else { return false };
        let mut arrived = self.arrived.lock();
        if arrived.in_flight.front() != Some(&tag) && !mistake::makes(Mistake::DiscardOthers) {
            return false;
        }
        let is_discarded = fdtable::discard(remote.raw()).is_ok();
        if is_discarded {
            arrived.in_flight.pop_front();
        }
        is_discarded
    }

    /// Returns the number of a file in the engine's table; on an engine thread. `known` is looked
    /// at under the lock: of two threads that come at once, one receives the file.
    pub(super) fn number(
        &self,
        tag: u64,
        known: impl FnOnce() -> Option<Result<i32, Errno>>,
        received: impl FnOnce(Result<i32, Errno>),
    ) -> Result<i32, Errno> {
        let mut arrived = self.arrived.lock();
        if let Some(known) = known() {
            return known;
        }
        let number = self.receive(&mut arrived, tag);
        received(number);
        number
    }

    /// Receives until the file with `tag` is there; on an engine thread.
    fn receive(&self, arrived: &mut Arrived, tag: u64) -> Result<i32, Errno> {
        loop {
            if let Some(number) = arrived.files.remove(&tag) {
                return number.ok_or(Errno::MFILE);
            }
            let (tag, fd) = fdtable::receive(self.remote)?;
            arrived.take_in(tag, fd);
        }
    }

    /// Tells, on any thread, that a file has come and no request has asked for it yet, or that
    /// there was no number for it.
    pub(super) fn arrival(&self, tag: u64) -> Option<Result<(), Errno>> {
        let arrived = self.arrived.lock();
        arrived.files.get(&tag).map(|number| number.map(drop).ok_or(Errno::MFILE))
    }

    /// Closes a file that no request has asked for; on a thread outside, that is left to the next
    /// thread of the engine that tidies.
    pub(super) fn give_up(&self, tag: u64, count: Option<Counted>) {
        let mut arrived = self.arrived.lock();
        let number = match in_engine_table() {
            // Also if it is still in flight: a message holds a file like a descriptor.
            true => self.receive(&mut arrived, tag).ok(),
            false => match arrived.files.remove(&tag) {
                Some(number) => number,
                None => return arrived.unwanted.push((tag, count)),
            },
        };
        drop(arrived);
        if let Some(number) = number {
            self.close_in_engine(number, count);
        }
    }

    /// Closes a number of the engine's table, or leaves that to a thread which has the table.
    pub(super) fn close_in_engine(&self, number: i32, count: Option<Counted>) {
        match in_engine_table() {
            true => fd::close(number),
            false => self.closing.put((number, count)),
        }
    }

    /// Asks the engine's threads to take in files in flight, and to close those given up; `rouse`
    /// makes one of them call [`FdChannel::make_room`].
    pub(super) fn ask(&self, rouse: impl FnOnce()) {
        self.congested.store(1, SeqCst);
        rouse();
    }

    /// Waits for a moment, at most ten milliseconds, until the engine's threads have taken in files
    /// in flight; `rouse` has one of them call [`FdChannel::make_room`].
    pub(super) fn wait_for_room(&self, rouse: impl FnOnce()) {
        const MOMENT_NS: u64 = 10_000_000;
        self.ask(rouse);
        // Waiting for a writable socket would not help: the socket is writable even if the user has
        // the most files in flight in all sockets together.
        let _ = futex::wait(&self.congested, 1, Deadline::after_ns(MOMENT_NS));
    }

    /// Takes in all files in flight and closes what was given up, if a thread has asked for that;
    /// on an engine thread.
    pub(super) fn make_room(&self) {
        if self.congested.load(Relaxed) == 0 {
            return;
        }
        let mut arrived = self.arrived.lock();
        while let Ok((tag, fd)) = fdtable::receive(self.remote) {
            arrived.take_in(tag, fd);
        }
        drop(arrived);
        self.close_given_up();
        // A thread that has begun to wait meanwhile tries again, too.
        self.congested.store(0, SeqCst);
        futex::wake(&self.congested, u32::MAX);
        // A file given up in between was asked for in vain.
        self.close_given_up();
    }

    /// Closes the files that threads outside gave up, before or after they arrived; on an engine
    /// thread.
    pub(super) fn close_given_up(&self) {
        let mut arrived = self.arrived.lock();
        while !arrived.unwanted.is_empty() {
            let Ok((tag, fd)) = fdtable::receive(self.remote) else { break };
            arrived.take_in(tag, fd);
        }
        drop(arrived);
        for (number, count) in self.closing.take() {
            fd::close(number);
            drop(count);
        }
    }
}
