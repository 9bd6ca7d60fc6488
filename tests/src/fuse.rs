//! Images shown as files, the loop devices on them and what is mounted on those: all gone when
//! dropped, also after a failed test, and in an order in which nothing can hang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::program::{Output, Program};
use crate::scratch::Scratch;
use crate::server::Server;
use crate::skip::{self, Skip};

/// Longer than any step of a test; a server that takes longer is killed, which wakes all that wait
/// for it in the kernel, where no signal reaches them.
const PATIENCE: Duration = Duration::from_mins(10);

/// Needed for every mount.
pub fn missing_fuse() -> Result<(), Skip> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map(drop).map_err(|error| Skip(format!("/dev/fuse: {error}")))
}

/// A server, the file it shows, and what is built on that file.
#[derive(Debug)]
pub struct Shown {
    server: Option<Server>,
    watchdog: Option<Sender<()>>,
    file: PathBuf,
    device: Option<String>,
    point: Option<PathBuf>,
}

impl Shown {
    /// Serves what `arguments` say, and the first image as `file`; `None`: this run is not about
    /// it.
    pub fn start(scratch: &Scratch, file: &Path, arguments: &[&str]) -> Option<Shown> {
        let shown = file.to_str().expect("a path of text");
        let arguments = [arguments, &["--fuse", shown]].concat();
        let mut shown = Shown {
            server: Some(Server::start(scratch, &arguments)?),
            watchdog: None,
            file: file.to_owned(),
            device: None,
            point: None,
        };
        shown.server().wait_until_it_says(&format!("as {}", file.display()));
        shown.watchdog = Some(watch(shown.server().pid()));
        Some(shown)
    }

    /// The server.
    pub fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("it was not stopped")
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Makes a loop device of the file.
    pub fn attach(&mut self, options: &[&str]) -> String {
        let losetup = Program::new("losetup").args(["--find", "--show"]).args(options);
        let device = losetup.arg(&self.file).succeed().stdout.trim().to_owned();
        self.device = Some(device.clone());
        device
    }

    /// Mounts the loop device on `point`.
    pub fn mount(&mut self, point: &Path) {
        let device = self.device.clone().expect("it was attached");
        Program::new("mount").arg(device).arg(point).succeed();
        self.point = Some(point.to_owned());
    }

    /// Takes down what is mounted on the loop device, which stays.
    pub fn umount(&mut self) {
        if let Some(point) = &self.point {
            Program::new("umount").arg(point).deadline(PATIENCE).succeed();
        }
        self.point = None;
    }

    /// Gives the loop device up.
    pub fn detach(&mut self) {
        if let Some(device) = self.device.take() {
            Program::new("losetup").args(["--detach", &device]).succeed();
        }
    }

    /// Takes all down, ends the server as an administrator would, and demands success.
    pub fn stop(mut self) -> Output {
        self.umount();
        self.detach();
        self.watchdog = None;
        self.server.take().expect("it was not stopped").stop()
    }

    /// Ends the server as a crash would. What is built on the file stays, and fails.
    pub fn kill(&mut self) {
        self.watchdog = None;
        self.server.take().expect("it was not stopped").kill();
    }

    /// Takes down all but the file itself, after a crash: nothing of it can succeed.
    pub fn give_up(&mut self) {
        // Not `Program`: it panics, and a panic while unwinding aborts the other tests.
        let run = |program: &str, arguments: &[&str], on: &Path| {
            let _ = Command::new(program).args(arguments).arg(on).output();
        };
        if let Some(point) = self.point.take() {
            run("umount", &["--lazy"], &point);
        }
        if let Some(device) = self.device.take() {
            run("losetup", &["--detach"], Path::new(&device));
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let failed = self.server.is_some();
        self.watchdog = None;
        // First of all: a program that waits for it gets an error then.
        self.server = None;
        self.give_up();
        if failed {
            let _ = Command::new("umount").arg("--lazy").arg(&self.file).output();
        }
    }
}

/// Kills the process unless the sender is dropped in time.
fn watch(pid: i32) -> Sender<()> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        if receiver.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            // SAFETY: plain numbers; the sender is dropped before the process is waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    sender
}

/// Programs that make a file system on a loop device.
pub fn missing_tools() -> Result<(), Skip> {
    skip::missing_root()?;
    missing_fuse()?;
    skip::missing_program(&["losetup", "mkfs.ext4", "e2fsck", "mount", "umount"])
}
