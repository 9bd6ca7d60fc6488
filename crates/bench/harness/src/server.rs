//! A program that serves: the harness starts it, waits until it serves, and ends it in order.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::error::{Context, Failure, Result};
use crate::interrupt;
use crate::launch::{self, Usage};

const PATIENCE_AT_DROP: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub fn nowait_serve() -> PathBuf {
    const NAME: &str = "nowait-serve";
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(NAME));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(NAME))
}

/// A running server. Dropping this value ends the server in order, because a mount of a killed
/// server would stay; if the server does not end in time, kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    name: String,
    stderr: NamedTempFile,
    has_ended: bool,
}

impl Server {
    pub fn start(
        command: &mut Command,
        patience: Duration,
        is_there: impl Fn() -> bool,
    ) -> Result<Self> {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let stderr = NamedTempFile::new().context(|| "temporary file".to_owned())?;
        let sink = stderr.reopen().context(|| "temporary file".to_owned())?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(sink);
        let child = command.spawn().context(|| format!("cannot start {name}"))?;
        let mut server = Self { child, name, stderr, has_ended: false };
        let deadline = Instant::now() + patience;
        while !is_there() {
            interrupt::check()?;
            let name = &server.name;
            let ended = server.child.try_wait().context(|| format!("wait for {name}"))?;
            server.has_ended = ended.is_some();
            if server.has_ended || Instant::now() > deadline {
                let how = ended.map_or_else(String::new, |status| format!(" ({status})"));
                let said = server.last_words();
                return Err(Failure::new(format!("{name} does not serve{how}: {said}")));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    pub fn listening(command: &mut Command, patience: Duration, socket: &Path) -> Result<Self> {
        let _ = fs::remove_file(socket);
        Self::start(command, patience, || UnixStream::connect(socket).is_ok())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn words(&self) -> String {
        fs::read_to_string(self.stderr.path()).unwrap_or_default()
    }

    pub fn last_words(&self) -> String {
        let text = self.words();
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").to_owned()
    }

    /// Returns the resources that the server has used since its start, with its ended threads.
    pub fn stop(mut self, patience: Duration) -> Result<Usage> {
        self.end(patience)
    }

    /// Fails if the server has ended before.
    pub fn kill(mut self) -> Result<()> {
        let name = self.name.clone();
        let ended = self.child.try_wait().context(|| format!("wait for {name}"))?;
        if let Some(status) = ended {
            self.has_ended = true;
            let said = self.last_words();
            return Err(Failure::new(format!("{name} ended before ({status}): {said}")));
        }
        self.child.kill().context(|| format!("kill {name}"))?;
        self.child.wait().context(|| format!("wait for {name}"))?;
        self.has_ended = true;
        Ok(())
    }

    fn end(&mut self, patience: Duration) -> Result<Usage> {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap_or(libc::pid_t::MAX);
        // SAFETY: the arguments are numbers; the process is a child that has not been reaped.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let deadline = Instant::now() + patience;
        loop {
            let ended = launch::reap(pid).context(|| format!("wait for {}", self.name))?;
            if let Some((_, usage)) = ended {
                self.has_ended = true;
                return Ok(usage);
            }
            if Instant::now() > deadline {
                let name = &self.name;
                return Err(Failure::new(format!("{name} does not end after SIGTERM")));
            }
            sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.has_ended && self.end(PATIENCE_AT_DROP).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_is_told_with_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo no licence >&2; exit 3"]);
        let error = Server::start(&mut command, Duration::from_mins(1), || false).err();
        let error = error.expect("it does not serve").to_string();
        assert!(error.contains("exit status: 3") && error.contains("no licence"), "{error}");
    }

    #[test]
    fn a_server_is_killed_once_and_one_that_has_ended_is_told() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Server::start(&mut command, Duration::from_mins(1), || true).expect("a server")
        };
        start("trap '' TERM; exec sleep 30").kill().expect("it is killed");
        let mut ended = start("exit 3");
        ended.child.wait().expect("it ends");
        let error = ended.kill().expect_err("there is nothing to kill").to_string();
        assert!(error.contains("ended before (exit status: 3)"), "{error}");
    }

    #[test]
    fn a_server_is_ended_in_order_with_what_it_used() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ready = folder.path().join("ready");
        let mut command = Command::new("sh");
        command.args(["-c", "touch \"$0\"; exec sleep 30"]);
        command.arg(&ready);
        let server = Server::start(&mut command, Duration::from_mins(1), || ready.exists());
        let usage = server.and_then(|server| server.stop(Duration::from_mins(1)));
        assert!(usage.expect("it ends").cpu_us > 0.0);
    }
}
