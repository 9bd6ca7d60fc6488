//! The segments that are not durable: the open segment, which takes changes, and sealed segments,
//! which do not change any more.

use crate::Extent;
use crate::block::BlockCodec;
use crate::cipher::Cipher;
use crate::geometry::Geometry;
use crate::head::Head;
use crate::map::Map;
use crate::mistake::{self, Mistake};
use crate::segment::{Change, Content, Header, RECORDS_MAX, Record, WINDOW};
use crate::stamp::{ImageId, Nonce};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug, Default)]
struct Open {
    records: Vec<Record>,
    /// The image block of each data block.
    blocks: Vec<u64>,
    data: Vec<u8>,
    since_ns: u64,
}

#[derive(Debug)]
struct Sealed {
    body: Arc<Vec<u8>>,
    data_start: usize,
    is_sent: bool,
    is_put: bool,
}

#[derive(Debug)]
pub(crate) struct Tail {
    image: ImageId,
    epoch: u64,
    writer: Nonce,
    geometry: Geometry,
    cipher: Option<Cipher>,
    blocks_max: usize,
    /// The place of the open segment.
    next: u64,
    open: Open,
    sealed: BTreeMap<u64, Sealed>,
    sealed_bytes: usize,
}

impl Tail {
    pub(crate) fn new(head: &Head, cipher: Option<Cipher>, blocks_max: u32, next: u64) -> Tail {
        let Head { image, epoch, geometry, .. } = *head;
        let writer = head.writer.nonce;
        let blocks_max = blocks_max.clamp(1, geometry.segment_blocks_max()) as usize;
        let (open, sealed) = (Open::default(), BTreeMap::new());
        let sealed_bytes = 0;
        Tail {
            image,
            epoch,
            writer,
            geometry,
            cipher,
            blocks_max,
            next,
            open,
            sealed,
            sealed_bytes,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the place of the first segment that is not durable, sealed or open.
    pub(crate) fn durable(&self) -> u64 {
        self.sealed.first_key_value().map_or(self.next, |(sequence, _)| *sequence)
    }

    /// Returns the number of bytes of the open segment's data and of the sealed segments.
    pub(crate) fn bytes(&self) -> usize {
        self.open.data.len() + self.sealed_bytes
    }

    pub(crate) fn open_is_empty(&self) -> bool {
        self.open.records.is_empty()
    }

    pub(crate) fn open_is_full(&self) -> bool {
        self.open.blocks.len() >= self.blocks_max || self.open.records.len() >= RECORDS_MAX
    }

    pub(crate) fn open_blocks(&self) -> usize {
        self.open.blocks.len()
    }

    pub(crate) fn room(&self) -> usize {
        match self.open_is_full() {
            true => 0,
            false => self.blocks_max - self.open.blocks.len(),
        }
    }

    /// Returns when the open segment was begun; `None` if it is empty or another one is sealed.
    pub(crate) fn open_since_ns(&self) -> Option<u64> {
        (!self.open_is_empty() && self.sealed.is_empty()).then_some(self.open.since_ns)
    }

    pub(crate) fn nothing_is_sealed(&self) -> bool {
        self.sealed.is_empty()
    }

    /// The open segment must not be full.
    pub(crate) fn write(&mut self, map: &mut Map, block: u64, data: &[u8], now_ns: u64) {
        let size = self.geometry.block_bytes as usize;
        // The store gets the segment as a whole, so the later of two writes of a block is enough.
        if let Some((_, index)) = map.extents().place(block).filter(|it| it.0 == self.next) {
            if !mistake::makes(Mistake::KeepFirst) {
                let at = index as usize * size;
                self.open.data[at..at + size].copy_from_slice(data);
            }
            return;
        }
        self.begin(map, now_ns);
        let index = self.open.blocks.len() as u32;
        self.open.blocks.push(block);
        self.open.data.extend_from_slice(data);
        map.write(block, Extent { blocks: 1, index, sequence: self.next });
        match self.open.records.last_mut() {
            Some(last)
                if last.change == Change::Data && last.block + u64::from(last.blocks) == block =>
            {
                last.blocks += 1;
            }
            _ => self.open.records.push(Record { block, blocks: 1, change: Change::Data }),
        }
    }

    /// The open segment must not be full.
    pub(crate) fn discard(&mut self, map: &mut Map, range: Range<u64>, now_ns: u64) {
        self.begin(map, now_ns);
        let blocks = (range.end - range.start) as u32;
        self.open.records.push(Record { block: range.start, blocks, change: Change::Zero });
        map.discard(range, self.next);
    }

    fn begin(&mut self, map: &mut Map, now_ns: u64) {
        if self.open_is_empty() {
            self.open.since_ns = now_ns;
            map.add(self.next);
        }
    }

    /// The open segment must not be empty. Returns the length of the sealed segment in bytes.
    pub(crate) fn seal(&mut self, map: &mut Map) -> usize {
        let Open { records, blocks, data, .. } = core::mem::take(&mut self.open);
        let (image, epoch, writer, sequence) = (self.image, self.epoch, self.writer, self.next);
        let (durable, content) = (self.durable(), Content::Changes(records));
        let header = Header { image, epoch, writer, sequence, durable, content };
        let mut body = header.encode(self.geometry);
        let data_start = body.len();
        map.place_data(sequence, data_start as u32);
        body.reserve_exact(blocks.len() * self.geometry.stored_bytes());
        let size = self.geometry.block_bytes as usize;
        let codec = self.codec(sequence);
        for (block, data) in blocks.iter().zip(data.chunks_exact(size)) {
            codec.put(&mut body, data, *block);
        }
        let bytes = body.len();
        let body = Arc::new(body);
        self.sealed.insert(sequence, Sealed { body, data_start, is_sent: false, is_put: false });
        self.sealed_bytes += bytes;
        self.next += 1;
        bytes
    }

    /// Leaves the place of the open segment, which is empty, without a segment. Returns this place.
    pub(crate) fn leave_out(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn codec(&self, sequence: u64) -> BlockCodec<'_> {
        BlockCodec { cipher: self.cipher.as_ref(), image: self.image, sequence }
    }

    pub(crate) fn unsent(&self) -> Option<u64> {
        let mut near = self.sealed.range(..self.durable() + WINDOW);
        near.find(|(_, sealed)| !sealed.is_sent).map(|(sequence, _)| *sequence)
    }

    pub(crate) fn take_unsent(&mut self) -> Option<(u64, Arc<Vec<u8>>)> {
        let end = self.durable() + WINDOW;
        let mut unsent = self.sealed.range_mut(..end).filter(|(_, sealed)| !sealed.is_sent);
        let (sequence, sealed) = unsent.next()?;
        sealed.is_sent = true;
        Some((*sequence, Arc::clone(&sealed.body)))
    }

    /// Marks a segment as put, and drops the segments that are durable now. A segment is durable
    /// when it and all earlier ones are put.
    pub(crate) fn put(&mut self, sequence: u64) {
        if let Some(sealed) = self.sealed.get_mut(&sequence) {
            sealed.is_put = true;
        }
        let skips = mistake::makes(Mistake::IgnoreGaps);
        while let Some(entry) = self.sealed.first_entry()
            && (entry.get().is_put || (skips && *entry.key() < sequence))
        {
            self.sealed_bytes -= entry.remove().body.len();
        }
    }

    /// Copies a block of a segment; returns `false` if the block is not in memory.
    pub(crate) fn copy(&self, (sequence, index): (u64, u32), block: u64, to: &mut [u8]) -> bool {
        let (size, index) = (self.geometry.block_bytes as usize, index as usize);
        let data = if sequence == self.next {
            self.open.data.get(index * size..(index + 1) * size)
        } else {
            let Some(sealed) = self.sealed.get(&sequence) else { return false };
            let stored = self.geometry.stored_bytes();
            let at = sealed.data_start + index * stored;
            if self.cipher.is_some() {
                let stored = sealed.body.get(at..at + stored).unwrap_or_default();
                return self.codec(sequence).copy(to, stored, block).is_ok();
            }
            sealed.body.get(at..at + size)
        };
        data.inspect(|data| to.copy_from_slice(data)).is_some()
    }
}
