//! The status endpoint on a socket: one thread, and several clients at a time.

use super::client::{Client, Wait};
#[cfg(test)]
use crate::failure;
use crate::{
    ServeError,
    server::{Listener, Shared, View},
};
use nowait_status::{PATIENCE, Status};
use nowait_sys::{
    Errno,
    epoll::{self, Epoll},
    time::{Deadline, now_ns},
};
use std::{collections::BTreeMap, io, sync::Arc, thread, time::Duration};

/// The most clients at a time. One more client replaces the oldest.
const CLIENTS_MAX: usize = 64;
/// The pause after accept(2) has failed for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A thread that answers status requests. The thread ends with the process.
#[derive(Debug)]
pub struct Endpoint;

impl Endpoint {
    /// Begins to answer on `listener` with the result of `status`.
    ///
    /// # Errors
    /// The thread cannot be started; no descriptors are left.
    pub fn start(
        listener: Arc<Listener>,
        view: &View,
        status: impl Fn() -> Status + Send + 'static,
    ) -> Result<Endpoint, ServeError> {
        let client_loop =
            ClientLoop::new(listener, view, status).map_err(ServeError::descriptors)?;
        let named = thread::Builder::new().name("nowait-status".to_owned());
        let spawned = named.spawn(move || client_loop.run());
        spawned.map_err(|error| ServeError::io("cannot start a thread", &error))?;
        Ok(Endpoint)
    }
}

/// The token of the listener; clients have higher ones, in the order of their arrival.
const LISTENER: u64 = 0;

/// The clients, and the source of the answers.
struct ClientLoop<S> {
    listener: Arc<Listener>,
    shared: Arc<Shared>,
    status: S,
    epoll: Epoll,
    clients: BTreeMap<u64, Client>,
    last: u64,
}

impl<S: Fn() -> Status> ClientLoop<S> {
    fn new(listener: Arc<Listener>, view: &View, status: S) -> Result<ClientLoop<S>, Errno> {
        let epoll = Epoll::new()?;
        epoll.add(listener.raw(), epoll::IN, LISTENER)?;
        let (shared, clients) = (view.shared().clone(), BTreeMap::new());
        Ok(ClientLoop { listener, shared, status, epoll, clients, last: LISTENER })
    }

    fn run(mut self) {
        let mut ready = Vec::with_capacity(CLIENTS_MAX);
        loop {
            self.round(&mut ready);
        }
    }

    /// Waits, and serves all clients that are ready.
    fn round(&mut self, ready: &mut Vec<epoll::Ready>) {
        let first = self.clients.first_key_value();
        let next = first.map_or(Deadline::NEVER, |(_, client)| Deadline::at_ns(client.until_ns));
        self.epoll.wait(ready, next);
        for event in ready.iter() {
            match event.token {
                LISTENER => self.accept(),
                token => self.go_on(token),
            }
        }
        let now = now_ns();
        // The clients are in the order of their time limits.
        while self.clients.first_key_value().is_some_and(|(_, client)| client.until_ns <= now) {
            self.clients.pop_first();
        }
    }

    /// Accepts one client; present ones get their turn before the next.
    fn accept(&mut self) {
        match self.listener.accept() {
            Ok(socket) => {
                if self.clients.len() >= CLIENTS_MAX {
                    self.clients.pop_first();
                }
                self.last += 1;
                let client = Client::new(socket, now_ns() + PATIENCE.as_nanos() as u64);
                if self.epoll.add(client.raw(), epoll::IN, self.last).is_ok() {
                    self.clients.insert(self.last, client);
                }
            }
            // The client has gone again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Descriptors become free when clients go.
            Err(_) => thread::sleep(PAUSE),
        }
    }

    fn go_on(&mut self, token: u64) {
        // `accept` dropped this client to make room for a newer one.
        let Some(client) = self.clients.get_mut(&token) else { return };
        let go_on = || {
            #[cfg(test)]
            failure::inject(failure::At::Status, self.shared.exports[0].name());
            client.go_on(&self.status)
        };
        let wait = match self.shared.caught("as it told the status", go_on) {
            Some(Ok(wait)) => wait,
            // The connection failed, or serving it panicked: drop the client.
            Some(Err(_)) | None => Wait::Over,
        };
        let goes = match wait {
            Wait::Question => false,
            Wait::Room => {
                let fd = self.clients[&token].raw();
                self.epoll.change(fd, epoll::OUT, token).is_err()
            }
            Wait::Over => true,
        };
        if goes {
            self.clients.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Address, Config, Server};
    use nowait::Nowait;
    use nowait_device::{Image, ImageOptions};
    use nowait_status::fetch;
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        path::PathBuf,
    };
    use tempfile::TempDir;

    /// A server of one image, with a socket for its status.
    struct Rig {
        _folder: TempDir,
        path: PathBuf,
        listener: Arc<Listener>,
        server: Server,
    }

    impl Rig {
        fn new() -> Rig {
            let folder = tempfile::tempdir().unwrap();
            let (image, path) = (folder.path().join("image"), folder.path().join("status"));
            std::fs::write(&image, [0; 4096]).unwrap();
            let nowait = Nowait::builder().build().unwrap();
            let options = ImageOptions { path: image, ..ImageOptions::default() };
            let image = Image::open(&nowait, &options).unwrap();
            let server = Server::start(&nowait, vec![Arc::new(image)], &Config::default()).unwrap();
            let listener = Arc::new(Listener::bind(&Address::Unix(path.clone())).unwrap());
            Rig { _folder: folder, path, listener, server }
        }

        fn client_loop(&self) -> ClientLoop<impl Fn() -> Status + use<>> {
            ClientLoop::new(self.listener.clone(), &self.server.view(), Status::default).unwrap()
        }
    }

    #[test]
    fn silent_clients_keep_no_other_waiting() {
        let rig = Rig::new();
        let view = rig.server.view();
        Endpoint::start(rig.listener.clone(), &view, Status::default).unwrap();
        let silent: Vec<_> = (0..400).map(|_| UnixStream::connect(&rig.path).unwrap()).collect();
        assert_eq!(fetch(&rig.path).unwrap(), Status::default());
        drop(silent);
        rig.server.stop().unwrap();
    }

    #[test]
    fn one_client_too_many_replaces_the_oldest_and_is_answered() {
        let rig = Rig::new();
        let (mut client_loop, mut ready) = (rig.client_loop(), Vec::with_capacity(8));
        let mut clients = Vec::new();
        for _ in 0..=CLIENTS_MAX {
            clients.push(UnixStream::connect(&rig.path).unwrap());
            client_loop.round(&mut ready);
        }
        assert_eq!(clients[0].read(&mut [0; 1]).unwrap(), 0, "sent away");
        let last = clients.last_mut().unwrap();
        last.write_all(b"GET /status HTTP/1.1\r\n\r\n").unwrap();
        client_loop.round(&mut ready);
        let mut text = String::new();
        last.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        drop(client_loop);
        rig.server.stop().unwrap();
    }

    #[test]
    fn a_client_whose_time_is_over_is_disconnected() {
        let rig = Rig::new();
        let (mut client_loop, mut ready) = (rig.client_loop(), Vec::with_capacity(8));
        let mut client = UnixStream::connect(&rig.path).unwrap();
        client_loop.round(&mut ready);
        client.write_all(b"GET /status").unwrap();
        client_loop.clients.values_mut().for_each(|client| client.until_ns = 0);
        client_loop.round(&mut ready);
        assert!(client_loop.clients.is_empty());
        rig.server.stop().unwrap();
    }
}
