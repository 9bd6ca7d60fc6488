//! A server on an image: started, waited for, watched, ended.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cases::Subject;
use crate::error::{BenchError, Context, Result};
use crate::launch::{self, Usage};

/// How long a server may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A server that runs, and whether it has ended; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server(Child, bool);

impl Server {
    /// Starts `subject` on `image`, and waits until it listens on `socket`. `None`: there is
    /// nothing to start.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub(crate) fn start(
        subject: Subject,
        nowait: &Path,
        image: &Path,
        socket: &Path,
    ) -> Result<Option<Self>> {
        let Some(mut command) = command(subject, nowait, image, socket) else { return Ok(None) };
        let name = command.get_program().to_string_lossy().into_owned();
        // What the server before left behind: nbdkit refuses a path that exists.
        let _ = fs::remove_file(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context(|| format!("cannot start {name}"))?;
        let mut server = Self(child, false);
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(socket).is_err() {
            let ended = server.0.try_wait().context(|| format!("wait for {name}"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(BenchError::failed(format!("{name} does not serve: {ended:?}")));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(Some(server))
    }

    /// Ends it in order; returns what it has used from its start on, threads that ended before
    /// included.
    ///
    /// # Errors
    /// It does not end.
    pub(crate) fn stop(mut self) -> Result<Usage> {
        let pid = libc::pid_t::try_from(self.0.id()).unwrap_or(libc::pid_t::MAX);
        // SAFETY: takes numbers; the process is ours and has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = launch::reap(pid).context(|| "wait for the server".to_owned())?;
            if let Some((_, usage)) = ended {
                self.1 = true;
                return Ok(usage);
            }
            if Instant::now() > deadline {
                return Err(BenchError::failed("a server does not end after SIGTERM"));
            }
            sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.1 {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn command(subject: Subject, nowait: &Path, image: &Path, socket: &Path) -> Option<Command> {
    let mut command;
    match subject {
        Subject::Nowait(cache) => {
            command = Command::new(nowait);
            command.args(["serve", "--cache", cache, "--nbd"]);
            command.arg(format!("unix:{}", socket.display())).arg(image);
        }
        Subject::Qemu(cache, aio) => {
            command = Command::new("qemu-nbd");
            command.args(["--format=raw", "--persistent", "--shared=8"]);
            command.arg(format!("--cache={cache}")).arg(format!("--aio={aio}"));
            command.arg(format!("--socket={}", socket.display())).arg(image);
        }
        Subject::Nbdkit => {
            command = Command::new("nbdkit");
            command.arg("--foreground").arg("--unix").arg(socket).arg("file").arg(image);
        }
        Subject::File => return None,
    }
    Some(command)
}
