//! `nowait serve` as a test's server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::program::{Output, Program, Running};
use crate::ready;
use crate::scratch::Scratch;
use crate::skip;
use crate::stores::Store;
use crate::subject::{self, Backend, Library, Subject};

const DEADLINE: Duration = Duration::from_mins(1);

/// Returns the built tool; `None`: this run does not test nowait.
pub fn tool() -> Option<Program> {
    if Subject::chosen(Library::Preload, Backend::Auto)?.is_system() {
        skip::note("the system has no such tool");
        return None;
    }
    Some(Program::new(subject::built("bin/nowait")))
}

/// A running server with a Unix socket for NBD.
#[derive(Debug)]
pub struct Server {
    running: Running,
    socket: PathBuf,
}

impl Server {
    /// Serves the images that `arguments` name, on a socket in `scratch`; `None`: this run does not
    /// test nowait.
    pub fn start(scratch: &Scratch, arguments: &[&str]) -> Option<Server> {
        let socket = scratch.file("nbd");
        let tool = Store::credentials(tool()?).env("XDG_RUNTIME_DIR", scratch.path());
        let tool = tool.arg("serve").args(arguments).arg("--nbd");
        let mut running = tool.arg(format!("unix:{}", socket.display())).spawn();
        ready::wait_for_socket(&socket, &mut running);
        Some(Server { running, socket })
    }

    /// Returns the address of an export on the server's Unix socket.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until the server listens on `socket`, too.
    pub fn wait_for(&mut self, socket: &Path) {
        ready::wait_for_socket(socket, &mut self.running);
    }

    /// Waits until the server prints the port of its TCP socket, and returns the port.
    pub fn port(&mut self) -> u16 {
        loop {
            let said = self.running.stderr();
            let after = said.split("tcp:").nth(1).and_then(|rest| rest.split_whitespace().next());
            if let Some(port) = after.and_then(|address| address.rsplit(':').next()?.parse().ok()) {
                return port;
            }
            assert!(!self.running.ended(), "the server ended\n{said}");
        }
    }

    /// Waits until the server's standard error contains `text`.
    pub fn wait_until_it_says(&mut self, text: &str) {
        while !self.running.stderr().contains(text) {
            assert!(!self.running.ended(), "the server ended\n{}", self.running.stderr());
            std::thread::yield_now();
        }
    }

    /// Returns the server's standard error so far.
    pub fn said(&self) -> String {
        self.running.stderr()
    }

    /// Returns the server's process number.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: i32) {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Sends SIGTERM, waits for the server's end, and demands success.
    pub fn stop(self) -> Output {
        self.signal(libc::SIGTERM);
        self.stop_told()
    }

    /// Waits for the server's end after a signal. Demands success, and that the server has removed
    /// its socket.
    pub fn stop_told(self) -> Output {
        let output = self.running.wait(DEADLINE);
        assert!(output.status.success(), "failed\n{output}");
        assert!(!self.socket.exists(), "the socket is left behind");
        output
    }

    /// Kills the server, as in a crash, and waits for its end.
    pub fn kill(self) {
        self.signal(libc::SIGKILL);
        self.running.wait(DEADLINE);
    }
}
