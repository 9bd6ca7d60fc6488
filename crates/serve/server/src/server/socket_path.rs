//! Listens at the path of a Unix socket, in place of an old socket on which no process listens. If
//! the folder can be locked, a lock lets one server at a time do so.

use crate::identity::OwnName;
use nowait_sys::{Errno, socket};
use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::{fs::FileTypeExt, net::UnixListener},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// The longest path of a Unix socket, in bytes: `sun_path` without its last zero byte, unix(7).
pub(super) const PATH_BYTES_MAX: usize = 107;
/// How long to wait for the lock on the folder. Servers hold the lock for much less time, so a lock
/// that stays longer belongs to another program.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(1);

/// Fails with `AddrInUse` if another server listens there, or if the file is not a socket.
pub(super) fn listen(path: &Path) -> io::Result<(UnixListener, OwnName)> {
    if path.as_os_str().len() > PATH_BYTES_MAX {
        let why = format!("the path of a socket must have at most {PATH_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // Without the lock, two servers could find the same old socket. The second server could then
    // remove the new socket of the first, which looks old between bind(2) and listen(2).
    let _lock = lock(folder_of(path), PATIENCE);
    if is_left(path) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    Ok((listener, OwnName::new(path)?))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks the folder against other servers; `None`: the folder cannot be locked, or stays locked for
/// longer than `patience`.
fn lock(folder: &Path, patience: Duration) -> Option<File> {
    // Opening a pipe or a device might wait or have an effect.
    if !folder.is_dir() {
        return None;
    }
    let (file, until) = (File::open(folder).ok()?, Instant::now() + patience);
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(BETWEEN),
            Err(_) => return None,
        }
    }
}

fn is_left(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    // A blocking connect would wait for a listener whose queue is full.
    let refused = |error: Errno| {
        io::Error::from_raw_os_error(error.raw()).kind() == io::ErrorKind::ConnectionRefused
    };
    is_socket && socket::connect_now(path).is_err_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::{fd::AsRawFd, unix::net::UnixStream},
        sync::Barrier,
    };

    #[test]
    fn of_two_servers_that_find_an_old_socket_one_replaces_it() {
        const ROUNDS: usize = 1000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let start = Barrier::new(2);
        let take = || {
            start.wait();
            listen(&path)
        };
        for round in 0..ROUNDS {
            drop(UnixListener::bind(&path).unwrap());
            // A thread of an engine that another test starts begins with a copy of all descriptors,
            // so that thread may have the socket open for a moment.
            while !is_left(&path) {
                thread::yield_now();
            }
            let (one, other) = thread::scope(|scope| {
                let one = scope.spawn(take);
                (take(), one.join().unwrap())
            });
            let (winner, loser) = if one.is_ok() { (one, other) } else { (other, one) };
            let (listener, name) = winner.unwrap();
            let error = loser.map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "round {round}");
            let _client = UnixStream::connect(&path).unwrap();
            listener.accept().unwrap();
            name.remove();
            assert!(!path.exists(), "round {round}");
        }
    }

    #[test]
    fn a_listener_with_a_full_queue_is_not_an_old_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut clients = Vec::new();
        while let Ok(client) = socket::connect_now(&path) {
            clients.push(client);
        }
        assert!(!is_left(&path));
    }

    #[test]
    fn only_a_folder_is_opened_for_its_lock() {
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert!(lock(Path::new(&pipe), PATIENCE).is_none());
        let error = listen(&Path::new(&pipe).join("socket")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_folder_that_stays_locked_is_waited_for_briefly() {
        let folder = tempfile::tempdir().unwrap();
        let _lock = lock(folder.path(), PATIENCE).unwrap();
        assert!(lock(folder.path(), BETWEEN).is_none());
    }
}
