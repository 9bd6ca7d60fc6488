//! The status socket of this process, which `nowait top` finds by its folder.

use crate::server::{Address, Listener};
use nowait_status::place::own_folder;
use nowait_terminal::say;
use std::{io, path::PathBuf, process};

/// Listens on the socket that `nowait top` finds; `None`: `nowait top` will not see this server.
/// Reports the reason on standard error, unless the folder for the socket is missing or not
/// writable for this user.
pub(crate) fn listen() -> Option<Listener> {
    listen_at(own_socket()).map_err(|reason| reason.iter().for_each(say)).ok()
}

fn listen_at(path: io::Result<PathBuf>) -> Result<Listener, Option<String>> {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    let bind = |path: PathBuf| {
        let address = Address::Unix(path);
        Listener::bind(&address).map_err(|error| (error.kind(), format!("{address}: {error}")))
    };
    let path = path.map_err(|error| (error.kind(), error.to_string()));
    path.and_then(bind).map_err(|(kind, reason)| {
        let is_expected = matches!(kind, NotFound | PermissionDenied | ReadOnlyFilesystem);
        let advice = "set XDG_RUNTIME_DIR to another folder";
        let line = format!("`nowait top` does not see this server: {reason}; {advice}");
        (!is_expected).then_some(line)
    })
}

fn own_socket() -> io::Result<PathBuf> {
    Ok(own_folder()?.join(format!("serve-{}.sock", process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_too_long_a_name_is_reported_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s".repeat(200));
        let said = listen_at(Ok(path)).unwrap_err().unwrap();
        let end = "must have at most 107 bytes; set XDG_RUNTIME_DIR to another folder";
        assert!(said.ends_with(end), "{said}");
        assert_eq!(listen_at(Ok(folder.path().join("no/such"))).unwrap_err(), None);
        assert_eq!(listen_at(Err(io::ErrorKind::PermissionDenied.into())).unwrap_err(), None);
        drop(listen_at(Ok(folder.path().join("short"))).unwrap());
    }
}
