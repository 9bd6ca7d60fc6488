//! Polls: one thread watches all of them.
//!
//! A descriptor is in the thread's epoll set while polls wait for it, with the events of all these
//! polls. The descriptor leaves the set before its file is released: otherwise the set could still
//! watch the old file under a number that then belongs to another file.

use crate::{
    Completion,
    bio::{Bio, Descriptor},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    epoll::{self, Epoll},
    eventfd::EventFd,
    poll,
    time::Deadline,
};
use std::{collections::HashMap, sync::Arc};

const POLLNVAL: u16 = 0x20;
/// Events that the kernel always reports (POLLERR, POLLHUP).
const ALWAYS: u16 = 0x8 | 0x10;
const COUNTER: u64 = 0;
const READY_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Watches {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    watches: HashMap<u64, Watch>,
    by_token: HashMap<u64, u64>,
    by_fd: HashMap<i32, WatchedFd>,
    fds: HashMap<u64, i32>,
    cancelled: Vec<u64>,
    last_id: u64,
    poll_set: Option<Arc<PollSet>>,
    closing: bool,
}

/// The epoll set in which the watcher waits; its descriptors are in the workers' table.
#[derive(Debug)]
pub(super) struct PollSet {
    epoll: Epoll,
    counter: EventFd,
}

#[derive(Debug)]
struct Watch {
    /// `None` until a worker has found out the number.
    fd: Option<i32>,
    events: u16,
    token: u64,
    cancelled: bool,
    /// Keeps the file open, so that `fd` stays valid.
    _file: Option<Arc<dyn Descriptor>>,
}

#[derive(Debug)]
struct WatchedFd {
    number: u64,
    polls: Vec<u64>,
}

pub(super) enum WatchStart {
    Ended(Completion),
    Watched,
    /// The poll is in a new epoll set, and the caller must start a watcher for the set.
    Unwatched(Arc<PollSet>),
}

impl PollSet {
    fn new() -> Result<Arc<PollSet>, Errno> {
        let poll_set =
            PollSet { epoll: Epoll::new()?.moved_high(), counter: EventFd::new()?.moved_high() };
        poll_set.epoll.add(poll_set.counter.raw(), epoll::IN, COUNTER)?;
        Ok(Arc::new(poll_set))
    }
}

impl Book {
    /// Called on threads with the workers' descriptor table.
    fn end(&mut self, id: u64, result: Result<u32, Errno>) -> Option<(Completion, Watch)> {
        let watch = self.watches.remove(&id)?;
        self.by_token.remove(&watch.token);
        if let Some(fd) = watch.fd
            && let Some(watched) = self.by_fd.get_mut(&fd)
        {
            watched.polls.retain(|other| *other != id);
            if watched.polls.is_empty() {
                let number = watched.number;
                self.by_fd.remove(&fd);
                self.fds.remove(&number);
                if let Some(poll_set) = &self.poll_set {
                    let _ = poll_set.epoll.remove(fd);
                }
            }
        }
        Some((Completion { token: watch.token, result }, watch))
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Makes the epoll set report the events that polls of `fd` wait for, once.
    fn arm(&self, fd: i32) -> Result<(), Errno> {
        let (Some(poll_set), Some(watched)) = (&self.poll_set, self.by_fd.get(&fd)) else {
            return Ok(());
        };
        let wanted = watched.polls.iter().filter_map(|id| self.watches.get(id));
        let events = wanted.fold(epoll::ONCE, |events, watch| events | u32::from(watch.events));
        match poll_set.epoll.change(fd, events, watched.number) {
            Err(Errno::NOENT) => poll_set.epoll.add(fd, events, watched.number),
            armed => armed,
        }
    }

    /// Begins to watch a poll. If there is no epoll set, makes one and returns it: no thread
    /// watches the new set yet.
    fn begin(&mut self, id: u64, fd: i32) -> Result<Option<Arc<PollSet>>, Errno> {
        if self.poll_set.is_some() {
            return self.register(id, fd).map(|()| None);
        }
        self.poll_set = Some(PollSet::new()?);
        let registered = self.register(id, fd);
        if registered.is_err() {
            self.poll_set = None; // no thread will watch it
        }
        registered.map(|()| self.poll_set.clone())
    }

    fn register(&mut self, id: u64, fd: i32) -> Result<(), Errno> {
        let number = self.next_id();
        self.watches.get_mut(&id).ok_or(Errno::INVAL)?.fd = Some(fd);
        let watched =
            self.by_fd.entry(fd).or_insert_with(|| WatchedFd { number, polls: Vec::new() });
        watched.polls.push(id);
        self.fds.insert(watched.number, fd);
        self.arm(fd)
    }
}

impl Watches {
    /// From now on [`Watches::cancel`] finds the poll.
    pub(super) fn add(&self, bio: &Bio, events: u16) -> u64 {
        let mut book = self.book.lock();
        let (id, cancelled) = (book.next_id(), book.closing);
        let (token, file) = (bio.token, bio.file.clone());
        book.watches.insert(id, Watch { fd: None, events, token, cancelled, _file: file });
        book.by_token.insert(token, id);
        if cancelled {
            book.cancelled.push(id);
        }
        id
    }

    /// Begins to watch a poll; `None` if the poll has ended. Called on threads with the workers'
    /// descriptor table.
    pub(super) fn begin(&self, id: u64, bio: Bio, events: u16) -> Option<WatchStart> {
        let ready = bio.number().and_then(|fd| Ok((fd, ready_now(fd, events)?)));
        // The poll may end as soon as it is registered. The poll's watch must then have the last
        // reference to the file, so the bio is dropped before.
        drop(bio);
        let fd = match ready {
            Ok((fd, 0)) => fd,
            Ok((_, ready)) => return self.end(id, result_of(ready)).map(WatchStart::Ended),
            Err(errno) => return self.end(id, Err(errno)).map(WatchStart::Ended),
        };
        let mut book = self.book.lock();
        let ended = match book.watches.get(&id)?.cancelled {
            true => book.end(id, Err(Errno::CANCELED)),
            false => match book.begin(id, fd) {
                Ok(None) => return Some(WatchStart::Watched),
                Ok(Some(poll_set)) => return Some(WatchStart::Unwatched(poll_set)),
                // EPERM: epoll does not support the file because it is always ready, although
                // `ready_now` found no event.
                Err(Errno::PERM) => book.end(id, Ok(u32::from(events))),
                Err(errno) => book.end(id, Err(errno)),
            },
        };
        drop(book);
        ended.map(|(completion, _)| WatchStart::Ended(completion))
    }

    pub(super) fn end(&self, id: u64, result: Result<u32, Errno>) -> Option<Completion> {
        let ended = self.book.lock().end(id, result);
        ended.map(|(completion, _)| completion)
    }

    /// Marks a poll as cancelled. Returns `true` if the poll exists and was not marked before; a
    /// worker must then call [`Watches::poke`].
    pub(super) fn cancel(&self, token: u64) -> bool {
        let book = &mut *self.book.lock();
        let Some(id) = book.by_token.get(&token) else { return false };
        let Some(watch) = book.watches.get_mut(id).filter(|watch| !watch.cancelled) else {
            return false;
        };
        watch.cancelled = true;
        book.cancelled.push(*id);
        true
    }

    /// Cancels all polls, also those that are added later.
    pub(super) fn close(&self) {
        let book = &mut *self.book.lock();
        book.closing = true;
        for (id, watch) in book.watches.iter_mut().filter(|(_, watch)| !watch.cancelled) {
            watch.cancelled = true;
            book.cancelled.push(*id);
        }
    }

    /// Makes the watcher end the cancelled polls. If there is no watcher, ends the polls itself and
    /// adds their completions to `done`. Called on threads with the workers' descriptor table.
    pub(super) fn poke(&self, done: &mut Vec<Completion>) {
        let book = self.book.lock();
        if let Some(poll_set) = &book.poll_set {
            return poll_set.counter.signal();
        }
        drop(book);
        self.take_cancelled(done);
    }

    /// Like [`Watches::poke`], but does nothing if there is no watcher.
    pub(super) fn rouse(&self) {
        if let Some(poll_set) = &self.book.lock().poll_set {
            poll_set.counter.signal();
        }
    }

    /// Ends all polls with `errno`, because there is no watcher any more. The next poll makes
    /// another epoll set.
    pub(super) fn fail_all(&self, errno: Errno, done: &mut Vec<Completion>) {
        let mut book = self.book.lock();
        let ids: Vec<u64> = book.watches.keys().copied().collect();
        let failed: Vec<_> = ids.iter().filter_map(|id| book.end(*id, Err(errno))).collect();
        book.poll_set = None;
        drop(book);
        done.extend(failed.iter().map(|(completion, _)| *completion));
    }

    /// Called on threads with the workers' descriptor table.
    fn take_cancelled(&self, done: &mut Vec<Completion>) {
        let mut book = self.book.lock();
        let ids = core::mem::take(&mut book.cancelled);
        let result = Err(Errno::CANCELED);
        let ended: Vec<_> = ids.iter().filter_map(|id| book.end(*id, result)).collect();
        drop(book);
        done.extend(ended.iter().map(|(completion, _)| *completion));
    }

    /// Returns when the watches are closed and no poll is left.
    pub(super) fn watch(&self, poll_set: &PollSet, mut deliver: impl FnMut(&mut Vec<Completion>)) {
        let (mut ready, mut done) = (Vec::with_capacity(READY_MAX), Vec::new());
        loop {
            self.take_cancelled(&mut done);
            if !done.is_empty() {
                deliver(&mut done);
            }
            if self.is_over() {
                return;
            }
            poll_set.epoll.wait(&mut ready, Deadline::NEVER);
            for event in &ready {
                match event.token {
                    COUNTER => drop(poll_set.counter.drain()),
                    number => self.found(number, event.events as u16, &mut done),
                }
            }
        }
    }

    fn found(&self, number: u64, ready: u16, done: &mut Vec<Completion>) {
        let mut book = self.book.lock();
        let Some(fd) = book.fds.get(&number).copied() else { return };
        let polls = book.by_fd.get(&fd).map(|watched| watched.polls.clone()).unwrap_or_default();
        let mut ended = Vec::new();
        for id in polls {
            let events = book.watches.get(&id).map_or(0, |watch| watch.events);
            let ready = ready & (events | ALWAYS);
            if ready != 0 {
                ended.extend(book.end(id, result_of(ready)));
            }
        }
        if let Err(errno) = book.arm(fd) {
            let left = book.by_fd.get(&fd).map(|watched| watched.polls.clone());
            let left = left.unwrap_or_default();
            ended.extend(left.into_iter().filter_map(|id| book.end(id, Err(errno))));
        }
        drop(book);
        done.extend(ended.iter().map(|(completion, _)| *completion));
    }

    /// Returns `true` if the watches are closed and no poll is left; then drops the epoll set.
    fn is_over(&self) -> bool {
        let mut book = self.book.lock();
        let over = book.closing && book.watches.is_empty();
        if over {
            // The watcher drops the last reference to the epoll set, because the set's descriptors
            // are in the watcher's table: the thread that drops the pool may have another table.
            book.poll_set = None;
        }
        over
    }
}

fn result_of(ready: u16) -> Result<u32, Errno> {
    if ready & POLLNVAL == 0 { Ok(u32::from(ready)) } else { Err(Errno::BADF) }
}

/// Returns the events that are ready now. poll(2) ignores negative descriptors; for them this
/// function returns `POLLNVAL`.
fn ready_now(fd: i32, events: u16) -> Result<u16, Errno> {
    if fd < 0 { Ok(POLLNVAL) } else { poll::ready(fd, events as i16).map(|ready| ready as u16) }
}
