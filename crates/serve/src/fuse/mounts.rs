//! All files that one serving thread answers for.

use super::{Device, Face, device::Served};
use nowait::File;
use nowait_export::{Disk, Ended};
use nowait_sys::epoll_set::Epoll;
use std::sync::Arc;

/// Both the mark of a device in the set of the thread, and the owner of its requests.
const MARK: u64 = 0b11 << 62;

/// Tells whether `token` is one of ours.
pub(crate) fn is_mount(token: u64) -> bool {
    token & MARK == MARK
}

/// The files, by the order in which they came; one that is gone leaves its place empty.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<Option<Served>>);

impl Mounts {
    /// Begins to answer for a file.
    pub(crate) fn add(&mut self, device: Device, face: Arc<Face<File>>, disk: &mut Disk) {
        let token = MARK | self.0.len() as u64;
        self.0.push(Some(Served::new(device, face, token, disk)));
    }

    fn get(&mut self, token: u64) -> Option<&mut Served> {
        self.0.get_mut((token & !MARK) as usize)?.as_mut()
    }

    /// Takes the requests that wait at a device.
    pub(crate) fn read(&mut self, token: u64, disk: &mut Disk, now_ns: u64) {
        if let Some(served) = self.get(token) {
            served.read(disk, now_ns);
        }
    }

    /// Takes the end of a request.
    pub(crate) fn end(&mut self, ended: Ended, disk: &mut Disk, now_ns: u64) {
        if let Some(served) = self.get(ended.tag.owner) {
            served.end(ended, disk, now_ns);
        }
    }

    /// Waits for more where there is room for more, and forgets what is over.
    pub(crate) fn settle(&mut self, disk: &mut Disk, epoll: &Epoll) {
        for place in &mut self.0 {
            if let Some(served) = place {
                served.settle(disk, epoll);
            }
            place.take_if(|served| !served.is_busy());
        }
    }

    /// Takes no more requests.
    pub(crate) fn stop(&mut self, disk: &mut Disk) {
        self.0.iter_mut().flatten().for_each(|served| served.stop(disk));
    }

    /// Tells whether nothing is owed to anybody.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}
