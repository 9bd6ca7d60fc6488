//! Open files held in the engine's own descriptor table.
//!
//! A request holds the open file it was submitted on, as in the kernel: closing or reusing the
//! number afterwards neither fails it nor hits another file. The file is sent to the engine's
//! threads once, shared by the requests that are under way on it, and closed when the last of
//! them ends, before its event is visible. See [`nowait_sys::fdtable`] for why not `dup`.

use crate::descriptor::Flags;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use nowait_block::bio::Descriptor;
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, Fd, fd, fdtable, file::Stat, poll, time::Deadline};
use rustc_hash::FxHashMap;
use std::{
    cell::Cell,
    sync::{Arc, OnceLock, Weak},
};

thread_local! {
    static IN_ENGINE_TABLE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one whose descriptor table is the engine's.
pub fn enter_engine_table() {
    IN_ENGINE_TABLE.set(true);
}

/// While this lives, the calling thread counts as one of the engine's: for those of an engine whose
/// table is the application's.
pub(crate) struct AsEngine(bool);

impl AsEngine {
    pub(crate) fn begin() -> AsEngine {
        AsEngine(IN_ENGINE_TABLE.replace(true))
    }
}

impl Drop for AsEngine {
    fn drop(&mut self) {
        IN_ENGINE_TABLE.set(self.0);
    }
}

/// Tells whether the calling thread's descriptor table is the engine's.
pub fn in_engine_table() -> bool {
    IN_ENGINE_TABLE.get()
}

/// What tells one open file from another, as far as requests can notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    status_flags: i32,
}

/// An open file under way to, or in, the engine's table.
#[derive(Debug)]
pub struct HeldFile {
    tag: u64,
    fd: AtomicI32,
    way: Arc<Way>,
}

const UNDER_WAY: i32 = -1;
/// There was no number for it when it arrived.
const LOST: i32 = -2;

/// The way of files into the engine's table.
#[derive(Debug)]
struct Way {
    near: Fd,
    /// Its number, in the engine's table.
    far: i32,
    /// The same, where that table is the application's.
    far_here: OnceLock<Fd>,
    arrived: Mutex<Arrived>,
    /// Somebody waits for room: files are to be taken in before their requests' turn.
    crowded: AtomicBool,
    /// Numbers in the engine's table that a thread outside gave up.
    closing: Mutex<Vec<i32>>,
}

#[derive(Debug, Default)]
struct Arrived {
    /// Numbers in the engine's table: only a thread of the engine may close them. `None`: there was
    /// none free for the file, which is lost.
    files: FxHashMap<u64, Option<i32>>,
    /// Given up before they arrived.
    unwanted: Vec<u64>,
}

impl Arrived {
    fn take_in(&mut self, tag: u64, fd: Option<Fd>) {
        if let Some(index) = self.unwanted.iter().position(|other| *other == tag) {
            self.unwanted.swap_remove(index); // and `fd` is closed
        } else {
            self.files.insert(tag, fd.map(Fd::into_raw));
        }
    }
}

impl Way {
    /// Receives until the file with `tag` is there; on an engine thread.
    fn receive(&self, arrived: &mut Arrived, tag: u64) -> Result<i32, Errno> {
        loop {
            if let Some(number) = arrived.files.remove(&tag) {
                return number.ok_or(Errno::MFILE);
            }
            let (tag, fd) = fdtable::receive(self.far)?;
            arrived.take_in(tag, fd);
        }
    }

    /// Closes a file that nobody has asked for; on a thread outside, as soon as one of the engine's
    /// does so.
    fn give_up(&self, tag: u64) {
        let mut arrived = self.arrived.lock();
        let number = match in_engine_table() {
            // Also if it is still under way: a message holds a file like a descriptor.
            true => self.receive(&mut arrived, tag).ok(),
            false => arrived.files.remove(&tag).unwrap_or_else(|| {
                arrived.unwanted.push(tag);
                None
            }),
        };
        drop(arrived);
        number.into_iter().for_each(|number| self.close_in_engine(number));
    }

    /// Closes a number of the engine's table, or leaves that to a thread which has the table.
    fn close_in_engine(&self, number: i32) {
        match IN_ENGINE_TABLE.get() {
            true => fd::close(number),
            false => self.closing.lock().push(number),
        }
    }

    /// Takes in all that are under way, if somebody waits for room; on an engine thread.
    fn make_room(&self) {
        if self.crowded.load(Relaxed) && self.crowded.swap(false, AcqRel) {
            let mut arrived = self.arrived.lock();
            while let Ok((tag, fd)) = fdtable::receive(self.far) {
                arrived.take_in(tag, fd);
            }
        }
    }

    /// Closes what threads outside gave up, before or after it arrived; on an engine thread.
    fn close_given_up(&self) {
        let mut arrived = self.arrived.lock();
        while !arrived.unwanted.is_empty() {
            let Ok((tag, fd)) = fdtable::receive(self.far) else { break };
            arrived.take_in(tag, fd);
        }
        drop(arrived);
        let numbers = core::mem::take(&mut *self.closing.lock());
        numbers.into_iter().for_each(fd::close);
    }
}

impl Descriptor for HeldFile {
    /// Returns the number in the engine's table; only for engine threads.
    fn number(&self) -> Result<i32, Errno> {
        if let Some(known) = self.known() {
            return known;
        }
        // Looked at again under the lock: of two workers that come at once, one receives it.
        let mut arrived = self.way.arrived.lock();
        if let Some(known) = self.known() {
            return known;
        }
        let received = self.way.receive(&mut arrived, self.tag);
        match received {
            Ok(number) => self.fd.store(number, Release),
            Err(Errno::MFILE) => self.fd.store(LOST, Release),
            Err(_) => {}
        }
        received
    }
}

impl HeldFile {
    /// Returns the number, or that there was none; `None`: nobody has asked yet.
    fn known(&self) -> Option<Result<i32, Errno>> {
        match self.fd.load(Acquire) {
            UNDER_WAY => None,
            LOST => Some(Err(Errno::MFILE)),
            number => Some(Ok(number)),
        }
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        match *self.fd.get_mut() {
            UNDER_WAY => self.way.give_up(self.tag),
            LOST => {}
            number => self.way.close_in_engine(number),
        }
    }
}

/// The files that requests hold.
#[derive(Debug)]
pub struct Holds {
    way: Arc<Way>,
    by_number: Mutex<FxHashMap<i32, (Identity, Weak<HeldFile>)>>,
    next_tag: AtomicU64,
    /// The engine has no table of its own: files are duplicated in the application's. Closing
    /// such a duplicate drops the process's POSIX locks on the file.
    shared_table: AtomicBool,
}

impl Holds {
    /// Makes the way into the table in which `far` will be kept.
    pub fn new(near: Fd, far: i32) -> Holds {
        let way = Way {
            near,
            far,
            far_here: OnceLock::new(),
            arrived: Mutex::default(),
            crowded: AtomicBool::new(false),
            closing: Mutex::default(),
        };
        Holds {
            way: Arc::new(way),
            by_number: Mutex::default(),
            next_tag: AtomicU64::new(0),
            shared_table: false.into(),
        }
    }

    /// Keeps the far end, where the engine's table is the application's.
    pub(crate) fn keep_far(&self, far: Fd) {
        let _ = self.way.far_here.set(far);
    }

    /// Says that the engine's threads share the application's table after all.
    pub fn share_table(&self) {
        self.shared_table.store(true, Relaxed);
    }

    /// Tells whether the engine's threads share the application's table.
    pub fn is_table_shared(&self) -> bool {
        self.shared_table.load(Relaxed)
    }

    /// Holds the open file behind the application's `number`, which has this `stat` and these
    /// status flags now. One system call, unless requests on it are under way already.
    ///
    /// # Errors
    /// `EAGAIN`: too many files are under way to the engine. `EBADF`: closed meanwhile.
    pub fn hold(&self, number: i32, stat: &Stat, flags: Flags) -> Result<Arc<HeldFile>, Errno> {
        debug_assert!(!flags.are_remembered(), "what is held was looked at");
        let identity = Identity { dev: stat.dev, ino: stat.ino, status_flags: flags.bits() };
        let mut by_number = self.by_number.lock();
        // Not upgraded if it is another file: that reference might be the last to go.
        if let Some((known, held)) = by_number.get(&number)
            && *known == identity
            && let Some(held) = held.upgrade()
            && held.known() != Some(Err(Errno::MFILE))
        {
            return Ok(held);
        }
        let held = self.send(number)?;
        by_number.insert(number, (identity, Arc::downgrade(&held)));
        Ok(held)
    }

    /// Holds the open file behind the application's `number`, shared with nobody: for files
    /// that cannot be told from each other by their inode (event counters).
    ///
    /// # Errors
    /// Those of [`Holds::hold`].
    pub fn hold_afresh(&self, number: i32) -> Result<Arc<HeldFile>, Errno> {
        self.send(number)
    }

    /// Tells whether the application's numbers mean nothing to the calling thread.
    pub(crate) fn is_elsewhere(&self) -> bool {
        in_engine_table() && !self.is_table_shared()
    }

    /// Holds the open file behind the application's `number`; on a thread of the engine, which has
    /// to look whether it is still the file that is meant.
    ///
    /// # Errors
    /// Those of [`fdtable::fetch`].
    pub(crate) fn fetch(&self, number: i32) -> Result<Arc<HeldFile>, Errno> {
        let fd = AtomicI32::new(fdtable::fetch(number)?.into_raw());
        let tag = self.next_tag.fetch_add(1, AcqRel);
        Ok(Arc::new(HeldFile { tag, fd, way: self.way.clone() }))
    }

    fn send(&self, number: i32) -> Result<Arc<HeldFile>, Errno> {
        let tag = self.next_tag.fetch_add(1, AcqRel);
        let fd = if self.shared_table.load(Relaxed) {
            fd::duplicate(number, 0)?.moved_high().into_raw()
        } else {
            fdtable::send(self.way.near.raw(), number, tag).map_err(|errno| match errno {
                Errno::BADF => Errno::BADF,
                _ => Errno::AGAIN,
            })?;
            UNDER_WAY
        };
        let held = HeldFile { tag, fd: AtomicI32::new(fd), way: self.way.clone() };
        Ok(Arc::new(held))
    }

    /// Waits for a moment, at most ten milliseconds, until the engine's threads have taken in
    /// files that are under way to them; `rouse` has one of them call [`Holds::make_room`].
    pub(crate) fn wait_for_room(&self, rouse: impl FnOnce()) {
        const POLLOUT: i16 = 4;
        const MOMENT_NS: u64 = 10_000_000;
        self.way.crowded.store(true, Release);
        rouse();
        let _ = poll::ppoll(self.way.near.raw(), POLLOUT, Deadline::after_ns(MOMENT_NS), None);
    }

    /// Returns the near end of the way, a descriptor in the application's table.
    pub fn near_fd(&self) -> i32 {
        self.way.near.raw()
    }

    /// Takes in the files that are under way, if [`Holds::wait_for_room`] was called; by a thread
    /// of the engine that does not block. Those who block take in a file when they come to it.
    pub(crate) fn make_room(&self) {
        self.way.make_room();
    }

    /// Closes files that threads outside the engine gave up, and makes room; called by the engine's
    /// threads now and then.
    pub fn tidy(&self) {
        self.make_room();
        self.way.close_given_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// The engine's threads of this test share the table with it, which changes nothing here.
    #[test]
    fn threads_that_come_at_once_all_get_the_number() {
        for _ in 0..300 {
            let (near, far) = fdtable::channel().unwrap();
            let holds = Holds::new(near, far.raw());
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
    fn a_far_end_in_the_table_of_the_application_is_closed_with_the_last_file() {
        let (near, far) = fdtable::channel().unwrap();
        let other = fd::duplicate(near.raw(), 0).unwrap();
        let holds = Holds::new(near, far.raw());
        holds.share_table();
        holds.keep_far(far);
        let held = holds.hold_afresh(other.raw()).unwrap();
        drop(holds);
        assert!(fdtable::send(other.raw(), other.raw(), 1).is_ok());
        drop(held);
        assert!(fdtable::send(other.raw(), other.raw(), 1).is_err());
    }

    #[test]
    fn files_are_taken_in_when_there_is_no_room_for_more() {
        let (near, far) = fdtable::channel().unwrap();
        let holds = Holds::new(near, far.raw());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let hold = || holds.hold_afresh(file.as_raw_fd());
        let mut held = Vec::new();
        while let Ok(one) = hold() {
            held.push(one);
            holds.make_room(); // nobody asked for it
        }
        assert!(held.len() > 1, "{}", held.len());
        holds.wait_for_room(|| holds.make_room());
        held.push(hold().unwrap());
        assert!(held.iter().all(|one| one.number().is_ok()));
    }

    #[test]
    fn a_file_given_up_before_it_arrived_is_closed_by_tidy() {
        let (near, far) = fdtable::channel().unwrap();
        let holds = Holds::new(near, far.raw());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(holds.hold_afresh(writer.as_raw_fd()).unwrap());
        drop(writer);
        holds.tidy();
        let mut all = String::new();
        std::io::Read::read_to_string(&mut &reader, &mut all).unwrap(); // ends: nobody writes
    }
}
