//! NBD servers of other projects, and a server that a test scripts.

use super::{ASKED_BYTES, HANG_NS, SIZE, answer, export, greeting};
use nowait_sys::{epoll::Epoll, time::Deadline};
use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

/// Writes a line that says that the test is skipped because `program` is missing; `cargo x ci
/// skips` counts these lines.
pub(crate) fn note_skip(program: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let line = format!("skipped: {test}: {program} is not installed\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let Ok(file) = std::env::var("NOWAIT_SKIPS") else { return };
    let mut file = File::options().create(true).append(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

pub(crate) struct Server {
    process: Child,
    folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts `program` with the arguments `words`, in which `{image}` stands for the path of a new
    /// image of `size` bytes. The server gets a listening socket that exists before the server
    /// starts, as systemd passes one, so clients can connect at once. `None`: the program is not
    /// installed.
    pub(crate) fn start(program: &str, words: &[&str], size: u64) -> Option<Server> {
        if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
            note_skip(program);
            return None;
        }
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(size).unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let takes_over = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
        let words = words.iter().map(|word| word.replace("{image}", image.to_str().unwrap()));
        let mut shell = Command::new("sh");
        shell.args(["-c", takes_over, "sh", program]).args(words);
        shell.stdin(OwnedFd::from(listener)).stdout(Stdio::null());
        Some(Server { process: shell.spawn().unwrap(), folder })
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn file(&self) -> File {
        File::options().read(true).write(true).open(self.folder.path().join("image")).unwrap()
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("image")).unwrap()
    }
}

pub(crate) fn qemu(cache: &str) -> Option<Server> {
    let cache = format!("--cache={cache}");
    let words = ["-f", "raw", "-x", "vm", "-t", "-e", "8", "--discard=unmap", &cache, "{image}"];
    Server::start("qemu-nbd", &words, SIZE)
}

pub(crate) fn nbdkit(filter: &str, parameters: &[&str]) -> Option<Server> {
    let filter = format!("--filter={filter}");
    let words = ["-f", "-e", "vm", &filter, "file", "{image}"];
    Server::start("nbdkit", &[&words[..], parameters].concat(), SIZE)
}

pub(crate) fn scripted<T: Send + 'static>(
    then: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<T>) {
    scripted_with((greeting(), ASKED_BYTES), then)
}

/// Like [`scripted`], but greets with `hello.0`; a client sends `hello.1` bytes before its first
/// request.
pub(crate) fn scripted_with<T: Send + 'static>(
    hello: (Vec<u8>, usize),
    then: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<T>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        then(let_in(client, hello))
    });
    (folder, socket, thread)
}

pub(crate) fn let_in(mut client: UnixStream, (greeting, asked): (Vec<u8>, usize)) -> UnixStream {
    let flags = 0b1101; // HAS_FLAGS, FLUSH and FUA
    let hello = [greeting, export(SIZE, flags), answer(1, &[])].concat();
    client.write_all(&hello).unwrap();
    client.read_exact(&mut vec![0; asked]).unwrap();
    client
}

pub(crate) fn heard(client: &mut UnixStream) -> (u8, [u8; 8]) {
    let mut header = [0; 28];
    client.read_exact(&mut header).unwrap();
    let len = u32::from_be_bytes(*header[24..].first_chunk().unwrap());
    if header[7] == 1 {
        client.read_exact(&mut vec![0; len as usize]).unwrap();
    }
    (header[7], *header[8..].first_chunk().unwrap())
}

pub(crate) fn said(error: u32, cookie: [u8; 8], read: &[u8]) -> Vec<u8> {
    [&nowait_device::nbd::SIMPLE_REPLY.to_be_bytes()[..], &error.to_be_bytes(), &cookie, read]
        .concat()
}

/// Waits, without reading, until the client closes its end.
pub(crate) fn wait_until_left(client: &UnixStream) {
    let mut events = Vec::with_capacity(1);
    let epoll = Epoll::new().unwrap();
    // epoll reports a hangup even if no events are registered.
    epoll.add(client.as_raw_fd(), 0, 0).unwrap();
    epoll.wait(&mut events, Deadline::after_ns(HANG_NS));
    assert!(!events.is_empty(), "the client does not go");
}
