//! The status endpoint on a socket: one thread that serves several clients at a time.

use super::http;
#[cfg(test)]
use crate::failure;
use crate::{
    ServeError,
    server::{Listener, Shared, View},
};
use nowait_status::{PATIENCE, Status};
use socket2::{Domain, Socket};
use std::{collections::VecDeque, io, sync::Arc, thread, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, unix::AsyncFd},
    net::{TcpStream, UnixStream},
    runtime, task,
    time::{sleep, timeout},
};

/// The most clients at a time. At one more, the server disconnects the oldest client.
const CLIENTS_MAX: usize = 64;
/// The pause after accepting a client has failed, for example for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A thread that answers status requests. Dropping this value does not end the thread, which ends
/// with the process.
#[derive(Debug)]
pub struct Endpoint;

impl Endpoint {
    /// Starts a thread that answers the clients of `listener` with results of `status`.
    ///
    /// # Errors
    /// The thread cannot be started; no descriptors are left.
    pub fn start(
        listener: Arc<Listener>,
        view: &View,
        status: impl Fn() -> Status + Send + Sync + 'static,
    ) -> Result<Endpoint, ServeError> {
        let failed = |error| ServeError::io("cannot watch the status socket", &error);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let entered = runtime.enter();
        // SAFETY: a listener has one descriptor, which stays open as long as the listener lives.
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
        let listener = listener.map_err(|error| failed(error.into()))?;
        drop(entered);
        let answers = Arc::new(Answers { shared: view.shared().clone(), status });
        let named = thread::Builder::new().name("nowait-status".to_owned());
        let spawned = named.spawn(move || runtime.block_on(accept(&listener, &answers)));
        spawned.map_err(|error| ServeError::io("cannot start a thread", &error))?;
        Ok(Endpoint)
    }
}

async fn accept<S>(listener: &AsyncFd<Arc<Listener>>, answers: &Arc<Answers<S>>)
where
    S: Fn() -> Status + Send + Sync + 'static,
{
    let mut clients = VecDeque::<task::JoinHandle<_>>::new();
    loop {
        match listener.async_io(Interest::READABLE, |listener| listener.accept()).await {
            Ok(socket) => {
                clients.retain(|client| !client.is_finished());
                if clients.len() >= CLIENTS_MAX {
                    clients.pop_front().iter().for_each(task::JoinHandle::abort);
                }
                let answers = answers.clone();
                let answer = timeout(PATIENCE, async move { answers.answer(socket).await });
                clients.push_back(tokio::spawn(answer));
            }
            // The client has disconnected before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Descriptors become free when clients disconnect.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl Stream for UnixStream {}
impl Stream for TcpStream {}

fn stream(socket: Socket) -> io::Result<Box<dyn Stream>> {
    Ok(match socket.domain()? {
        Domain::UNIX => Box::new(UnixStream::from_std(socket.into())?),
        _ => Box::new(TcpStream::from_std(socket.into())?),
    })
}

struct Answers<S> {
    shared: Arc<Shared>,
    status: S,
}

impl<S: Fn() -> Status> Answers<S> {
    /// If making the answer panics, closes the connection without an answer.
    async fn answer(&self, socket: Socket) -> io::Result<()> {
        let (mut stream, mut question) = (stream(socket)?, Vec::new());
        while !http::is_whole(&question) && stream.read_buf(&mut question).await? > 0 {}
        let answer = || {
            #[cfg(test)]
            failure::inject(failure::At::Status, self.shared.exports[0].name());
            http::answer(&question, &self.status)
        };
        match self.shared.caught("as it told the status", answer) {
            Some(answer) => stream.write_all(&answer).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Address, Config, Server};
    use nowait::Nowait;
    use nowait_device::{Image, ImageOptions};
    use nowait_status::{ExportStatus, fetch};
    use std::{
        io::{Read, Write},
        net::Shutdown,
        os::unix::net::UnixStream,
        path::PathBuf,
    };
    use tempfile::TempDir;

    struct Rig {
        _folder: TempDir,
        path: PathBuf,
        server: Server,
    }

    impl Rig {
        fn new(status: impl Fn() -> Status + Send + Sync + 'static) -> Rig {
            let folder = tempfile::tempdir().unwrap();
            let (image, path) = (folder.path().join("image"), folder.path().join("status"));
            std::fs::write(&image, [0; 4096]).unwrap();
            let nowait = Nowait::builder().build().unwrap();
            let options = ImageOptions { path: image, ..ImageOptions::default() };
            let image = Image::open(&nowait, &options).unwrap();
            let server = Server::start(&nowait, vec![Arc::new(image)], &Config::default()).unwrap();
            let listener = Arc::new(Listener::bind(&Address::Unix(path.clone())).unwrap());
            Endpoint::start(listener, &server.view(), status).unwrap();
            Rig { _folder: folder, path, server }
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(&self.path).unwrap()
        }
    }

    #[test]
    fn silent_clients_keep_no_other_waiting() {
        let rig = Rig::new(Status::default);
        let silent: Vec<_> = (0..400).map(|_| rig.connect()).collect();
        assert_eq!(fetch(&rig.path).unwrap(), Status::default());
        drop(silent);
        rig.server.stop().unwrap();
    }

    #[test]
    fn a_question_may_come_in_parts_and_in_two_seconds() {
        let rig = Rig::new(Status::default);
        let mut late = rig.connect();
        late.write_all(b"GET /status").unwrap();
        let (mut client, mut text) = (rig.connect(), String::new());
        for part in ["GET /status", " HTTP/1.1\r\n", "\r", "\n"] {
            client.write_all(part.as_bytes()).unwrap();
        }
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with('}'), "{text}");
        assert_eq!(late.read(&mut [0; 1]).unwrap(), 0, "disconnected without an answer");
        let mut gone = rig.connect();
        gone.shutdown(Shutdown::Write).unwrap();
        gone.read_to_string(&mut text).unwrap();
        assert!(text.contains("405"), "no question: {text}");
        rig.server.stop().unwrap();
    }

    #[test]
    fn an_answer_is_sent_as_fast_as_it_is_read() {
        let rig = Rig::new(|| {
            let export = ExportStatus { name: "x".repeat(4 << 20), ..Default::default() };
            Status { exports: vec![export], ..Status::default() }
        });
        let (mut client, mut text) = (rig.connect(), Vec::new());
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        client.read_to_end(&mut text).unwrap();
        assert!(text.len() > 4 << 20 && text.ends_with(b"}"));
        rig.server.stop().unwrap();
    }
}
