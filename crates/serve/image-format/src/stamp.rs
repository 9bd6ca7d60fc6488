//! The first bytes of each object: its kind, and the writer that put the object.
//!
//! ```text
//!   magic 8 │ version 2 │ kind 2 │ flags 4 │ image 16 │ epoch 8 │ number 8 │ writer 16
//!           │ checksum 4
//! ```
//!
//! The only flag, 1, says that the blocks of the image are encrypted; only heads and segments have
//! it. A version of nowait that does not know a flag refuses the object.
//!
//! The stamp has its own checksum, so a writer whose PUT of a segment or part was refused reads
//! only the stamp of the existing object to learn whether the object is its own.

use crate::wire::{CHECKSUM_BYTES, Damage, Fields, checked, seal};

/// The length of a stamp in bytes.
pub const STAMP_BYTES: usize = 64 + CHECKSUM_BYTES;

const MAGIC: &[u8; 8] = b"nowaitim";
const VERSION: u16 = 4;
const ENCRYPTED: u32 = 1;

/// The random number of an image, by which its objects differ from the objects of other images.
pub type ImageId = [u8; 16];

/// The random number of a writer, which no other writer has. After an older head was restored, two
/// writers may have the same epoch, but not the same number.
pub type Nonce = [u8; 16];

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// The head of an image.
    Head = 1,
    /// A segment of the log.
    Segment = 2,
    /// A part of a checkpoint.
    Part = 3,
}

/// The first bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The kind of the object.
    pub kind: Kind,
    /// `true`: the blocks of the image are encrypted. Parts of a checkpoint have `false`.
    pub is_encrypted: bool,
    /// The image that the object belongs to.
    pub image: ImageId,
    /// The epoch of the writer that put the object.
    pub epoch: u64,
    /// The revision of a head, the place of a segment in the log, or the position of a checkpoint.
    pub number: u64,
    /// The writer that put the object.
    pub writer: Nonce,
}

impl Stamp {
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        let mut stamp = Vec::with_capacity(STAMP_BYTES);
        stamp.extend(MAGIC);
        stamp.extend(VERSION.to_le_bytes());
        stamp.extend((self.kind as u16).to_le_bytes());
        stamp.extend((if self.is_encrypted { ENCRYPTED } else { 0 }).to_le_bytes());
        stamp.extend(self.image);
        stamp.extend(self.epoch.to_le_bytes());
        stamp.extend(self.number.to_le_bytes());
        stamp.extend(self.writer);
        seal(&mut stamp);
        bytes.extend(stamp);
    }

    /// Parses the stamp at the beginning of `object`.
    ///
    /// # Errors
    /// The stamp is missing or damaged, or it has an unknown version, kind or flag.
    pub fn parse(object: &[u8]) -> Result<Stamp, Damage> {
        let stamp = object.get(..STAMP_BYTES).ok_or(Damage("shorter than a stamp"))?;
        let mut fields = Fields::of(checked(stamp)?);
        if &fields.array()? != MAGIC {
            return Err(Damage("not an object of an image"));
        }
        if fields.u16()? != VERSION {
            return Err(Damage(
                "unsupported version of the format: use the nowait that wrote the \
                               image",
            ));
        }
        let kind = match fields.u16()? {
            1 => Kind::Head,
            2 => Kind::Segment,
            3 => Kind::Part,
            _ => return Err(Damage("unknown kind of object")),
        };
        let is_encrypted = match fields.u32()? {
            0 => false,
            ENCRYPTED if kind != Kind::Part => true,
            _ => return Err(Damage("unknown flag: use the nowait that wrote the image")),
        };
        let (image, epoch, number) = (fields.array()?, fields.u64()?, fields.u64()?);
        let writer = fields.array()?;
        fields.end()?;
        Ok(Stamp { kind, is_encrypted, image, epoch, number, writer })
    }

    pub(crate) fn begin(object: &[u8], kind: Kind) -> Result<(Stamp, Fields<'_>), Damage> {
        let stamp = Stamp::parse(object)?;
        match stamp.kind == kind {
            true => Ok((stamp, Fields::of(&object[STAMP_BYTES..]))),
            false => Err(Damage("wrong kind of object")),
        }
    }
}
