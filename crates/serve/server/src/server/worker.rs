//! A serving thread: one loop over the sockets of NBD clients, requests to FUSE files, and queues
//! of ublk devices.

use super::{
    client::{Client, ExportChoice, Fate},
    event_loop::{DISK, EventLoop, INBOX},
    inbox::{Inbox, Order},
    shared::Shared,
    socket::peer_of,
    tls::Tls,
};
#[cfg(test)]
use crate::failure::{self, At};
use crate::{
    ServeError,
    access::Peer,
    fuse::{RequestTable, is_file},
    nbd::{Security, Session},
    ublk::{self, is_queue},
};
use nowait_block::Slab;
use nowait_device::Medium;
use nowait_sys::mutex::RwLock;
use nowait_sys::{
    epoll::{self, Ready},
    time::{Deadline, now_ns},
};
use socket2::Socket;
use std::{collections::VecDeque, sync::Arc};

#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    event_loop: EventLoop,
    inbox: Arc<Inbox<Order>>,
    /// Orders taken from the inbox and not carried out yet.
    orders: VecDeque<Order>,
    clients: Slab<Client>,
    files: RequestTable,
    queues: ublk::Queues,
    /// Clients to settle in this round.
    touched: Vec<u64>,
    /// Clients to read in the next round, because other clients have their turn first.
    unread: Vec<u64>,
    scratch: Vec<u8>,
    /// The pool has refused memory to a client, so the next round lets all clients try again.
    lacks_memory: bool,
    stopping: Option<u64>,
    /// The time at which this thread gives up requests in flight if the server ends.
    ends_ns: u64,
    swept_ns: u64,
}

/// The description of work for one client: a panic there disconnects only that client.
const SERVING: &str = "as it served a client";
const SCRATCH_BYTES: usize = 64 << 10;
const SWEEP_NS: u64 = 500_000_000;
/// The most time that a client may make no progress while the server ends.
const DRAIN_STALL_NS: u64 = 5_000_000_000;

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, inbox: Arc<Inbox<Order>>) -> Result<Worker, ServeError> {
        let event_loop = EventLoop::new(&shared, inbox.raw(), shared.memory_bytes)?;
        Ok(Worker {
            shared,
            event_loop,
            inbox,
            orders: VecDeque::new(),
            clients: Slab::new(1 << 20),
            files: RequestTable::default(),
            queues: ublk::Queues::default(),
            touched: Vec::new(),
            unread: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            lacks_memory: false,
            stopping: None,
            ends_ns: u64::MAX,
            swept_ns: 0,
        })
    }

    /// Serves until an order to stop has come and nothing is left to serve, or the time in that
    /// order has passed.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let shared = self.shared.clone();
        while !self.is_over() {
            match shared.caught("as it served", || self.round()) {
                Some(outcome) => outcome?,
                None => self.begin_anew()?,
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), ServeError> {
        self.sleep()?;
        let now_ns = now_ns();
        self.read_ready(now_ns);
        #[cfg(test)]
        self.inject(At::Round, || !self.clients.is_empty() || !self.files.is_empty());
        // The device works on new requests while this thread handles the ends of earlier ones.
        self.event_loop.disk.start();
        self.collect(now_ns);
        self.settle(now_ns);
        self.event_loop.disk.start();
        self.sweep(now_ns);
        Ok(())
    }

    /// Ends everything in flight after a panic, because the panic's damage is unknown: disconnects
    /// all clients of this thread, and answers the kernel's FUSE and ublk requests with `EIO`.
    fn begin_anew(&mut self) -> Result<(), ServeError> {
        for key in self.keys() {
            self.close(key);
        }
        self.files.give_up();
        self.event_loop.renew(&self.shared)?;
        self.queues.give_up(now_ns());
        (self.touched, self.unread) = (Vec::new(), Vec::new());
        Ok(())
    }

    fn is_over(&self) -> bool {
        let idle = self.clients.is_empty() && self.files.is_empty() && self.queues.is_empty();
        // A flush of a client that has disconnected may be in flight. If this thread ended before
        // that flush, overlapping flushes of other clients would fail.
        let idle = idle && self.event_loop.disk.is_idle();
        self.stopping.is_some() && (idle || now_ns() > self.ends_ns)
    }

    fn sleep(&mut self) -> Result<(), ServeError> {
        let alone = self.clients.is_empty() && self.stopping.is_none();
        let deadline = match alone && !self.queues.has_unsent() {
            // After a panic the orders behind the failed one are left.
            _ if !(self.unread.is_empty() && self.orders.is_empty()) => Deadline::NOW,
            true => Deadline::NEVER,
            false => Deadline::after_ns(SWEEP_NS),
        };
        self.event_loop.sleep(deadline)
    }

    fn read_ready(&mut self, now_ns: u64) {
        self.queues.read(&mut self.event_loop.disk, now_ns);
        for key in core::mem::take(&mut self.unread) {
            self.read(key, now_ns);
        }
        for index in 0..self.event_loop.ready.len() {
            let Some(event) = self.event_loop.ready.get(index) else { break };
            let Ready { token, events } = *event;
            match token {
                DISK => {}
                INBOX => self.orders.extend(self.inbox.take()),
                token if is_queue(token) => {}
                key if events & !epoll::OUT == 0 => self.touched.push(key),
                key => self.read(key, now_ns),
            }
        }
        while let Some(order) = self.orders.pop_front() {
            self.carry_out(order, now_ns);
        }
    }

    fn read(&mut self, key: u64, now_ns: u64) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let read = || client.read(&mut self.scratch, &mut self.event_loop.disk, now_ns);
        match self.shared.caught(SERVING, read).unwrap_or(Fate::Goes) {
            Fate::Stays => {
                self.touched.push(key);
                self.unread.extend(client.is_unread().then_some(key));
            }
            Fate::Goes => self.close(key),
        }
    }

    fn carry_out(&mut self, order: Order, now_ns: u64) {
        match order {
            Order::Serve(socket, security) => {
                let shared = self.shared.clone();
                let add = || self.add_client(socket, security, now_ns);
                if shared.caught("as it took a client", add).is_none() {
                    shared.clients.leave();
                }
            }
            // The server ends, so the worker drops the request. The drop answers the request with
            // `EIO`.
            Order::Ask(..) if self.stopping.is_some() => {}
            Order::Ask(file, asked) => {
                #[cfg(test)]
                self.inject(At::Ask, || true);
                self.files.ask(file, asked, &mut self.event_loop.disk, now_ns);
            }
            Order::Attach(setup) => self.queues.add(*setup, &self.event_loop.epoll),
            Order::Stop(ends_ns) => {
                (self.stopping, self.ends_ns) = (Some(now_ns), ends_ns);
                for key in self.keys() {
                    let Some(client) = self.clients.get_mut(key) else { continue };
                    let stop = || client.session.stop(&mut self.event_loop.disk, now_ns);
                    match self.shared.caught(SERVING, stop) {
                        Some(()) => self.touched.push(key),
                        None => self.close(key),
                    }
                }
            }
        }
    }

    fn add_client(&mut self, socket: Socket, security: Security, now_ns: u64) {
        if self.stopping.is_some() {
            return self.shared.clients.leave();
        }
        // The session needs its key, which `insert_with` chooses.
        let Shared { exports, limits, access, .. } = &*self.shared;
        let peer = if access.is_open() { Peer::default() } else { peer_of(&socket) };
        let admitted = access.of(exports, &peer);
        let exports = exports.clone();
        let choice = ExportChoice { access: access.clone(), exports, peer };
        let make = |key| {
            let mut session = Session::new(key, &choice.exports, security, *limits);
            session.admit(admitted);
            Client::new(socket, session, choice, key, now_ns)
        };
        match self.clients.insert_with(make) {
            Some(key) => self.touched.push(key),
            None => self.shared.clients.leave(),
        }
    }

    fn collect(&mut self, now_ns: u64) {
        while let Some(ended) = self.event_loop.disk.pop() {
            let key = ended.tag.owner;
            if is_queue(key) {
                self.queues.end(ended, &mut self.event_loop.disk, now_ns);
                continue;
            }
            if is_file(key) {
                self.files.end(ended, &mut self.event_loop.disk, now_ns);
                continue;
            }
            match self.clients.get_mut(key) {
                Some(client) => {
                    let end = || {
                        #[cfg(test)]
                        client.inject(At::End);
                        client.session.end(ended, &mut self.event_loop.disk, now_ns);
                    };
                    if self.shared.caught(SERVING, end).is_none() {
                        self.close(key);
                        continue;
                    }
                    client.moved_ns = now_ns;
                    if self.touched.last() != Some(&key) {
                        self.touched.push(key);
                    }
                }
                None => {
                    ended
                        .chunk
                        .into_iter()
                        .for_each(|chunk| self.event_loop.disk.pool().give_back(chunk));
                }
            }
        }
    }

    fn settle(&mut self, now_ns: u64) {
        if core::mem::take(&mut self.lacks_memory) {
            self.touched = self.keys();
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let touched = core::mem::take(&mut self.touched);
        for key in &touched {
            let shared = &*self.shared;
            let (clients, event_loop, scratch) =
                (&mut self.clients, &mut self.event_loop, &mut self.scratch);
            let Some(client) = clients.get_mut(*key) else { continue };
            let known = client.is_unread();
            let settle = || settle(client, &shared.tls, event_loop, scratch, now_ns);
            match shared.caught(SERVING, settle).unwrap_or(Fate::Goes) {
                Fate::Goes => self.close(*key),
                Fate::Stays if known => {}
                Fate::Stays => self.unread.extend(client.is_unread().then_some(*key)),
            }
        }
        self.touched = touched;
        self.touched.clear();
        self.files.settle(&mut self.event_loop.disk, now_ns);
        self.queues.settle(&mut self.event_loop.disk, now_ns);
        self.lacks_memory |= self.event_loop.disk.pool().take_refused();
    }

    fn close(&mut self, key: u64) {
        if let Some(client) = self.clients.remove(key) {
            let abandon = || client.session.abandon(&mut self.event_loop.disk);
            self.shared.caught("as it dropped a client", abandon);
            self.shared.clients.leave();
        }
    }

    /// Disconnects clients that must act and have not done so in time.
    fn sweep(&mut self, now_ns: u64) {
        if now_ns < self.swept_ns + SWEEP_NS {
            return;
        }
        self.swept_ns = now_ns;
        for key in self.keys() {
            let Some(client) = self.clients.get_mut(key) else { continue };
            let Shared { handshake_ns, stall_ns, .. } = *self.shared;
            let until_ns = match (self.stopping, client.session.is_handshake()) {
                (Some(since_ns), _) => client.moved_ns.max(since_ns) + stall_ns.min(DRAIN_STALL_NS),
                (None, true) => client.came_ns + handshake_ns,
                (None, false) => client.moved_ns + stall_ns,
            };
            if !client.owes() || now_ns <= until_ns {
                continue;
            }
            if self.stopping.is_some() || !client.waits_for_us() {
                self.shared.clients.time_out();
                self.close(key);
            }
        }
    }

    #[cfg(test)]
    fn inject(&self, at: At, now: impl FnOnce() -> bool) {
        if now() {
            failure::inject(at, self.shared.exports[0].name());
        }
    }

    fn keys(&self) -> Vec<u64> {
        self.clients.keys().collect()
    }
}

fn settle(
    client: &mut Client,
    tls: &RwLock<Option<Tls>>,
    event_loop: &mut EventLoop,
    scratch: &mut [u8],
    now_ns: u64,
) -> Fate {
    let EventLoop { disk, epoll, .. } = event_loop;
    let mut fate = client.settle(disk, epoll, tls, now_ns);
    // The sent bytes may have freed memory for unhandled input.
    while fate == Fate::Stays && client.session.retry(disk, now_ns) {
        fate = client.settle(disk, epoll, tls, now_ns);
    }
    if fate == Fate::Stays && client.has_more() {
        fate = client.read(scratch, disk, now_ns);
        // TLS may have output for the bytes that have just arrived.
        if fate == Fate::Stays {
            fate = client.settle(disk, epoll, tls, now_ns);
        }
    }
    fate
}
