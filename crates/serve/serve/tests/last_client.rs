//! `nowait serve --exit-with-last-client` with a client that comes and goes during the start.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Child;
use std::time::{Duration, Instant};
use support::nowait_serve;

const SIZE: u64 = 1 << 20;
/// The limit against hanging.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process that is killed if the test fails.
struct Running(Child);

impl Running {
    fn wait_until(&mut self, mut is_met: impl FnMut(&mut Child) -> bool) {
        let start = Instant::now();
        while !is_met(&mut self.0) {
            assert!(start.elapsed() < PATIENCE, "the server does not go on");
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An ended process cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fills the pipe by an open file of its own, because only that file is non-blocking.
fn fill(pipe: &io::PipeWriter) {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut options = OpenOptions::new();
    let mut end =
        options.write(true).custom_flags(nowait_sys::file::O_NONBLOCK).open(path).unwrap();
    let full = loop {
        if let Err(error) = end.write_all(b"\n") {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_client_that_goes_during_the_start_ends_the_server() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (image, shown) = (folder.path().join("image"), folder.path().join("shown"));
    fs::write(&image, vec![7; SIZE as usize]).unwrap();
    // The server's message about the mounted file, which comes before the end of the start, waits
    // until the reader of the pipe has gone.
    let (reader, writer) = io::pipe().unwrap();
    fill(&writer);
    let mut command = nowait_serve(&["serve", "--threads", "1", "--exit-with-last-client"]);
    command.arg(&image).arg("--fuse").arg(&shown);
    let command = command.env("XDG_RUNTIME_DIR", folder.path()).stderr(writer);
    let mut server = Running(command.spawn().unwrap());
    let is_shown = || fs::metadata(&shown).is_ok_and(|about| about.len() == SIZE);
    server.wait_until(|server| server.try_wait().unwrap().is_some() || is_shown());
    drop(File::open(&shown).unwrap());
    // The server's only FUSE thread handles the close before it answers this.
    assert!(is_shown());
    drop(reader);
    let mut ended = None;
    server.wait_until(|server| {
        ended = server.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success() && !shown.exists());
}
