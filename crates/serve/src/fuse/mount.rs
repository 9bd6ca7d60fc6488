//! The file appears, and disappears again; what a server that was killed has left behind.

use super::Device;
use crate::ServeError;
use nowait::Errno;
use nowait_sys::{eventfd::EventFd, fuse};
use std::{
    ffi::{CString, OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, ffi::OsStringExt, fs::OpenOptionsExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

/// A mounted file. Dropping it takes it down.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    lost: Arc<EventFd>,
    /// The file below was not there before.
    made: bool,
    mounted: bool,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody uses the file.
    Clean,
    /// Somebody has it open still; requests fail from now on.
    InUse,
}

/// The kernel's name for file systems of ours.
const KIND: &str = "fuse.nowait";
const HELPER: &str = "fusermount3";

impl Mount {
    /// Mounts on `path`, a regular file or nothing. What a killed server has left mounted there is
    /// taken down first, and told on the standard error. With `others` the kernel lets everybody
    /// come, otherwise this user alone.
    ///
    /// # Errors
    /// Something is mounted there; it is no regular file; this user may not mount.
    pub fn new(
        path: &Path,
        read_only: bool,
        others: bool,
        owner: (u32, u32),
    ) -> Result<(Mount, Device), ServeError> {
        let lost = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
        let path = absolute(path)?;
        clear(&path)?;
        let made = prepare(&path)?;
        match mount(&path, read_only, others, owner) {
            Ok(fd) => {
                let device = Device::new(fd, lost.clone());
                Ok((Mount { path, lost, made, mounted: true }, device))
            }
            Err(error) => {
                if made {
                    let _ = fs::remove_file(&path);
                }
                Err(error)
            }
        }
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptor that is readable when others have taken it down.
    pub fn raw(&self) -> i32 {
        self.lost.raw()
    }

    /// Tells whether it has not been taken down, as far as is known.
    pub fn is_up(&self) -> bool {
        self.mounted
    }

    /// Notes that others have taken it down.
    pub fn forget(&mut self) {
        self.mounted = false;
        self.remove();
    }

    /// Takes it down. Nobody new comes then.
    pub fn unmount(&mut self) -> Unmounted {
        if !core::mem::take(&mut self.mounted) {
            return Unmounted::Clean;
        }
        let outcome = if unmount(&self.path, false).is_ok() {
            Unmounted::Clean
        } else {
            // Lazily always works, unless somebody else has been faster.
            let _ = unmount(&self.path, true);
            Unmounted::InUse
        };
        self.remove();
        outcome
    }

    fn remove(&mut self) {
        if core::mem::take(&mut self.made) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Returns the path without links, also where the file itself cannot be looked at.
fn absolute(path: &Path) -> Result<PathBuf, ServeError> {
    let failed = |error: io::Error| ServeError::io(path.display(), &error);
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let name = path.file_name().ok_or_else(|| ServeError::new("--fuse needs a file"))?;
    let folder = match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => fs::canonicalize(folder),
        None => fs::canonicalize("."),
    };
    folder.map(|folder| folder.join(name)).map_err(failed)
}

/// Takes down what a server that is no more has left on `path`.
fn clear(path: &Path) -> Result<(), ServeError> {
    let mounted = mounted_kinds(path);
    let Some(kind) = mounted.last() else { return Ok(()) };
    let error = fs::metadata(path).err().and_then(|error| error.raw_os_error()).map(Errno::new);
    let shown = path.display();
    if kind != KIND || error != Some(Errno::NOTCONN) {
        return Err(ServeError::new(format!(
            "{shown}: something is mounted there ({kind}); take it down with: umount {shown}"
        )));
    }
    unmount(path, true)
        .map_err(|error| ServeError::io(format!("{shown} cannot be cleared"), &error))?;
    eprintln!("nowait: {shown} was left mounted by a server that was killed: taken down");
    Ok(())
}

/// Returns the kinds of file systems mounted on `path`, the uppermost last.
/// Source: proc_pid_mountinfo(5).
fn mounted_kinds(path: &Path) -> Vec<String> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| mounted_kind(line, path)).collect()
}

fn mounted_kind(line: &[u8], path: &Path) -> Option<String> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = unescaped(fields.nth(4)?);
    if point != path.as_os_str() {
        return None;
    }
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(String::from_utf8_lossy(kind).into_owned())
}

/// Turns `\040` into a space, and so on.
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

/// Makes the file to mount on, unless there is one; tells whether it did.
fn prepare(path: &Path) -> Result<bool, ServeError> {
    let failed = |error: io::Error| ServeError::io(path.display(), &error);
    match fs::metadata(path) {
        Ok(about) if about.is_file() => Ok(false),
        Ok(_) => Err(ServeError::new(format!(
            "{}: --fuse needs a regular file, or a name that is free",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map(|_| true).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Mounts, by the system call or, without the right to it, by fusermount3(1).
fn mount(
    path: &Path,
    read_only: bool,
    others: bool,
    owner: (u32, u32),
) -> Result<OwnedFd, ServeError> {
    let shown = path.display();
    let failed = |errno: Errno| ServeError::new(format!("cannot mount {shown}: {errno}"));
    let point = c_string(path.as_os_str())?;
    let direct = fuse::open_device().and_then(|device| {
        let options = format!(
            "fd={},rootmode={:o},user_id={},group_id={},default_permissions{}",
            device.as_raw_fd(),
            fuse::REGULAR,
            owner.0,
            owner.1,
            if others { ",allow_other" } else { "" }
        );
        let options = CString::new(options).unwrap_or_default();
        fuse::mount(&point, &options, read_only).map(|()| device)
    });
    match direct {
        Err(Errno::PERM) => by_helper(path, read_only, others),
        Err(errno @ (Errno::NOENT | Errno::NODEV | Errno::NXIO)) => {
            Err(ServeError::new(format!("the kernel has no FUSE here (/dev/fuse: {errno})")))
        }
        outcome => outcome.map_err(failed),
    }
}

fn c_string(text: &OsStr) -> Result<CString, ServeError> {
    CString::new(text.as_bytes()).map_err(|_| ServeError::new("a path has no zero byte in it"))
}

/// Has fusermount3(1) mount, which may: it is installed with the rights for it.
fn by_helper(path: &Path, read_only: bool, others: bool) -> Result<OwnedFd, ServeError> {
    let shown = path.display();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ServeError::new(format!(
            "cannot mount {shown}: it needs root, or {HELPER} (the package fuse3)"
        )),
        _ => ServeError::io(HELPER, &error),
    };
    let (near, far) = UnixStream::pair().map_err(failed)?;
    let mut options = "default_permissions,nosuid,nodev,fsname=nowait,subtype=nowait".to_owned();
    options.push_str(if read_only { ",ro" } else { "" });
    options.push_str(if others { ",allow_other" } else { "" });
    // The device comes back by its standard input.
    let helper = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(far)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let received = fuse::receive_device(near.as_fd());
    let output = helper.wait_with_output().map_err(failed)?;
    received.map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        ServeError::new(format!("cannot mount {shown}: {}", said.trim()))
    })
}

fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
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
    fn the_table_of_mounts_tells_what_is_on_a_path() {
        let line = br"36 35 0:9 / /mnt/with\040space rw master:1 shared:2 - fuse.nowait nowait rw";
        let kind = |path: &str| mounted_kind(line, Path::new(path));
        assert_eq!(kind("/mnt/with space").as_deref(), Some(KIND));
        assert_eq!(kind("/mnt/with"), None);
        assert_eq!(mounted_kind(b"", Path::new("/")), None);
        assert_eq!(unescaped(br"a\\b\134c\0"), OsString::from(r"a\\b\c\0"));
        assert!(!mounted_kinds(Path::new("/proc")).is_empty());
    }

    #[test]
    fn only_regular_files_and_free_names_are_mounted_on() {
        let folder = tempfile::tempdir().unwrap();
        assert!(prepare(folder.path()).is_err());
        let free = folder.path().join("free");
        assert!(prepare(&free).unwrap() && free.is_file());
        assert!(!prepare(&free).unwrap());
        assert_eq!(absolute(&folder.path().join("new")).unwrap().file_name().unwrap(), "new");
        assert!(absolute(Path::new("/nonexistent/folder/file")).is_err());
    }
}
