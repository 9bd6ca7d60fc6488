//! Polls: one thread watches for all of them.

use crate::{
    Completion,
    bio::{Bio, Descriptor},
};
use nowait_sys::{
    Errno,
    eventfd::EventFd,
    poll::{self, PollFd},
    time::Deadline,
};
use parking_lot::Mutex;
use std::sync::Arc;

const POLLIN: u16 = 0x1;
const POLLNVAL: u16 = 0x20;

/// The descriptors watched, and who watches them.
#[derive(Debug, Default)]
pub(super) struct Watches {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    watches: Vec<Watch>,
    next_id: u64,
    /// Rouses the watcher; lives in the workers' descriptor table.
    counter: Option<Arc<EventFd>>,
    closing: bool,
}

/// One poll under way.
#[derive(Debug)]
struct Watch {
    id: u64,
    /// `None` until a worker has found out the number.
    fd: Option<i32>,
    events: u16,
    token: u64,
    cancelled: bool,
    /// Keeps the number valid.
    _file: Option<Arc<dyn Descriptor>>,
}

impl Watches {
    /// Takes a poll in and returns its number; from now on [`Watches::cancel`] finds it.
    pub(super) fn add(&self, bio: &Bio, events: u16) -> u64 {
        let mut book = self.book.lock();
        let (id, cancelled) = (book.next_id, book.closing);
        book.next_id += 1;
        let (token, file) = (bio.token, bio.file.clone());
        book.watches.push(Watch { id, fd: None, events, token, cancelled, _file: file });
        id
    }

    /// Begins to watch a poll; on a thread with the workers' descriptor table.
    ///
    /// Returns its completion if it is ready now or cannot be watched; otherwise the caller
    /// must see that the watcher looks again.
    pub(super) fn begin(&self, id: u64, bio: &Bio, events: u16) -> Option<Completion> {
        let ready = bio.number().and_then(|fd| Ok((fd, ready_now(fd, events)?)));
        match ready {
            Ok((fd, 0)) => {
                let watches = &mut self.book.lock().watches;
                let watch = watches.iter_mut().find(|watch| watch.id == id)?;
                watch.fd = Some(fd);
                None
            }
            Ok((_, ready)) => self.end(id, result_of(ready)),
            Err(errno) => self.end(id, Err(errno)),
        }
    }

    /// Ends a poll; `None`: it has ended otherwise meanwhile.
    fn end(&self, id: u64, result: Result<u32, Errno>) -> Option<Completion> {
        let mut book = self.book.lock();
        let index = book.watches.iter().position(|watch| watch.id == id)?;
        let token = book.watches.swap_remove(index).token;
        Some(Completion { token, result })
    }

    /// Marks a poll as cancelled; true: it was found, and a worker must [`Watches::poke`].
    pub(super) fn cancel(&self, token: u64) -> bool {
        let watches = &mut self.book.lock().watches;
        let found = watches.iter_mut().find(|watch| watch.token == token && !watch.cancelled);
        found.map(|watch| watch.cancelled = true).is_some()
    }

    /// Cancels all, now and in future.
    pub(super) fn close(&self) {
        let mut book = self.book.lock();
        book.closing = true;
        for watch in &mut book.watches {
            watch.cancelled = true;
        }
    }

    /// Makes the watcher look again. On a thread with the workers' descriptor table.
    ///
    /// Returns the counter if there is no watcher yet: the caller must start one with it.
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptor for the counter.
    pub(super) fn poke(&self) -> Result<Option<Arc<EventFd>>, Errno> {
        let mut book = self.book.lock();
        if let Some(counter) = &book.counter {
            counter.signal();
            return Ok(None);
        }
        let counter = Arc::new(EventFd::new()?.moved_high());
        book.counter = Some(counter.clone());
        Ok(Some(counter))
    }

    /// As [`Watches::poke`], but only if there is a watcher.
    pub(super) fn rouse(&self) {
        if let Some(counter) = &self.book.lock().counter {
            counter.signal();
        }
    }

    /// Ends all polls with `errno`: no watcher could be started.
    pub(super) fn fail_all(&self, errno: Errno, done: &mut Vec<Completion>) {
        let mut book = self.book.lock();
        book.counter = None;
        let failed = book.watches.drain(..);
        done.extend(failed.map(|watch| Completion { token: watch.token, result: Err(errno) }));
    }

    /// Ends the polls marked as cancelled.
    fn take_cancelled(&self, done: &mut Vec<Completion>) {
        self.book.lock().watches.retain(|watch| {
            if watch.cancelled {
                done.push(Completion { token: watch.token, result: Err(Errno::CANCELED) });
            }
            !watch.cancelled
        });
    }

    /// Watches until closed; hands completions to `deliver`.
    pub(super) fn watch(&self, counter: &EventFd, mut deliver: impl FnMut(&mut Vec<Completion>)) {
        let (mut fds, mut ids, mut done) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.take_cancelled(&mut done);
            if !done.is_empty() {
                deliver(&mut done);
            }
            if self.list(counter, &mut fds, &mut ids) {
                return;
            }
            // All signals are blocked; short of memory it just looks again.
            let _ = poll::poll_many(&mut fds, Deadline::NEVER);
            if fds[0].ready != 0 {
                counter.drain();
            }
            let ready = fds[1..].iter().zip(&ids).filter(|(fd, _)| fd.ready != 0);
            done.extend(ready.filter_map(|(fd, id)| self.end(*id, result_of(fd.ready))));
        }
    }

    /// Lists what to watch, the counter first; true: closed.
    fn list(&self, counter: &EventFd, fds: &mut Vec<PollFd>, ids: &mut Vec<u64>) -> bool {
        let mut book = self.book.lock();
        fds.clear();
        ids.clear();
        fds.push(PollFd { fd: counter.raw(), events: POLLIN, ready: 0 });
        for watch in &book.watches {
            if let Some(fd) = watch.fd {
                fds.push(PollFd { fd, events: watch.events, ready: 0 });
                ids.push(watch.id);
            }
        }
        let closed = book.closing && book.watches.is_empty();
        if closed {
            // The watcher has the last reference, and the table in which its number means the
            // counter: whoever drops the pool may have another.
            book.counter = None;
        }
        closed
    }
}

fn result_of(ready: u16) -> Result<u32, Errno> {
    if ready & POLLNVAL == 0 { Ok(u32::from(ready)) } else { Err(Errno::BADF) }
}

/// poll(2) passes negative descriptors over; here they are wrong.
fn ready_now(fd: i32, events: u16) -> Result<u16, Errno> {
    if fd < 0 { Ok(POLLNVAL) } else { poll::ready(fd, events as i16).map(|ready| ready as u16) }
}
