//! Mounts and unmounts the file, and removes what a killed server has left behind.

use super::Front;
use crate::{ServeError, identity::OwnName, say::say};
use fuser::{Config, MountOption, Session, SessionACL};
use nowait::Errno;
use nowait_sys::{eventfd::EventFd, fuse};
use std::{
    ffi::{CString, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt, ffi::OsStringExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

/// A mounted file. Dropping it takes it down.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    lost: Arc<EventFd>,
    /// The file below, if it was made here.
    made: Option<OwnName>,
    mounted: bool,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// The file is not in use.
    Clean,
    /// A program has it open still; requests fail from now on.
    InUse,
}

/// The source of ours in the table of mounts; where the helper has mounted, their kind too, behind
/// `fuse.`.
const NAME: &str = "nowait";
const HELPER: &str = "fusermount3";

impl Mount {
    /// Mounts `front` on `path`, a regular file or nothing. What a killed server has left mounted
    /// there is taken down first, and told on the standard error. With `others` the kernel admits
    /// every user, otherwise this user alone. It asks from now on, by `threads` threads.
    ///
    /// # Errors
    /// Something is mounted there; it is no regular file; this user may not mount; the kernel has
    /// no FUSE, or one too old.
    pub(crate) fn new(
        path: &Path,
        front: Front,
        others: bool,
        threads: usize,
    ) -> Result<Mount, ServeError> {
        let lost = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
        let path = absolute(path)?;
        clear(&path)?;
        probe()?;
        let made = prepare(&path)?;
        let mount = Mount { path, lost, made, mounted: false };
        mount.up(front, others, threads)
    }

    fn up(mut self, front: Front, others: bool, threads: usize) -> Result<Mount, ServeError> {
        let name = || NAME.to_owned();
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(name()),
            MountOption::Subtype(name()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        if front.is_read_only() {
            config.mount_options.push(MountOption::RO);
        }
        config.acl = if others { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1;
        let shown = self.path.display();
        let failed = |error: io::Error| ServeError::new(format!("cannot mount {shown}: {error}"));
        let session = Session::new(front, &self.path, &config).map_err(failed)?;
        let lost = self.lost.clone();
        let named = thread::Builder::new().name("nowait-fuse".to_owned());
        let run = move || {
            // Ends with the mount.
            let _ = session.run();
            lost.signal();
        };
        named.spawn(run).map_err(|error| ServeError::io("start of a thread", &error))?;
        self.mounted = true;
        Ok(self)
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

    /// Takes it down. No new user comes then.
    pub fn unmount(&mut self) -> UnmountOutcome {
        if !core::mem::take(&mut self.mounted) {
            self.remove();
            return UnmountOutcome::Clean;
        }
        let outcome = if unmount(&self.path, false).is_ok() {
            UnmountOutcome::Clean
        } else {
            // Lazily always works, unless another program has been faster.
            let _ = unmount(&self.path, true);
            UnmountOutcome::InUse
        };
        self.remove();
        outcome
    }

    fn remove(&mut self) {
        if let Some(made) = self.made.take() {
            made.remove();
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
    let mounted = mounted_on(path);
    let Some((kind, source)) = mounted.last() else { return Ok(()) };
    let error = fs::metadata(path).err().and_then(|error| error.raw_os_error()).map(Errno::new);
    let shown = path.display();
    let ours = kind.starts_with("fuse") && source == NAME;
    if !ours || error != Some(Errno::NOTCONN) {
        return Err(ServeError::new(format!(
            "{shown}: something is mounted there ({kind}); take it down with: umount {shown}"
        )));
    }
    unmount(path, true)
        .map_err(|error| ServeError::io(format!("{shown} cannot be cleared"), &error))?;
    say(format_args!("{shown} was left mounted by a server that was killed: taken down"));
    Ok(())
}

/// Returns the kinds and sources of the file systems mounted on `path`, the uppermost last.
/// Source: proc_pid_mountinfo(5).
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

/// Makes the file to mount on, unless there is one; returns what it has made.
fn prepare(path: &Path) -> Result<Option<OwnName>, ServeError> {
    let failed = |error: io::Error| ServeError::io(path.display(), &error);
    match fs::metadata(path) {
        Ok(about) if about.is_file() => Ok(None),
        Ok(_) => Err(ServeError::new(format!(
            "{}: --fuse needs a regular file, or a name that is free",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.and_then(|_| OwnName::new(path)).map(Some).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Makes sure that the kernel has FUSE.
fn probe() -> Result<(), ServeError> {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match opened.map_err(|error| error.raw_os_error().map(Errno::new)) {
        Err(Some(errno @ (Errno::NOENT | Errno::NODEV | Errno::NXIO))) => {
            Err(ServeError::new(format!("the kernel has no FUSE here (/dev/fuse: {errno})")))
        }
        // What the helper may, this user need not.
        _ => Ok(()),
    }
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
        let mounted = |path: &str| kind_and_source(line, Path::new(path));
        let expected = ("fuse.nowait".to_owned(), NAME.to_owned());
        assert_eq!(mounted("/mnt/with space"), Some(expected));
        assert_eq!(mounted("/mnt/with"), None);
        assert_eq!(kind_and_source(b"", Path::new("/")), None);
        assert_eq!(unescaped(br"a\\b\134c\0"), OsString::from(r"a\\b\c\0"));
        assert_eq!(mounted_on(Path::new("/proc"))[0].0, "proc");
    }

    #[test]
    fn only_regular_files_and_free_names_are_mounted_on() {
        let folder = tempfile::tempdir().unwrap();
        assert!(prepare(folder.path()).is_err());
        let free = folder.path().join("free");
        assert!(prepare(&free).unwrap().is_some() && free.is_file());
        assert!(prepare(&free).unwrap().is_none());
        assert_eq!(absolute(&folder.path().join("new")).unwrap().file_name().unwrap(), "new");
        assert!(absolute(Path::new("/nonexistent/folder/file")).is_err());
    }
}
