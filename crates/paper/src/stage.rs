//! What an experiment works on: files of a device, a page cache, requests of one size.

use crate::{
    costs,
    world::{Thread, World},
};
use nowait_block::Segments;
use nowait_cache::{
    Backing, Cache, CachedFile, Durable, OpenFile, ReadOperation, SyncOperation, Target,
    WriteOperation, copy::User,
};
use nowait_sim::Hardware;
use nowait_sys::file::IoVec;
use std::{rc::Rc, sync::Arc};

/// The kernel's longest readahead window, in pages: 128 KiB.
const READAHEAD_PAGES: u32 = 32;

/// A file of a device in a page cache, and memory of the application.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) world: World,
    file: Arc<CachedFile>,
    open: Arc<OpenFile>,
    memory: Rc<[u64]>,
}

/// Returns the descriptor of file `index`.
pub(crate) fn fd(index: usize) -> i32 {
    100 + index as i32
}

/// Makes a machine whose device has `files` files of `bytes` each.
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
    /// Puts file `index` of a world, `bytes` long, into a cache; requests have up to
    /// `request_bytes`.
    pub(crate) fn new(
        world: &World,
        cache: &Arc<Cache>,
        index: usize,
        bytes: u64,
        request_bytes: u64,
    ) -> Stage {
        let target = || Target { fd: fd(index), file: None };
        let backing = Backing { direct: target(), tail: target(), block_bytes: 4096 };
        world.set_cache(cache);
        Stage {
            world: world.clone(),
            file: CachedFile::new(cache, backing, bytes),
            open: Arc::new(OpenFile::new(READAHEAD_PAGES)),
            memory: vec![0; request_bytes as usize / 8].into(),
        }
    }

    fn user(&self, bytes: u64) -> User {
        let base = self.memory.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: operations live in tasks that hold a clone of the stage, and so its memory.
        // All run in one thread, nobody looks at the bytes, and no reference to them is made.
        unsafe { User::new(Segments::One(IoVec { base, len: bytes as usize })) }
    }

    /// Reads; `waits`: the caller waits inside.
    pub(crate) async fn read(&self, thread: &Thread, offset: u64, bytes: u64, waits: bool) {
        let read = ReadOperation::new(self.file.clone(), offset, self.user(bytes));
        let mut read = read.with_readahead(self.open.clone(), !waits);
        let drive =
            self.world.drive(thread, retry_ns(waits), |plug, wait| read.iterate(plug, wait));
        assert_eq!(drive.await, Ok(bytes as u32));
        self.world.cpu(thread, costs::cached_ns(bytes)).await;
    }

    /// Writes; `sync`: it ends when that is on the device (its write cache is off).
    pub(crate) async fn write(
        &self,
        thread: &Thread,
        offset: u64,
        bytes: u64,
        sync: bool,
        waits: bool,
    ) {
        self.world.cpu(thread, costs::cached_ns(bytes)).await;
        let durable = sync.then_some(Durable::Written);
        let mut write = WriteOperation::new(self.file.clone(), offset, self.user(bytes), durable);
        let drive =
            self.world.drive(thread, retry_ns(waits), |plug, wait| write.iterate(plug, wait));
        assert_eq!(drive.await, Ok(bytes as u32));
    }

    /// Writes back all that is dirty.
    pub(crate) async fn sync(&self, thread: &Thread) {
        let mut sync = SyncOperation::whole(self.file.clone(), Durable::Written);
        let drive = self.world.drive(thread, retry_ns(true), |plug, wait| sync.iterate(plug, wait));
        assert_eq!(drive.await, Ok(0));
    }
}

/// A caller that waits inside sleeps; a request is run by who reaps anyway.
fn retry_ns(waits: bool) -> u64 {
    if waits { costs::SWITCH_NS } else { costs::HAND_OVER_NS }
}
