//! One virtqueue: requests in, answers out. Uses no sockets and no threads.
//!
//! ```text
//!  available ─▶ chain ─┬─ refused ─────────────────────────────────────┐
//!                      ├─ aligned ─▶ the medium borrows the guest's memory ─┤
//!                      ├─ others ──▶ chunks, copied ───────────────────┤
//!                      └─ flush, discard, zeroes ─▶ medium ─────────────┴─▶ status, used ─▶ call
//! ```
//! **Bounds.** A ring has at most as many requests in flight as its queue has places, whatever the
//! driver writes. A request gets chunks only while the pool has room, while its ring holds no
//! memory (then at most one chunk), or while its image holds no memory. The descriptions of a
//! request's segments and ranges also count in the pool. A ring with invalid indices is broken: the
//! device does not read it until the session starts it again.

use super::{
    Counter,
    chain::{self, MalformedRequest, Request, Spans, Table},
    device::{self, RANGES_MAX, REQUEST_BYTES_MAX, SECTOR_BYTES},
    inflight::Inflight,
};
use core::{ops::Range, ptr::NonNull, sync::atomic::Ordering};
use nowait::Errno;
use nowait_device::{
    BlockingTask, Image, Kind, KnownFailures, LentMemory, Loan, Medium, PIECE_BYTES, RequestEnd,
    Tag,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};
use virtio_bindings::{
    virtio_blk::{
        VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
        VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
        VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
        VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
    },
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_AVAIL_F_NO_INTERRUPT},
};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// The description of a ring, as the VMM has given it.
#[derive(Debug)]
pub struct Setup<F> {
    /// The image that the queue serves.
    pub image: Arc<Image<F>>,
    /// The guest's memory.
    pub memory: Arc<GuestMemoryMmap>,
    /// The features that the driver has accepted.
    pub features: u64,
    /// The number of descriptors, a power of two up to [`device::QUEUE_SIZE_MAX`].
    pub size: u16,
    /// The address of the descriptors.
    pub descriptors: GuestAddress,
    /// The address of the ring in which the driver makes requests available.
    pub available: GuestAddress,
    /// The address of the ring in which the device returns used descriptors.
    pub used: GuestAddress,
    /// The index in the available ring of the next request to take.
    pub next_available: u16,
    /// The ring signals this once at its start, and when it has used descriptors and the driver
    /// wants a signal.
    pub call: Option<Counter>,
    /// The ring signals this when it is broken.
    pub error: Option<Counter>,
    /// The record of requests in flight, and the first descriptors of requests to repeat.
    pub inflight: Option<(Inflight, Vec<u16>)>,
}

/// A virtqueue being served.
#[derive(Debug)]
pub struct Ring<F> {
    pub(super) owner: u64,
    image: Arc<Image<F>>,
    told: KnownFailures,
    memory: Arc<GuestMemoryMmap>,
    queue: Queue,
    /// `true`: the driver has not accepted the flush feature, so each write must be durable when it
    /// ends.
    writes_through: bool,
    call: Option<Counter>,
    error: Option<Counter>,
    inflight: Option<Inflight>,
    /// First descriptors of requests to begin before those in the available ring, the next one
    /// last: requests of an earlier server, and a request that waits for memory.
    again: Vec<u16>,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
    /// The bytes that count for requests at the medium: data in chunks, and descriptions.
    held_bytes: usize,
    /// The device has used descriptors since the last [`Ring::notify`].
    unsignalled: bool,
    stopped: bool,
    broken: bool,
}

#[derive(Debug)]
struct Active {
    head: u16,
    kind: Kind,
    bytes: u64,
    began_ns: u64,
    parts_left: u32,
    failed: bool,
    /// A part of the request was given up because the server ends.
    given_up: bool,
    /// The bytes that the pool counts for the description of the request.
    reserved: usize,
    /// The guest's memory for the data of a read by chunks; empty for other requests.
    target: Spans,
    status: GuestAddress,
    into_guest: bool,
}

/// The result of taking the available requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// All were taken, and the driver kicks when there are more.
    All,
    /// Some may be left. The caller calls again when requests have ended or memory is free, unless
    /// the ring is stopped or broken.
    Waits,
    /// Some may be left. The caller calls again after other rings have had their turn.
    More,
}

/// The bytes that count for a segment in flight: its descriptions in the ring, the medium, the
/// queue and the kernel.
const SEGMENT_COST_BYTES: usize = 128;
/// The bytes that count for a range to discard or zero until its request has ended.
const RANGE_COST_BYTES: usize = 256;

enum Fate {
    /// The request is at the medium.
    Begun,
    /// The request is over: the status for the driver, and the number of bytes written.
    Answered(u32, u32),
    /// There is no memory for the request now.
    Later,
}

impl<F> Ring<F> {
    /// Begins to serve a ring. The tags of its requests carry `owner`.
    ///
    /// # Errors
    /// `EINVAL`: the size is not valid, or addresses are outside the memory or not aligned.
    pub fn new(owner: u64, setup: Setup<F>) -> Result<Ring<F>, Errno> {
        let Setup { image, memory, features, inflight, .. } = setup;
        let mut queue = Queue::new(device::QUEUE_SIZE_MAX).map_err(|_| Errno::INVAL)?;
        queue.try_set_size(setup.size).map_err(|_| Errno::INVAL)?;
        queue.try_set_desc_table_address(setup.descriptors).map_err(|_| Errno::INVAL)?;
        queue.try_set_avail_ring_address(setup.available).map_err(|_| Errno::INVAL)?;
        queue.try_set_used_ring_address(setup.used).map_err(|_| Errno::INVAL)?;
        queue.set_event_idx(device::has(features, VIRTIO_RING_F_EVENT_IDX));
        queue.set_ready(true);
        if !queue.is_valid(&*memory) {
            return Err(Errno::INVAL);
        }
        let used = queue.used_idx(&*memory, Ordering::Acquire).map_err(|_| Errno::INVAL)?.0;
        queue.set_next_used(used);
        let (inflight, mut again) = inflight.unzip();
        queue.set_next_avail(match &again {
            // The requests that were in flight come from the record, not from the available ring.
            Some(again) => used.wrapping_add(again.len() as u16),
            None => setup.next_available,
        });
        again.iter_mut().for_each(|again| again.reverse());
        // The driver may have missed the signal for an earlier answer: the earlier server was
        // killed before it signalled, or signalled another eventfd. A driver ignores a spurious
        // signal.
        setup.call.iter().for_each(Counter::signal);
        Ok(Ring {
            owner,
            told: image.join(),
            image,
            memory,
            queue,
            writes_through: !device::has(features, VIRTIO_BLK_F_FLUSH),
            call: setup.call,
            error: setup.error,
            inflight,
            again: again.unwrap_or_default(),
            requests: Vec::new(),
            free: Vec::new(),
            held_bytes: 0,
            unsignalled: false,
            stopped: false,
            broken: false,
        })
    }

    /// Returns how many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// Returns `true` if the driver has written invalid indices, or the device cannot access the
    /// ring.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the index in the available ring of the next request to begin.
    pub fn next_available(&self) -> u16 {
        // The requests in `again` were taken from the available ring, and have not begun.
        self.queue.next_avail().wrapping_sub(self.again.len() as u16)
    }

    /// Makes later calls of [`Ring::take`] take no requests.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns the ring's eventfds for calls and errors, with which the ring can be started again.
    pub fn into_counters(self) -> (Option<Counter>, Option<Counter>) {
        (self.call, self.error)
    }

    /// Takes available requests, as far as there is room, and begins or answers them. Does not
    /// wait.
    pub fn take<M: Medium<File = F>>(&mut self, medium: &mut M, now_ns: u64) -> TakeOutcome {
        if self.stopped || self.broken {
            return TakeOutcome::Waits;
        }
        let mut left = self.queue.size();
        loop {
            if self.in_flight() >= usize::from(self.queue.size()) {
                return TakeOutcome::Waits;
            }
            if left == 0 {
                return TakeOutcome::More;
            }
            match self.next_head() {
                Ok(Some(head)) => {
                    left -= 1;
                    if !self.begin(head, medium, now_ns) {
                        return TakeOutcome::Waits;
                    }
                }
                Ok(None) => match self.queue.enable_notification(&*self.memory) {
                    // More requests have come. The count bounds the loop, because a driver may
                    // claim this without end.
                    Ok(true) => left -= 1,
                    Ok(false) => return TakeOutcome::All,
                    Err(_) => return self.break_off(),
                },
                Err(()) => return self.break_off(),
            }
        }
    }

    /// Returns the first descriptor of the next request; `Ok(None)`: there is no request. `Err`:
    /// the driver has written invalid indices, or the device cannot access the ring.
    fn next_head(&mut self) -> Result<Option<u16>, ()> {
        if let Some(head) = self.again.pop() {
            return Ok(Some(head));
        }
        // The driver need not kick while the device takes requests anyway.
        self.queue.disable_notification(&*self.memory).map_err(drop)?;
        let next = self.queue.next_avail();
        let head = self.queue.iter(&*self.memory).map_err(drop)?.next();
        match head.map(|chain| chain.head_index()) {
            Some(head) if head < self.queue.size() => Ok(Some(head)),
            None if self.queue.next_avail() == next => Ok(None),
            Some(_) | None => Err(()),
        }
    }

    fn break_off(&mut self) -> TakeOutcome {
        self.broken = true;
        self.error.iter().for_each(Counter::signal);
        TakeOutcome::Waits
    }

    /// Begins a request, or answers it. Returns `false` if the request, and all requests behind it,
    /// must wait for memory.
    fn begin<M: Medium<File = F>>(&mut self, head: u16, medium: &mut M, now_ns: u64) -> bool {
        let table = Table { start: GuestAddress(self.queue.desc_table()), len: self.queue.size() };
        if let Some(inflight) = &mut self.inflight {
            inflight.begin(head);
        }
        let mut status = None;
        let start = || match chain::read(&self.memory, table, head) {
            Ok(request) => {
                status = Some(request.status);
                self.start(head, request, medium, now_ns)
            }
            Err(MalformedRequest { status: found }) => {
                status = found;
                Fate::Answered(VIRTIO_BLK_S_IOERR, 0)
            }
        };
        let fate = catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|cause| {
            // If the request is in flight, the worker gives it up after the panic, with all other
            // requests.
            if !self.requests.iter().flatten().any(|active| active.head == head) {
                self.answer(head, status, VIRTIO_BLK_S_IOERR, 0);
            }
            resume_unwind(cause)
        });
        match fate {
            Fate::Begun => {}
            Fate::Answered(code, written) => self.answer(head, status, code, written),
            Fate::Later => {
                // The record of the request stays, because the request is in flight for the driver.
                self.again.push(head);
                return false;
            }
        }
        true
    }

    fn start<M: Medium<File = F>>(
        &mut self,
        head: u16,
        request: Request,
        medium: &mut M,
        now_ns: u64,
    ) -> Fate {
        match request.kind {
            VIRTIO_BLK_T_IN | VIRTIO_BLK_T_OUT => self.transfer(head, request, medium, now_ns),
            VIRTIO_BLK_T_FLUSH => {
                let tag = self.insert(head, &request, Kind::Flush, 0, now_ns);
                medium.flush(&self.image, &self.told, tag);
                Fate::Begun
            }
            VIRTIO_BLK_T_GET_ID => self.identify(&request),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
                self.change_ranges(head, &request, medium, now_ns)
            }
            _ => Fate::Answered(VIRTIO_BLK_S_UNSUPP, 0),
        }
    }

    fn transfer<M: Medium<File = F>>(
        &mut self,
        head: u16,
        mut request: Request,
        medium: &mut M,
        now_ns: u64,
    ) -> Fate {
        let (len, writes) = (request.data_bytes, !request.into_guest);
        let whole = len > 0 && len.is_multiple_of(SECTOR_BYTES as usize);
        let forbidden = writes && self.image.properties().read_only;
        let offset = request.sector.checked_mul(SECTOR_BYTES);
        let offset = offset.filter(|offset| self.image.contains(*offset, len as u64));
        let (Some(offset), true, false) = (offset, whole && len <= REQUEST_BYTES_MAX, forbidden)
        else {
            return Fate::Answered(VIRTIO_BLK_S_IOERR, 0);
        };
        let kind = if writes { Kind::Write } else { Kind::Read };
        let parts = chain::contiguous(&self.memory, &request.data);
        let cost = parts.as_ref().unwrap_or(&request.data).len() * SEGMENT_COST_BYTES;
        if !self.has_room(0, cost, medium) {
            return Fate::Later;
        }
        // The medium makes a borrowed write durable only if it has one segment, so durable writes
        // use chunks.
        if !(writes && self.writes_through)
            && let Some(segments) = parts.and_then(|parts| self.lend(&parts))
        {
            let tag = self.insert(head, &request, kind, len as u64, now_ns);
            self.reserve(tag, cost, medium);
            if medium
                .borrow(&self.image, Loan { segments, writes, durable: false }, offset, tag)
                .is_ok()
            {
                return Fate::Begun;
            }
            self.take_back(tag, medium);
        }
        if !self.has_room(len, cost, medium) {
            return Fate::Later;
        }
        let tag = self.insert(head, &request, kind, len as u64, now_ns);
        self.reserve(tag, cost, medium);
        self.copy(tag, core::mem::take(&mut request.data), len, writes, offset, medium);
        Fate::Begun
    }

    fn copy<M: Medium<File = F>>(
        &mut self,
        mut tag: Tag,
        data: Spans,
        len: usize,
        writes: bool,
        offset: u64,
        medium: &mut M,
    ) {
        let parts = len.div_ceil(PIECE_BYTES) as u32;
        self.held_bytes += len;
        if let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) {
            active.parts_left = parts;
        }
        for part in 0..parts {
            let from = part as usize * PIECE_BYTES;
            let mut chunk =
                medium.pool().take_for(self.image.number(), (len - from).min(PIECE_BYTES));
            let at = offset + from as u64;
            tag.part = part;
            if writes {
                // The range is inside the memory, because the chain was checked.
                chain::gather(&self.memory, &data, from, chunk.data_mut());
                medium.write(&self.image, chunk, at, self.writes_through, tag);
            } else {
                medium.read(&self.image, chunk, at, tag);
            }
        }
        if let (false, Some(Some(active))) = (writes, self.requests.get_mut(tag.slot as usize)) {
            active.target = data;
        }
    }

    /// Returns `true` if there is memory for chunks of `len` bytes, and `cost` bytes more.
    fn has_room<M: Medium>(&self, len: usize, cost: usize, medium: &mut M) -> bool {
        let (pool, image) = (medium.pool(), self.image.number());
        let room = pool.has_room_beside(image, cost, len);
        // A ring that holds no memory may take one chunk beyond the bound, and an image that holds
        // no memory one request. So each request gets memory after other requests have returned
        // theirs.
        room || (self.held_bytes == 0 && len <= PIECE_BYTES) || pool.used_by(image) == 0
    }

    /// Counts memory that a request takes in addition to chunks, until `unreserve`.
    fn reserve<M: Medium<File = F>>(&mut self, tag: Tag, bytes: usize, medium: &mut M) {
        if let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) {
            active.reserved = bytes;
            self.held_bytes += bytes;
            medium.pool().reserve(self.image.number(), bytes);
        }
    }

    fn unreserve<M: Medium<File = F>>(&mut self, bytes: usize, medium: &mut M) {
        self.held_bytes -= bytes;
        medium.pool().release(self.image.number(), bytes);
    }

    fn lend(&self, parts: &Spans) -> Option<Vec<LentMemory>> {
        let lend = |part: &chain::Span| {
            let slice = GuestMemoryBackend::get_slice(&*self.memory, part.start, part.len).ok()?;
            let start = NonNull::new(slice.ptr_guard_mut().as_ptr())?;
            // SAFETY: the bytes are in a readable and writable mapping of the memory, which lives
            // as long as the memory does. No reference points to them.
            Some(unsafe { LentMemory::new(start, part.len, self.memory.clone()) })
        };
        parts.iter().map(lend).collect()
    }

    fn identify(&self, request: &Request) -> Fate {
        let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
        let name = self.image.name().as_bytes();
        let len = name.len().min(id.len());
        id[..len].copy_from_slice(&name[..len]);
        let len = request.data_bytes.min(id.len());
        match chain::scatter(&self.memory, &request.data, 0, &id[..len]) {
            true => Fate::Answered(VIRTIO_BLK_S_OK, len as u32),
            false => Fate::Answered(VIRTIO_BLK_S_IOERR, 0),
        }
    }

    fn change_ranges<M: Medium<File = F>>(
        &mut self,
        head: u16,
        request: &Request,
        medium: &mut M,
        now_ns: u64,
    ) -> Fate {
        let zeroes = request.kind == VIRTIO_BLK_T_WRITE_ZEROES;
        let ranges = match self.ranges(request, zeroes) {
            Ok(ranges) => ranges,
            Err(code) => return Fate::Answered(code, 0),
        };
        let cost = ranges.len() * RANGE_COST_BYTES;
        if !self.has_room(0, cost, medium) {
            return Fate::Later;
        }
        let bytes = ranges.iter().map(|(range, _)| range.end - range.start).sum();
        let kind = if zeroes { Kind::Zero } else { Kind::Discard };
        let mut tag = self.insert(head, request, kind, bytes, now_ns);
        self.reserve(tag, cost, medium);
        if let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) {
            active.parts_left = ranges.len() as u32;
        }
        let durable = self.writes_through;
        for (range, unmap) in ranges {
            let task = match zeroes {
                true => BlockingTask::Zero { range, allocated: !unmap, fast: false, durable },
                false => BlockingTask::Discard { range, durable },
            };
            medium.run(&self.image, task, tag);
            tag.part += 1;
        }
        Fate::Begun
    }

    /// Reads the ranges of a request, each with `true` if it may be unmapped. `Err`: the status for
    /// the request.
    fn ranges(&self, request: &Request, zeroes: bool) -> Result<Vec<(Range<u64>, bool)>, u32> {
        const RANGE_BYTES: usize = 16;
        let count = request.data_bytes / RANGE_BYTES;
        let whole = request.data_bytes.is_multiple_of(RANGE_BYTES);
        if !whole || count == 0 || count > RANGES_MAX as usize || self.image.properties().read_only
        {
            return Err(VIRTIO_BLK_S_IOERR);
        }
        let mut bytes = vec![0; request.data_bytes];
        if !chain::gather(&self.memory, &request.data, 0, &mut bytes) {
            return Err(VIRTIO_BLK_S_IOERR);
        }
        bytes.chunks_exact(RANGE_BYTES).map(|one| self.range(one, zeroes)).collect()
    }

    fn range(&self, bytes: &[u8], zeroes: bool) -> Result<(Range<u64>, bool), u32> {
        let number = |range: Range<usize>| {
            bytes[range].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let (sector, sectors, flags) = (number(0..8), number(8..12), number(12..16));
        let allowed = if zeroes { u64::from(VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) } else { 0 };
        if flags & !allowed != 0 {
            return Err(VIRTIO_BLK_S_UNSUPP);
        }
        let (start, len) = (sector.checked_mul(SECTOR_BYTES), sectors * SECTOR_BYTES);
        let fits = |start: &u64| {
            sectors <= u64::from(device::RANGE_SECTORS_MAX) && self.image.contains(*start, len)
        };
        let start = start.filter(fits).ok_or(VIRTIO_BLK_S_IOERR)?;
        Ok((start..start + len, flags != 0))
    }

    fn insert(
        &mut self,
        head: u16,
        request: &Request,
        kind: Kind,
        bytes: u64,
        began_ns: u64,
    ) -> Tag {
        self.image.stats().begin();
        let active = Active {
            head,
            kind,
            bytes,
            began_ns,
            parts_left: 1,
            failed: false,
            given_up: false,
            reserved: 0,
            target: Spans::new(),
            status: request.status,
            into_guest: request.into_guest,
        };
        let slot = self.free.pop().unwrap_or(self.requests.len() as u32);
        match self.requests.get_mut(slot as usize) {
            Some(place) => *place = Some(active),
            None => self.requests.push(Some(active)),
        }
        Tag { owner: self.owner, slot, part: 0 }
    }

    /// Forgets a request whose memory the medium has not borrowed.
    fn take_back<M: Medium<File = F>>(&mut self, tag: Tag, medium: &mut M) {
        let active = self.requests[tag.slot as usize].take();
        self.unreserve(active.map_or(0, |active| active.reserved), medium);
        self.free.push(tag.slot);
        self.image.stats().forget();
    }

    /// Handles the end of a part of a request at the medium. Answers the driver after the last
    /// part, unless the next server repeats the request.
    pub fn end<M: Medium<File = F>>(&mut self, ended: RequestEnd, medium: &mut M, now_ns: u64) {
        let RequestEnd { tag, result, chunk, .. } = ended;
        let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) else { return };
        active.parts_left -= 1;
        active.failed |= result.is_err();
        active.given_up |= result == Err(Errno::SHUTDOWN);
        if let Some(chunk) = chunk {
            if !active.target.is_empty() && !active.failed {
                let from = tag.part as usize * PIECE_BYTES;
                chain::scatter(&self.memory, &active.target, from, chunk.data());
            }
            self.held_bytes -= chunk.data().len();
            medium.pool().give_back(chunk);
        }
        if active.parts_left > 0 {
            return;
        }
        let active = self.requests[tag.slot as usize].take();
        self.free.push(tag.slot);
        let Some(active) = active else { return };
        self.unreserve(active.reserved, medium);
        let Active { head, kind, bytes, began_ns, failed, status, into_guest, .. } = active;
        self.image.stats().end(kind, bytes, now_ns.saturating_sub(began_ns), failed);
        if active.given_up && self.inflight.is_some() {
            // The record of the request stays, so the next server repeats the request.
            return;
        }
        let code = if failed { VIRTIO_BLK_S_IOERR } else { VIRTIO_BLK_S_OK };
        let written = if into_guest && !failed { bytes as u32 } else { 0 };
        self.answer(head, Some(status), code, written);
    }

    /// Answers all requests in flight as failed. The caller has dropped the medium, which therefore
    /// reports no ends of these requests.
    pub fn give_up(&mut self, now_ns: u64) {
        for slot in 0..self.requests.len() {
            let Some(active) = self.requests[slot].take() else { continue };
            self.free.push(slot as u32);
            let Active { head, kind, bytes, began_ns, status, .. } = active;
            self.image.stats().end(kind, bytes, now_ns.saturating_sub(began_ns), true);
            self.answer(head, Some(status), VIRTIO_BLK_S_IOERR, 0);
        }
        // The chunks were dropped with the medium.
        self.held_bytes = 0;
    }

    /// Writes the status, and returns the descriptors to the driver. `written` is the number of
    /// bytes that the device has written, without the status.
    fn answer(&mut self, head: u16, status: Option<GuestAddress>, code: u32, written: u32) {
        let memory = &*self.memory;
        let status = status.filter(|status| memory.write_obj(code as u8, *status).is_ok());
        if let Some(inflight) = &mut self.inflight {
            inflight.before_answer(head);
        }
        let len = if status.is_some() { written + 1 } else { 0 };
        if self.queue.add_used(memory, head, len).is_err() {
            self.break_off();
            return;
        }
        if let Some(inflight) = &mut self.inflight {
            inflight.after_answer(head, self.queue.next_used());
        }
        self.unsignalled = true;
    }

    /// Signals the driver if the device has used descriptors since the last call and the driver
    /// wants a signal.
    pub fn notify(&mut self) {
        if !core::mem::take(&mut self.unsignalled) {
            return;
        }
        // If the ring cannot be read to find out what the driver wants, signal the driver.
        let wanted = self.queue.needs_notification(&*self.memory).unwrap_or(true);
        if wanted && !self.is_quiet() {
            self.call.iter().for_each(Counter::signal);
        }
    }

    /// Returns `true` if the driver uses no event indices and suppresses signals by the flag of the
    /// available ring.
    fn is_quiet(&self) -> bool {
        let flags = GuestAddress(self.queue.avail_ring());
        let quiet = |flags: u16| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT != 0;
        !self.queue.event_idx_enabled()
            && self.memory.load(flags, Ordering::Acquire).is_ok_and(quiet)
    }
}

/// Returns the index of a used ring; `None`: the ring is outside the memory.
pub(super) fn used_index(memory: &GuestMemoryMmap, used: GuestAddress) -> Option<u16> {
    let index = memory.load(GuestAddress(used.0.checked_add(2)?), Ordering::Acquire).ok()?;
    Some(u16::from_le(index))
}
