//! Devices that hang or are full, and files on other devices beside them.

use crate::copy::User;
use crate::primitives::{Arc, AtomicU32, SeqCst};
use crate::{Backing, Cache, CachedFile, FRAME_BYTES, SyncLevel, SyncOperation, Target};
use crate::{Change, WriteOperation};
use nowait_block::{Bio, Segments};
use nowait_retry::{Step, WaitEntry};
use nowait_sys::{Errno, file::IoVec};
use std::task::{Wake, Waker};

const FRAMES: u32 = 8192;

struct Kicks(AtomicU32);

impl Wake for Kicks {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Well,
    Full,
    Hangs,
}

struct Rig {
    cache: Arc<Cache>,
    devices: Vec<Device>,
    files: Vec<Arc<CachedFile>>,
    hanging: Vec<Bio>,
    kicks: Arc<Kicks>,
}

impl Rig {
    fn new(devices: &[Device]) -> Rig {
        let cache = Cache::with_frames(FRAMES);
        let (files, kicks) = (Vec::new(), Arc::new(Kicks(AtomicU32::new(0))));
        let devices = devices.to_vec();
        let mut rig = Rig { cache, devices, files, hanging: Vec::new(), kicks };
        (0..rig.devices.len()).for_each(|device| rig.open(device));
        rig
    }

    fn open(&mut self, device: usize) {
        let target = Target { fd: device as i32, file: None };
        let backing = Backing { device: device as u64, ..Backing::of(&target) };
        self.files.push(CachedFile::new(&self.cache, backing, 0));
    }

    /// Returns `None` if the operation waits and no entry was kicked, because a device hangs.
    fn run(
        &mut self,
        mut iterate: impl FnMut(&mut Vec<Bio>, &dyn Fn() -> WaitEntry) -> Step,
    ) -> Option<Result<u32, Errno>> {
        loop {
            let (mut plug, kicks) = (Vec::new(), self.kicks.clone());
            let before = self.kicks.0.load(SeqCst);
            let step = iterate(&mut plug, &|| Waker::from(kicks.clone()));
            while let Some(bio) = plug.pop() {
                let result = match self.devices[bio.fd as usize] {
                    Device::Well => Ok(bio.segments.len() as u32),
                    Device::Full => Err(Errno::NOSPC),
                    Device::Hangs => {
                        self.hanging.push(bio);
                        continue;
                    }
                };
                self.cache.complete(bio.token, result, &mut plug);
            }
            match step {
                Step::Done(result) => return Some(result),
                _ if self.kicks.0.load(SeqCst) == before => return None,
                _ => {}
            }
        }
    }

    fn write(&mut self, file: usize, pages: usize) -> Option<Result<u32, Errno>> {
        let mut bytes = vec![7u8; pages * FRAME_BYTES];
        let segment = IoVec { base: bytes.as_mut_ptr(), len: bytes.len() };
        // SAFETY: the bytes live longer than the operation.
        let user = unsafe { User::new(Segments::One(segment)) };
        let mut write = WriteOperation::new(self.files[file].clone(), 0, user, None);
        self.run(|plug, wait| write.iterate(plug, wait))
    }

    fn sync(&mut self, file: usize) -> Option<Result<u32, Errno>> {
        let mut sync = SyncOperation::whole(self.files[file].clone(), SyncLevel::Data);
        self.run(|plug, wait| sync.iterate(plug, wait))
    }
}

impl Drop for Rig {
    /// The hanging bios would otherwise keep references to their files.
    fn drop(&mut self) {
        let mut plug = Vec::new();
        for bio in self.hanging.drain(..) {
            self.cache.complete(bio.token, Err(Errno::IO), &mut plug);
        }
    }
}

const ALL: u32 = 4 * FRAMES * FRAME_BYTES as u32;

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_device_that_hangs_or_is_full_stops_no_file_of_another() {
    for sick in [Device::Hangs, Device::Full] {
        let mut rig = Rig::new(&[sick, Device::Well]);
        let first = rig.write(0, 2 * FRAMES as usize);
        let is_stopped = first.is_none_or(|result| result.is_ok_and(|bytes| bytes < ALL));
        assert!(is_stopped, "{first:?}");
        assert_eq!(rig.write(1, 4 * FRAMES as usize), Some(Ok(ALL)));
        assert_eq!(rig.sync(1), Some(Ok(0)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn many_files_of_a_full_device_leave_a_part_of_the_pool_to_others() {
    let mut rig = Rig::new(&[Device::Full, Device::Well]);
    for file in 0..20 {
        if file > 1 {
            rig.open(0);
        }
        if file != 1 {
            let _ = rig.write(file, 2 * FRAMES as usize);
        }
    }
    // Failed folios take at most three quarters of the pool, other dirty ones half of the rest. A
    // folio may exceed each limit in part.
    let most = u64::from(FRAMES) / 8 * 7 + (2 << crate::ORDER_MAX);
    assert!(rig.cache.dirty_frames() <= most, "{}", rig.cache.dirty_frames());
    assert_eq!(rig.write(1, 4 * FRAMES as usize), Some(Ok(ALL)));
    assert_eq!(rig.sync(1), Some(Ok(0)));
    for file in (0..20).filter(|file| *file != 1) {
        assert_eq!(
            rig.sync(file),
            Some(Err(Errno::NOSPC)),
            "file {file}: kept or lost, it is told"
        );
    }
    rig.devices[0] = Device::Well;
    // Some syncs still fail, because the cache has dropped data of these files.
    let told = (0..20).filter(|file| rig.sync(*file) == Some(Err(Errno::NOSPC))).count();
    assert!((1..19).contains(&told), "{told}");
    assert_eq!(rig.cache.dirty_frames(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn several_devices_that_hang_leave_room_to_write() {
    let mut devices = vec![Device::Hangs; 6];
    devices.push(Device::Well);
    let mut rig = Rig::new(&devices);
    for file in 0..6 {
        assert_eq!(rig.write(file, 2 * FRAMES as usize), None, "it waits");
    }
    assert_eq!(rig.write(6, 4 * FRAMES as usize), Some(Ok(ALL)));
    assert_eq!(rig.sync(6), Some(Ok(0)));
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_writer_is_kicked_when_what_had_failed_is_taken_out() {
    let mut rig = Rig::new(&[Device::Full, Device::Hangs]);
    assert!(rig.write(0, 2 * FRAMES as usize).is_some_and(|result| result.is_ok()));
    assert_eq!(rig.write(1, 2 * FRAMES as usize), None);
    let before = rig.kicks.0.load(SeqCst);
    let mut cut = Change::cut(&rig.files[0], 0);
    assert_eq!(rig.run(|plug, wait| cut.iterate(plug, wait)), Some(Ok(0)));
    cut.finish(0);
    assert!(rig.kicks.0.load(SeqCst) > before, "less is dirty now");
}
