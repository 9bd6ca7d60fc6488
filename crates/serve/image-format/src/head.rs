//! The head of an image: the object that names its writer and its map.
//!
//! A conditional PUT replaces the head as a whole, and no two revisions are the same bytes.

use crate::base::{BASES_MAX, Base, Bases, PATH_BYTES_MAX};
use crate::block::BlockCodec;
use crate::cipher::{Cipher, Encryption};
use crate::geometry::Geometry;
use crate::stamp::{ImageId, Kind, Nonce, Stamp};
use crate::store::Key;
use crate::wire::{Damage, Fields, checked, put_count, put_text, seal};

/// The longest head, in bytes; a reader refuses a longer one.
pub const HEAD_BYTES_MAX: usize = 1 << 20;

/// The longest name of a writer or a snapshot, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The most parts of a checkpoint.
pub const PARTS_MAX: u32 = 1 << 16;

/// The most snapshots of an image.
pub const SNAPSHOTS_MAX: usize = 1024;

/// The most retired checkpoints of an image.
pub const RETIRED_MAX: usize = 4096;

/// The longest head, in bytes, that an edit may make when it adds a snapshot or a clone. The rest
/// of [`HEAD_BYTES_MAX`] is room for another writer's name and for retired checkpoints.
pub const EDITED_BYTES_MAX: usize =
    HEAD_BYTES_MAX - NAME_BYTES_MAX - RETIRED_MAX * CHECKPOINT_BYTES;

/// The largest valid position, epoch or revision: a larger number is damage.
pub const COUNT_MAX: u64 = 1 << 62;

/// The writer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// A random number that no other writer has.
    pub nonce: Nonce,
    /// A name for people, such as host and process.
    pub name: String,
}

/// A durable map: the state of the image after all segments before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first segment that the map does not contain.
    pub position: u64,
    /// The number of parts, which are objects. An empty map has none.
    pub parts: u32,
    /// The epoch of the writer that made the checkpoint.
    pub epoch: u64,
    /// The number of the checkpoint among the checkpoints of its writer, from 1 on; 0 for the empty
    /// map of a new image.
    pub nth: u32,
}

impl Checkpoint {
    /// Returns the key of part `number`.
    pub fn key(&self, number: u32) -> Key {
        Key::Part { epoch: self.epoch, nth: self.nth, number }
    }

    pub(crate) fn id(&self) -> (u64, u32) {
        (self.epoch, self.nth)
    }

    /// Returns the number of the next checkpoint by the writer of `epoch`. `self` is the newest
    /// checkpoint of the image.
    pub fn next_nth(&self, epoch: u64) -> u32 {
        if self.epoch == epoch { self.nth.saturating_add(1) } else { 1 }
    }
}

/// An image at an earlier moment: its checkpoint, and the segments from there to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The name of the snapshot.
    pub name: String,
    /// The checkpoint with which the snapshot begins.
    pub checkpoint: Checkpoint,
    /// The first segment that does not belong to the snapshot.
    pub end: u64,
    /// The size of the image at that moment.
    pub size_bytes: u64,
    /// The clones of the snapshot, made or about to be made. An edit refuses to remove the snapshot
    /// while one of them may exist.
    pub clones: Vec<CloneOf>,
}

/// A clone of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneOf {
    /// The number of the clone.
    pub image: ImageId,
    /// The path of the clone in the store.
    pub path: String,
    /// `true`: the clone was made while its snapshot existed. If the snapshot is removed earlier,
    /// the program that makes the clone removes the clone again.
    pub is_made: bool,
}

impl Snapshot {
    /// Returns `true` if `self` and `other` are the same snapshot; their clones may differ.
    pub fn is(&self, other: &Snapshot) -> bool {
        let what = |it: &Snapshot| (it.checkpoint, it.end, it.size_bytes);
        self.name == other.name && what(self) == what(other)
    }
}

/// The head of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the image.
    pub image: ImageId,
    /// The number of this head; each new head adds one.
    pub revision: u64,
    /// The number of the writer; each new writer gets a larger number.
    pub epoch: u64,
    /// The last writer.
    pub writer: Writer,
    /// The log reaches at least this place; the log of a closed image ends exactly here.
    pub end: u64,
    /// `true`: the writer has ended, and no segment follows before the next writer.
    pub is_closed: bool,
    /// `true`: closed, and every earlier writer has had time to notice that it was replaced.
    pub is_quiet: bool,
    /// The block size, size and encryption of the image.
    pub geometry: Geometry,
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// Checkpoints that the image does not need any more, and whose parts may still exist.
    pub retired: Vec<Checkpoint>,
    /// The snapshots of the image.
    pub snapshots: Vec<Snapshot>,
    /// The bases of the image; none if it is not a clone.
    pub bases: Bases,
}

impl Head {
    /// Returns the snapshot with this name.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.name == name)
    }

    /// Returns the head of the image as it was at a snapshot.
    #[must_use]
    pub fn as_of(&self, snapshot: &Snapshot) -> Head {
        let geometry = Geometry { size_bytes: snapshot.size_bytes, ..self.geometry };
        let (checkpoint, retired, snapshots) = (snapshot.checkpoint, Vec::new(), Vec::new());
        let (end, is_closed, is_quiet) = (snapshot.end, true, true);
        Head { end, is_closed, is_quiet, geometry, checkpoint, retired, snapshots, ..self.clone() }
    }

    /// Returns the place that the log is known to reach, by `end`, a snapshot or a base.
    pub fn known_end(&self) -> u64 {
        self.end.max(self.snapshots_end()).max(self.bases.end())
    }

    pub(crate) fn snapshots_end(&self) -> u64 {
        self.snapshots.iter().map(|snapshot| snapshot.end).max().unwrap_or(0)
    }

    /// Returns the head of a new clone of a snapshot; `path` is the path of this image.
    ///
    /// # Errors
    /// The chain of clones would be too long.
    pub fn clone_of(
        &self,
        snapshot: &Snapshot,
        path: &str,
        image: ImageId,
        writer: Writer,
    ) -> Result<Head, &'static str> {
        let Head { bases: Bases(mut bases), .. } = self.clone();
        if bases.len() == BASES_MAX {
            return Err("too many levels of clones: export the image and import it");
        }
        let (image_of_base, name) = (self.image, snapshot.name.clone());
        let (path, end, epoch) = (path.into(), snapshot.end, self.epoch);
        bases.push(Base { image: image_of_base, path, snapshot: name, end, epoch });
        let bases = Bases(bases);
        Ok(Head { image, revision: 1, writer, bases, ..self.as_of(snapshot) })
    }

    /// Returns the number of the image that has an object: this image, or one of its bases.
    pub fn image_of(&self, key: Key) -> ImageId {
        self.bases.of(key).map_or(self.image, |base| base.image)
    }

    /// Returns the codec for the blocks of segment `sequence`; `cipher` is the image's cipher.
    pub fn codec<'a>(&self, cipher: Option<&'a Cipher>, sequence: u64) -> BlockCodec<'a> {
        BlockCodec { cipher, image: self.image_of(Key::Segment(sequence)), sequence }
    }

    /// Returns the next head, which names a newer checkpoint. The log reaches at least `end`.
    #[must_use]
    pub fn advanced(&self, checkpoint: Checkpoint, end: u64) -> Head {
        let (revision, end) = (self.revision + 1, self.end.max(end).max(checkpoint.position));
        let mut head = Head { revision, end, checkpoint, ..self.clone() };
        head.retire(self.checkpoint);
        head
    }

    /// Adds a checkpoint to the retired ones, unless it has no parts, belongs to a base, or the
    /// head or a snapshot still needs it.
    pub(crate) fn retire(&mut self, checkpoint: Checkpoint) {
        let is_own = checkpoint.epoch > self.bases.epoch();
        let is_known = self.needs(&checkpoint) || self.retired.contains(&checkpoint);
        if checkpoint.parts > 0 && is_own && !is_known {
            self.retired.push(checkpoint);
        }
    }

    fn needs(&self, checkpoint: &Checkpoint) -> bool {
        let mut named = self.snapshots.iter().map(|snapshot| &snapshot.checkpoint);
        named.any(|it| it.id() == checkpoint.id()) || self.checkpoint.id() == checkpoint.id()
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (image, epoch, number) = (self.image, self.epoch, self.revision);
        let is_encrypted = self.geometry.encryption.is_some();
        let (kind, writer) = (Kind::Head, self.writer.nonce);
        Stamp { kind, is_encrypted, image, epoch, number, writer }.put(&mut bytes);
        put_text(&mut bytes, &self.writer.name, NAME_BYTES_MAX);
        bytes.extend(self.end.to_le_bytes());
        bytes.extend([u8::from(self.is_closed), u8::from(self.is_quiet)]);
        bytes.extend(self.geometry.block_bytes.to_le_bytes());
        bytes.extend(self.geometry.size_bytes.to_le_bytes());
        if let Some(Encryption { salt, check }) = self.geometry.encryption {
            bytes.extend(salt);
            bytes.extend(check);
        }
        put_checkpoint(&mut bytes, self.checkpoint);
        put_count(&mut bytes, self.retired.len());
        self.retired.iter().for_each(|retired| put_checkpoint(&mut bytes, *retired));
        put_count(&mut bytes, self.snapshots.len());
        for snapshot in &self.snapshots {
            put_text(&mut bytes, &snapshot.name, NAME_BYTES_MAX);
            put_checkpoint(&mut bytes, snapshot.checkpoint);
            bytes.extend(snapshot.end.to_le_bytes());
            bytes.extend(snapshot.size_bytes.to_le_bytes());
            put_count(&mut bytes, snapshot.clones.len());
            for clone in &snapshot.clones {
                bytes.extend(clone.image);
                bytes.push(u8::from(clone.is_made));
                put_text(&mut bytes, &clone.path, PATH_BYTES_MAX);
            }
        }
        self.bases.put(&mut bytes);
        seal(&mut bytes);
        bytes
    }

    /// Parses an object.
    ///
    /// # Errors
    /// The object is not a head, or its numbers contradict each other.
    pub fn parse(object: &[u8]) -> Result<Head, Damage> {
        if object.len() > HEAD_BYTES_MAX {
            return Err(Damage("longer than a head"));
        }
        let (stamp, mut fields) = Stamp::begin(checked(object)?, Kind::Head)?;
        let writer = Writer { nonce: stamp.writer, name: fields.text(NAME_BYTES_MAX)? };
        let end = fields.u64()?;
        let (is_closed, is_quiet) = (fields.flag()?, fields.flag()?);
        let mut geometry = Geometry::checked(fields.u32()?, fields.u64()?)?;
        if stamp.is_encrypted {
            let (salt, check) = (fields.array()?, fields.array()?);
            geometry.encryption = Some(Encryption { salt, check });
        }
        let checkpoint = read_checkpoint(&mut fields)?;
        let mut retired = Vec::new();
        for _ in 0..fields.count(CHECKPOINT_BYTES)? {
            retired.push(read_checkpoint(&mut fields)?);
        }
        let mut snapshots = Vec::new();
        for _ in 0..fields.count(SNAPSHOT_BYTES_MIN)? {
            snapshots.push(read_snapshot(&mut fields, geometry)?);
        }
        let bases = Bases::read(&mut fields)?;
        fields.end()?;
        let Stamp { image, epoch, number: revision, .. } = stamp;
        let head = Head {
            image,
            revision,
            epoch,
            writer,
            end,
            is_closed,
            is_quiet,
            geometry,
            checkpoint,
            retired,
            snapshots,
            bases,
        };
        head.judge()
    }

    fn judge(self) -> Result<Head, Damage> {
        let ordered = |snapshot: &Snapshot| {
            (snapshot.checkpoint.position..=COUNT_MAX).contains(&snapshot.end)
        };
        let mut names: Vec<&str> = self.snapshots.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if self.epoch == 0 || self.epoch.max(self.revision) > COUNT_MAX {
            return Err(Damage("invalid epoch"));
        }
        if self.is_quiet && !self.is_closed {
            return Err(Damage("quiet, but not closed"));
        }
        if !(self.checkpoint.position..=COUNT_MAX).contains(&self.end) {
            return Err(Damage("the end of the log is before the checkpoint"));
        }
        if self.snapshots.len() > SNAPSHOTS_MAX || names.len() < self.snapshots.len() {
            return Err(Damage("too many snapshots, or two of the same name"));
        }
        if !self.snapshots.iter().all(ordered) {
            return Err(Damage("the end of a snapshot is before its checkpoint"));
        }
        let mut needed: Vec<_> = self.snapshots.iter().map(|it| it.checkpoint.id()).collect();
        needed.push(self.checkpoint.id());
        needed.sort_unstable();
        let mut gone: Vec<_> = self.retired.iter().map(Checkpoint::id).collect();
        gone.sort_unstable();
        gone.dedup();
        let is_needed = gone.iter().any(|it| needed.binary_search(it).is_ok());
        match self.retired.len() > RETIRED_MAX.min(gone.len()) || is_needed {
            false => Ok(self),
            true => Err(Damage("invalid list of maps to delete")),
        }
    }
}

const CHECKPOINT_BYTES: usize = 24;

const SNAPSHOT_BYTES_MIN: usize = 2 + CHECKPOINT_BYTES + 8 + 8 + 4;

const CLONE_BYTES_MIN: usize = 16 + 1 + 2;

fn put_checkpoint(bytes: &mut Vec<u8>, checkpoint: Checkpoint) {
    bytes.extend(checkpoint.position.to_le_bytes());
    bytes.extend(checkpoint.parts.to_le_bytes());
    bytes.extend(checkpoint.epoch.to_le_bytes());
    bytes.extend(checkpoint.nth.to_le_bytes());
}

fn read_checkpoint(fields: &mut Fields<'_>) -> Result<Checkpoint, Damage> {
    let (position, parts) = (fields.u64()?, fields.u32()?);
    let checkpoint = Checkpoint { position, parts, epoch: fields.u64()?, nth: fields.u32()? };
    let is_count = (1..=COUNT_MAX).contains(&checkpoint.position) && checkpoint.epoch <= COUNT_MAX;
    if !is_count || checkpoint.parts > PARTS_MAX {
        return Err(Damage("invalid position, or too many parts"));
    }
    Ok(checkpoint)
}

fn read_snapshot(fields: &mut Fields<'_>, geometry: Geometry) -> Result<Snapshot, Damage> {
    let name = fields.text(NAME_BYTES_MAX)?;
    let checkpoint = read_checkpoint(fields)?;
    let (end, size_bytes) = (fields.u64()?, fields.u64()?);
    Geometry::checked(geometry.block_bytes, size_bytes)?;
    let mut clones = Vec::new();
    for _ in 0..fields.count(CLONE_BYTES_MIN)? {
        let (image, is_made) = (fields.array()?, fields.flag()?);
        let path = fields.text(PATH_BYTES_MAX)?;
        clones.push(CloneOf { image, path, is_made });
    }
    Ok(Snapshot { name, checkpoint, end, size_bytes, clones })
}
