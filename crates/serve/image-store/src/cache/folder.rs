//! The file of a cache in a folder.
//!
//! ```text
//!   block 0   magic 8 │ page size 4 │ slots 4 │ checksum 4
//!   table     a row for each slot, 64 bytes: log 16 │ segment 8 │ page 4 │ length 4
//!             │ checksums of the parts of the page 4 × 4 │ checksum of the row 4 │ zeroes
//!   pages     a slot each
//! ```
//! The cache makes its file durable only when it ends. The cache writes a page before the row of
//! the page, but after a crash the file may have only the page or only the row. The checksum of
//! each part also covers the page's key, so it shows which page a slot holds. The cache verifies
//! the checksum of each part that it reads, and the user of a block verifies the checksum of the
//! block. The checksums of parts are not CRC32C: the CRC32C of data that ends with its own CRC32C
//! depends only on the length.

use super::{PAGE_BYTES, PART_BYTES, PARTS, Page, PageKey, Pages, Segment, part_sum};
use bytes::Bytes;
use nowait::{
    AlignedBuffer, AsyncFile, CacheMode, IoBuffer, IoBufferMut, Nowait, OpenOptions, Zeroing,
};
use nowait_sys::file::{O_NOFOLLOW, O_NONBLOCK};
use nowait_sys::inspect::user_ids;
use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "nowait-cache";
const MAGIC: &[u8; 8] = b"nwcache3";
const BLOCK_BYTES: usize = 4096;
const ROW_BYTES: usize = 64;
/// The offsets in a row: of the checksums of the page's parts, and of the row's own checksum.
const SUMS_START: usize = 32;
const ROW_SUM_START: usize = SUMS_START + 4 * PARTS;
pub(super) const ROWS: u32 = (BLOCK_BYTES / ROW_BYTES) as u32;
const BLOCKS_AT_ONCE: u32 = 256;

#[derive(Debug)]
pub(super) struct Folder {
    file: AsyncFile,
    shown: String,
    slots_max: u32,
    /// Each pending read of a page holds a reference.
    reads: Arc<()>,
    /// A second descriptor of the file, which holds the lock against other processes.
    lock: File,
}

impl Folder {
    /// Opens or makes the file, and locks it; returns its pages. Blocks.
    pub(super) fn open(
        nowait: &Nowait,
        folder: &Path,
        bytes: u64,
        mode: CacheMode,
    ) -> io::Result<(Folder, Pages)> {
        let path = folder.join(NAME);
        let shown = format!("--cache-dir {}", folder.display());
        let failed = |error: &dyn Display| io::Error::other(format!("{shown}: {error}"));
        let lock = opened(&path).map_err(|error| failed(&error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                failed(&"another process uses the folder: give each server its own")
            }
            TryLockError::Error(error) => failed(&error),
        })?;
        let options = OpenOptions::new().read(true).write(true).flags(O_NOFOLLOW).cache(mode);
        let file = options.open(nowait, &path).map_err(|error| failed(&error))?;
        let slots_max = bytes / (PAGE_BYTES + ROW_BYTES as u64);
        let slots_max = u32::try_from(slots_max).unwrap_or(u32::MAX).max(1);
        let (file, reads) = (AsyncFile::from(file), Arc::default());
        let folder = Folder { file, shown: shown.clone(), slots_max, reads, lock };
        let pages = folder.restore(mode).map_err(|error| failed(&error))?;
        Ok((folder, pages))
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    fn head(&self) -> AlignedBuffer {
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        block[12..16].copy_from_slice(&self.slots_max.to_le_bytes());
        let sum = crc32c::crc32c(&block[..16]);
        block[16..20].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Reads the table, or begins an empty one if the file does not fit. Blocks.
    ///
    /// With [`CacheMode::User`], allocates all space at once, so that no later writeback can find
    /// the disk full.
    fn restore(&self, mode: CacheMode) -> Result<Pages, nowait::Error> {
        let file = self.file.file();
        let mut pages = Pages::new(self.slots_max);
        let (head, mut found) = (self.head(), AlignedBuffer::zeroed(BLOCK_BYTES));
        let count = file.read_at(&mut found, 0)?;
        let takes_all = mode == CacheMode::User;
        let lacks = takes_all && !self.has_all_space();
        if count < BLOCK_BYTES || found[..] != head[..] || lacks {
            file.set_len(0)?;
            file.set_len(self.pages_start())?;
            if takes_all {
                file.zero(0..self.place(self.slots_max), Zeroing::Allocated)?;
            }
            file.write_all_at(&head, 0)?;
            return Ok(pages);
        }
        let mut blocks = AlignedBuffer::zeroed(BLOCKS_AT_ONCE as usize * BLOCK_BYTES);
        let mut slot = 0;
        for first in (0..self.slots_max.div_ceil(ROWS)).step_by(BLOCKS_AT_ONCE as usize) {
            let count = file.read_at(&mut blocks, table_block(first))?;
            // The cache takes slots in order, so behind so many empty rows there is normally no
            // page.
            if blocks[..count].iter().all(|byte| *byte == 0) {
                break;
            }
            for row in blocks[..count].as_chunks::<ROW_BYTES>().0 {
                let page = page_of(row);
                // Do not restore empty slots behind the last page: they count as never used.
                if page.is_some() {
                    while pages.slots_used() < slot {
                        pages.restore(None);
                    }
                    pages.restore(page);
                }
                slot += 1;
                if slot >= self.slots_max {
                    return Ok(pages);
                }
            }
        }
        Ok(pages)
    }

    fn has_all_space(&self) -> bool {
        let held = self.lock.metadata().map_or(0, |about| about.blocks() * 512);
        held >= self.place(self.slots_max)
    }

    fn pages_start(&self) -> u64 {
        table_block(self.slots_max.div_ceil(ROWS)).next_multiple_of(PAGE_BYTES)
    }

    fn place(&self, slot: u32) -> u64 {
        self.pages_start() + u64::from(slot) * PAGE_BYTES
    }

    pub(super) async fn read(&self, slot: u32, page: Page, within: Range<usize>) -> Option<Bytes> {
        let parts = within.start / PART_BYTES..within.end.div_ceil(PART_BYTES);
        let start = parts.start * PART_BYTES;
        let end = (parts.end * PART_BYTES).min(page.len as usize);
        let memory = AlignedBuffer::zeroed(parts.len() * PART_BYTES);
        let buffer = Read { memory, _counts: self.reads.clone() };
        let place = self.place(slot) + start as u64;
        let (result, Read { memory, .. }) = self.file.read_at(buffer, place).await;
        let is_there = result.is_ok_and(|count| count >= end - start);
        let bytes = memory.get(..end - start).filter(|_| is_there)?;
        let mut parts = bytes.chunks(PART_BYTES).zip(parts);
        let are_whole =
            parts.all(|(part, number)| part_sum(&page.key, number, part) == page.sums[number]);
        are_whole.then(|| {
            Bytes::from_owner(Whole(memory)).slice(within.start - start..within.end - start)
        })
    }

    pub(super) fn is_read(&self) -> bool {
        Arc::strong_count(&self.reads) > 1
    }

    pub(super) async fn write(&self, slot: u32, bytes: &[u8]) -> Result<(), nowait::Error> {
        let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES as usize);
        buffer[..bytes.len()].copy_from_slice(bytes);
        self.file.write_all_at(buffer, self.place(slot)).await.0
    }

    pub(super) async fn sync(&self) {
        let _ = self.file.sync_data().await;
    }

    pub(super) fn block(number: u32, pages: &Pages) -> AlignedBuffer {
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        let rows = block.as_chunks_mut::<ROW_BYTES>().0;
        for (row, slot) in rows.iter_mut().zip(number * ROWS..) {
            pages.page(slot).into_iter().for_each(|page| put_row(row, &page));
        }
        block
    }

    /// If the write fails, a later run of the program may not find the pages of these rows.
    pub(super) async fn write_block(&self, number: u32, block: AlignedBuffer) {
        let _ = self.file.write_all_at(block, table_block(number)).await;
    }
}

/// Opens or makes the file. Refuses a file that belongs to another user, that other users may
/// access, or that is not a cache.
fn opened(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    let mut magic = [0; MAGIC.len()];
    let is_empty = about.len() == 0;
    let is_cache = is_empty || (file.read_exact_at(&mut magic, 0).is_ok() && is_magic(magic));
    if !about.is_file() || about.uid() != user_ids().1 || about.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "{NAME} is not a private file of this user: remove it"
        )));
    }
    match is_cache {
        true => Ok(file),
        false => Err(io::Error::other(format!("{NAME} is not a cache of nowait: remove it"))),
    }
}

/// Also accepts zeroes, which a server that was killed may have left.
fn is_magic(magic: [u8; 8]) -> bool {
    magic[..7] == MAGIC[..7] || magic == [0; 8]
}

/// Memory of a read, and a reference that [`Folder::is_read`] counts until the read ends.
#[derive(Debug)]
struct Read {
    memory: AlignedBuffer,
    _counts: Arc<()>,
}

// SAFETY: the memory is a buffer, and does not move with the value.
unsafe impl IoBuffer for Read {
    fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}

// SAFETY: as for `IoBuffer`; the buffer owns the memory.
unsafe impl IoBufferMut for Read {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }
}

struct Whole(AlignedBuffer);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn table_block(number: u32) -> u64 {
    (1 + u64::from(number)) * BLOCK_BYTES as u64
}

fn put_row(row: &mut [u8; ROW_BYTES], Page { key, len, sums }: &Page) {
    row[..16].copy_from_slice(&key.segment.origin);
    row[16..24].copy_from_slice(&key.segment.sequence.to_le_bytes());
    row[24..28].copy_from_slice(&key.number.to_le_bytes());
    row[28..32].copy_from_slice(&len.to_le_bytes());
    for (place, sum) in row[SUMS_START..].chunks_exact_mut(4).zip(sums) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    let sum = crc32c::crc32c(&row[..ROW_SUM_START]);
    row[ROW_SUM_START..][..4].copy_from_slice(&sum.to_le_bytes());
}

fn page_of(row: &[u8; ROW_BYTES]) -> Option<Page> {
    let number = |at: usize| row[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let long = |at: usize| row[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let segment = Segment { origin: *row.first_chunk()?, sequence: long(16)? };
    let key = PageKey { segment, number: number(24)? };
    let mut sums = [0; PARTS];
    for (place, sum) in sums.iter_mut().enumerate() {
        *sum = number(SUMS_START + 4 * place)?;
    }
    let page = Page { key, len: number(28)?, sums };
    let is_whole = crc32c::crc32c(&row[..ROW_SUM_START]) == number(ROW_SUM_START)?;
    (is_whole && (1..=PAGE_BYTES).contains(&u64::from(page.len))).then_some(page)
}
