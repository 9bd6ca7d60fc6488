//! The setting of an experiment: the files of a device, a page cache, and requests of one size.

use crate::{
    costs,
    old_readahead::OldReadahead,
    world::{self, Thread, World},
};
use nowait_block::Segments;
use nowait_cache::{
    Backing, Cache, CachedFile, OpenFile, ReadOperation, SyncLevel, SyncOperation, Target,
    WriteOperation, copy::User,
};
use nowait_sim::Hardware;
use nowait_sys::file::IoVec;
use std::{cell::RefCell, rc::Rc, sync::Arc};

/// The kernel's longest readahead window, in pages: 128 KiB.
const READAHEAD_PAGES: u32 = 32;

#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) world: World,
    file: Arc<CachedFile>,
    open: Arc<OpenFile>,
    /// The readahead of [`read_as_before`](Stage::read_as_before).
    before: Rc<RefCell<OldReadahead>>,
    memory: Rc<[u64]>,
}

const PAGE_BYTES: u64 = 4096;

pub(crate) fn fd(index: usize) -> i32 {
    100 + index as i32
}

pub(crate) fn world(
    hardware: &Hardware,
    processors: usize,
    files: usize,
    bytes: u64,
    seed: u64,
) -> World {
    let world = World::new(hardware, processors, seed);
    (0..files).for_each(|index| world.device().create(fd(index), bytes));
    world
}

impl Stage {
    pub(crate) fn new(
        world: &World,
        cache: &Arc<Cache>,
        index: usize,
        bytes: u64,
        request_bytes: u64,
    ) -> Stage {
        let backing = Backing::of(&Target { fd: fd(index), file: None });
        world.set_cache(cache);
        Stage {
            world: world.clone(),
            file: CachedFile::new(cache, backing, bytes),
            open: Arc::new(OpenFile::new(READAHEAD_PAGES)),
            before: Rc::new(RefCell::new(OldReadahead::new(READAHEAD_PAGES))),
            memory: vec![0; request_bytes as usize / 8].into(),
        }
    }

    fn user(&self, bytes: u64) -> User {
        let base = self.memory.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: operations live in tasks that hold a clone of the stage, and so its memory. All
        // run in one thread, no code reads the bytes, and no reference to them exists.
        unsafe { User::new(Segments::One(IoVec { base, len: bytes as usize })) }
    }

    pub(crate) async fn read(&self, thread: &Thread, offset: u64, bytes: u64, waits: bool) {
        let read = ReadOperation::new(self.file.clone(), offset, self.user(bytes));
        let mut read = read.with_readahead(self.open.clone(), !waits);
        let drive =
            self.world.drive(thread, retry_ns(waits), |plug, wait| read.iterate(plug, wait));
        assert_eq!(drive.await, Ok(bytes as u32));
        self.world.cpu(thread, costs::cached_ns(bytes)).await;
    }

    /// Uses the readahead that the kernel had before the patches of M1.
    pub(crate) async fn read_as_before(&self, thread: &Thread, offset: u64, bytes: u64) {
        for at in (offset..offset + bytes).step_by(PAGE_BYTES as usize) {
            self.read_ahead_as_before(thread, at / PAGE_BYTES).await;
            let mut read = ReadOperation::new(self.file.clone(), at, self.user(PAGE_BYTES));
            let drive =
                self.world.drive(thread, retry_ns(true), |plug, wait| read.iterate(plug, wait));
            assert_eq!(drive.await, Ok(PAGE_BYTES as u32));
            self.world.cpu(thread, costs::cached_ns(PAGE_BYTES)).await;
        }
    }

    async fn read_ahead_as_before(&self, thread: &Thread, page: u64) {
        let range = self.before.borrow_mut().access(page);
        let mut plug = Vec::new();
        if let Some(pages) = range {
            let bytes = pages.start * PAGE_BYTES..pages.end * PAGE_BYTES;
            self.open.will_need(&self.file, bytes, &mut plug);
            self.before.borrow_mut().started(!plug.is_empty());
        }
        if self.file.mapping().look_up(page).is_none() {
            self.before.borrow_mut().miss();
        }
        let issue_ns = plug.iter().map(world::bio_ns).sum();
        self.world.plug(plug);
        self.world.cpu(thread, issue_ns).await;
    }

    /// Writes `bytes` bytes at `offset`. With `sync`, ends when the data is on the device, whose
    /// write cache is off. With `waits`, the caller waits inside the call.
    pub(crate) async fn write(
        &self,
        thread: &Thread,
        offset: u64,
        bytes: u64,
        sync: bool,
        waits: bool,
    ) {
        self.world.cpu(thread, costs::cached_ns(bytes)).await;
        let durable = sync.then_some(SyncLevel::WriteOnly);
        let mut write = WriteOperation::new(self.file.clone(), offset, self.user(bytes), durable);
        let drive =
            self.world.drive(thread, retry_ns(waits), |plug, wait| write.iterate(plug, wait));
        assert_eq!(drive.await, Ok(bytes as u32));
    }

    pub(crate) async fn sync(&self, thread: &Thread) {
        let mut sync = SyncOperation::whole(self.file.clone(), SyncLevel::WriteOnly);
        let drive = self.world.drive(thread, retry_ns(true), |plug, wait| sync.iterate(plug, wait));
        assert_eq!(drive.await, Ok(0));
    }
}

/// A caller that waits inside the call sleeps and is woken.
fn retry_ns(waits: bool) -> u64 {
    if waits { costs::SWITCH_NS } else { costs::HAND_OVER_NS }
}
