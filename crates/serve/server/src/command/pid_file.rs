//! The file that holds the process number of the server while it serves.
//!
//! The option may name a file of another owner by mistake: an image, a device, a link. The server
//! replaces an existing file only if it is an empty regular file, or contains the number of a
//! process that has ended. The server removes the file only if it is still the file that the server
//! made.

use crate::{ServeError, identity::OwnName};
use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    process,
};

/// Dropping this value removes the file, if it is still the file that this process has made.
#[derive(Debug)]
pub(super) struct PidFile(OwnName);

const NUMBER_BYTES_MAX: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// An empty file, or a file with the number of a process that has ended.
    Stale,
    Running(u32),
    Strange,
}

/// Examines the file at `path`, without following a link.
fn look(path: &Path, is_alive: impl Fn(u32) -> bool) -> io::Result<Found> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        metadata => metadata?,
    };
    if !metadata.is_file() || metadata.len() > NUMBER_BYTES_MAX {
        return Ok(Found::Strange);
    }
    let text = fs::read(path)?;
    let text = std::str::from_utf8(&text).unwrap_or("?").trim();
    Ok(match text.parse() {
        _ if text.is_empty() => Found::Stale,
        Ok(number) if is_alive(number) => Found::Running(number),
        Ok(_) => Found::Stale,
        Err(_) => Found::Strange,
    })
}

/// Returns `true` if another process has this number, or if that cannot be determined. In a
/// restarted container this process has the number of its killed predecessor.
fn is_alive(number: u32) -> bool {
    let exists = |name: &str| Path::new("/proc").join(name).exists();
    number != process::id() && (exists(&number.to_string()) || !exists("self"))
}

fn number_text() -> String {
    format!("{}\n", process::id())
}

impl PidFile {
    /// Writes a file under another name, and then gives this file the name `path`. So a reader that
    /// finds the file reads the whole number.
    pub(super) fn new(path: &Path) -> Result<PidFile, ServeError> {
        let option = format!("--pid-file {}", path.display());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", process::id()));
        let new = path.with_file_name(name);
        let placed = fs::write(&new, number_text()).and_then(|()| place(&new, path));
        // After hard_link(2) the file also has the name `path`; after an error nothing uses the
        // file. After rename(2) this removal has no effect.
        let _ = fs::remove_file(&new);
        let failed = |error| ServeError::io(&option, &error);
        match placed.map_err(failed)? {
            Found::Nothing | Found::Stale => OwnName::new(path).map(PidFile).map_err(failed),
            Found::Running(number) => {
                Err(ServeError::new(format!("{option}: process {number} uses this file")))
            }
            Found::Strange => {
                let why = "the file exists and holds no process number: name another file";
                Err(ServeError::new(format!("{option}: {why}")))
            }
        }
    }
}

fn place(new: &Path, path: &Path) -> io::Result<Found> {
    loop {
        let found = look(path, is_alive)?;
        match found {
            Found::Stale => fs::rename(new, path)?,
            Found::Nothing => match fs::hard_link(new, path) {
                // Another process has just made a file at `path`: look again.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                linked => linked?,
            },
            Found::Running(_) | Found::Strange => {}
        }
        return Ok(found);
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Compare the contents, too, because another file may have got the same inode number.
        if fs::read(self.0.path()).is_ok_and(|text| text == number_text().as_bytes()) {
            self.0.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::{fs::symlink, process::parent_id};

    const DEAD: u32 = 7;

    fn looked(path: &Path) -> Found {
        look(path, |number| number != DEAD).unwrap()
    }

    #[test]
    fn only_the_file_of_a_dead_process_may_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        assert_eq!(looked(&path), Found::Nothing);
        let table: &[(&[u8], Found)] = &[
            (b"", Found::Stale),
            (b"7\n", Found::Stale),
            (b"8\n", Found::Running(8)),
            (b"8", Found::Running(8)),
            (b"left behind\n", Found::Strange),
            (b"-7\n", Found::Strange),
            (b"\xff\xfe", Found::Strange),
            (&[b'7'; 100], Found::Strange),
        ];
        for (content, expected) in table {
            fs::write(&path, content).unwrap();
            assert_eq!(looked(&path), *expected, "{content:?}");
        }
        assert_eq!(looked(Path::new("/dev/null")), Found::Strange);
        assert_eq!(looked(folder.path()), Found::Strange);
        fs::write(&path, "7\n").unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(looked(&link), Found::Strange, "not what it leads to");
    }

    #[test]
    fn a_strange_file_stays_and_an_own_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        fs::write(&path, format!("{}\n", parent_id())).unwrap();
        let other = PidFile::new(&path).unwrap_err().to_string();
        assert!(other.ends_with(&format!("process {} uses this file", parent_id())), "{other}");
        // A killed predecessor had the number that this process has now.
        fs::write(&path, number_text()).unwrap();
        let made = PidFile::new(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", process::id()));
        drop(made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let made = PidFile::new(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(made);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        let refused = PidFile::new(&path).unwrap_err().to_string();
        assert!(refused.contains("no process number"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
}
