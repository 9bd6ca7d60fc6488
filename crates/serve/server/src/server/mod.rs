//! Threads that serve images to clients.
//!
//! ```text
//!  main thread ── accept ──▶ Server ── inbox ──▶ Worker ─┬─ Client: Socket + Session
//!    (listeners, signals)                    a thread each   └─ Disk: one queue of nowait
//! ```
//! Each thread has its own queue and its own clients; nothing on the way of a request is shared but
//! the files and their counters.

mod client;
mod event_loop;
mod inbox;
mod socket;
mod socket_path;
mod tls;
mod validity;
mod worker;

pub use inbox::Clients;
pub use socket::{Address, Listener, Socket};
pub use tls::{Tls, TlsFiles};

use crate::{
    ServeError,
    access::Access,
    fuse::{Buffers, Face, Front},
    nbd::{Limits, Security},
    ublk,
};
pub(crate) use inbox::Order;
use nowait::{Errno, Nowait};
use nowait_device::{AnySource, Chores, Image};
use nowait_engine::{CacheCounts, choice};
use nowait_sys::mutex::{Mutex, RwLock};
use nowait_sys::time::now_ns;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc::Receiver},
    thread,
    time::Duration,
};
use worker::Worker;

pub(crate) use event_loop::{DISK, EventLoop, INBOX};
pub(crate) use inbox::{Closes, Inbox};
pub(crate) use worker::Shared;

/// What a server may use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Serving threads.
    pub threads: usize,
    /// Most clients at once.
    pub clients_max: usize,
    /// For the transfers of all clients together, in bytes; each client may have 4 KiB beyond, and
    /// writes to files have as much again.
    pub memory_bytes: usize,
    /// Of one client.
    pub limits: Limits,
    /// How long a client may take to choose an export, in milliseconds.
    pub handshake_ms: u64,
    /// How long a client may make no progress in what it began, in milliseconds.
    pub stall_ms: u64,
    /// For clients that ask for TLS, or must.
    pub tls: Option<Tls>,
    /// Access to the images.
    pub access: Access,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            threads: 1,
            clients_max: 4096,
            memory_bytes: 256 << 20,
            limits: Limits::default(),
            handshake_ms: 10_000,
            stall_ms: 30_000,
            tls: None,
            access: Access::default(),
        }
    }
}

/// What can be seen of a server by any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View(Arc<Shared>);

impl View {
    /// Returns the name of what carries the requests.
    pub fn backend(&self) -> &'static str {
        choice::name(self.0.nowait.backend())
    }

    /// Returns what it looks at.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Returns the images.
    pub fn images(&self) -> &[Arc<Image>] {
        &self.0.exports
    }

    /// Returns the access rules of the images.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// Returns what nowait's own page cache has done; `None`: it is not in use.
    pub fn cache(&self) -> Option<CacheCounts> {
        self.0.nowait.cache_counts()
    }

    /// Returns the files that `image` is shown as.
    pub fn files_of(&self, image: &Arc<Image>) -> Vec<PathBuf> {
        let files = self.0.files.lock();
        let its = files.iter().filter(|(shown, _)| Arc::ptr_eq(shown, image));
        its.map(|(_, path)| path.clone()).collect()
    }

    /// Returns what is counted of all clients.
    pub fn clients(&self) -> &Clients {
        &self.0.clients
    }

    /// Makes what was written to the images durable: all at once, so that none waits for the disk
    /// of another. Blocks.
    ///
    /// # Errors
    /// It could not be, of one of them at least; of the others it was.
    pub fn sync(&self) -> Result<(), ServeError> {
        let sync = |image: &Image| image.file().sync_all().map_err(ServeError::new);
        thread::scope(|scope| {
            let (mut outcome, mut threads) = (Ok(()), Vec::new());
            for image in self.images().iter().filter(|image| !image.properties().read_only) {
                let named = thread::Builder::new().name("nowait-sync".to_owned());
                match named.spawn_scoped(scope, move || sync(image)) {
                    Ok(thread) => threads.push(thread),
                    Err(_) => outcome = outcome.and(sync(image)),
                }
            }
            let panicked = |_| Err(ServeError::new("a thread that syncs has panicked"));
            threads
                .into_iter()
                .fold(outcome, |so_far, it| so_far.and(it.join().unwrap_or_else(panicked)))
        })
    }
}

type ThreadHandle = thread::JoinHandle<Result<(), ServeError>>;

/// Images being served. Stop it, or its threads go on.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<(Arc<Inbox<Order>>, ThreadHandle)>,
    next: usize,
    clients_max: usize,
    /// Of writes to files.
    buffers: Arc<Buffers>,
}

/// How long requests in flight may take when the server ends.
pub(crate) const DRAIN_NS: u64 = 30_000_000_000;
/// Threads for what only blocking calls can do, beside one for each image.
const CHORES_MAX: usize = 8;

/// How long to accept no client after accept failed for want of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Starts serving `images`; the first is also the one without a name.
    ///
    /// # Errors
    /// No descriptors, memory or threads left.
    pub fn start(
        nowait: &Nowait,
        images: Vec<Arc<Image>>,
        config: &Config,
    ) -> Result<Server, ServeError> {
        let (count, exports) = (config.threads.max(1), images.len());
        let shared = Arc::new(Shared {
            nowait: nowait.clone(),
            exports: images.into(),
            chores: Chores::of_images(CHORES_MAX, exports),
            clients: Clients::default(),
            files: Mutex::default(),
            limits: config.limits,
            tls: RwLock::new(config.tls.clone()),
            access: Arc::new(config.access.clone()),
            memory_bytes: config.memory_bytes / count,
            handshake_ns: config.handshake_ms * 1_000_000,
            stall_ns: config.stall_ms * 1_000_000,
        });
        let clients_max = config.clients_max;
        let buffers = Arc::new(Buffers::new(config.memory_bytes, exports));
        let mut server = Server { shared, threads: Vec::new(), next: 0, clients_max, buffers };
        for _ in 0..count {
            server.add_thread()?;
        }
        Ok(server)
    }

    fn add_thread(&mut self) -> Result<(), ServeError> {
        let inbox = Inbox::new().map_err(ServeError::descriptors)?;
        let (shared, orders) = (self.shared.clone(), inbox.clone());
        let named = thread::Builder::new().name("nowait-serve".to_owned());
        // The queue is made on the thread that uses it.
        let thread = named.spawn(move || {
            let _closes = Closes(orders.clone());
            Worker::new(shared, orders)?.run()
        });
        let thread = thread.map_err(|error| ServeError::io("start of a thread", &error))?;
        self.threads.push((inbox, thread));
        Ok(())
    }

    /// Returns what others may see of it.
    pub fn view(&self) -> View {
        View(self.shared.clone())
    }

    /// Takes all clients that wait at `listener`. Waits, for a moment, only if there are no
    /// descriptors for them: or it would be asked to again at once.
    pub fn accept(&mut self, listener: &Listener, security: Security) {
        loop {
            match listener.accept() {
                Ok(socket) => self.serve(socket, security),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return,
                // Descriptors come back when clients go.
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }

    /// Serves a client, or closes its socket if there are too many.
    pub fn serve(&mut self, socket: Socket, security: Security) {
        if !self.shared.clients.enter(self.clients_max) {
            return;
        }
        self.next = (self.next + 1) % self.threads.len();
        self.threads[self.next].0.put(Order::Serve(socket, security));
    }

    /// Serves clients that start TLS from now on with `tls`; present ones go on as they began.
    pub fn set_tls(&self, tls: Tls) {
        *self.shared.tls.write() = Some(tls);
    }

    /// Returns what answers for a file: it has the requests done by all threads.
    pub fn front(&self, face: Face<AnySource>) -> Front {
        let inboxes = self.threads.iter().map(|(inbox, _)| inbox.clone()).collect();
        Front::new(face, inboxes, self.buffers.clone(), self.shared.clone())
    }

    /// Returns how many serving threads there are.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Notes that `image` is shown as the file at `path`.
    pub fn mounted(&self, image: &Arc<Image>, path: &Path) {
        self.shared.files.lock().push((image.clone(), path.to_owned()));
    }

    /// Serves the queues of a block device: each thread one, as far as there are enough.
    ///
    /// # Errors
    /// A queue does not take requests.
    pub(crate) fn attach(&self, drive: &ublk::Drive) -> Result<(), ServeError> {
        self.shared.files.lock().push((drive.image().clone(), drive.path().to_owned()));
        let (setups, answers): (Vec<_>, Vec<_>) = drive.setups().into_iter().unzip();
        for (setup, (inbox, _)) in setups.into_iter().zip(self.threads.iter().cycle()) {
            inbox.put(Order::Attach(Box::new(setup)));
        }
        let failed = |errno: Errno| {
            let path = drive.path().display();
            ServeError::new(format!("{path}: a queue could not be served: {errno}"))
        };
        // A thread that has failed answers nothing.
        let answered =
            |answer: Receiver<Result<(), Errno>>| answer.recv().unwrap_or(Err(Errno::IO));
        answers.into_iter().try_for_each(|answer| answered(answer).map_err(failed))
    }

    /// Notes that the file at `path` is gone.
    pub fn unmounted(&self, path: &Path) {
        self.shared.files.lock().retain(|(_, shown)| shown != path);
    }

    /// Answers what is in flight, closes all connections, and makes what was written durable.
    ///
    /// # Errors
    /// A thread has failed; an image could not be made durable.
    pub fn stop(self) -> Result<(), ServeError> {
        let view = self.view();
        let drained = self.drain(now_ns() + DRAIN_NS);
        drained.and(view.sync())
    }

    /// Answers what is in flight, up to a time by the clock of [`now_ns`], and closes all
    /// connections.
    ///
    /// # Errors
    /// A thread has failed.
    pub(crate) fn drain(self, ends_ns: u64) -> Result<(), ServeError> {
        self.shared.ends();
        for (inbox, _) in &self.threads {
            inbox.put(Order::Stop(ends_ns));
        }
        let mut outcome = Ok(());
        for (_, thread) in self.threads {
            let ended = thread.join();
            outcome = outcome.and(
                ended.unwrap_or_else(|_| Err(ServeError::new("a serving thread has panicked"))),
            );
        }
        outcome
    }
}
