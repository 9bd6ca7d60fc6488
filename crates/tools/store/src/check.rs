//! What is wrong with an image, found by reading it: nothing is put, and its writer is not
//! replaced.
//!
//! ```text
//!   list ─▶ head ─▶ parts of the map ─▶ headers behind it, to the end of the log
//!     ─▶ each segment with live blocks, whole ─▶ head: if it is another now, all of it again
//! ```

use crate::client::Client;
use crate::place::StoreOptions;
use crate::reader::{Hit, Read, Reader, blocking, client, last_segment};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_log::geometry::DATA_BYTES_MAX;
use nowait_log::segment::{HEADER_BYTES_MAX, stored_block};
use nowait_log::{Extent, Head, Key, Map};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// How often the head may change while an image is read.
const ROUNDS_MAX: u32 = 5;

/// Objects that are read at the same time. Each may be as long as a segment.
const READS_AT_ONCE: usize = 4;

/// An object that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name, behind that of the image.
    pub key: Key,
    /// What is wrong with it.
    pub what: &'static str,
    /// The bytes of the image that are hit, in ascending order.
    pub ranges: Vec<Range<u64>>,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The head of the image.
    pub head: Head,
    /// How many objects it has in the store.
    pub objects: u64,
    /// Bytes of them.
    pub stored_bytes: u64,
    /// Bytes of the image that are stored; the others are zeroes.
    pub live_bytes: u64,
    /// Segments with such bytes.
    pub segments: u64,
    /// What is wrong. Nothing: every byte that was flushed can be read.
    pub findings: Vec<Finding>,
}

/// Reads all of an image that is live. Blocks.
///
/// # Errors
/// There is no image, its head is damaged, or the store cannot be used: in one line.
pub fn check(url: &StoreUrl, options: &StoreOptions) -> io::Result<Report> {
    check_on(url, &client(url, options)?)
}

/// The same of a store that is there.
pub(crate) fn check_on(url: &StoreUrl, client: &Client) -> io::Result<Report> {
    blocking(url, async {
        for _ in 0..ROUNDS_MAX {
            let report = Reader { client }.report().await?;
            // A writer may have deleted what the head before still needed.
            if report.findings.is_empty() || (Reader { client }.head().await?) == report.head {
                return Ok(report);
            }
        }
        Err("it changes too fast to be checked; stop its writer first".to_owned())
    })
}

type Extents = Vec<(u64, Extent)>;

impl Reader<'_> {
    async fn report(&self) -> Result<Report, String> {
        // Listed first: what is listed was put, so the log goes at least so far.
        let listed = self.list().await?;
        let head = self.head().await?;
        let mut report = Report {
            objects: listed.len() as u64,
            stored_bytes: listed.values().sum(),
            live_bytes: 0,
            segments: 0,
            findings: Vec::new(),
            head,
        };
        let (map, hits) = self.recovered(&report.head, last_segment(&listed)).await?;
        hits.into_iter().for_each(|hit| report.all_is_hit(hit));
        if let Some(map) = map {
            self.read_segments(&map, &mut report).await?;
        }
        report.findings.sort_by_key(|finding| finding.key);
        Ok(report)
    }

    /// Reads each segment that has live blocks, and compares their checksums.
    async fn read_segments(&self, map: &Map, report: &mut Report) -> Result<(), String> {
        let mut segments: BTreeMap<u64, Extents> = BTreeMap::new();
        let block_bytes = u64::from(report.head.geometry.block_bytes);
        for (block, extent) in map.extents().iter() {
            report.live_bytes += u64::from(extent.blocks) * block_bytes;
            segments.entry(extent.sequence).or_default().push((block, extent));
        }
        report.segments = segments.len() as u64;
        let known: Vec<Key> = report.findings.iter().map(|finding| finding.key).collect();
        let wanted = segments.iter().filter(|(at, _)| !known.contains(&Key::Segment(**at)));
        let stored_bytes = report.head.geometry.stored_bytes();
        let reads = wanted.map(|(sequence, extents)| {
            let data_start = map.segments().get(sequence).map_or(0, |it| it.data_start as usize);
            self.read_segment(*sequence, extents, data_start, stored_bytes)
        });
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(read) = reads.next().await {
            let Some((key, what, blocks)) = read? else { continue };
            let ranges = merged(blocks, block_bytes);
            report.findings.push(Finding { key, what, ranges });
        }
        Ok(())
    }

    /// What is wrong with a segment: the blocks of the image that cannot be read.
    async fn read_segment(
        &self,
        sequence: u64,
        extents: &Extents,
        data_start: usize,
        stored_bytes: usize,
    ) -> Result<Option<(Key, &'static str, Vec<u64>)>, String> {
        let mut bad = Vec::new();
        let whole = HEADER_BYTES_MAX + DATA_BYTES_MAX + DATA_BYTES_MAX / 512 * 4;
        let key = Key::Segment(sequence);
        let read = self.read(key, whole, |bytes, _| {
            bad.clear();
            for (block, extent) in extents {
                for at in 0..extent.blocks {
                    let start = data_start + (extent.index + at) as usize * stored_bytes;
                    let block = block + u64::from(at);
                    let stored = bytes.get(start..start + stored_bytes);
                    if stored.is_none_or(|it| stored_block(it, block, sequence).is_err()) {
                        bad.push(block);
                    }
                }
            }
            bad.is_empty().then_some(())
        });
        let read = read.await?;
        if matches!(read, Read::Missing) {
            let blocks = |(block, it): &(u64, Extent)| *block..*block + u64::from(it.blocks);
            bad = extents.iter().flat_map(blocks).collect();
        }
        let is_good = matches!(read, Read::Good(()));
        Ok((!is_good).then(|| (key, read.what(), bad)))
    }
}

impl Report {
    /// Notes that an object is wrong without which nothing is known of any block.
    fn all_is_hit(&mut self, Hit { key, what }: Hit) {
        let ranges = std::iter::once(0..self.head.geometry.size_bytes).collect();
        self.findings.push(Finding { key, what, ranges });
    }
}

/// The bytes of blocks, those side by side as one range.
fn merged(mut blocks: Vec<u64>, block_bytes: u64) -> Vec<Range<u64>> {
    blocks.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        let start = block * block_bytes;
        match ranges.last_mut() {
            Some(range) if range.end == start => range.end += block_bytes,
            _ => ranges.push(start..start + block_bytes),
        }
    }
    ranges
}
