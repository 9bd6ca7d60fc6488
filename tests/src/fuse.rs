//! Images that a server shows as files, loop devices on these files, and file systems on the loop
//! devices. A drop, also after a failed test, first kills the server, so that nothing can hang,
//! then unmounts and detaches.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::program::{Output, Program};
use crate::scratch::Scratch;
use crate::server::Server;
use crate::skip::{self, Skip};

/// Time limit of a server, longer than any test should take. When the time is over, a thread kills
/// the server. The kill wakes processes that wait for the server in the kernel, where no signal
/// reaches them.
const PATIENCE: Duration = Duration::from_mins(10);

/// Returns a skip if this process cannot open `/dev/fuse`.
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

    /// Makes a loop device on the file, and returns the path of the device.
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

    /// Unmounts the file system. The loop device stays attached to the file.
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

    /// Unmounts the file system, detaches the loop device, ends the server with SIGTERM, and
    /// demands success.
    pub fn stop(mut self) -> Output {
        self.umount();
        self.detach();
        self.watchdog = None;
        self.server.take().expect("it was not stopped").stop()
    }

    /// Kills the server, as in a crash. The loop device and the mount stay; their reads and writes
    /// of the file fail.
    pub fn kill(&mut self) {
        self.watchdog = None;
        self.server.take().expect("it was not stopped").kill();
    }

    /// Unmounts the file system and detaches the loop device, as far as possible after a crash.
    /// Ignores errors, and does not unmount the file itself.
    pub fn give_up(&mut self) {
        // `Program` panics on some errors; a panic while another one unwinds would abort the test
        // process, so this is a `Command`.
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
        // Kills the server first: a program that waits for the server then gets an error.
        self.server = None;
        self.give_up();
        if failed {
            let _ = Command::new("umount").arg("--lazy").arg(&self.file).output();
        }
    }
}

/// Starts a thread that kills the process unless the sender is dropped within `PATIENCE`.
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

/// Returns a skip if the test does not run as root, cannot open `/dev/fuse`, or lacks a program for
/// file systems on loop devices.
pub fn missing_tools() -> Result<(), Skip> {
    skip::missing_root()?;
    missing_fuse()?;
    skip::missing_program(&["losetup", "mkfs.ext4", "e2fsck", "mount", "umount"])
}
