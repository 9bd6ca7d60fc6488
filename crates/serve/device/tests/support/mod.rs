//! An image on an NBD server, which a test uses as a front does, and the messages of scripted
//! servers.
#![allow(dead_code, unused_imports, reason = "each test has need of some of it")]

mod servers;

use nowait::{Errno, Nowait};
use nowait_device::{
    BlockingTask, BlockingTasks, Cache, ConnectionCounts, Disk, Extent, Image, ImageOptions,
    Mailbox, Medium, PIECE_BYTES, Patience, Remote, RequestEnd, ServerCache, Tag,
};
use nowait_sys::{
    epoll::{self, Epoll},
    time::Deadline,
};
use std::{
    ops::Range,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use servers::{
    Server, heard, let_in, nbdkit, qemu, said, scripted, scripted_with, wait_until_left,
};

pub(crate) const SIZE: u64 = 1 << 20;
pub(crate) const TAG: Tag = Tag { owner: 3, slot: 5, part: 7 };
/// A test fails if it waits longer than this many nanoseconds for a server.
pub(crate) const HANG_NS: u64 = 60_000_000_000;

pub(crate) struct Rig {
    pub(crate) disk: Disk,
    pub(crate) epoll: Epoll,
    pub(crate) image: Arc<Image>,
}

pub(crate) fn options(socket: &Path, patience: Patience) -> ImageOptions {
    let path = PathBuf::from(format!("nbd+unix:///vm?socket={}", socket.display()));
    ImageOptions { path, patience, ..ImageOptions::default() }
}

/// Like [`options`], with a cache of `bytes`; 0: without a cache.
pub(crate) fn cached(socket: &Path, patience: Patience, bytes: u64) -> ImageOptions {
    let server_cache = (bytes > 0).then(|| ServerCache::new(bytes));
    let cache = if bytes > 0 { Cache::User } else { Cache::None };
    ImageOptions { cache, server_cache, ..options(socket, patience) }
}

pub(crate) fn open(socket: &Path, patience: Patience) -> Result<(Nowait, Image), String> {
    open_with(&options(socket, patience))
}

pub(crate) fn open_with(options: &ImageOptions) -> Result<(Nowait, Image), String> {
    let nowait = Nowait::new().unwrap();
    let image = Image::open(&nowait, options).map_err(|error| error.to_string())?;
    Ok((nowait, image))
}

pub(crate) fn next_end(disk: &mut Disk, epoll: &Epoll) -> RequestEnd {
    let mut ready = Vec::with_capacity(4);
    let limit = Deadline::after_ns(HANG_NS);
    loop {
        disk.start();
        if let Some(ended) = disk.pop() {
            return ended;
        }
        assert!(!limit.has_passed(), "nothing ends any more");
        disk.sleep(|| epoll.wait(&mut ready, limit)).unwrap();
    }
}

impl Rig {
    pub(crate) fn new(socket: &Path) -> Rig {
        Rig::patient(socket, Patience::default())
    }

    pub(crate) fn patient(socket: &Path, patience: Patience) -> Rig {
        Rig::with(&options(socket, patience))
    }

    pub(crate) fn with(options: &ImageOptions) -> Rig {
        let (nowait, image) = open_with(options).unwrap();
        Rig::of(&nowait, image)
    }

    pub(crate) fn of(nowait: &Nowait, image: Image) -> Rig {
        let mailbox = Mailbox::new().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(mailbox.raw(), epoll::IN, 0).unwrap();
        let disk = Disk::new(nowait, &BlockingTasks::new(2), mailbox, 64 << 20).unwrap();
        for fd in disk.descriptors().unwrap() {
            epoll.add(fd.as_raw_fd(), epoll::IN, 0).unwrap();
        }
        Rig { disk, epoll, image: Arc::new(image) }
    }

    pub(crate) fn end(&mut self) -> RequestEnd {
        let ended = next_end(&mut self.disk, &self.epoll);
        assert_eq!(ended.tag, TAG);
        ended
    }

    pub(crate) fn connection(&self) -> ConnectionCounts {
        self.image.file().downcast::<Remote>().expect("it is a server's").counts()
    }

    pub(crate) fn read(&mut self, range: Range<u64>) -> Result<Vec<u8>, Errno> {
        let chunk = self.disk.pool().take((range.end - range.start) as usize);
        self.disk.read(&self.image, chunk, range.start, TAG);
        let ended = self.end();
        let chunk = ended.chunk.expect("its memory comes back");
        let bytes = chunk.data().to_vec();
        self.disk.pool().give_back(chunk);
        ended.result.map(|()| bytes)
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8], durable: bool) -> Result<(), Errno> {
        let mut chunk = self.disk.pool().take(bytes.len());
        chunk.data_mut().copy_from_slice(bytes);
        self.disk.write(&self.image, chunk, at, durable, TAG);
        let ended = self.end();
        self.disk.pool().give_back(ended.chunk.expect("its memory comes back"));
        ended.result
    }

    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.disk.flush(&self.image, &self.image.join(), TAG);
        self.end().result
    }

    pub(crate) fn extents(&mut self, range: Range<u64>) -> Result<Vec<Extent>, Errno> {
        self.disk.run(&self.image, BlockingTask::Extents { range, max: 100 }, TAG);
        let ended = self.end();
        ended.result.map(|()| ended.extents)
    }

    pub(crate) fn run(&mut self, task: BlockingTask) -> Result<(), Errno> {
        self.disk.run(&self.image, task, TAG);
        self.end().result
    }
}

pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }

    pub(crate) fn range(&mut self) -> Range<u64> {
        let unit = [1, 512, 4096][self.below(3) as usize];
        let start = self.below(SIZE / unit) * unit;
        let most = [5000, PIECE_BYTES as u64][self.below(2) as usize];
        let len = (1 + self.below(most)).next_multiple_of(unit).min(PIECE_BYTES as u64);
        start..(start + len).min(SIZE)
    }
}

/// The number of bytes that a client sends until it has chosen the export `vm` of a server that
/// refuses replies in chunks: the client's flags and two options.
pub(crate) const ASKED_BYTES: usize = 4 + 16 + 16 + 12 - 2;
/// The number of bytes that a client sends to a server with block status: there is a third option.
pub(crate) const ASKED_FOR_STATUS_BYTES: usize = ASKED_BYTES + 16 + 14 + 15;
pub(crate) const CONTEXT: u32 = 0x1234_5678;

pub(crate) fn greeting() -> Vec<u8> {
    [&b"NBDMAGICIHAVEOPT"[..], &[0, 3], &answer_to(8, 1 << 31 | 1, &[])].concat()
}

pub(crate) fn greeting_with_status() -> Vec<u8> {
    let context = [&CONTEXT.to_be_bytes()[..], b"base:allocation"].concat();
    let agreed = [answer_to(8, 1, &[]), answer_to(10, 4, &context), answer_to(10, 1, &[])];
    [&b"NBDMAGICIHAVEOPT"[..], &[0, 3], &agreed.concat()].concat()
}

pub(crate) fn answer(kind: u32, body: &[u8]) -> Vec<u8> {
    answer_to(7, kind, body)
}

pub(crate) fn answer_to(option: u32, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = nowait_device::nbd::OPTION_REPLY.to_be_bytes().to_vec();
    bytes.extend([option, kind, body.len() as u32].map(u32::to_be_bytes).concat());
    bytes.extend(body);
    bytes
}

pub(crate) fn export(size: u64, flags: u16) -> Vec<u8> {
    let body = [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
    answer(3, &body)
}
