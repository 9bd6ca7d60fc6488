//! Bios of the cache, from their issue to their end.
//!
//! An I/O is a flush, the fill of a run of locked folios, or the writeback of a run of dirty pages.
//! It has at most one bio in flight. After a short transfer the next bio continues at the last
//! whole block. A write transfers the unaligned tail of a file in a bio of its own. The end of an
//! I/O releases all of its folios before it kicks waiting entries, so that a reader of several
//! folios is not kicked once for each.

use crate::FRAME_BYTES;
use crate::cache::Cache;
use crate::copy;
use crate::file::{CachedFile, Target};
use crate::flush::SyncLevel;
use crate::folio::FolioId;
use crate::frames::Frames;
use crate::mistake::{Mistake, makes};
use crate::pages::Pages;
use crate::primitives::{Arc, Relaxed};
use crate::share::{Device, InFlightMax};
use nowait_block::{Bio, BioOp, Segments};
use nowait_retry::WaitEntry;
use nowait_sys::{Errno, file::IoVec, file::rwf};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A bio of so many pages gets no further folio: beyond 1 MiB, devices gain nothing.
pub(crate) const BIO_PAGES_MAX: u64 = 256;

/// A transfer fails with EIO after so many bios in succession without a whole block.
const STALLS_MAX: u32 = 4;

#[derive(Debug)]
pub(crate) struct CacheIo {
    file: Arc<CachedFile>,
    kind: Kind,
    pieces: Vec<Piece>,
    segments: Segments,
    offset: u64,
    /// Bytes to transfer by direct bios, a multiple of the block size, and then bytes of the tail.
    /// (A flush has 1 and 0.)
    direct: u64,
    tail: u64,
    done: u64,
    stalls: u32,
    /// Pieces that the end of the I/O has released.
    released: usize,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    id: FolioId,
    from: u32,
    count: u32,
}

impl Piece {
    fn whole(frames: &Frames, id: FolioId) -> Piece {
        Piece { id, from: 0, count: frames.folio(id).pages() as u32 }
    }

    fn pages(self) -> Pages {
        Pages::range(self.from, self.count)
    }

    fn segment(self, frames: &Frames) -> IoVec {
        let skipped = self.from as usize * FRAME_BYTES;
        // SAFETY: the pages of the piece lie in the folio's memory.
        let base = unsafe { frames.data(self.id).add(skipped) };
        IoVec { base, len: self.count as usize * FRAME_BYTES }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fill,
    /// Its bios make their data durable to this level before they end.
    Write(SyncLevel),
    Flush(BioOp),
}

impl Kind {
    fn rw_flags(self) -> u32 {
        match self {
            Kind::Write(SyncLevel::Data) => rwf::DSYNC,
            Kind::Write(SyncLevel::All) => rwf::SYNC,
            _ => 0,
        }
    }
}

impl CacheIo {
    /// No byte from byte `end` of the file on is transferred, except that a fill has a length of
    /// whole blocks.
    fn new(file: &Arc<CachedFile>, kind: Kind, pieces: Vec<Piece>, end: u64) -> CacheIo {
        let frames = file.cache().frames();
        let first = pieces[0];
        let offset = (frames.folio(first.id).index() + u64::from(first.from)) * FRAME_BYTES as u64;
        let segments = match pieces.as_slice() {
            [one] => Segments::One(one.segment(frames)),
            _ => Segments::Many(pieces.iter().map(|piece| piece.segment(frames)).collect()),
        };
        let len = end.saturating_sub(offset).min(segments.len() as u64);
        let block = u64::from(file.block_bytes());
        let (direct, tail) = match kind {
            // The kernel stops a read at the end of the file, so a fill may ask for whole blocks.
            Kind::Fill => (len.next_multiple_of(block), 0),
            _ => (len & !(block - 1), len & (block - 1)),
        };
        let file = file.clone();
        CacheIo::of((file, kind), pieces, segments, offset, (direct, tail))
    }

    fn of(
        (file, kind): (Arc<CachedFile>, Kind),
        pieces: Vec<Piece>,
        segments: Segments,
        offset: u64,
        (direct, tail): (u64, u64),
    ) -> CacheIo {
        let (done, stalls, released) = (0, 0, 0);
        CacheIo { file, kind, pieces, segments, offset, direct, tail, done, stalls, released }
    }

    fn is_done(&self) -> bool {
        self.done >= self.direct + self.tail
    }

    /// Returns `true` if the bio of this I/O, which is not queued yet, can also write `next`.
    fn can_grow_by(&self, next: &CacheIo) -> bool {
        let pages = |io: &CacheIo| io.segments.len() / FRAME_BYTES;
        matches!(self.kind, Kind::Write(_))
            && self.kind == next.kind
            && self.offset + self.direct == next.offset
            && (self.tail, self.done) == (0, 0)
            && pages(self) + pages(next) <= BIO_PAGES_MAX as usize
            && Arc::ptr_eq(&self.file, &next.file)
    }

    fn grow_by(&mut self, next: CacheIo) {
        let segments = [self.segments.as_slice(), next.segments.as_slice()].concat();
        self.segments = Segments::Many(segments.into());
        self.pieces.extend(next.pieces);
        (self.direct, self.tail) = (self.direct + next.direct, next.tail);
    }

    fn is_fill(&self) -> bool {
        self.kind == Kind::Fill
    }

    fn device(&self) -> &Arc<Device> {
        self.file.mapping().device()
    }

    fn count(&self, begins: bool) {
        if self.is_fill() {
            let frames = self.segments.len() as u64 / FRAME_BYTES as u64;
            self.file.mapping().count_reads(frames, begins);
        }
    }

    fn bio(&self, token: u64) -> Bio {
        let is_whole = self.done < self.direct;
        let end = if is_whole { self.direct } else { self.direct + self.tail };
        let target = match self.kind {
            Kind::Write(_) => self.write_target(is_whole),
            _ => self.file.reads().clone(),
        };
        let (op, segments, offset) = match self.kind {
            Kind::Flush(op) => (op, Segments::NONE, 0),
            Kind::Fill => (BioOp::Read, self.part(end), self.offset + self.done),
            Kind::Write(_) => (BioOp::Write, self.part(end), self.offset + self.done),
        };
        // SAFETY: until the completion, the folios of a fill are locked and those of a write under
        // writeback, so their frames are not freed. No thread reads the frames of a fill, or
        // changes those of a write.
        let mut bio = unsafe { Bio::new(op, target.fd, segments, offset as i64, token) };
        bio.file = target.file;
        bio.rw_flags = self.kind.rw_flags();
        bio
    }

    fn write_target(&self, is_whole: bool) -> Target {
        match self.file.writes() {
            Some(writes) => {
                if is_whole {
                    writes.direct
                } else {
                    writes.tail
                }
            }
            // If the owner has not set the open files, the bio fails with EBADF, instead of a
            // panic.
            None => Target { fd: -1, file: None },
        }
    }

    /// Returns the memory from the first byte not transferred to before byte `end`.
    fn part(&self, end: u64) -> Segments {
        let rest = self.segments.after(self.done as usize);
        let len = (end - self.done) as usize;
        if rest.len() == len { rest } else { rest.first(len) }
    }

    /// Returns the result of the I/O, or `None` if another bio follows.
    fn advance(&mut self, result: Result<u32, Errno>) -> Option<Result<(), Errno>> {
        let bytes = match result {
            Ok(bytes) => u64::from(bytes),
            Err(errno) => return Some(Err(errno)),
        };
        if let Kind::Flush(_) = self.kind {
            return Some(Ok(()));
        }
        let before = self.done;
        let reached = before + bytes;
        let block = u64::from(self.file.block_bytes());
        let whole = reached >= self.direct;
        self.done = if whole { reached } else { reached & !(block - 1) };
        let at_end = self.kind == Kind::Fill
            && (bytes == 0 || self.offset + reached >= self.file.disk_size());
        if self.is_done() || at_end {
            self.done = reached;
            return Some(Ok(()));
        }
        self.stalls = if self.done > before { 0 } else { self.stalls + 1 };
        (self.stalls >= STALLS_MAX).then_some(Err(Errno::IO))
    }

    fn end_fill(&mut self, result: Result<(), Errno>, woken: &mut Vec<WaitEntry>) {
        // Bytes behind the end of the file on disk are not valid: the device may return any.
        let valid =
            (self.offset + self.done).min(self.file.disk_size().max(self.offset)) - self.offset;
        let mut from = 0;
        for (piece, segment) in self.pieces.iter().zip(self.segments.as_slice()) {
            #[cfg(all(test, not(loom)))]
            crate::tests::inject(self.released);
            let end = from + segment.len as u64;
            if result.is_ok() && end > valid && !makes(Mistake::KeepTail) {
                let kept = valid.saturating_sub(from) as usize;
                // SAFETY: the bytes lie in the folio's memory, and this I/O has locked the folio.
                unsafe { copy::zero(segment.base.add(kept), segment.len - kept) };
            }
            let filled = if end <= valid { Ok(()) } else { result };
            self.file.mapping().filled(piece.id, filled, woken);
            self.released += 1;
            from = end;
        }
    }

    fn end_write(
        &mut self,
        durable: SyncLevel,
        result: Result<(), Errno>,
        woken: &mut Vec<WaitEntry>,
    ) {
        if let Err(errno) = result {
            self.file.flush.write_failed(durable, errno);
        } else if durable == SyncLevel::WriteOnly {
            self.file.flush.written();
        }
        self.file.grown_on_disk(if self.done > 0 { self.offset + self.done } else { 0 });
        let mut end = 0;
        for (piece, segment) in self.pieces.iter().zip(self.segments.as_slice()) {
            #[cfg(all(test, not(loom)))]
            crate::tests::inject(self.released);
            end += segment.len as u64;
            let written = if end <= self.done { Ok(()) } else { result };
            let is_kept = self.file.mapping().written(piece.id, piece.pages(), written, woken);
            if let (false, Err(errno)) = (is_kept, written) {
                self.file.flush.lost(errno);
            }
            self.released += 1;
        }
    }

    /// Ends the I/O with EIO after a panic, so that no folio stays locked or under writeback.
    fn give_up(&self, woken: &mut Vec<WaitEntry>) {
        let (file, failed) = (&self.file, Err(Errno::IO));
        match self.kind {
            Kind::Fill => {}
            Kind::Write(durable) => file.flush.write_failed(durable, Errno::IO),
            Kind::Flush(op) => file.flush.end(op, failed, woken),
        }
        for piece in &self.pieces[self.released..] {
            match self.kind {
                Kind::Fill => file.mapping().filled(piece.id, failed, woken),
                _ if file.mapping().written(piece.id, piece.pages(), failed, woken) => {}
                _ => file.flush.lost(Errno::IO),
            }
        }
    }
}

impl Cache {
    /// Cuts ascending folios into runs of adjoining folios. A run ends with the folio that reaches
    /// [`BIO_PAGES_MAX`] pages.
    pub(crate) fn runs(&self, mut ids: &[FolioId], mut each: impl FnMut(&[FolioId])) {
        while !ids.is_empty() {
            let (mut count, mut pages, mut next) = (0, 0, None);
            for folio in ids.iter().map(|id| self.frames.folio(*id)) {
                let adjoins = next.is_none_or(|next| next == folio.index());
                if !adjoins || pages >= BIO_PAGES_MAX {
                    break;
                }
                (count, pages) = (count + 1, pages + folio.pages());
                next = Some(folio.index() + folio.pages());
            }
            let (run, rest) = ids.split_at(count);
            each(run);
            ids = rest;
        }
    }

    /// Returns `true` if I/Os of the cache are in flight or wait for their turn. They own their
    /// file, and so the cache: an engine completes them before it ends.
    pub fn has_ios(&self) -> bool {
        let table = self.ios.lock();
        table.free.len() < table.slots.len() || !table.parked.is_empty()
    }

    pub(crate) fn start_fill(
        &self,
        file: &Arc<CachedFile>,
        run: &[FolioId],
        plug: &mut Vec<Bio>,
        woken: &mut Vec<WaitEntry>,
    ) {
        let pieces = run.iter().map(|id| Piece::whole(&self.frames, *id)).collect();
        let mut io = CacheIo::new(file, Kind::Fill, pieces, file.disk_size());
        self.pages_read.fetch_add(io.direct / FRAME_BYTES as u64, Relaxed);
        if io.is_done() {
            self.end(&mut io, Ok(()), woken);
            // These folios can be reclaimed now.
            return self.frames.notice_room();
        }
        self.issue(io, plug);
    }

    /// The folios of `run` adjoin, and the caller has started their writeback.
    pub(crate) fn start_write(
        &self,
        file: &Arc<CachedFile>,
        run: &[FolioId],
        durable: SyncLevel,
        plug: &mut Vec<Bio>,
    ) {
        let mut woken = Vec::new();
        self.dirty_runs(run, |pieces| {
            // The present size covers all of these pages: a later write that lengthens the file
            // makes another folio dirty, or waits for this writeback.
            let mut io = CacheIo::new(file, Kind::Write(durable), pieces, file.size());
            match io.is_done() {
                // The file has no byte in these pages.
                true => self.end(&mut io, Ok(()), &mut woken),
                false => self.issue(io, plug),
            }
        });
        woken.into_iter().for_each(WaitEntry::wake);
    }

    fn dirty_runs(&self, folios: &[FolioId], mut each: impl FnMut(Vec<Piece>)) {
        let (mut pieces, mut behind) = (Vec::new(), 0);
        for id in folios {
            let folio = self.frames.folio(*id);
            for (from, count) in folio.dirty_pages().runs() {
                let first = folio.index() + u64::from(from);
                if first != behind && !pieces.is_empty() {
                    each(core::mem::take(&mut pieces));
                }
                pieces.push(Piece { id: *id, from, count });
                behind = first + u64::from(count);
            }
        }
        each(pieces);
    }

    pub(crate) fn start_flush(&self, file: &Arc<CachedFile>, op: BioOp, plug: &mut Vec<Bio>) {
        self.flushes.fetch_add(1, Relaxed);
        let what = (file.clone(), Kind::Flush(op));
        self.issue(CacheIo::of(what, Vec::new(), Segments::NONE, 0, (1, 0)), plug);
    }

    fn issue(&self, io: CacheIo, plug: &mut Vec<Bio>) {
        let mut table = self.ios.lock();
        if let Some(last) = plug.last_mut()
            && let Some(before) = table.slot(last.token)
            && before.can_grow_by(&io)
        {
            before.grow_by(io);
            *last = before.bio(last.token);
            return;
        }
        io.count(true);
        if io.device().begin(io.is_fill(), table.most) {
            return table.begin(io, plug);
        }
        // A parked fill begins when another fill on its device has ended; a parked write or flush
        // begins when another write or flush has ended.
        match table.parked.back_mut() {
            Some(before) if before.can_grow_by(&io) => before.grow_by(io),
            _ => table.parked.push_back(io),
        }
    }

    /// Processes the completion of a bio of the cache, whose token is odd. Puts the next bio of the
    /// I/O on `plug`. If the I/O has ended, kicks the entries that waited for it, for frames, or
    /// for fewer dirty frames, and begins a waiting I/O.
    ///
    /// # Panics
    /// If no bio in flight has the token, or if the code that ends the I/O panics: the I/O then
    /// ends with `EIO` first.
    pub fn complete(&self, token: u64, result: Result<u32, Errno>, plug: &mut Vec<Bio>) {
        let (mut io, mut woken) = (self.ios.lock().take(token), Vec::new());
        let step = || match io.advance(result) {
            None => false,
            Some(result) => {
                self.end(&mut io, result, &mut woken);
                true
            }
        };
        let ended = catch_unwind(AssertUnwindSafe(step));
        if let Ok(false) = ended {
            plug.push(io.bio(token));
            return self.ios.lock().put(token, io);
        }
        let mut table = self.ios.lock();
        io.count(false);
        table.release(token);
        table.end(&io, plug);
        drop(table);
        if ended.is_err() {
            io.give_up(&mut woken);
        }
        woken.into_iter().for_each(WaitEntry::wake);
        self.frames.notice_room();
        self.progress.notice();
        if let Err(cause) = ended {
            resume_unwind(cause);
        }
    }

    /// Makes the bio in flight with this token again, after a queue gave it up without moving a
    /// byte.
    ///
    /// # Panics
    /// If no bio in flight has the token.
    pub fn bio_again(&self, token: u64) -> Bio {
        let mut table = self.ios.lock();
        table.slot(token).as_ref().expect("a completion comes once").bio(token)
    }

    fn end(&self, io: &mut CacheIo, result: Result<(), Errno>, woken: &mut Vec<WaitEntry>) {
        match io.kind {
            Kind::Fill => io.end_fill(result, woken),
            Kind::Write(durable) => {
                let pages = io.done.div_ceil(FRAME_BYTES as u64);
                self.pages_written.fetch_add(pages, Relaxed);
                io.end_write(durable, result, woken);
            }
            Kind::Flush(op) => io.file.flush.end(op, result, woken),
        }
    }
}

/// The I/Os in flight, and those that wait for their turn.
///
/// A token is `generation << 32 | slot << 1 | 1`: odd, because a backend may also have requests
/// whose tokens are addresses.
#[derive(Debug)]
pub(crate) struct IoTable {
    slots: Vec<(u32, Option<CacheIo>)>,
    free: Vec<u32>,
    /// I/Os that wait because their device is at its limit of bios in flight, oldest first.
    parked: VecDeque<CacheIo>,
    pub(crate) most: InFlightMax,
}

impl IoTable {
    pub(crate) fn new() -> IoTable {
        let (slots, free, parked) = (Vec::new(), Vec::new(), VecDeque::new());
        IoTable { slots, free, parked, most: InFlightMax::NONE }
    }

    fn begin(&mut self, io: CacheIo, plug: &mut Vec<Bio>) {
        let token = self.reserve();
        plug.push(io.bio(token));
        self.put(token, io);
    }

    fn end(&mut self, io: &CacheIo, plug: &mut Vec<Bio>) {
        let (device, is_fill) = (io.device(), io.is_fill());
        device.end(is_fill);
        let is_next = |it: &CacheIo| it.is_fill() == is_fill && Arc::ptr_eq(it.device(), device);
        if let Some(index) = self.parked.iter().position(is_next)
            && device.begin(is_fill, self.most)
            && let Some(next) = self.parked.remove(index)
        {
            self.begin(next, plug);
        }
    }

    fn reserve(&mut self) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        u64::from(self.slots[slot as usize].0) << 32 | u64::from(slot) << 1 | 1
    }

    fn slot(&mut self, token: u64) -> &mut Option<CacheIo> {
        let slot = &mut self.slots[token as u32 as usize >> 1];
        assert_eq!(u64::from(slot.0), token >> 32, "a completion of an I/O that is over");
        &mut slot.1
    }

    fn put(&mut self, token: u64, io: CacheIo) {
        *self.slot(token) = Some(io);
    }

    fn take(&mut self, token: u64) -> CacheIo {
        self.slot(token).take().expect("a completion comes once")
    }

    fn release(&mut self, token: u64) {
        let slot = token as u32 >> 1;
        let generation = &mut self.slots[slot as usize].0;
        *generation = (*generation + 1) & (u32::MAX >> 1);
        self.free.push(slot);
    }
}
