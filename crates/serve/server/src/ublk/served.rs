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

/// The description of a queue for a serving thread. The kernel requires that the thread that serves
/// a queue also opens it.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) image: Arc<Image>,
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) info: DeviceInfo,
    pub(crate) queue: u16,
    /// The serving thread signals this when the kernel sends no more requests, because the disk was
    /// stopped.
    pub(crate) lost: Arc<EventFd>,
    /// Receives `Ok` when the queue is served, or the error of opening it.
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

/// The highest three bits of a queue's token in the epoll set. The token is also the owner in the
/// tags of the queue's requests.
const MARK: u64 = 0b101 << 61;
const MASK: u64 = 0b111 << 61;

pub(crate) fn is_queue(token: u64) -> bool {
    token & MASK == MARK
}

/// The queues in the order of their arrival. A queue that has ended leaves its place empty.
#[derive(Debug, Default)]
pub(crate) struct Queues(Vec<Option<ActiveQueue>>);

impl Queues {
    pub(crate) fn add(&mut self, setup: Setup, epoll: &Epoll) {
        let Setup { image, device, info, queue, lost, answer } = setup;
        let token = MARK | self.0.len() as u64;
        let made = Queue::new(device, queue, &info).and_then(|queue| {
            epoll.add(queue.raw_fd(), epoll::IN, token)?;
            let session = Session::new(token, image, queue.depth());
            self.0.push(Some(ActiveQueue { queue, session, lost }));
            Ok(())
        });
        // The send fails only if no thread waits for the answer any more.
        let _ = answer.send(made);
    }

    /// Takes the requests that have come. Looks at each ring itself, even if the epoll set reports
    /// nothing, because the ring's work in the kernel may interrupt the wait for events.
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

    pub(crate) fn settle(&mut self, disk: &mut Disk, now_ns: u64) {
        for place in &mut self.0 {
            if let Some(served) = place {
                // If the kernel has no memory for some results, the next round submits these again.
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

    /// Returns `true` if results wait that the kernel has not taken for lack of memory.
    pub(crate) fn has_unsent(&self) -> bool {
        self.0.iter().flatten().any(|served| served.queue.has_unsent())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}
