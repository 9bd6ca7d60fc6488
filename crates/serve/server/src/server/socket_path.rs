//! The path of a Unix socket: one server at a time takes it, in the place of one that was left.

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

/// How long the path of a Unix socket may be: unix(7), `sun_path` and its last zero.
pub(super) const PATH_BYTES_MAX: usize = 107;
/// How long to wait for another server that takes a path in the same folder. It needs much less:
/// a lock that stays longer is not a server's.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(1);

/// Listens at `path`. A socket without a listener is replaced.
///
/// # Errors
/// `InvalidInput`: the path is too long. `AddrInUse`: another server listens there, or a file is
/// there that is no socket. Those of bind(2).
pub(super) fn listen(path: &Path) -> io::Result<(UnixListener, OwnName)> {
    if path.as_os_str().len() > PATH_BYTES_MAX {
        let why = format!("the path of a socket has {PATH_BYTES_MAX} bytes at most");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // Of two servers that find the same one left, the second would remove the first one's socket:
    // until that listens, it looks like one that was left.
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

/// Locks the folder against other servers; `None`: it cannot be locked, or stays locked.
fn lock(folder: &Path, patience: Duration) -> Option<File> {
    // Another file might wait, or do something, when it is opened: a pipe, a device.
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

/// Returns `true` if `path` is a socket without a listener.
fn is_left(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    // A listener without room for one more client must not be waited for.
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
    fn of_two_servers_that_find_a_socket_left_one_takes_its_place() {
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
            // A thread of an engine of another test may have it open for a moment: it begins with a
            // copy of all descriptors.
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
    fn a_listener_without_room_is_not_one_that_was_left() {
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
    fn what_is_no_folder_is_not_opened() {
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert!(lock(Path::new(&pipe), PATIENCE).is_none());
        let error = listen(&Path::new(&pipe).join("socket")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_folder_that_another_program_keeps_locked_is_not_waited_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let _lock = lock(folder.path(), PATIENCE).unwrap();
        assert!(lock(folder.path(), BETWEEN).is_none());
    }
}
