//! Waits until a server listens on a Unix socket. inotify wakes the test when the socket appears.

use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::Running;

/// Time limit for the start of a server, including its recovery.
const DEADLINE: Duration = Duration::from_mins(1);

/// Returns once `socket` accepts a connection.
pub fn wait_for_socket(socket: &Path, server: &mut Running) {
    let mut watch = watch(socket.parent().expect("a socket lies in a folder"));
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(!server.ended(), "the server ended\n{}", server.stderr());
        assert!(start.elapsed() < DEADLINE, "no server listens\n{}", server.stderr());
        let mut poll = libc::pollfd { fd: watch.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // The 200 ms are for a server that ends, or that listens some time after it has made its
        // socket: inotify reports neither. SAFETY: one live pollfd.
        if unsafe { libc::poll(&raw mut poll, 1, 200) } == 1 {
            let _ = watch.read(&mut [0; 4096]);
        }
    }
}

fn watch(folder: &Path) -> File {
    // SAFETY: a new descriptor, owned here alone.
    let watch = unsafe { File::from_raw_fd(libc::inotify_init1(libc::IN_CLOEXEC)) };
    let name = std::ffi::CString::new(folder.as_os_str().as_bytes()).expect("a path");
    // SAFETY: a live string.
    let rc = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), name.as_ptr(), libc::IN_CREATE) };
    assert!(rc >= 0, "inotify: {}", Error::last_os_error());
    watch
}
