//! Threads that serve images to clients.
//!
//! ```text
//!  main thread ── accept ──▶ Server ── inbox ──▶ Worker ─┬─ Client: Socket + Session
//!    (listeners, signals)                    a thread each   └─ Disk: one queue of nowait
//! ```
//! Each worker thread has one queue of nowait and its own clients. Worker threads share the images,
//! with their files, counters and locks, and the threads for blocking tasks.

mod client;
mod event_loop;
mod inbox;
mod shared;
mod socket;
mod socket_path;
mod tls;
mod validity;
mod worker;

pub use inbox::Clients;
pub(crate) use socket::peer_of;
pub use socket::{Address, Listener};
pub use socket2::Socket;
pub use tls::{Tls, TlsFiles};

use crate::{
    ServeError,
    access::Access,
    fuse::{Buffers, Front, ImageFile},
    nbd::{Limits, Security},
    ublk,
};
use core::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
pub(crate) use inbox::Order;
use nowait::{Errno, Nowait};
use nowait_device::{AnySource, BlockingTasks, Image};
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

pub(crate) use event_loop::{DISK, EventLoop, INBOX};
pub(crate) use inbox::{Closes, Inbox};
pub(crate) use shared::Shared;
pub(crate) use worker::Worker;

/// The limits and settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of serving threads.
    pub threads: usize,
    /// The most NBD clients at a time. Connected VMMs count toward this number, but the server does
    /// not refuse a VMM for it.
    pub clients_max: usize,
    /// The bytes for the transfers of all clients together, divided between the serving threads. A
    /// client that holds no memory may take 4 KiB beyond this bound. Writes to FUSE files have a
    /// separate pool of the same size.
    pub memory_bytes: usize,
    /// The limits of one client.
    pub limits: Limits,
    /// How long a client may take to choose an export, in milliseconds.
    pub handshake_ms: u64,
    /// How long a client may make no progress in a message or reply, in milliseconds.
    pub stall_ms: u64,
    /// The TLS settings for clients that ask for TLS or must use it; `None`: the server has no
    /// certificate.
    pub tls: Option<Tls>,
    /// The access rules.
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

/// A handle to a server's state, for any thread. Clones are cheap.
#[derive(Clone, Debug)]
pub struct View(Arc<Shared>);

impl View {
    /// Returns the name of the backend that nowait uses.
    pub fn backend(&self) -> &'static str {
        choice::name(self.0.nowait.backend())
    }

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

    /// Returns the counters of nowait's own page cache; `None`: the cache is not in use.
    pub fn cache(&self) -> Option<CacheCounts> {
        self.0.nowait.cache_counts()
    }

    /// Returns the paths of the FUSE files and ublk devices that show `image`.
    pub fn files_of(&self, image: &Arc<Image>) -> Vec<PathBuf> {
        let files = self.0.files.lock();
        let its = files.iter().filter(|(shown, _)| Arc::ptr_eq(shown, image));
        its.map(|(_, path)| path.clone()).collect()
    }

    /// Returns the counters of all clients.
    pub fn clients(&self) -> &Clients {
        &self.0.clients
    }

    /// Makes the writes to all writable images durable. Blocks until all syncs have ended.
    ///
    /// # Errors
    /// At least one image could not be made durable.
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

/// Images being served. The serving threads run until [`Server::stop`] or `drain`, or until they
/// fail.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<(Arc<Inbox<Order>>, ThreadHandle)>,
    next: usize,
    clients_max: usize,
    /// The memory for the data of writes to FUSE files.
    buffers: Arc<Buffers>,
}

/// How long the server waits for requests in flight when it ends.
pub(crate) const DRAIN_NS: u64 = 30_000_000_000;
/// The most threads for blocking tasks of a server with one image. Each further image adds one.
const TASKS_MAX: usize = 8;

/// The pause after accepting a client has failed, for example for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Starts serving `images`. A client that asks for the empty export name gets the first image,
    /// if the access rules admit the client to this image.
    ///
    /// # Errors
    /// No descriptors or threads left. If a started thread cannot make its queue, [`Server::stop`]
    /// returns that error.
    pub fn start(
        nowait: &Nowait,
        images: Vec<Arc<Image>>,
        config: &Config,
    ) -> Result<Server, ServeError> {
        let (count, exports) = (config.threads.max(1), images.len());
        let shared = Arc::new(Shared {
            nowait: nowait.clone(),
            exports: images.into(),
            tasks: BlockingTasks::of_images(TASKS_MAX, exports),
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
        // The thread that uses the queue must make it.
        let thread = named.spawn(move || {
            let _closes = Closes(orders.clone());
            Worker::new(shared, orders)?.run()
        });
        let thread = thread.map_err(|error| ServeError::io("cannot start a thread", &error))?;
        self.threads.push((inbox, thread));
        Ok(())
    }

    /// Returns a handle to the state.
    pub fn view(&self) -> View {
        View(self.shared.clone())
    }

    /// Accepts the clients that wait at `listener`. If accepting fails, for example for lack of
    /// descriptors, sleeps 100 ms, because the caller's event loop would call again at once.
    pub fn accept(&mut self, listener: &Listener, security: Security) {
        loop {
            match listener.accept() {
                Ok(socket) => self.serve(socket, security),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client has disconnected before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return,
                // Descriptors become free when clients disconnect.
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }

    /// Passes a client to the next serving thread, or closes its socket if the server has as many
    /// clients as [`Config::clients_max`] allows.
    pub fn serve(&mut self, socket: Socket, security: Security) {
        if !self.shared.clients.enter(self.clients_max) {
            return;
        }
        self.next = (self.next + 1) % self.threads.len();
        self.threads[self.next].0.put(Order::Serve(socket, security));
    }

    /// Uses `tls` for clients that start TLS from now on. Connections that use TLS already keep
    /// their settings.
    pub fn set_tls(&self, tls: Tls) {
        *self.shared.tls.write() = Some(tls);
    }

    /// Returns a FUSE front that passes requests for the image of `file` to the serving threads.
    pub fn front(&self, file: ImageFile<AnySource>) -> Front {
        let inboxes: Vec<_> = self.threads.iter().map(|(inbox, _)| inbox.clone()).collect();
        let ask = move |file, request| {
            inboxes[library_thread() % inboxes.len()].put(Order::Ask(file, request));
        };
        Front::new(file, Box::new(ask), self.buffers.clone(), self.shared.nowait.clone())
    }

    /// Returns how many serving threads there are.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Adds `path` to the files that show `image`.
    pub fn mounted(&self, image: &Arc<Image>, path: &Path) {
        self.shared.files.lock().push((image.clone(), path.to_owned()));
    }

    /// Gives the queues of a block device to the serving threads: each queue to a different thread,
    /// if there are enough threads. Waits until all queues are served, or one has failed.
    pub(crate) fn attach(&self, drive: &ublk::Drive) -> Result<(), ServeError> {
        self.shared.files.lock().push((drive.image().clone(), drive.path().to_owned()));
        let (setups, answers): (Vec<_>, Vec<_>) = drive.setups().into_iter().unzip();
        for (setup, (inbox, _)) in setups.into_iter().zip(self.threads.iter().cycle()) {
            inbox.put(Order::Attach(Box::new(setup)));
        }
        let failed = |errno: Errno| {
            let path = drive.path().display();
            ServeError::new(format!("{path}: cannot serve a queue: {errno}"))
        };
        // A thread that has failed sends no answer.
        let answered =
            |answer: Receiver<Result<(), Errno>>| answer.recv().unwrap_or(Err(Errno::IO));
        answers.into_iter().try_for_each(|answer| answered(answer).map_err(failed))
    }

    /// Removes `path` from the files that show images.
    pub fn unmounted(&self, path: &Path) {
        self.shared.files.lock().retain(|(_, shown)| shown != path);
    }

    /// Waits up to 30 seconds for the requests in flight, closes all connections, and makes the
    /// writes to all writable images durable.
    ///
    /// # Errors
    /// A serving thread has failed, or an image could not be made durable.
    pub fn stop(self) -> Result<(), ServeError> {
        let view = self.view();
        let drained = self.drain(now_ns() + DRAIN_NS);
        drained.and(view.sync())
    }

    /// Waits for the requests in flight, until `ends_ns` by the clock of [`now_ns`] at the latest.
    /// Closes all connections, and waits for the end of the serving threads.
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

/// Returns a number that identifies the calling thread of the FUSE library. A thread of the library
/// passes all its requests for one file to the same serving thread.
fn library_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = Cell::new(THREADS.fetch_add(1, Relaxed));
    }
    NUMBER.get()
}
