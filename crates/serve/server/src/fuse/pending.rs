//! The FUSE requests that one serving thread has in flight, and those that have not begun yet.

use super::{
    ImageFile,
    request::{FuseRequest, PendingReply},
};
use nowait_device::{AnySource, BlockingTask, Disk, Kind, Medium, RequestEnd, Tag};
use std::{collections::VecDeque, sync::Arc};

/// The owner in the tags of all requests to FUSE files.
const OWNER: u64 = 0b11 << 62;

pub(crate) fn is_file(token: u64) -> bool {
    token & OWNER == OWNER
}

#[derive(Debug)]
struct Active {
    file: Arc<ImageFile<AnySource>>,
    reply: PendingReply,
    kind: Kind,
    bytes: u64,
    began_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    active: Vec<Option<Active>>,
    free: Vec<u32>,
    /// Reads that wait for memory, and later requests to the same images.
    waiting: VecDeque<(Arc<ImageFile<AnySource>>, FuseRequest)>,
}

impl RequestTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight() == 0 && self.waiting.is_empty()
    }

    fn in_flight(&self) -> usize {
        self.active.len() - self.free.len()
    }

    /// Drops all requests, because the thread replaces its disk. Each dropped reply answers its
    /// request with `EIO`.
    pub(crate) fn give_up(&mut self) {
        for active in core::mem::take(self).active.into_iter().flatten() {
            active.file.image().stats().forget();
        }
    }

    /// Returns `true` if there is memory for a request. Only reads take memory of this thread. A
    /// read always gets memory if its image uses none of the pool, or if this thread has no FUSE
    /// request in flight.
    fn has_room(
        &self,
        file: &ImageFile<AnySource>,
        request: &FuseRequest,
        disk: &mut Disk,
    ) -> bool {
        match request {
            FuseRequest::Read { len, .. } => {
                let (pool, image) = (disk.pool(), file.image().number());
                self.in_flight() == 0 || pool.used_by(image) == 0 || pool.has_room(image, *len)
            }
            _ => true,
        }
    }

    pub(crate) fn settle(&mut self, disk: &mut Disk, now_ns: u64) {
        for (file, request) in core::mem::take(&mut self.waiting) {
            self.ask(file, request, disk, now_ns);
        }
    }

    pub(crate) fn ask(
        &mut self,
        file: Arc<ImageFile<AnySource>>,
        request: FuseRequest,
        disk: &mut Disk,
        now_ns: u64,
    ) {
        // Requests of an image begin in their order. A request does not wait behind a waiting
        // request of another image.
        let waits = self.waiting.iter().any(|(it, _)| Arc::ptr_eq(it.image(), file.image()));
        if !waits && self.has_room(&file, &request, disk) {
            self.begin(file, request, disk, now_ns);
        } else {
            self.waiting.push_back((file, request));
        }
    }

    fn begin(
        &mut self,
        file: Arc<ImageFile<AnySource>>,
        request: FuseRequest,
        disk: &mut Disk,
        now_ns: u64,
    ) {
        let image = file.image().clone();
        match request {
            FuseRequest::Read { reply, offset, len } => {
                let tag = self.insert(file, PendingReply::Data(reply), len as u64, false, now_ns);
                let chunk = disk.pool().take_for(image.number(), len);
                disk.read(&image, chunk, offset, tag);
            }
            FuseRequest::Write { reply, offset, chunk, durable, space } => {
                let bytes = chunk.data().len() as u64;
                let tag =
                    self.insert(file, PendingReply::Written(reply, space), bytes, false, now_ns);
                disk.write(&image, chunk, offset, durable, tag);
            }
            FuseRequest::Flush { reply } => {
                let told = file.told().clone();
                let tag = self.insert(file, PendingReply::Plain(reply), 0, false, now_ns);
                disk.flush(&image, &told, tag);
            }
            FuseRequest::Zero { reply, range, allocated } => {
                let bytes = range.end - range.start;
                let tag = self.insert(file, PendingReply::Plain(reply), bytes, true, now_ns);
                let task = BlockingTask::Zero { range, allocated, fast: true, durable: false };
                disk.run(&image, task, tag);
            }
            FuseRequest::Seek { reply, from, for_hole, size } => {
                let reply = PendingReply::Place { reply, from, for_hole, size };
                let tag = self.insert(file, reply, 0, false, now_ns);
                disk.run(&image, BlockingTask::Extents { range: from..size, max: 1 }, tag);
            }
        }
    }

    fn insert(
        &mut self,
        file: Arc<ImageFile<AnySource>>,
        reply: PendingReply,
        bytes: u64,
        zeroes: bool,
        began_ns: u64,
    ) -> Tag {
        file.image().stats().begin();
        let kind = reply.kind(zeroes);
        let active = Active { file, reply, kind, bytes, began_ns };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() as u32 - 1
        });
        self.active[slot as usize] = Some(active);
        Tag { owner: OWNER, slot, part: 0 }
    }

    pub(crate) fn end(&mut self, ended: RequestEnd, disk: &mut Disk, now_ns: u64) {
        let RequestEnd { tag, result, chunk, extents } = ended;
        let Some(active) = self.active.get_mut(tag.slot as usize).and_then(Option::take) else {
            return;
        };
        self.free.push(tag.slot);
        let Active { file, reply, kind, bytes, began_ns } = active;
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        file.image().stats().end(kind, bytes, elapsed_ns, result.is_err());
        if matches!(kind, Kind::Write | Kind::Discard | Kind::Zero) {
            file.change();
        }
        let left = reply.answer(result.err(), bytes, chunk, &extents);
        left.into_iter().for_each(|chunk| disk.pool().give_back(chunk));
    }
}
