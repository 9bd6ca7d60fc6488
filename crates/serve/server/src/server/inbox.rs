//! Orders from other threads to serving threads, and to the threads that serve rings of VMMs.

use crate::{
    fuse::{FuseRequest, ImageFile},
    nbd::Security,
    ublk,
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use nowait::Errno;
use nowait_device::AnySource;
use nowait_sys::eventfd::EventFd;
use nowait_sys::mutex::Mutex;
use socket2::Socket;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) enum Order {
    Serve(Socket, Security),
    /// Carry out the kernel's request to this FUSE file.
    Ask(Arc<ImageFile<AnySource>>, FuseRequest),
    /// Serve this queue of a block device.
    Attach(Box<ublk::Setup>),
    /// Refuse further requests of NBD clients and FUSE files. End when no client, no ublk queue and
    /// no request in flight is left, or at this time by the clock of `now_ns`.
    Stop(u64),
}

/// Orders that other threads have put and the owning thread has not taken yet.
#[derive(Debug)]
pub(crate) struct Inbox<O> {
    /// `None`: the thread has ended and carries out no orders.
    orders: Mutex<Option<Vec<O>>>,
    bell: EventFd,
}

impl<O> Inbox<O> {
    pub(crate) fn new() -> Result<Arc<Inbox<O>>, Errno> {
        Ok(Arc::new(Inbox { orders: Mutex::new(Some(Vec::new())), bell: EventFd::new()? }))
    }

    /// Returns the descriptor that is readable when there are orders.
    pub(crate) fn raw(&self) -> i32 {
        self.bell.raw()
    }

    pub(crate) fn put(&self, order: O) {
        let first = {
            let mut orders = self.orders.lock();
            // An order to an ended thread is dropped. If a thread waits for the order's answer,
            // this wakes that thread.
            let Some(orders) = &mut *orders else { return };
            orders.push(order);
            orders.len() == 1
        };
        // If there was an earlier order, the thread that put it signals.
        if first {
            self.bell.signal();
        }
    }

    pub(crate) fn take(&self) -> Vec<O> {
        self.bell.drain();
        self.orders.lock().as_mut().map(core::mem::take).unwrap_or_default()
    }
}

/// Closes the inbox of a thread when that thread ends, also by a panic.
pub(crate) struct Closes<O>(pub(crate) Arc<Inbox<O>>);

impl<O> Drop for Closes<O> {
    fn drop(&mut self) {
        *self.0.orders.lock() = None;
    }
}

/// Counters of NBD clients and VMMs, of all threads together.
#[derive(Debug, Default)]
pub struct Clients {
    now: AtomicUsize,
    total: AtomicU64,
    refused: AtomicU64,
    timed_out: AtomicU64,
}

impl Clients {
    /// Counts a client that connects. Returns `false` if `max` clients are connected already: the
    /// client counts as refused, and the caller must disconnect it.
    pub(crate) fn enter(&self, max: usize) -> bool {
        let enter = |now: usize| (now < max).then_some(now + 1);
        let entered = self.now.fetch_update(Relaxed, Relaxed, enter).is_ok();
        let counter = if entered { &self.total } else { &self.refused };
        counter.fetch_add(1, Relaxed);
        entered
    }

    pub(crate) fn leave(&self) {
        self.now.fetch_sub(1, Relaxed);
    }

    pub(crate) fn time_out(&self) {
        self.timed_out.fetch_add(1, Relaxed);
    }

    /// Returns how many clients are connected.
    pub fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    /// Returns how many clients have connected so far, without those that were refused.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Returns how many clients were refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns how many NBD clients were disconnected because they took too long to choose an
    /// export, or made no progress.
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Relaxed)
    }
}
