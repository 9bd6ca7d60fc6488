//! Mounts and unmounts the file.

use super::{
    Front,
    mount_point::{MountPoint, NAME, unmount},
};
use crate::ServeError;
use fuser::{Config, MountOption, Session, SessionACL};
use nowait::Errno;
use nowait_sys::eventfd::EventFd;
use std::{fs, io, path::Path, sync::Arc, thread};

/// A mounted file. Dropping this value unmounts the file.
#[derive(Debug)]
pub struct Mount {
    point: MountPoint,
    lost: Arc<EventFd>,
    mounted: bool,
}

/// The result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// No program had the file open, or the file was not mounted any more.
    Clean,
    /// The unmount failed, normally because a program has the file open. The program's requests
    /// fail after the serving threads have ended.
    InUse,
}

impl Mount {
    /// Mounts `front` on `point`, and starts `threads` threads that take the kernel's requests.
    /// With `others` the kernel admits every user, otherwise only the user of this process.
    pub(crate) fn new(
        mut point: MountPoint,
        front: Front,
        others: bool,
        threads: usize,
    ) -> Result<Mount, ServeError> {
        let lost = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
        probe()?;
        point.make()?;
        let mount = Mount { point, lost, mounted: false };
        mount.up(front, others, threads)
    }

    fn up(mut self, front: Front, others: bool, threads: usize) -> Result<Mount, ServeError> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(NAME.to_owned()),
            MountOption::Subtype(NAME.to_owned()),
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
        let shown = self.point.path().display();
        let failed = |error: io::Error| ServeError::new(format!("cannot mount {shown}: {error}"));
        let session = Session::new(front, self.point.path(), &config).map_err(failed)?;
        let lost = self.lost.clone();
        let named = thread::Builder::new().name("nowait-fuse".to_owned());
        let run = move || {
            // This call returns when the file is unmounted.
            let _ = session.run();
            lost.signal();
        };
        named.spawn(run).map_err(|error| ServeError::io("cannot start a thread", &error))?;
        self.mounted = true;
        Ok(self)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Returns the descriptor that becomes readable after the file was unmounted, by this program
    /// or another.
    pub fn raw(&self) -> i32 {
        self.lost.raw()
    }

    /// Returns `true` until this program has unmounted the file, or has learned that another
    /// program has unmounted it.
    pub fn is_up(&self) -> bool {
        self.mounted
    }

    /// Forgets the mount after another program has unmounted the file. If the server made the file
    /// below the mount, removes that file.
    pub fn forget(&mut self) {
        self.mounted = false;
        self.point.remove();
    }

    /// Unmounts the file, lazily if a program has it open, so that no program can open it any more.
    /// If the server made the file below the mount, removes that file.
    pub fn unmount(&mut self) -> UnmountOutcome {
        if !core::mem::take(&mut self.mounted) {
            self.point.remove();
            return UnmountOutcome::Clean;
        }
        let outcome = if unmount(self.point.path(), false).is_ok() {
            UnmountOutcome::Clean
        } else {
            // A lazy unmount works for a file in use, too. An error is ignored, because another
            // program may have unmounted the file first.
            let _ = unmount(self.point.path(), true);
            UnmountOutcome::InUse
        };
        self.point.remove();
        outcome
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn probe() -> Result<(), ServeError> {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match opened.map_err(|error| error.raw_os_error().map(Errno::new)) {
        Err(Some(errno @ (Errno::NOENT | Errno::NODEV | Errno::NXIO))) => {
            Err(ServeError::new(format!("the kernel has no FUSE here (/dev/fuse: {errno})")))
        }
        // Other errors are ignored: the mount helper may have the permission that this user lacks.
        _ => Ok(()),
    }
}
