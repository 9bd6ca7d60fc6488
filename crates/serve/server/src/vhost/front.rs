//! The sockets for VMMs, each with a listener thread that accepts one VMM at a time and handles its
//! messages.
//!
//! A device has one driver, so the thread accepts the next VMM only after the previous VMM has
//! disconnected and its requests have ended.

use super::{
    arrival::{self, Arrival},
    session::Session,
    worker::Workers,
};
use crate::{
    ServeError,
    access::Peer,
    os_text,
    server::{Listener, Shared, View, peer_of},
};
use nowait_device::Image;
use nowait_sys::{
    epoll::{self, Epoll, Ready},
    eventfd::EventFd,
    fdtable, poll,
    time::Deadline,
};
use nowait_terminal::say;
use std::{
    ffi::OsStr,
    fmt, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use vhost::vhost_user::{BackendReqHandler, Error};

/// A socket on the command line: `[NAME=]PATH`, optionally with `unix:` before the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The name of the image that the socket serves; `None`: the first image.
    pub export: Option<String>,
    /// The path of the socket.
    pub path: PathBuf,
}

impl FromStr for Socket {
    type Err = String;

    fn from_str(text: &str) -> Result<Socket, String> {
        Socket::read(text.as_ref())
    }
}

impl Socket {
    /// Parses an argument of the command line, in which a path need not be UTF-8.
    pub(crate) fn read(text: &OsStr) -> Result<Socket, String> {
        let (export, path) = os_text::named_path(text)?;
        let path = os_text::strip_prefix(path, "unix:").unwrap_or(path);
        // A name alone is not a path.
        let is_name = os_text::split_once(path, b'=').is_some_and(|(name, rest)| {
            rest.is_empty() && !name.as_encoded_bytes().contains(&b'/')
        });
        if path.is_empty() || (export.is_none() && is_name) {
            return Err("expected [NAME=]PATH".to_owned());
        }
        Ok(Socket { export: export.map(str::to_owned), path: path.into() })
    }
}

/// Images served as vhost-user-blk devices. Dropping this value ends the service.
#[derive(Debug)]
pub struct Front {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    listeners: Vec<ListenerThread>,
}

#[derive(Debug)]
struct ListenerThread {
    control: Arc<Control>,
    thread: thread::JoinHandle<()>,
}

/// Orders to a listener thread.
#[derive(Debug)]
struct Control {
    notifier: EventFd,
    stops: AtomicBool,
    resized: AtomicBool,
}

/// How long a VMM may take to complete a message and to make room in the socket for the answer.
const STALL: Duration = Duration::from_secs(10);
/// The time limit of a read or write on the socket. Bytes have arrived, or there is room, so a call
/// normally does not wait.
const GLANCE: Duration = Duration::from_millis(100);

/// The pause after accepting a VMM has failed, for example for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why the server no longer serves a VMM.
enum ServingEnd {
    /// The VMM has disconnected or violated the protocol, or the server could not do what a message
    /// asks.
    Protocol(Error),
    /// The VMM has not completed a message in time, or does not read answers.
    Stalled,
}

impl ServingEnd {
    fn has_gone(&self) -> bool {
        matches!(self, ServingEnd::Protocol(Error::Disconnected | Error::SocketBroken(_)))
    }
}

impl fmt::Display for ServingEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServingEnd::Protocol(error) => error.fmt(f),
            ServingEnd::Stalled => write!(f, "no progress for {} s", STALL.as_secs()),
        }
    }
}

impl From<Error> for ServingEnd {
    fn from(error: Error) -> ServingEnd {
        ServingEnd::Protocol(error)
    }
}

impl Front {
    /// Serves the listening sockets. Each device has `queues` queues. `threads` threads serve the
    /// queues of all devices, with `memory_bytes` for transfers together.
    ///
    /// # Errors
    /// A socket names an unknown image; no descriptors or threads left.
    pub fn serve(
        view: &View,
        listeners: Vec<(Socket, Listener)>,
        queues: u16,
        threads: usize,
        memory_bytes: usize,
    ) -> Result<Front, ServeError> {
        let workers = Workers::start(view.shared(), threads, memory_bytes / threads.max(1))?;
        let (shared, workers) = (view.shared().clone(), Arc::new(workers));
        let mut front = Front { shared, workers, listeners: Vec::new() };
        for (Socket { export, .. }, listener) in listeners {
            let named =
                |image: &&Arc<Image>| export.as_ref().is_none_or(|name| name == image.name());
            let image = view.images().iter().find(named).ok_or_else(|| {
                let name = export.as_deref().unwrap_or_default();
                ServeError::new(format!("--vhost-user {name}=…: no image has the name {name}"))
            })?;
            let (name, size) = (image.name(), image.size());
            say(format_args!("serving {name} ({size} bytes) as vhost-user-blk on {listener}"));
            front.open(view.shared(), image, listener, queues)?;
        }
        Ok(front)
    }

    fn open(
        &mut self,
        shared: &Arc<Shared>,
        image: &Arc<Image>,
        listener: Listener,
        queues: u16,
    ) -> Result<(), ServeError> {
        let notifier = EventFd::new().map_err(ServeError::descriptors)?;
        let (stops, resized) = (AtomicBool::new(false), AtomicBool::new(false));
        let control = Arc::new(Control { notifier, stops, resized });
        let (workers, image) = (self.workers.clone(), image.clone());
        let epoll = Epoll::new().map_err(ServeError::descriptors)?;
        let watch = |fd, token| epoll.add(fd, epoll::IN, token).map_err(ServeError::descriptors);
        watch(control.notifier.raw(), CONTROL)?;
        let acceptor = Acceptor {
            shared: shared.clone(),
            workers,
            image,
            queues,
            control: control.clone(),
            epoll,
        };
        let named = thread::Builder::new().name("nowait-vmm".to_owned());
        let thread = named.spawn(move || acceptor.run(&listener));
        let thread = thread.map_err(|error| ServeError::io("cannot start a thread", &error))?;
        self.listeners.push(ListenerThread { control, thread });
        Ok(())
    }

    /// Lets the listener threads tell their VMMs that the device configuration has changed, because
    /// images may have new sizes.
    pub fn resized(&self) {
        for listener in &self.listeners {
            listener.control.resized.store(true, Relaxed);
            listener.control.notifier.signal();
        }
    }

    /// Closes all connections after their requests in flight have ended. Discards and zeroing that
    /// take too long fail. If an in-flight region records such a request, the next server carries
    /// it out instead.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ServeError> {
        let listeners = core::mem::take(&mut self.listeners);
        if !listeners.is_empty() {
            self.shared.ends();
        }
        for listener in &listeners {
            listener.control.stops.store(true, Relaxed);
            listener.control.notifier.signal();
        }
        let mut outcome = Ok(());
        for listener in listeners {
            if listener.thread.join().is_err() {
                outcome = Err(ServeError::new("a thread that talks with a VMM has panicked"));
            }
        }
        outcome.and(self.workers.quit())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // If the start has failed, this removes the sockets.
        let _ = self.end();
    }
}

const CONTROL: u64 = 0;
const LISTENER: u64 = 1;
const STREAM: u64 = 2;

struct Acceptor {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    image: Arc<Image>,
    queues: u16,
    control: Arc<Control>,
    epoll: Epoll,
}

impl Acceptor {
    fn run(&self, listener: &Listener) {
        while !self.control.stops.load(Relaxed) {
            if self.epoll.add(listener.as_raw_fd(), epoll::IN, LISTENER).is_err() {
                return;
            }
            self.wait(Deadline::NEVER);
            // While this thread serves a VMM, it does not watch the listener, so the next VMMs
            // wait.
            let _ = self.epoll.remove(listener.as_raw_fd());
            let stream = match listener.accept() {
                Ok(stream) => stream,
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        // Descriptors become free when clients disconnect.
                        self.wait(Deadline::after_ns(PAUSE.as_nanos() as u64));
                    }
                    continue;
                }
            };
            let peer = peer_of(&stream);
            let name = self.image.name();
            if self.shared.access.admits(name, &peer) {
                self.serve(stream.into());
            } else {
                say(format_args!("{name}: access denied to a VMM: {}", user(&peer)));
            }
        }
    }

    fn wait(&self, deadline: Deadline) {
        let mut ready = Vec::<Ready>::with_capacity(2);
        self.epoll.wait(&mut ready, deadline);
        if ready.iter().any(|event| event.token == CONTROL) {
            self.control.notifier.drain();
        }
    }

    fn serve(&self, stream: UnixStream) {
        let clients = &self.shared.clients;
        if !clients.enter(usize::MAX) {
            return;
        }
        let talk = || self.talk(stream);
        if let Some(Err(reason)) = self.shared.caught("as it talked with a VMM", talk)
            && !reason.has_gone()
        {
            say(format_args!("{}: disconnected a VMM: {reason}", self.image.name()));
        }
        clients.leave();
    }

    fn talk(&self, stream: UnixStream) -> Result<(), ServingEnd> {
        let broken = Error::SocketError;
        stream.set_nonblocking(false).map_err(broken)?;
        stream.set_read_timeout(Some(GLANCE)).map_err(broken)?;
        stream.set_write_timeout(Some(GLANCE)).map_err(broken)?;
        let raw = stream.as_raw_fd();
        let (image, workers) = (self.image.clone(), self.workers.clone());
        // However this function ends, it drops the session. The drop waits for the requests in
        // flight.
        let session = Arc::new(Mutex::new(Session::new(image, workers, self.queues)));
        let mut handler = BackendReqHandler::from_stream(stream, session);
        let mut announcer = None;
        // Watch edge-triggered, because the socket stays readable while a part of a message is in
        // it.
        let watched = self.epoll.add(raw, epoll::IN | epoll::OUT | epoll::EDGE, STREAM);
        watched.map_err(|errno| broken(io::Error::from_raw_os_error(errno.raw())))?;
        while self.expect_message(raw, announcer.as_ref())? {
            // Keep the channel here, because the crate `vhost` cannot send the message of a changed
            // configuration on it.
            if let Some(channel) = channel(raw) {
                announcer = Some(channel);
            }
            #[cfg(test)]
            crate::failure::inject(crate::failure::At::Talk, self.image.name());
            handler.handle_request()?;
        }
        Ok(())
    }

    /// Waits until a message can be read and answered without blocking. Returns `false` if the
    /// server stops.
    ///
    /// # Errors
    /// `Stalled`: the VMM has not completed the message, or made room for the answer, in time.
    fn expect_message(&self, raw: i32, announcer: Option<&UnixStream>) -> Result<bool, ServingEnd> {
        let mut deadline = Deadline::NEVER;
        loop {
            if self.control.stops.load(Relaxed) {
                return Ok(false);
            }
            if self.control.resized.swap(false, Relaxed)
                && let Some(announcer) = announcer
            {
                announce(announcer);
            }
            match arrival::look(raw) {
                Arrival::Nothing => deadline = Deadline::NEVER,
                Arrival::Whole if poll::has_room(raw) => return Ok(true),
                _ if deadline.has_passed() => return Err(ServingEnd::Stalled),
                _ if deadline == Deadline::NEVER => {
                    deadline = Deadline::after_ns(STALL.as_nanos() as u64);
                }
                _ => {}
            }
            self.wait(deadline);
        }
    }
}

fn user(peer: &Peer) -> String {
    peer.user.map_or_else(|| "its user is unknown".to_owned(), |user| format!("its user is {user}"))
}

/// Tells the VMM that the device configuration has changed. The VMM does not answer this message.
fn announce(channel: &UnixStream) {
    use std::io::Write;
    const CONFIG_CHANGE: u32 = 2;
    const VERSION: u32 = 1;
    let message: Vec<u8> =
        [CONFIG_CHANGE, VERSION, 0].iter().flat_map(|n| n.to_ne_bytes()).collect();
    let mut channel = channel;
    // If the channel is full, because the VMM does not read it, the message is lost.
    let _ = channel.write_all(&message);
}

/// Returns the channel for messages to the VMM, if the VMM's next message brings it.
fn channel(raw: i32) -> Option<UnixStream> {
    const SET_BACKEND_REQ_FD: u32 = 21;
    let (head, fd) = fdtable::peek(raw).ok()?;
    let fd = fd.filter(|_| head.to_ne_bytes()[..4] == SET_BACKEND_REQ_FD.to_ne_bytes())?;
    // SAFETY: the descriptor was just received, and ownership moves to the stream.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd.into_raw()) });
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_serves_the_named_or_the_first_image() {
        let socket = |export: Option<&str>, path: &str| {
            Ok(Socket { export: export.map(str::to_owned), path: path.into() })
        };
        assert_eq!("/run/vm.sock".parse(), socket(None, "/run/vm.sock"));
        assert_eq!("data=unix:vm.sock".parse(), socket(Some("data"), "vm.sock"));
        assert_eq!("./a=b".parse(), socket(None, "./a=b"));
        assert!("unix:".parse::<Socket>().is_err() && "vm=".parse::<Socket>().is_err());
    }
}
