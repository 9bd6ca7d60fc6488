//! What a ring waits on before Linux 6.7, where it cannot wait on a word of memory.
//!
//! It is an event counter, and that is a descriptor: on a thread with the other descriptor table
//! its number means another file, which must not be written to. Such threads wake a thread with
//! the right table, which signals the counter for them.

use crate::gate::Gate;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use nowait_sys::{
    eventfd::{self, EventFd},
    fdtable, thread,
    time::Deadline,
};
use std::{
    sync::{Arc, OnceLock},
    thread::JoinHandle,
};

const STACK_BYTES: usize = 64 << 10;

/// A counter, and how threads of both descriptor tables signal it.
pub(super) struct Counter {
    /// Made when a thread of the other table has had to leave the sleeper to the end of its slice.
    /// Dropped before the counter is.
    relay: OnceLock<Relay>,
    needs_relay: AtomicBool,
    eventfd: EventFd,
    /// Of which descriptor table its number is.
    in_private_table: bool,
}

impl Counter {
    pub(super) fn new(eventfd: EventFd) -> Counter {
        let (relay, in_private_table) = (OnceLock::new(), fdtable::is_private());
        Counter { relay, needs_relay: AtomicBool::new(false), eventfd, in_private_table }
    }

    pub(super) fn raw(&self) -> i32 {
        self.eventfd.raw()
    }

    pub(super) fn drain(&self) {
        self.eventfd.drain();
    }

    /// Tells whether threads of both descriptor tables can signal it.
    pub(super) fn is_heard(&self) -> bool {
        self.relay.get().is_some()
    }

    /// Signals it; for the first time from a thread of the other table, nothing happens.
    pub(super) fn signal(&self) {
        match self.relay.get() {
            _ if self.is_of_caller() => self.eventfd.signal(),
            Some(relay) => relay.shared.wake(),
            None => self.needs_relay.store(true, Relaxed),
        }
    }

    /// Before a wait: starts the relay if one was missed, and there is a thread to be had.
    pub(super) fn prepare(&self) {
        if !self.needs_relay.load(Relaxed) || self.is_heard() || !self.is_of_caller() {
            return;
        }
        self.needs_relay.store(false, Relaxed);
        if let Some(relay) = Relay::start(self.raw()) {
            let _ = self.relay.set(relay); // one that another thread has started serves as well
        }
    }

    fn is_of_caller(&self) -> bool {
        fdtable::is_private() == self.in_private_table
    }
}

/// A thread that sleeps on a word of memory, and signals a counter whenever it is woken.
struct Relay {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
    process: i32,
}

#[derive(Default)]
struct Shared {
    gate: Gate,
    stop: AtomicBool,
}

impl Relay {
    /// Starts the thread, with the caller's table: `counter` is a number there, and stays open
    /// until the relay has been dropped.
    fn start(counter: i32) -> Option<Relay> {
        let (shared, is_private) = (Arc::<Shared>::default(), fdtable::is_private());
        let of_thread = shared.clone();
        let named = std::thread::Builder::new().name("nowait-relay".to_owned());
        // No handler of the application runs on it before it blocks them.
        let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
        let started = named.stack_size(STACK_BYTES).spawn(move || {
            thread::block_signals();
            fdtable::mark_private(is_private);
            of_thread.pass_on(counter);
        });
        thread::swap_signal_mask(mask);
        Some(Relay { shared, handle: Some(started.ok()?), process: thread::process_id() })
    }
}

impl Shared {
    fn wake(&self) {
        if self.gate.wake() {
            self.gate.rouse();
        }
    }

    fn pass_on(&self, counter: i32) {
        loop {
            // `None`: it was woken before it slept.
            if let Some(seen) = self.gate.begin() {
                let _ = self.gate.sleep(seen, Deadline::NEVER);
                if !self.gate.end() {
                    continue;
                }
            }
            if self.stop.load(Acquire) {
                return;
            }
            eventfd::signal(counter);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if thread::process_id() != self.process {
            return;
        }
        self.shared.stop.store(true, Release);
        self.shared.wake();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join(); // it does not panic
        }
    }
}
