//! Segments: the objects of the log.
//!
//! ```text
//!   header  stamp │ its length 4 │ block size 4 │ data blocks 4 │ durable 8 │ resume 8
//!           │ writer's name
//!           │ records: 4, then each: first block 8, blocks 4, kind 4 │ checksum 4
//!   data    a block │ its checksum 4 │ a block │ its checksum 4 │ …
//! ```
//!
//! The records are in the order of the writes. The checksum of a block is beside it, so that one
//! request brings both ([`crate::block`]). A *fence* is a segment without records: its writer has
//! taken the image over, and the log goes on at `resume`.

use crate::geometry::Geometry;
use crate::stamp::{ImageId, Kind, Nonce, STAMP_BYTES, Stamp};
use crate::wire::{CHECKSUM_BYTES, Damage, Fields, checked, put_count, put_text, seal};

/// Most records of one segment.
pub const RECORDS_MAX: usize = 4096;

/// Bytes of a record.
const RECORD_BYTES: usize = 16;

/// Longest name of the writer in a fence.
const NAME_BYTES_MAX: usize = 255;

/// No header is longer: what a reader of the log asks for of each segment.
pub const HEADER_BYTES_MAX: usize = STAMP_BYTES + 64 + NAME_BYTES_MAX + RECORDS_MAX * RECORD_BYTES;

/// How many segments may be in flight from the first that is not durable on. The next writer
/// leaves as many places of the log alone, so a change of it makes another version of the format.
pub const WINDOW: u64 = 16;

/// What happened to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are zeroes now.
    Zero,
    /// They are the next blocks of the segment's data.
    Data,
}

/// A change of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first block of the image.
    pub block: u64,
    /// How many.
    pub blocks: u32,
    /// What happened to them.
    pub change: Change,
}

/// What a segment is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Changes of the image.
    Changes(Vec<Record>),
    /// The image was taken over.
    Fence {
        /// Where the log goes on.
        resume: u64,
        /// The name of the writer that did it.
        writer: String,
    },
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The image.
    pub image: ImageId,
    /// The epoch of its writer.
    pub epoch: u64,
    /// Its writer.
    pub writer: Nonce,
    /// The place in the log.
    pub sequence: u64,
    /// All places of the log before this one were durable when the segment was made.
    pub durable: u64,
    /// What it is for.
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

    /// Tells whether it is a fence that leads over a place: what is known to reach up to that place
    /// is no log with such a fence.
    pub fn leads_over(&self, end: u64) -> bool {
        let resume = match self.content {
            Content::Fence { resume, .. } => resume,
            Content::Changes(_) => 0,
        };
        self.sequence < end && end < resume
    }

    /// Tells whether a place of the log was durable, as this segment shows, which is behind it: its
    /// writer knew that then, or would have had too many segments in flight.
    pub fn proves(&self, place: u64) -> bool {
        self.durable > place || self.sequence >= place.saturating_add(WINDOW)
    }

    /// Reads the header of an object of `object_bytes`, of which `front` is the front. Returns its
    /// length, too: there its data begin.
    ///
    /// # Errors
    /// It is no segment of such an image, or not whole.
    pub fn parse(
        front: &[u8],
        object_bytes: u64,
        geometry: Geometry,
    ) -> Result<(Header, u32), Damage> {
        let (stamp, mut fields) = Stamp::begin(front, Kind::Segment)?;
        let len = fields.u32()?;
        if !(STAMP_BYTES..=HEADER_BYTES_MAX).contains(&(len as usize)) {
            return Err(Damage("no length of a header"));
        }
        let header = front.get(..len as usize).ok_or(Damage("its header is not whole"))?;
        let (_, mut fields) = Stamp::begin(checked(header)?, Kind::Segment)?;
        if stamp.is_encrypted != geometry.encryption.is_some() {
            return Err(Damage("it is encrypted and its image is not, or the other way round"));
        }
        if fields.u32()? != len || fields.u32()? != geometry.block_bytes {
            return Err(Damage("it has blocks of another size"));
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
            return Err(Damage("its data are not those of its records"));
        }
        let content = match resume {
            0 => Content::Changes(records),
            _ if !records.is_empty() => return Err(Damage("a fence with records")),
            resume if resume <= stamp.number => return Err(Damage("a fence that leads back")),
            resume if resume - stamp.number > WINDOW => {
                return Err(Damage("a fence that leads too far"));
            }
            resume => Content::Fence { resume, writer: name },
        };
        let Stamp { image, epoch, number: sequence, writer, .. } = stamp;
        if durable > sequence {
            return Err(Damage("durable before it was there"));
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
            _ => return Err(Damage("a record of an unknown kind")),
        };
        let end = block.checked_add(u64::from(blocks));
        if blocks == 0 || end.is_none_or(|end| end > geometry.blocks()) {
            return Err(Damage("a record beyond the image"));
        }
        records.push(Record { block, blocks, change });
    }
    Ok(records)
}
