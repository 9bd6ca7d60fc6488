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

#[derive(Debug)]
pub(super) struct FdChannel {
    /// The application's end of the channel.
    pub(super) local: Fd,
    /// The number of the engine's end, in the engine's table.
    remote: i32,
    /// A descriptor of the engine's end in the application's table.
    remote_here: OnceLock<Fd>,
    arrived: Mutex<Arrived>,
    /// 1: a thread has asked the engine's threads to receive files ahead of their requests and to
    /// close those given up. Set to 0 when both are done.
    congested: AtomicU32,
    /// Numbers in the engine's table that threads of the application have given up.
    closing: Deferred<(i32, Option<Counted>)>,
}

#[derive(Debug, Default)]
struct Arrived {
    /// Tags of the files on their way, in the order in which they were sent.
    in_flight: VecDeque<u64>,
    /// The numbers of received files in the engine's table: only a thread of the engine may close
    /// them. `None`: no number was free for the file, which is lost.
    files: FxHashMap<u64, Option<i32>>,
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

    pub(super) fn descriptors(&self) -> impl Iterator<Item = i32> {
        core::iter::once(self.local.raw()).chain(self.remote_here.get().map(Fd::raw))
    }

    pub(super) fn keep_remote(&self, remote: Fd) {
        let _ = self.remote_here.set(remote);
    }

    pub(super) fn send(&self, number: i32, tag: u64) -> Result<(), Errno> {
        let mut arrived = self.arrived.lock();
        fdtable::send(self.local.raw(), number, tag).map_err(|errno| match errno {
            Errno::BADF => Errno::BADF,
            _ => Errno::AGAIN,
        })?;
        arrived.in_flight.push_back(tag);
        Ok(())
    }

    /// Drops a file that is on its way, if no other file is before it. Called on threads of the
    /// application.
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

    /// Called on threads of the engine. `known` is called under the lock, so that of two threads
    /// that come at once only one receives the file.
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

    /// Called on threads of the engine.
    fn receive(&self, arrived: &mut Arrived, tag: u64) -> Result<i32, Errno> {
        loop {
            if let Some(number) = arrived.files.remove(&tag) {
                return number.ok_or(Errno::MFILE);
            }
            let (tag, fd) = fdtable::receive(self.remote)?;
            arrived.take_in(tag, fd);
        }
    }

    /// Returns `None` if the file is still on its way, or a request has taken its number. Any
    /// thread may call this.
    pub(super) fn arrival(&self, tag: u64) -> Option<Result<(), Errno>> {
        let arrived = self.arrived.lock();
        arrived.files.get(&tag).map(|number| number.map(drop).ok_or(Errno::MFILE))
    }

    /// Closes a file that no request has used. On a thread of the application, the next thread of
    /// the engine that tidies closes it instead.
    pub(super) fn give_up(&self, tag: u64, count: Option<Counted>) {
        let mut arrived = self.arrived.lock();
        let number = match in_engine_table() {
            // A file on its way is received, too, because the message in the channel keeps it open.
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

    pub(super) fn close_in_engine(&self, number: i32, count: Option<Counted>) {
        match in_engine_table() {
            true => fd::close(number),
            false => self.closing.put((number, count)),
        }
    }

    /// Asks the engine's threads to receive files and to close those given up; `rouse` makes one of
    /// them call [`FdChannel::make_room`].
    pub(super) fn ask(&self, rouse: impl FnOnce()) {
        self.congested.store(1, SeqCst);
        rouse();
    }

    /// Waits at most ten milliseconds for [`FdChannel::make_room`], which `rouse` makes a thread of
    /// the engine call.
    pub(super) fn wait_for_room(&self, rouse: impl FnOnce()) {
        const MOMENT_NS: u64 = 10_000_000;
        self.ask(rouse);
        // Waiting for a writable socket would not help: the limit is also on the files that the
        // user has in flight in all sockets together, and then the socket is writable.
        let _ = futex::wait(&self.congested, 1, Deadline::after_ns(MOMENT_NS));
    }

    /// Does nothing unless a thread has called [`FdChannel::ask`]. Called on threads of the engine.
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
        // A thread that has begun to wait in between is woken, too, and tries again.
        self.congested.store(0, SeqCst);
        futex::wake(&self.congested, u32::MAX);
        // Clearing `congested` may have dropped another thread's request to close files.
        self.close_given_up();
    }

    /// Called on threads of the engine.
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
