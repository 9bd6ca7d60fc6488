//! The queues that one serving thread answers.

use super::session::{Kernel, Session};
use nowait::Errno;
use nowait_device::{AnySource, Disk, Image, LentMemory, RequestEnd};
use nowait_sys::{
    epoll::{self, Epoll},
    eventfd::EventFd,
    ublk::{DeviceInfo, Queue},
};
use std::{
    os::fd::OwnedFd,
    sync::{Arc, mpsc::SyncSender},
};

/// A queue for a thread to serve. The kernel requires that this thread makes it.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) image: Arc<Image>,
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) info: DeviceInfo,
    pub(crate) queue: u16,
    /// Signalled when the disk was stopped, so that no more requests come.
    pub(crate) lost: Arc<EventFd>,
    /// Receives the result: does the queue take requests?
    pub(crate) answer: SyncSender<Result<(), Errno>>,
}

#[derive(Debug)]
struct ActiveQueue {
    queue: Queue,
    session: Session<AnySource>,
    lost: Arc<EventFd>,
}

impl Kernel for Queue {
    fn lend(&self, tag: u16, len: usize) -> Option<LentMemory> {
        let (start, most) = self.buffers().place(tag);
        if len > most {
            return None;
        }
        // SAFETY: the bytes stay mapped as long as the buffers live; the kernel and the holder of
        // the loan use them by address only.
        Some(unsafe { LentMemory::new(start, len, self.buffers().clone()) })
    }

    fn commit(&mut self, tag: u16, result: i32) {
        Queue::commit(self, tag, result);
    }
}

/// The bits of a queue's token in the epoll set, which is also the owner of its requests.
const MARK: u64 = 0b101 << 61;
const MASK: u64 = 0b111 << 61;

pub(crate) fn is_queue(token: u64) -> bool {
    token & MASK == MARK
}

/// The queues in the order of their arrival; a queue that has gone leaves its place empty.
#[derive(Debug, Default)]
pub(crate) struct Queues(Vec<Option<ActiveQueue>>);

impl Queues {
    /// Begins to serve a queue, and sends the result to the thread that asked for it.
    pub(crate) fn add(&mut self, setup: Setup, epoll: &Epoll) {
        let Setup { image, device, info, queue, lost, answer } = setup;
        let token = MARK | self.0.len() as u64;
        let made = Queue::new(device, queue, &info).and_then(|queue| {
            epoll.add(queue.raw_fd(), epoll::IN, token)?;
            let session = Session::new(token, image, queue.depth());
            self.0.push(Some(ActiveQueue { queue, session, lost }));
            Ok(())
        });
        // The asking thread waits for this answer.
        let _ = answer.send(made);
    }

    /// Takes the requests that have come. Looks at the ring itself, even if the epoll set reports
    /// nothing, because the ring's work in the kernel interrupts the wait for events.
    pub(crate) fn read(&mut self, disk: &mut Disk, now_ns: u64) {
        for served in self.0.iter_mut().flatten() {
            while let Some(next) = served.queue.next() {
                match next {
                    Ok(request) => {
                        served.session.request(request, disk, &mut served.queue, now_ns);
                    }
                    Err(_) => served.lost.signal(),
                }
            }
        }
    }

    pub(crate) fn end(&mut self, ended: RequestEnd, disk: &mut Disk, now_ns: u64) {
        let place = (ended.tag.owner & !MASK) as usize;
        if let Some(Some(ActiveQueue { queue, session, .. })) = self.0.get_mut(place) {
            session.end(ended, disk, queue, now_ns);
        }
    }

    /// Hands the results to the kernel, takes the requests that it returns, and drops queues that
    /// have ended.
    pub(crate) fn settle(&mut self, disk: &mut Disk, now_ns: u64) {
        for place in &mut self.0 {
            if let Some(served) = place {
                // Results that the kernel has no memory for follow in the next round.
                let _ = served.queue.submit();
            }
            place.take_if(|served| !served.queue.is_open() && served.session.in_flight() == 0);
        }
        self.read(disk, now_ns);
    }

    /// Answers all requests in flight with `EIO`, because the thread has dropped its disk.
    pub(crate) fn give_up(&mut self, now_ns: u64) {
        for ActiveQueue { queue, session, .. } in self.0.iter_mut().flatten() {
            session.give_up(queue, now_ns);
        }
    }

    /// Returns `true` if results wait for which the kernel had no memory.
    pub(crate) fn has_unsent(&self) -> bool {
        self.0.iter().flatten().any(|served| served.queue.has_unsent())
    }

    /// Returns `true` if no queue is served.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}
