//! The place of a mounted file: the file below the mount, and the mount that a killed server has
//! left.
//!
//! If the server made the file below the mount, the server removes that file after the mount. If
//! the server is killed, the file stays: the next server finds an existing file, and does not
//! remove it.

use crate::{ServeError, identity::OwnName};
use nowait::Errno;
use nowait_sys::fuse;
use nowait_terminal::say;
use std::{
    ffi::{CString, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt, ffi::OsStringExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The place of a file to mount. Dropping this value removes the file below the mount if this
/// server made that file.
#[derive(Debug)]
pub(crate) struct MountPoint {
    path: PathBuf,
    /// The file under the mount, if this server has made it.
    made: Option<OwnName>,
}

/// The name of nowait's mounts in the kernel's table of mounts: their source. If the helper mounts,
/// the name is also a part of the type, `fuse.nowait`.
pub(super) const NAME: &str = "nowait";
const HELPER: &str = "fusermount3";

impl MountPoint {
    /// Unmounts each mount that a killed server has left on `path`, and reports that on standard
    /// error. The caller opens the images afterwards, because an image may be the file below such a
    /// mount.
    pub(crate) fn clear(path: &Path) -> Result<MountPoint, ServeError> {
        let path = absolute(path)?;
        while let Some((kind, source)) = mounted_on(&path).pop() {
            take_down(&path, &kind, &source)?;
        }
        Ok(MountPoint { path, made: None })
    }

    pub(super) fn make(&mut self) -> Result<(), ServeError> {
        if let Some((kind, _)) = mounted_on(&self.path).pop() {
            return Err(is_mounted(&self.path, &kind));
        }
        self.made = prepare(&self.path)?;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn remove(&mut self) {
        if let Some(made) = self.made.take() {
            made.remove();
        }
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the absolute path without symbolic links. If the file itself is missing or not
/// accessible, only its folder is resolved.
fn absolute(path: &Path) -> Result<PathBuf, ServeError> {
    let failed = |error: io::Error| ServeError::io(path.display(), &error);
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let name = path.file_name().ok_or_else(|| no_mount_point(path))?;
    let folder = match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => fs::canonicalize(folder),
        None => fs::canonicalize("."),
    };
    folder.map(|folder| folder.join(name)).map_err(failed)
}

fn no_mount_point(path: &Path) -> ServeError {
    let shown = path.display();
    ServeError::new(format!("{shown}: --fuse needs a regular file, or a name for a new one"))
}

fn is_mounted(path: &Path, kind: &str) -> ServeError {
    let shown = path.display();
    ServeError::new(format!("{shown}: a file system ({kind}) is mounted there: umount {shown}"))
}

/// Unmounts a mount of nowait whose server has ended, and refuses every other mount.
fn take_down(path: &Path, kind: &str, source: &str) -> Result<(), ServeError> {
    let error = fs::metadata(path).err().and_then(|error| error.raw_os_error()).map(Errno::new);
    if !(kind.starts_with("fuse") && source == NAME && error == Some(Errno::NOTCONN)) {
        return Err(is_mounted(path, kind));
    }
    let shown = path.display();
    let failure = format!("cannot unmount {shown}, which a killed server left mounted");
    unmount(path, true).map_err(|error| ServeError::io(failure, &error))?;
    say(format_args!("{shown} was left mounted by a killed server: unmounted"));
    Ok(())
}

/// Returns the types and sources of the file systems mounted on `path`, the uppermost last. Source:
/// proc_pid_mountinfo(5).
fn mounted_on(path: &Path) -> Vec<(String, String)> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| kind_and_source(line, path)).collect()
}

fn kind_and_source(line: &[u8], path: &Path) -> Option<(String, String)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = unescaped(fields.nth(4)?);
    if point != path.as_os_str() {
        return None;
    }
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some((text(behind.next()?), text(behind.next()?)))
}

/// Replaces octal escapes such as `\040`, which stands for a space.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let number = digits
            .and_then(|digits| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(number.unwrap_or(*first));
        rest = if number.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(bytes)
}

fn prepare(path: &Path) -> Result<Option<OwnName>, ServeError> {
    let failed = |error: io::Error| ServeError::io(path.display(), &error);
    match fs::metadata(path) {
        Ok(about) if about.is_file() => Ok(None),
        Ok(_) => Err(no_mount_point(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.and_then(|_| OwnName::new(path)).map(Some).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Unmounts the uppermost mount on `path`. If this user lacks the permission, runs the helper
/// `fusermount3`, and waits for it.
pub(super) fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let point = CString::new(path.as_os_str().as_bytes())?;
    match fuse::unmount(&point, lazily) {
        Err(Errno::PERM) => {
            let mut helper = Command::new(HELPER);
            helper.arg("-u").args(lazily.then_some("-z")).arg("--").arg(path);
            let output = helper.stdin(Stdio::null()).output()?;
            match output.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim())),
            }
        }
        outcome => outcome.map_err(|errno| io::Error::from_raw_os_error(errno.raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_lists_the_mounts_on_a_path() {
        let line = br"36 35 0:9 / /mnt/with\040space rw master:1 shared:2 - fuse.nowait nowait rw";
        let mounted = |path: &str| kind_and_source(line, Path::new(path));
        let expected = ("fuse.nowait".to_owned(), NAME.to_owned());
        assert_eq!(mounted("/mnt/with space"), Some(expected));
        assert_eq!(mounted("/mnt/with"), None);
        assert_eq!(kind_and_source(b"", Path::new("/")), None);
        assert_eq!(unescaped(br"a\\b\134c\0"), OsString::from(r"a\\b\c\0"));
        assert_eq!(mounted_on(Path::new("/proc"))[0].0, "proc");
    }

    #[test]
    fn only_regular_files_and_free_names_are_mount_points() {
        let folder = tempfile::tempdir().unwrap();
        assert!(prepare(folder.path()).is_err());
        let free = folder.path().join("free");
        assert!(prepare(&free).unwrap().is_some() && free.is_file());
        assert!(prepare(&free).unwrap().is_none());
        assert_eq!(absolute(&folder.path().join("new")).unwrap().file_name().unwrap(), "new");
        assert!(absolute(Path::new("/nonexistent/folder/file")).is_err());
    }

    #[test]
    fn only_a_file_that_was_made_for_the_mount_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shown");
        let point = || {
            let mut point = MountPoint::clear(&path).unwrap();
            point.make().unwrap();
            point
        };
        let first = point();
        drop(point());
        assert!(path.exists(), "another server has made it");
        drop(first);
        assert!(!path.exists());
    }
}
