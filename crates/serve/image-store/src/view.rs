//! An image in its state at one moment, for readers. A view puts no object, and the writer
//! continues.
//!
//! ```text
//!   list, head ─▶ parts of the map ─▶ headers behind it, to the end of the log
//!     ─▶ head: still the same?
//!     ─▶ data, by one GET for each run of blocks
//! ```
//! A writer deletes objects that neither the writer nor a snapshot needs, even if a view needs
//! them: then reads of their data fail, and name this as a possible reason. No read returns the
//! data of another place or damaged data: the checksum of each block covers its place.

use crate::client::Client;
use crate::place::StoreOptions;
use crate::reader::{LogEnd, Read, Reader, blocking, client, segments};
use crate::status::CacheFigures;
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_image_format::{
    Cipher, Data, Encryption, Extent, Geometry, Head, ImageKey, Key, Map, told_runs,
};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

/// How often a view reads the map if the head changes meanwhile.
const ROUNDS_MAX: u32 = 5;

/// The most bytes of data that [`View::read_from`] passes on at a time.
pub const RUN_BYTES_MAX: u64 = 4 << 20;

const READS_AT_ONCE: usize = 8;

/// An image in the state in which it was opened, or a snapshot of it.
#[derive(Debug)]
pub struct View {
    url: StoreUrl,
    client: Client,
    head: Head,
    cipher: Option<Cipher>,
    map: Map,
}

/// The bytes of blocks, or the reason why their stored data cannot be read.
type Stored = Result<Vec<u8>, String>;

struct Run {
    block: u64,
    extent: Extent,
}

impl View {
    /// Reads the map of the image or the snapshot that `url` names. Blocks.
    ///
    /// # Errors
    /// One line: there is no such image or snapshot, its map is damaged, the key is wrong, or the
    /// store cannot be used.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> io::Result<View> {
        blocking(url, View::recovered(url, client(url, options)?, options.key.as_ref()))
    }

    pub(crate) async fn recovered(
        url: &StoreUrl,
        client: Client,
        key: Option<&ImageKey>,
    ) -> Result<View, String> {
        let head = Reader { client: &client }.head().await?;
        let encryption = head.geometry.encryption;
        let cipher = Encryption::cipher(encryption.as_ref(), key)?;
        let (head, map) = recovered(url, &client, head).await?;
        if head.geometry.encryption != encryption {
            return Err("another image replaced it meanwhile".to_owned());
        }
        Ok(View { url: url.clone(), client, head, cipher, map })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.head.epoch
    }

    pub(crate) fn asked(&self) -> (u64, u64) {
        self.client.asked()
    }

    pub(crate) fn cache_figures(&self) -> CacheFigures {
        self.client.cache_figures()
    }

    /// Returns the geometry of the image or snapshot.
    pub fn geometry(&self) -> Geometry {
        self.head.geometry
    }

    /// Returns a text that identifies the state of the image. The text changes with the size, and
    /// when a writer has written, discarded or moved data.
    pub fn state(&self) -> String {
        let mut sum = crc32c::crc32c(&self.head.geometry.size_bytes.to_le_bytes());
        for (block, Extent { sequence, index, blocks }) in self.map.extents().iter() {
            for number in [block, sequence, u64::from(index), u64::from(blocks)] {
                sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
            }
        }
        let image = u128::from_be_bytes(self.head.image) as u32;
        let mut segments = self.map.segments().iter().rev();
        let last = segments.find(|(_, it)| !it.is_fence()).map_or(0, |(sequence, _)| *sequence);
        format!("{image:08x}-{last}-{sum:08x}")
    }

    /// Returns `true` if a block is stored; all other blocks are zeroes.
    pub fn has(&self, block: u64) -> bool {
        self.map.extents().place(block).is_some()
    }

    pub(crate) fn runs_of(&self, blocks: Range<u64>) -> Vec<u8> {
        told_runs(self.map.extents(), blocks, self.head.geometry.block_bytes)
    }

    /// Returns how many bytes of the image are stored from the offset `start` on.
    pub fn stored_bytes_from(&self, start: u64) -> u64 {
        let bytes = u64::from(self.head.geometry.block_bytes);
        let runs = self.map.extents().iter_from(start / bytes);
        let behind = |(block, extent): (u64, Extent)| {
            let end = (block + u64::from(extent.blocks)) * bytes;
            end - end.min(start.max(block * bytes))
        };
        runs.map(behind).sum()
    }

    /// Passes stored data to `take`: all of it from the block that contains the offset `start`,
    /// piece by piece in the order of the image, each with its offset. The bytes between the pieces
    /// are zeroes. Blocks.
    ///
    /// # Errors
    /// The first error of `take`; or, in one line: a block is missing or damaged, or the store
    /// cannot be used.
    pub fn read_from(
        &self,
        start: u64,
        mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let geometry = self.head.geometry;
        let bytes = u64::from(geometry.block_bytes);
        let runs = self.runs(start / bytes..geometry.blocks());
        // Return an error of `take` unchanged.
        let mut refused = None;
        let read = blocking(&self.url, async {
            let reads = runs.map(|run| async {
                let block = run.block;
                self.read(run).await.map(|data| (block, data))
            });
            let mut reads = futures_util::stream::iter(reads).buffered(READS_AT_ONCE);
            while let Some(read) = reads.next().await {
                let (block, data) = read?;
                let data = data?;
                if let Err(error) = take(block * bytes, &data) {
                    refused = Some(error);
                    return Ok(());
                }
            }
            Ok(())
        });
        refused.map_or(read, Err)
    }

    /// Returns `true` if no writer has written, discarded or moved data of the image since the view
    /// was opened; always for a snapshot. Blocks.
    ///
    /// # Errors
    /// As for [`View::open`].
    pub fn is_current(&self) -> io::Result<bool> {
        let reader = Reader { client: &self.client };
        let now = async { recovered(&self.url, &self.client, reader.head().await?).await };
        let (_, map) = blocking(&self.url, now)?;
        Ok(map.extents() == self.map.extents())
    }

    /// Returns the runs of a range as an iterator, because a large image may have millions of runs.
    fn runs(&self, blocks: Range<u64>) -> impl Iterator<Item = Run> + '_ {
        let most = RUN_BYTES_MAX / u64::from(self.head.geometry.block_bytes);
        let all = self.map.extents().iter_from(blocks.start);
        let inside = all.take_while(move |(block, _)| *block < blocks.end);
        let cut = move |(block, extent): (u64, Extent)| {
            let first = blocks.start.saturating_sub(block);
            let end = u64::from(extent.blocks).min(blocks.end - block);
            (first..end).step_by(most as usize).map(move |at| Run {
                block: block + at,
                extent: Extent {
                    sequence: extent.sequence,
                    index: extent.index + at as u32,
                    blocks: (end - at).min(most) as u32,
                },
            })
        };
        inside.flat_map(cut)
    }

    pub(crate) fn blocks_of(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let Geometry { block_bytes, size_bytes, .. } = self.head.geometry;
        let bytes = u64::from(block_bytes);
        let end = offset.checked_add(len).filter(|end| *end <= size_bytes)?;
        (offset.is_multiple_of(bytes) && end.is_multiple_of(bytes))
            .then(|| offset / bytes..end / bytes)
    }

    /// Reads blocks. The outer error means that the store did not answer or failed, the inner error
    /// that stored data is missing or damaged.
    pub(crate) async fn read_blocks(&self, blocks: Range<u64>) -> Result<Stored, String> {
        let bytes = self.head.geometry.block_bytes as usize;
        let mut all = vec![0; (blocks.end - blocks.start) as usize * bytes];
        let reads = self.runs(blocks.clone()).map(|run| async {
            let at = (run.block - blocks.start) as usize * bytes;
            self.read(run).await.map(|data| (at, data))
        });
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(read) = reads.next().await {
            match read? {
                (at, Ok(data)) => all[at..at + data.len()].copy_from_slice(&data),
                (_, Err(why)) => return Ok(Err(why)),
            }
        }
        Ok(Ok(all))
    }

    async fn read(&self, Run { block, extent }: Run) -> Result<Stored, String> {
        let stored = self.head.geometry.stored_bytes();
        let segment = self.map.segments().get(&extent.sequence);
        let data_start = segment.map_or(0, |it| u64::from(it.data_start));
        let start = data_start + u64::from(extent.index) * stored as u64;
        let range = start..start + u64::from(extent.blocks) * stored as u64;
        let key = Key::Segment(extent.sequence);
        let codec = self.head.codec(self.cipher.as_ref(), extent.sequence);
        let reader = Reader { client: &self.client };
        let of = (&self.head.bases, self.head.image);
        let read = reader.read_range(of, (key, Some(Data { anew: false })), range, |bytes, _| {
            let mut data = Vec::with_capacity(bytes.len());
            for (block, it) in (block..).zip(bytes.chunks(stored)) {
                codec.append(&mut data, it, block).ok()?;
            }
            (bytes.len() == extent.blocks as usize * stored).then_some(data)
        });
        match read.await? {
            Read::Good(data) => Ok(Ok(data)),
            other => {
                let base = self.head.bases.of(key);
                let folder = base.map(|base| format!("{}/", base.path)).unwrap_or_default();
                let name = key.name(self.head.image_of(key));
                let why = match (&self.url.snapshot, base.is_none()) {
                    (None, true) => "the server moved its data meanwhile, or the image is damaged",
                    (Some(_), true) => {
                        "the snapshot was removed meanwhile, or the image is damaged"
                    }
                    (_, false) => "the data of the cloned snapshot are lost",
                };
                let what = other.what();
                Ok(Err(format!("{folder}{name} is {what}: {why} (see nowait image check)")))
            }
        }
    }
}

/// `now` is the present head of the image.
async fn recovered(url: &StoreUrl, client: &Client, mut now: Head) -> Result<(Head, Map), String> {
    let reader = Reader { client };
    for _ in 0..ROUNDS_MAX {
        let head = now;
        let mut listed = BTreeSet::new();
        let (meant, end) = if let Some(name) = &url.snapshot {
            let snapshot = head.snapshot(name).ok_or("no such snapshot: see nowait image info")?;
            (head.as_of(snapshot), LogEnd::At(snapshot.end))
        } else {
            listed.extend(segments(&reader.list().await?, head.image));
            (head.clone(), LogEnd::of(&head, &listed))
        };
        let recovered = reader.recovered(&meant, end).await?;
        now = reader.head().await?;
        // If the head has changed, a writer may have deleted objects that only the earlier head
        // needed. No writer deletes objects that a snapshot needs.
        let is_same = match &url.snapshot {
            Some(name) => head
                .snapshot(name)
                .is_some_and(|it| now.snapshot(name).is_some_and(|now| now.is(it))),
            None => now == head,
        };
        if is_same {
            return match recovered {
                (Some(map), hits) if hits.is_empty() => Ok((meant, map)),
                (_, hits) => Err(hits.first().map_or_else(String::new, |hit| {
                    format!("{} is {}: see nowait image check", hit.key, hit.what)
                })),
            };
        }
    }
    Err("the head changes too fast to be read: stop the image's server first".to_owned())
}
