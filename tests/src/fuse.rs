//! Images shown as files, the loop devices on them and the file systems mounted on those. A drop,
//! also after a failed test, removes them in an order in which nothing can hang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::program::{Output, Program};
use crate::scratch::Scratch;
use crate::server::Server;
use crate::skip::{self, Skip};

/// Longer than any step of a test. A server that takes longer is killed, which wakes all processes
/// that wait for it in the kernel, where no signal reaches them.
const PATIENCE: Duration = Duration::from_mins(10);

/// Checks the requirements of every mount.
pub fn missing_fuse() -> Result<(), Skip> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map(drop).map_err(|error| Skip(format!("/dev/fuse: {error}")))
}

/// A server, the file it shows, and the loop device and mount on that file.
#[derive(Debug)]
pub struct Shown {
    server: Option<Server>,
    watchdog: Option<Sender<()>>,
    file: PathBuf,
    device: Option<String>,
    point: Option<PathBuf>,
}

impl Shown {
    /// Serves the images that `arguments` name, and shows the first as `file`; `None`: this run
    /// does not test nowait.
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

    /// Returns the server.
    pub fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("it was not stopped")
    }

    /// Returns the file.
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

    /// Unmounts the loop device, which stays.
    pub fn umount(&mut self) {
        if let Some(point) = &self.point {
            Program::new("umount").arg(point).deadline(PATIENCE).succeed();
        }
        self.point = None;
    }

    /// Detaches the loop device.
    pub fn detach(&mut self) {
        if let Some(device) = self.device.take() {
            Program::new("losetup").args(["--detach", &device]).succeed();
        }
    }

    /// Unmounts and detaches, ends the server as an administrator would, and demands success.
    pub fn stop(mut self) -> Output {
        self.umount();
        self.detach();
        self.watchdog = None;
        self.server.take().expect("it was not stopped").stop()
    }

    /// Kills the server, as in a crash. The loop device and the mount stay; requests to them fail.
    pub fn kill(&mut self) {
        self.watchdog = None;
        self.server.take().expect("it was not stopped").kill();
    }

    /// Unmounts and detaches as far as possible after a crash; ignores errors, and leaves the file.
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
        // First of all: then a program that waits for the server gets an error.
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

/// Checks for the programs that make a file system on a loop device.
pub fn missing_tools() -> Result<(), Skip> {
    skip::missing_root()?;
    missing_fuse()?;
    skip::missing_program(&["losetup", "mkfs.ext4", "e2fsck", "mount", "umount"])
}
