//! The file that holds the number of the process while it serves.
//!
//! What is there already may be a file of someone else, named by mistake: an image, a device, a
//! link. It is replaced only if it is an empty regular file, or one with the number of a process
//! that is no more; and removed only as long as it is the one that was made here.

use crate::{ServeError, identity::Identity};
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process,
};

/// It; removed when dropped.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    identity: Identity,
}

/// More bytes than a number of a process has, and a line end.
const NUMBER_BYTES_MAX: u64 = 32;

/// What stands where the file is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// Empty, or with the number of a process that is no more.
    Stale,
    /// With the number of this process.
    Running(u32),
    Strange,
}

/// Says what is at `path`, which is not followed if it is a link.
///
/// # Errors
/// Those of lstat(2) and read(2).
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

/// Tells whether there is a process with this number; where that cannot be told, there is.
fn is_alive(number: u32) -> bool {
    Path::new("/proc").join(number.to_string()).exists() || !Path::new("/proc/self").exists()
}

fn number_text() -> String {
    format!("{}\n", process::id())
}

impl PidFile {
    /// Writes it. A reader that sees the file sees the whole number.
    ///
    /// # Errors
    /// It cannot be written, or what is there is not to be replaced.
    pub(super) fn new(path: &Path) -> Result<PidFile, ServeError> {
        let option = format!("--pid-file {}", path.display());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", process::id()));
        let new = path.with_file_name(name);
        let placed = fs::write(&new, number_text())
            .and_then(|()| Identity::of(&new))
            .and_then(|identity| Ok((identity, place(&new, path)?)));
        // Placed by a link, or not at all.
        let _ = fs::remove_file(&new);
        match placed.map_err(|error| ServeError::io(&option, &error))? {
            (identity, Found::Nothing | Found::Stale) => {
                Ok(PidFile { path: path.to_owned(), identity })
            }
            (_, Found::Running(number)) => {
                Err(ServeError::new(format!("{option}: the process {number} has it")))
            }
            (_, Found::Strange) => {
                let why = "it is there, and holds no number of a process: name another file";
                Err(ServeError::new(format!("{option}: {why}")))
            }
        }
    }
}

/// Gives the file `new` the name `path`, if what is there may go; returns what was there.
///
/// # Errors
/// Those of link(2) and rename(2).
fn place(new: &Path, path: &Path) -> io::Result<Found> {
    loop {
        let found = look(path, is_alive)?;
        match found {
            Found::Stale => fs::rename(new, path)?,
            Found::Nothing => match fs::hard_link(new, path) {
                // Another one was quicker: look again.
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
        // Another file may have got the number of the inode.
        if self.identity.is_at(&self.path)
            && fs::read(&self.path).is_ok_and(|text| text == number_text().as_bytes())
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const DEAD: u32 = 7;

    fn looked(path: &Path) -> Found {
        look(path, |number| number != DEAD).unwrap()
    }

    #[test]
    fn only_a_file_of_a_process_that_is_no_more_may_go() {
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
    fn what_is_not_to_be_replaced_stays_and_what_is_made_here_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let made = PidFile::new(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", process::id()));
        let other = PidFile::new(&path).unwrap_err().to_string();
        assert!(other.ends_with(&format!("the process {} has it", process::id())), "{other}");
        drop(made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Another file has the name by the end.
        let made = PidFile::new(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(made);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        let refused = PidFile::new(&path).unwrap_err().to_string();
        assert!(refused.contains("no number of a process"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
}
