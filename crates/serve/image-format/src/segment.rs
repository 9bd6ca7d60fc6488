//! Segments: the objects of the log.
//!
//! ```text
//!   header  stamp │ header length 4 │ block size 4 │ data blocks 4 │ durable 8 │ resume 8
//!           │ writer's name
//!           │ records: 4, then each: first block 8, blocks 4, kind 4 │ checksum 4
//!   data    a block │ its checksum 4 │ a block │ its checksum 4 │ …
//! ```
//!
//! The records are in the order of the changes. The checksum of a block follows the block, so one
//! GET brings both ([`crate::block`]). A *fence* is a segment without records, whose `resume` is
//! not 0: the fence's writer has taken the image over, and the log continues at `resume`.

use crate::geometry::Geometry;
use crate::stamp::{ImageId, Kind, Nonce, STAMP_BYTES, Stamp};
use crate::wire::{CHECKSUM_BYTES, Damage, Fields, checked, put_count, put_text, seal};

/// The most records of one segment.
pub const RECORDS_MAX: usize = 4096;

const RECORD_BYTES: usize = 16;

const NAME_BYTES_MAX: usize = 255;

/// The longest header, in bytes. A reader of the log requests this many bytes of a segment.
pub const HEADER_BYTES_MAX: usize = STAMP_BYTES + 64 + NAME_BYTES_MAX + RECORDS_MAX * RECORD_BYTES;

/// The number of places of the log, from the first segment that is not durable on, at which a
/// writer may have segments in flight. The next writer's log continues as many places behind its
/// fence, so a change of this number is another version of the format.
pub const WINDOW: u64 = 16;

/// The kind of a change of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The blocks become zeroes.
    Zero,
    /// The blocks get the next blocks of the segment's data.
    Data,
}

/// A change of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first block of the image.
    pub block: u64,
    /// The number of blocks.
    pub blocks: u32,
    /// The kind of the change.
    pub change: Change,
}

/// The content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Changes of the image.
    Changes(Vec<Record>),
    /// A fence, because a writer has taken the image over.
    Fence {
        /// The place where the log continues.
        resume: u64,
        /// The name of the new writer.
        writer: String,
    },
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the image.
    pub image: ImageId,
    /// The epoch of the writer.
    pub epoch: u64,
    /// The number of the writer that put the segment.
    pub writer: Nonce,
    /// The place in the log.
    pub sequence: u64,
    /// All segments before this place of the log were durable when the writer made this segment.
    pub durable: u64,
    /// The content.
    pub content: Content,
}

impl Header {
    /// Returns the bytes in front of the data.
    pub fn encode(&self, geometry: Geometry) -> Vec<u8> {
        let (resume, name, records) = match &self.content {
            Content::Changes(records) => (0, "", &records[..]),
            Content::Fence { resume, writer } => (*resume, writer.as_str(), &[][..]),
        };
        let mut bytes = Vec::new();
        let (image, epoch, number) = (self.image, self.epoch, self.sequence);
        let is_encrypted = geometry.encryption.is_some();
        let (kind, writer) = (Kind::Segment, self.writer);
        Stamp { kind, is_encrypted, image, epoch, number, writer }.put(&mut bytes);
        bytes.extend([0; 4]);
        bytes.extend(geometry.block_bytes.to_le_bytes());
        bytes.extend(data_blocks(records).to_le_bytes());
        bytes.extend(self.durable.to_le_bytes());
        bytes.extend(resume.to_le_bytes());
        put_text(&mut bytes, name, NAME_BYTES_MAX);
        put_count(&mut bytes, records.len());
        for record in records {
            bytes.extend(record.block.to_le_bytes());
            bytes.extend(record.blocks.to_le_bytes());
            bytes.extend((record.change as u32).to_le_bytes());
        }
        let len = (bytes.len() + CHECKSUM_BYTES) as u32;
        bytes[STAMP_BYTES..STAMP_BYTES + 4].copy_from_slice(&len.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Returns `true` for a fence that lies before place `end` and leads beyond it. A log that is
    /// known to reach `end` contains no such fence.
    pub fn leads_over(&self, end: u64) -> bool {
        let resume = match self.content {
            Content::Fence { resume, .. } => resume,
            Content::Changes(_) => 0,
        };
        self.sequence < end && end < resume
    }

    /// Returns `true` if this segment, which lies behind `place`, shows that the segment at `place`
    /// was durable.
    pub fn proves(&self, place: u64) -> bool {
        self.durable > place || self.sequence >= place.saturating_add(WINDOW)
    }

    /// Parses the header of an object of `object_bytes` bytes; also returns the header's length.
    ///
    /// # Errors
    /// The object is not a whole segment of an image with this geometry.
    pub fn parse(
        front: &[u8],
        object_bytes: u64,
        geometry: Geometry,
    ) -> Result<(Header, u32), Damage> {
        let (stamp, mut fields) = Stamp::begin(front, Kind::Segment)?;
        let len = fields.u32()?;
        if !(STAMP_BYTES..=HEADER_BYTES_MAX).contains(&(len as usize)) {
            return Err(Damage("invalid length of a header"));
        }
        let header = front.get(..len as usize).ok_or(Damage("incomplete header"))?;
        let (_, mut fields) = Stamp::begin(checked(header)?, Kind::Segment)?;
        if stamp.is_encrypted != geometry.encryption.is_some() {
            return Err(Damage("only one of object and image is encrypted"));
        }
        if fields.u32()? != len || fields.u32()? != geometry.block_bytes {
            return Err(Damage("wrong block size"));
        }
        let (blocks, durable, resume) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let name = fields.text(NAME_BYTES_MAX)?;
        let records = read_records(&mut fields, geometry)?;
        fields.end()?;
        let data_bytes = u64::from(blocks) * geometry.stored_bytes() as u64;
        if data_blocks(&records) != blocks
            || blocks > geometry.segment_blocks_max()
            || object_bytes != u64::from(len) + data_bytes
        {
            return Err(Damage("its length does not fit its records"));
        }
        let content = match resume {
            0 => Content::Changes(records),
            _ if !records.is_empty() => return Err(Damage("a fence with records")),
            resume if resume <= stamp.number => {
                return Err(Damage("a fence whose next place is not behind itself"));
            }
            resume if resume - stamp.number > WINDOW => {
                return Err(Damage("a fence that leads too far"));
            }
            resume => Content::Fence { resume, writer: name },
        };
        let Stamp { image, epoch, number: sequence, writer, .. } = stamp;
        if durable > sequence {
            return Err(Damage("a segment that calls a later one durable"));
        }
        Ok((Header { image, epoch, writer, sequence, durable, content }, len))
    }
}

fn data_blocks(records: &[Record]) -> u32 {
    let data = records.iter().filter(|record| record.change == Change::Data);
    data.fold(0, |sum: u32, record| sum.saturating_add(record.blocks))
}

fn read_records(fields: &mut Fields<'_>, geometry: Geometry) -> Result<Vec<Record>, Damage> {
    let count = fields.count(RECORD_BYTES)?;
    if count > RECORDS_MAX {
        return Err(Damage("too many records"));
    }
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        let (block, blocks) = (fields.u64()?, fields.u32()?);
        let change = match fields.u32()? {
            0 => Change::Zero,
            1 => Change::Data,
            _ => return Err(Damage("unknown kind of record")),
        };
        let end = block.checked_add(u64::from(blocks));
        if blocks == 0 || end.is_none_or(|end| end > geometry.blocks()) {
            return Err(Damage("a record beyond the image"));
        }
        records.push(Record { block, blocks, change });
    }
    Ok(records)
}
