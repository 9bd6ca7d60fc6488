//! The files that requests hold, each by its number in the engine's descriptor table.

use super::{Counted, Deferred, channel::FdChannel, in_engine_table};
use crate::command::Flags;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use nowait_block::bio::Descriptor;
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, Fd, fd, fdtable, file::Stat};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    status_flags: i32,
}

/// An open file that is in the engine's table, or on its way to it.
#[derive(Debug)]
pub struct HeldFd {
    tag: u64,
    fd: AtomicI32,
    channel: Arc<FdChannel>,
    count: Option<Counted>,
}

const IN_FLIGHT: i32 = -1;
/// The file has no number: none was free when it arrived, or it was dropped on its way.
const LOST: i32 = -2;

impl Descriptor for HeldFd {
    /// Returns the number in the engine's table. Called on threads of the engine only.
    fn number(&self) -> Result<i32, Errno> {
        if let Some(known) = self.known() {
            return known;
        }
        let received = |number| match number {
            Ok(number) => self.fd.store(number, Release),
            Err(Errno::MFILE) => self.fd.store(LOST, Release),
            Err(_) => {}
        };
        self.channel.number(self.tag, || self.known(), received)
    }
}

impl HeldFd {
    /// Returns `None` if the file is still on its way. Any thread may call this.
    pub(crate) fn arrival(&self) -> Option<Result<(), Errno>> {
        // In this order, because `number` stores `fd` before it unlocks the channel.
        let arrival = self.channel.arrival(self.tag);
        arrival.or_else(|| self.known().map(|number| number.map(drop)))
    }

    fn known(&self) -> Option<Result<i32, Errno>> {
        match self.fd.load(Acquire) {
            IN_FLIGHT => None,
            LOST => Some(Err(Errno::MFILE)),
            number => Some(Ok(number)),
        }
    }
}

impl HeldFd {
    /// Drops a file that no thread of the engine has received yet; returns the file if only such a
    /// thread can close it. Called on threads of the application.
    pub(crate) fn close_here(mut self) -> Result<(), HeldFd> {
        if *self.fd.get_mut() != IN_FLIGHT || !self.channel.discard(self.tag) {
            return Err(self);
        }
        *self.fd.get_mut() = LOST;
        Ok(())
    }
}

impl Drop for HeldFd {
    fn drop(&mut self) {
        match *self.fd.get_mut() {
            IN_FLIGHT => self.channel.give_up(self.tag, self.count.take()),
            LOST => {}
            number => self.channel.close_in_engine(number, self.count.take()),
        }
    }
}

/// The file that [`Holds::hold_and_keep`] returned last, kept for the next request on it.
#[derive(Debug)]
struct LastHeld {
    number: i32,
    held: Arc<HeldFd>,
    /// `true`: a request has held the file since the last [`Holds::tick`].
    is_used: bool,
}

/// The files that requests hold.
#[derive(Debug)]
pub struct Holds {
    channel: Arc<FdChannel>,
    by_number: Mutex<FxHashMap<i32, (Identity, Weak<HeldFd>)>>,
    kept: Mutex<Option<LastHeld>>,
    /// Eventfds that the kernel signals, by the application's number.
    counters: Mutex<FxHashMap<i32, Arc<HeldFd>>>,
    next_tag: AtomicU64,
    /// Values to be dropped on a thread of the application.
    pub(crate) deferred: Arc<Deferred<Box<dyn Send>>>,
    /// `true`: the engine has no table of its own, so files are duplicated in the application's
    /// table. A close of such a duplicate drops the process's POSIX locks on the file.
    shared_table: AtomicBool,
}

impl Holds {
    /// Makes the channel from `local` to the table that contains `remote`.
    pub fn new(local: Fd, remote: i32) -> Holds {
        Holds {
            channel: Arc::new(FdChannel::new(local, remote)),
            by_number: Mutex::default(),
            kept: Mutex::default(),
            counters: Mutex::default(),
            next_tag: AtomicU64::new(0),
            deferred: Arc::default(),
            shared_table: false.into(),
        }
    }

    pub(crate) fn keep_remote(&self, remote: Fd) {
        self.channel.keep_remote(remote);
    }

    /// Records that the engine's threads share the application's table.
    pub fn share_table(&self) {
        self.shared_table.store(true, Relaxed);
    }

    /// Returns `true` if the engine's threads share the application's table.
    pub fn is_table_shared(&self) -> bool {
        self.shared_table.load(Relaxed)
    }

    /// Holds the open file behind the application's `number`, whose current stat and status flags
    /// are `stat` and `flags`. Makes no system call if the file is held already.
    ///
    /// # Errors
    /// `EAGAIN`: too many files are on their way to the engine. `EBADF`: the number was closed
    /// meanwhile.
    pub fn hold(&self, number: i32, stat: &Stat, flags: Flags) -> Result<Arc<HeldFd>, Errno> {
        debug_assert!(!flags.are_remembered(), "what is held was looked at");
        let identity = Identity { dev: stat.dev, ino: stat.ino, status_flags: flags.bits() };
        let mut by_number = self.by_number.lock();
        // Only a reference to the same file is upgraded: an upgraded reference may become the last
        // one, which must not be dropped under the lock.
        if let Some((known, held)) = by_number.get(&number)
            && *known == identity
            && let Some(held) = held.upgrade()
            && held.known() != Some(Err(Errno::MFILE))
        {
            return Ok(held);
        }
        let held = Arc::new(self.send(number)?);
        by_number.insert(number, (identity, Arc::downgrade(&held)));
        Ok(held)
    }

    /// Holds a file as [`Holds::hold`] does, and keeps it for the next request, so that a program
    /// that waits for each request before the next sends the file once. The file is kept until
    /// `number` is closed ([`Holds::forget`]), another file is kept, or no request has held it
    /// between two ticks.
    pub(crate) fn hold_and_keep(
        &self,
        number: i32,
        stat: &Stat,
        flags: Flags,
    ) -> Result<Arc<HeldFd>, Errno> {
        let held = self.hold(number, stat, flags)?;
        let mut kept = self.kept.lock();
        if let Some(kept) = kept.as_mut().filter(|kept| Arc::ptr_eq(&kept.held, &held)) {
            kept.is_used = true;
            return Ok(held);
        }
        let before = kept.replace(LastHeld { number, held: held.clone(), is_used: true });
        drop(kept);
        before.into_iter().for_each(|before| _ = release(before.held));
        Ok(held)
    }

    /// Holds the eventfd behind the application's `number`, for [`Holds::counter`], until the
    /// program closes that number ([`Holds::forget`]).
    pub(crate) fn hold_counter(&self, number: i32) -> Result<(), Errno> {
        let held = self.hold_afresh(number)?;
        let before = self.counters.lock().insert(number, held);
        drop(before);
        Ok(())
    }

    pub(crate) fn counter(&self, number: i32) -> Option<Arc<HeldFd>> {
        self.counters.lock().get(&number).cloned()
    }

    /// Releases the files kept for the application's `number`, which is about to be closed; with
    /// `None`, all kept files. Returns `false` if only a thread of the engine can close one of
    /// these files.
    pub(crate) fn forget(&self, number: Option<i32>) -> bool {
        let is_meant = |kept: &mut LastHeld| number.is_none_or(|number| number == kept.number);
        let kept = self.kept.lock().take_if(is_meant).map(|kept| kept.held);
        let mut table = self.counters.lock();
        let counters: Vec<_> = match number {
            Some(number) => table.remove(&number).into_iter().collect(),
            None => table.drain().map(|(_, counter)| counter).collect(),
        };
        drop(table);
        let mut are_closed = true;
        kept.into_iter().chain(counters).for_each(|held| are_closed &= release(held));
        are_closed
    }

    /// The driver calls this. Releases the file kept for the next request, unless a request has
    /// used it since the last call.
    pub(crate) fn tick(&self) {
        let is_old = |kept: &mut LastHeld| !core::mem::take(&mut kept.is_used);
        let kept = self.kept.lock().take_if(is_old);
        drop(kept);
    }

    /// Holds the open file behind the application's `number`, without sharing it with other
    /// requests: for files that all have the same inode (eventfds).
    ///
    /// # Errors
    /// The errors of [`Holds::hold`].
    pub fn hold_afresh(&self, number: i32) -> Result<Arc<HeldFd>, Errno> {
        self.send(number).map(Arc::new)
    }

    pub(crate) fn hold_counted(
        &self,
        number: i32,
        count: Option<Counted>,
    ) -> Result<Arc<HeldFd>, Errno> {
        let mut held = self.send(number)?;
        held.count = count;
        Ok(Arc::new(held))
    }

    /// Returns `true` if the application's numbers are not valid in the calling thread's table.
    pub(crate) fn is_elsewhere(&self) -> bool {
        in_engine_table() && !self.is_table_shared()
    }

    /// Called on a thread of the engine, which must check that the number still means the right
    /// file.
    pub(crate) fn fetch(&self, number: i32) -> Result<Arc<HeldFd>, Errno> {
        let fd = AtomicI32::new(fdtable::fetch(number)?.into_raw());
        let tag = self.next_tag.fetch_add(1, AcqRel);
        Ok(Arc::new(HeldFd { tag, fd, channel: self.channel.clone(), count: None }))
    }

    fn send(&self, number: i32) -> Result<HeldFd, Errno> {
        let tag = self.next_tag.fetch_add(1, AcqRel);
        let fd = if self.shared_table.load(Relaxed) {
            fd::duplicate(number, 0)?.moved_high().into_raw()
        } else {
            self.channel.send(number, tag)?;
            IN_FLIGHT
        };
        let (fd, channel) = (AtomicI32::new(fd), self.channel.clone());
        Ok(HeldFd { tag, fd, channel, count: None })
    }

    pub(crate) fn wait_for_room(&self, rouse: impl FnOnce()) {
        self.channel.wait_for_room(rouse);
    }

    pub(crate) fn close_soon(&self, rouse: impl FnOnce()) {
        match self.is_table_shared() {
            true => self.channel.close_given_up(),
            false => self.channel.ask(rouse),
        }
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.channel.descriptors()
    }

    /// Returns the channel's local end, a descriptor in the application's table.
    pub fn local_fd(&self) -> i32 {
        self.channel.local.raw()
    }

    pub(crate) fn make_room(&self) {
        self.channel.make_room();
    }

    /// Closes files that threads of the application gave up, and makes room in the channel. The
    /// engine's threads call this from time to time.
    pub fn tidy(&self) {
        self.make_room();
        self.channel.close_given_up();
    }
}

/// Releases a file on a thread of the application, unless a request holds it. Returns `false` if
/// only a thread of the engine can close it.
fn release(held: Arc<HeldFd>) -> bool {
    Arc::into_inner(held).is_none_or(|held| held.close_here().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_sys::{file, poll, time::Deadline};
    use std::os::fd::AsRawFd;

    #[test]
    fn threads_that_come_at_once_all_get_the_number() {
        for _ in 0..300 {
            let (local, remote) = fdtable::channel().unwrap();
            let holds = Holds::new(local, remote.raw());
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            let held = holds.hold_afresh(file.as_raw_fd()).unwrap();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let held = held.clone();
                    std::thread::spawn(move || held.number())
                })
                .collect();
            let numbers: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            assert!(numbers.iter().all(|number| *number == held.number()), "{numbers:?}");
        }
    }

    #[test]
    fn a_remote_end_in_the_table_of_the_application_is_closed_with_the_last_file() {
        let (local, remote) = fdtable::channel().unwrap();
        let other = fd::duplicate(local.raw(), 0).unwrap();
        let holds = Holds::new(local, remote.raw());
        holds.share_table();
        holds.keep_remote(remote);
        let held = holds.hold_afresh(other.raw()).unwrap();
        drop(holds);
        assert!(fdtable::send(other.raw(), other.raw(), 1).is_ok());
        drop(held);
        assert!(fdtable::send(other.raw(), other.raw(), 1).is_err());
    }

    #[test]
    fn files_are_taken_in_when_there_is_no_room_for_more() {
        let (local, remote) = fdtable::channel().unwrap();
        let holds = Holds::new(local, remote.raw());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let hold = || holds.hold_afresh(file.as_raw_fd());
        let mut held = Vec::new();
        while let Ok(one) = hold() {
            held.push(one);
            holds.make_room(); // no request asked for it
        }
        assert!(held.len() > 1, "{}", held.len());
        holds.wait_for_room(|| holds.make_room());
        held.push(hold().unwrap());
        assert!(held.iter().all(|one| one.number().is_ok()));
    }

    /// `POLLHUP` of poll(2).
    const HANGS_UP: i16 = 0x10;

    /// Releases a pipe's only writer by `release`. Returns `true` if that closed the pipe.
    fn is_closed_by(release: impl FnOnce(&Holds, i32)) -> bool {
        let (local, remote) = fdtable::channel().unwrap();
        let holds = Holds::new(local, remote.raw());
        holds.keep_remote(remote);
        let (reader, writer) = std::io::pipe().unwrap();
        let number = writer.as_raw_fd();
        let (stat, flags) = (file::stat(number).unwrap(), Flags::Read(1));
        let held = holds.hold_and_keep(number, &stat, flags).unwrap();
        drop(held);
        let again = holds.hold_and_keep(number, &stat, flags).unwrap();
        assert_eq!(holds.next_tag.load(Relaxed), 1, "it was sent once");
        drop(again);
        drop(writer);
        release(&holds, number);
        poll::ppoll(reader.as_raw_fd(), HANGS_UP, Deadline::NOW, None).unwrap() != 0
    }

    #[test]
    fn a_file_is_kept_until_it_is_closed_or_not_held_for_two_ticks() {
        assert!(!is_closed_by(|_, _| ()));
        assert!(!is_closed_by(|holds, number| assert!(holds.forget(Some(number + 1)))));
        assert!(is_closed_by(|holds, number| assert!(holds.forget(Some(number)))));
        assert!(is_closed_by(|holds, _| assert!(holds.forget(None))));
        assert!(!is_closed_by(|holds, _| holds.tick()));
        let two_ticks = |holds: &Holds, _| {
            (0..2).for_each(|_| holds.tick());
            holds.tidy();
        };
        assert!(is_closed_by(two_ticks));
    }

    #[test]
    fn a_counter_is_held_until_its_number_is_closed() {
        let (local, remote) = fdtable::channel().unwrap();
        let holds = Holds::new(local, remote.raw());
        holds.keep_remote(remote);
        let (reader, writer) = std::io::pipe().unwrap();
        let number = writer.as_raw_fd();
        for forgotten in [Some(number), None] {
            holds.hold_counter(number).unwrap();
            assert!(holds.counter(number).is_some() && holds.counter(number + 1).is_none());
            assert!(holds.forget(Some(number + 1)) && holds.counter(number).is_some());
            assert!(holds.forget(forgotten) && holds.counter(number).is_none());
        }
        holds.hold_counter(number).unwrap();
        assert!(holds.counter(number).unwrap().number().is_ok());
        drop(writer);
        assert!(!holds.forget(Some(number)), "only a thread of the engine can close it");
        holds.tidy();
        assert_ne!(poll::ppoll(reader.as_raw_fd(), HANGS_UP, Deadline::NOW, None), Ok(0));
    }

    #[test]
    fn a_file_given_up_before_it_arrived_is_closed_by_tidy() {
        let (local, remote) = fdtable::channel().unwrap();
        let holds = Holds::new(local, remote.raw());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(holds.hold_afresh(writer.as_raw_fd()).unwrap());
        drop(writer);
        holds.tidy();
        let mut all = String::new();
        std::io::Read::read_to_string(&mut &reader, &mut all).unwrap(); // ends: there is no writer
    }
}
