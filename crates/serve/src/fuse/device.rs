//! The device by which the kernel asks, and the requests that one serving thread has of it.

use super::{
    face::Face,
    landing::Landing,
    session::{Kernel, Session},
};
use nowait::{Errno, File};
use nowait_export::{Disk, Ended, Medium};
use nowait_sys::{
    epoll_set::{self, Epoll},
    eventfd::EventFd,
    fuse,
};
use std::{
    fs,
    io::{IoSlice, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

/// A descriptor of the device, mounted.
#[derive(Debug)]
pub struct Device {
    file: fs::File,
    /// Signalled when the mount has ended: nothing comes any more.
    lost: Arc<EventFd>,
}

impl Device {
    /// Is a descriptor that does not wait; whoever reads from it signals `lost` at the end.
    pub(crate) fn new(fd: OwnedFd, lost: Arc<EventFd>) -> Device {
        Device { file: fd.into(), lost }
    }

    /// Opens another one of the same mount, for another thread.
    ///
    /// # Errors
    /// Those of [`fuse::clone_device`].
    pub fn another(&self) -> Result<Device, Errno> {
        let fd = fuse::clone_device(self.file.as_fd())?;
        Ok(Device::new(fd, self.lost.clone()))
    }
}

impl Kernel for Device {
    fn answer(&mut self, parts: &[IoSlice<'_>]) {
        // All or nothing. It fails if nobody waits for the answer any more: he was killed, or the
        // mount is gone.
        let _ = self.file.write_vectored(parts);
    }
}

/// The requests of one thread to one file.
#[derive(Debug)]
pub(crate) struct Served {
    device: Device,
    session: Session<File>,
    /// None: the mount is gone, or the thread stops.
    landing: Option<Landing>,
    token: u64,
    /// In the set of the thread.
    watched: bool,
}

/// Requests read in a row before others get their turn.
const READS_MAX: usize = 64;

impl Served {
    pub(crate) fn new(device: Device, face: Arc<Face<File>>, token: u64, disk: &mut Disk) -> Self {
        let landing = Some(Landing::new(disk.pool()));
        Served { device, session: Session::new(token, face), landing, token, watched: false }
    }

    /// Takes the requests that wait.
    pub(crate) fn read(&mut self, disk: &mut Disk, now_ns: u64) {
        for _ in 0..READS_MAX {
            let Some(landing) = &mut self.landing else { return };
            if !self.session.has_appetite(disk) {
                return;
            }
            let read = self.device.file.read_vectored(&mut landing.slices());
            match read.map_err(|error| error.raw_os_error().map(Errno::new)) {
                Ok(len) => self.session.request(landing, len, disk, &mut self.device, now_ns),
                Err(Some(Errno::AGAIN)) => return,
                // Who asked was killed meanwhile.
                Err(Some(Errno::INTR | Errno::NOENT)) => {}
                Err(_) => {
                    self.device.lost.signal();
                    return self.stop(disk);
                }
            }
        }
    }

    /// Takes the end of one of its requests.
    pub(crate) fn end(&mut self, ended: Ended, disk: &mut Disk, now_ns: u64) {
        self.session.end(ended, disk, &mut self.device, now_ns);
    }

    /// Waits for requests if there is room for one.
    pub(crate) fn settle(&mut self, disk: &mut Disk, epoll: &Epoll) {
        let wanted = self.landing.is_some() && self.session.has_appetite(disk);
        if wanted == self.watched {
            return;
        }
        let fd = self.device.file.as_raw_fd();
        // One of the threads is told of a request, not all.
        let done = match wanted {
            true => epoll.add(fd, epoll_set::IN | fuse::EXCLUSIVE, self.token),
            false => epoll.remove(fd),
        };
        if done.is_ok() {
            self.watched = wanted;
        }
    }

    /// Takes no more requests.
    pub(crate) fn stop(&mut self, disk: &mut Disk) {
        if let Some(landing) = self.landing.take() {
            landing.give_back(disk.pool());
        }
    }

    /// Tells whether it takes requests, or owes answers.
    pub(crate) fn is_busy(&self) -> bool {
        self.landing.is_some() || self.session.in_flight() > 0
    }
}
