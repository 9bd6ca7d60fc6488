//! A pool of threads that read and write for the caller, as programs build it if asynchronous I/O
//! may block.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use nowait_sys::Errno;
use nowait_sys::file::{IoVec, preadv2, pwritev2};

use crate::buffers::Buffers;
use crate::slots::Slots;
use crate::{Files, Peer, Request, sync};
use nowait_harness::error::{Context, Result};

/// Most threads of a pool. A pool of a smaller depth has a thread for each request.
const THREADS_MAX: usize = 32;

pub(crate) struct PoolPeer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    files: Files,
    slots: Slots,
    ended: Vec<Ended>,
}

struct Work {
    slot: usize,
    memory: IoVec,
    offset: i64,
    write: bool,
}

// SAFETY: the memory is of a slot that no other thread touches until the request is over.
unsafe impl Send for Work {}

type Ended = (usize, core::result::Result<usize, Errno>);

#[derive(Default)]
struct Lists {
    work: VecDeque<Work>,
    ended: Vec<Ended>,
    over: bool,
}

#[derive(Default)]
struct Shared {
    lists: Mutex<Lists>,
    more_work: Condvar,
    more_ended: Condvar,
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Carries out work until the pool is closed and its list is empty.
    fn serve(&self, file: &File) {
        let mut lists = self.lists();
        loop {
            if let Some(work) = lists.work.pop_front() {
                drop(lists);
                let result = work.carry_out(file);
                lists = self.lists();
                lists.ended.push((work.slot, result));
                self.more_ended.notify_one();
            } else if lists.over {
                return;
            } else {
                let woken = self.more_work.wait(lists);
                lists = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }
}

impl Work {
    fn carry_out(&self, file: &File) -> core::result::Result<usize, Errno> {
        let (fd, memory) = (file.as_raw_fd(), [IoVec { ..self.memory }]);
        // SAFETY: the memory of the slot stays in place until the request is over.
        unsafe {
            match self.write {
                false => preadv2(fd, &memory, self.offset, 0),
                true => pwritev2(fd, &memory, self.offset, 0),
            }
        }
    }
}

impl PoolPeer {
    pub(crate) fn new(files: Files, buffers: Buffers) -> Result<Self> {
        let depth = buffers.depth();
        let shared = Arc::<Shared>::default();
        let mut threads = Vec::new();
        for _ in 0..depth.clamp(1, THREADS_MAX) {
            let (shared, files) = (shared.clone(), files.clone());
            let thread = std::thread::Builder::new().spawn(move || shared.serve(&files[0]));
            threads.push(thread.context(|| "start a thread".to_owned())?);
        }
        let (slots, ended) = (Slots::new(buffers), Vec::with_capacity(depth));
        Ok(Self { shared, threads, files, slots, ended })
    }
}

impl Peer for PoolPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        let mut lists = self.shared.lists();
        let before = lists.work.len();
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let (memory, offset) = (self.slots.memory(slot), request.offset as i64);
            lists.work.push_back(Work { slot, memory, offset, write: request.generation > 0 });
        }
        let added = lists.work.len() - before;
        drop(lists);
        (0..added).for_each(|_| self.shared.more_work.notify_one());
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let mut lists = self.shared.lists();
        while lists.ended.len() < min {
            let woken = self.shared.more_ended.wait(lists);
            lists = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        core::mem::swap(&mut lists.ended, &mut self.ended);
        drop(lists);
        for (slot, result) in self.ended.drain(..) {
            self.slots.end(slot, result, each)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.files)
    }
}

impl Drop for PoolPeer {
    fn drop(&mut self) {
        // The threads carry out all listed requests before the memory of these is freed.
        self.shared.lists().over = true;
        self.shared.more_work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing in flight.
            let _ = thread.join();
        }
    }
}
