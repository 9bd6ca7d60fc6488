//! The event loop of a serving thread. In this loop the thread waits for orders, for its queue, and
//! for its clients or rings.

use super::shared::Shared;
use crate::ServeError;
use nowait_device::{Disk, Mailbox};
use nowait_sys::{
    epoll::{self, Epoll, Ready},
    time::Deadline,
};
use std::os::fd::AsRawFd;

/// The queue of one serving thread, and the set of descriptors that can wake it.
#[derive(Debug)]
pub(crate) struct EventLoop {
    pub(crate) disk: Disk,
    pub(crate) epoll: Epoll,
    pub(crate) ready: Vec<Ready>,
    memory_bytes: usize,
}

fn watched_disk(shared: &Shared, epoll: &Epoll, memory_bytes: usize) -> Result<Disk, ServeError> {
    let mailbox = Mailbox::new().map_err(ServeError::descriptors)?;
    let watch = |fd| epoll.add(fd, epoll::IN, DISK).map_err(ServeError::descriptors);
    watch(mailbox.raw())?;
    let disk = Disk::new(&shared.nowait, &shared.tasks, mailbox, memory_bytes)?;
    let disk = disk.shared_by(shared.exports.len());
    for fd in disk.descriptors()? {
        watch(fd.as_raw_fd())?;
    }
    Ok(disk)
}

/// The tokens that every thread uses in its epoll set. Tokens of clients and rings have bit 63
/// clear; tokens of ublk queues have bits 63 and 61 set.
pub(crate) const INBOX: u64 = 1 << 63;
pub(crate) const DISK: u64 = 1 << 63 | 1;
const READY_MAX: usize = 256;

impl EventLoop {
    /// The transfers of the loop's queue use about `memory_bytes` at most, without those of ublk.
    pub(crate) fn new(
        shared: &Shared,
        bell: i32,
        memory_bytes: usize,
    ) -> Result<EventLoop, ServeError> {
        let epoll = Epoll::new().map_err(ServeError::descriptors)?;
        epoll.add(bell, epoll::IN, INBOX).map_err(ServeError::descriptors)?;
        let disk = watched_disk(shared, &epoll, memory_bytes)?;
        Ok(EventLoop { disk, epoll, ready: Vec::with_capacity(READY_MAX), memory_bytes })
    }

    /// Replaces the disk: the new disk reports no ends of requests to the old disk. Waits for the
    /// requests in the old disk's queue, so that these no longer use lent memory. Blocking tasks of
    /// the old disk continue.
    pub(crate) fn renew(&mut self, shared: &Shared) -> Result<(), ServeError> {
        self.ready.clear();
        let next = watched_disk(shared, &self.epoll, self.memory_bytes)?;
        let before = core::mem::replace(&mut self.disk, next);
        shared.caught("as it dropped a queue", || drop(before));
        Ok(())
    }

    /// Waits until an event or the deadline. Does not wait if a request has ended already.
    pub(crate) fn sleep(&mut self, deadline: Deadline) -> Result<(), ServeError> {
        let EventLoop { disk, epoll, ready, .. } = self;
        ready.clear();
        let mut slept = false;
        disk.sleep(|| {
            epoll.wait(ready, deadline);
            slept = true;
        })?;
        // A request has ended already, so collect the other events without waiting.
        if !slept {
            epoll.wait(ready, Deadline::NOW);
        }
        Ok(())
    }
}
