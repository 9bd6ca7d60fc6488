//! A server on an image: started, waited for, watched, ended.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cases::Subject;
use crate::error::{BenchError, Context, Result};

/// How long a server may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A server that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server(Child);

/// What a server has used since it started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// User and system time of all its threads, in microseconds.
    pub(crate) cpu_us: f64,
    /// Voluntary and involuntary switches of its threads.
    pub(crate) switches: f64,
}

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
        let mut server = Self(child);
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

    /// Returns what it has used so far.
    pub(crate) fn used(&self) -> Result<Used> {
        let folder = format!("/proc/{}", self.0.id());
        let read = |path: String| fs::read_to_string(&path).context(|| format!("read {path}"));
        let stat = read(format!("{folder}/stat"))?;
        // The name, in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let ticks = ticks(12).unwrap_or(0.0) + ticks(13).unwrap_or(0.0);
        // SAFETY: takes a number and returns one.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let mut switches = 0.0;
        let tasks = fs::read_dir(format!("{folder}/task")).context(|| "threads".to_owned())?;
        for task in tasks.flatten() {
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
            let numbers = counts.filter_map(|line| line.split_whitespace().nth(1));
            switches += numbers.filter_map(|text| text.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(Used { cpu_us: ticks / ticks_per_s * 1e6, switches })
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// It does not end.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = libc::pid_t::try_from(self.0.id()).unwrap_or(libc::pid_t::MAX);
        // SAFETY: takes numbers; the process is ours and has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().context(|| "wait for the server".to_owned())?.is_none() {
            if Instant::now() > deadline {
                return Err(BenchError::failed("a server does not end after SIGTERM"));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
