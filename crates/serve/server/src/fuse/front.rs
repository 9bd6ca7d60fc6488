//! The FUSE file system: answers the kernel's requests, or passes them to the serving threads.

use super::{
    image_file::ImageFile,
    request::{Buffers, FuseRequest},
};
use crate::caught::caught;
use core::{fmt, time::Duration};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nowait::Nowait;
use nowait_device::{AnySource, PIECE_BYTES};
use nowait_sys::fuse::{allocation, open, whence};
use std::{io, sync::Arc, time::SystemTime};

/// The file system of one file, for a session of fuser. The threads of fuser call its methods. A
/// write may wait for memory; no method waits for the image. While all threads of fuser wait for
/// memory, further requests stay in the kernel.
pub struct Front {
    file: Arc<ImageFile<AnySource>>,
    ask: Ask,
    buffers: Arc<Buffers>,
    nowait: Nowait,
}

pub(crate) type Ask = Box<dyn Fn(Arc<ImageFile<AnySource>>, FuseRequest) + Send + Sync>;

/// The longest data of a request, in bytes: one transfer of the image. The kernel divides longer
/// reads and writes.
const DATA_BYTES_MAX: u32 = PIECE_BYTES as u32;
/// The most requests in flight for which no thread of a program waits, such as readahead and
/// asynchronous direct I/O.
const BACKGROUND_MAX: u16 = 512;
const PAGE_BYTES: u32 = 4096;
/// How long the kernel may cache attributes: not at all, because the image's size may change.
const REMEMBERED: Duration = Duration::ZERO;

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Front({:?})", self.file)
    }
}

impl Front {
    pub(crate) fn new(
        file: ImageFile<AnySource>,
        ask: Ask,
        buffers: Arc<Buffers>,
        nowait: Nowait,
    ) -> Front {
        Front { file: Arc::new(file), ask, buffers, nowait }
    }

    /// If `take` panics, the drop of the reply answers the request with `EIO`, and the calling
    /// thread of fuser continues.
    fn take(&self, take: impl FnOnce()) {
        caught(&self.nowait, "as it took a request of a file", || {
            #[cfg(test)]
            crate::failure::inject(crate::failure::At::Front, self.file.image().name());
            take();
        });
    }

    fn ask(&self, request: FuseRequest) {
        (self.ask)(self.file.clone(), request);
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.file.image().properties().read_only
    }
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let needed = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        config.add_capabilities(needed).map_err(|_| io::ErrorKind::Unsupported)?;
        // All these values are valid, but the kernel may allow less readahead.
        let _ = config.set_max_write(DATA_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(DATA_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.take(|| {
            reply.attr(&REMEMBERED, &self.file.attributes());
        });
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.take(|| {
            // A change of times succeeds without an effect: the file shows the time of the last
            // change of its contents.
            let resized = size.is_some_and(|size| size != self.file.image().size());
            if mode.or(user).or(group).is_some() || resized {
                return reply.error(Errno::EPERM);
            }
            reply.attr(&REMEMBERED, &self.file.attributes());
        });
    }

    fn open(&self, request: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.take(|| {
            if flags.acc_mode() != OpenAccMode::O_RDONLY && self.is_read_only() {
                return reply.error(Errno::EROFS);
            }
            if !self.file.open(request.uid()) {
                return reply.error(Errno::EACCES);
            }
            // With these flags reads and writes bypass the kernel's page cache, and writes run in
            // parallel.
            let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
            reply.opened(FileHandle(0), flags);
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.take(|| {
            self.file.close();
            reply.ok();
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.take(|| {
            let there = self.file.image().size().saturating_sub(offset);
            let len = u64::from(len).min(there).min(DATA_BYTES_MAX.into()) as usize;
            if len == 0 {
                return reply.data(&[]);
            }
            self.ask(FuseRequest::Read { reply, offset, len });
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.take(|| {
            if self.is_read_only() {
                return reply.error(Errno::EROFS);
            }
            // Write the part that fits, as a block device does at its end.
            let there = self.file.image().size().saturating_sub(offset);
            let len = there.min(data.len() as u64) as usize;
            if len == 0 {
                return reply.error(Errno::ENOSPC);
            }
            let (chunk, space) = self.buffers.filled(self.file.image().number(), &data[..len]);
            let durable = flags.0 as u32 & open::DSYNC != 0;
            self.ask(FuseRequest::Write { reply, offset, chunk, durable, space });
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.take(|| {
            self.ask(FuseRequest::Flush { reply });
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.take(|| {
            if self.is_read_only() {
                return reply.error(Errno::EROFS);
            }
            let mode = mode as u32;
            let allocated = match mode & !allocation::KEEP_SIZE {
                allocation::PUNCH_HOLE => false,
                allocation::ZERO_RANGE => true,
                _ => return reply.error(Errno::EOPNOTSUPP),
            };
            let end = offset.saturating_add(len);
            let size = self.file.image().size();
            if mode & allocation::KEEP_SIZE == 0 && end > size {
                return reply.error(Errno::ENOSPC);
            }
            let range = offset..end.min(size);
            if range.is_empty() {
                return reply.ok();
            }
            // If the file system that holds the image cannot zero a range without writing zeroes,
            // fallocate(2) fails with the error of that file system.
            self.ask(FuseRequest::Zero { reply, range, allocated });
        });
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        from: i64,
        way: i32,
        reply: ReplyLseek,
    ) {
        self.take(|| {
            let for_hole = match way as u32 {
                whence::DATA => false,
                whence::HOLE => true,
                _ => return reply.error(Errno::EINVAL),
            };
            let size = self.file.image().size();
            match u64::try_from(from) {
                Ok(from) if from < size => {
                    self.ask(FuseRequest::Seek { reply, from, for_hole, size });
                }
                _ => reply.error(Errno::ENXIO),
            }
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.take(|| {
            let blocks = self.file.image().size().div_ceil(PAGE_BYTES.into());
            reply.statfs(blocks, 0, 0, 1, 0, PAGE_BYTES, 255, PAGE_BYTES);
        });
    }
}
