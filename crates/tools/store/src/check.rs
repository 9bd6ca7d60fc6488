//! What is wrong with an image, found by reading it: nothing is put, and its writer is not
//! replaced.
//!
//! ```text
//!   list ─▶ head ─▶ of the image and of each snapshot: parts of the map ─▶ headers behind it
//!     ─▶ each segment with blocks of one of them, whole ─▶ head: if it is another now, all again
//! ```

use crate::client::Client;
use crate::place::StoreOptions;
use crate::reader::{Hit, LogEnd, Read, Reader, blocking, client, last_segment};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_log::geometry::DATA_BYTES_MAX;
use nowait_log::segment::{HEADER_BYTES_MAX, stored_block};
use nowait_log::{Bases, Extent, Head, Key, Map, Snapshot};
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
    /// The bytes that are hit, in ascending order.
    pub ranges: Vec<Range<u64>>,
    /// The image has such bytes.
    pub is_of_image: bool,
    /// Snapshots have such bytes.
    pub snapshots: Vec<String>,
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
    /// Segments with bytes of the image or of snapshots.
    pub segments: u64,
    /// What is wrong. Nothing: every byte that was flushed can be read.
    pub findings: Vec<Finding>,
}

/// Reads all that is live of an image and its snapshots. Blocks.
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

/// The map of the image, or of the snapshot with a name.
type Moment = (Option<String>, Map);

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
        let mut moments = Vec::new();
        let end = LogEnd::Behind(last_segment(&listed));
        let (map, hits) = self.recovered(&report.head, end).await?;
        hits.into_iter().for_each(|hit| report.all_is_hit(hit, None));
        moments.extend(map.map(|map| (None, map)));
        for snapshot in report.head.snapshots.clone() {
            let (head, end) = (report.head.as_of(&snapshot), LogEnd::At(snapshot.end));
            let (map, hits) = self.recovered(&head, end).await?;
            hits.into_iter().for_each(|hit| report.all_is_hit(hit, Some(&snapshot)));
            moments.extend(map.map(|map| (Some(snapshot.name), map)));
        }
        self.read_segments(&moments, &mut report).await?;
        report.findings.sort_by_key(|finding| finding.key);
        Ok(report)
    }

    /// Reads each segment that has live blocks, and compares their checksums.
    async fn read_segments(&self, moments: &[Moment], report: &mut Report) -> Result<(), String> {
        let mut segments: BTreeMap<u64, Extents> = BTreeMap::new();
        let mut data_starts = BTreeMap::new();
        let block_bytes = u64::from(report.head.geometry.block_bytes);
        for (name, map) in moments {
            for (block, extent) in map.extents().iter() {
                if name.is_none() {
                    report.live_bytes += u64::from(extent.blocks) * block_bytes;
                }
                segments.entry(extent.sequence).or_default().push((block, extent));
            }
            let starts = map.segments().iter().map(|(at, it)| (*at, it.data_start as usize));
            data_starts.extend(starts);
        }
        // What several of them have of a segment is looked at once.
        for extents in segments.values_mut() {
            extents.sort_unstable_by_key(|(block, it)| (*block, it.blocks));
            extents.dedup();
        }
        report.segments = segments.len() as u64;
        let known: Vec<Key> = report.findings.iter().map(|finding| finding.key).collect();
        let wanted = segments.iter().filter(|(at, _)| !known.contains(&Key::Segment(**at)));
        let stored_bytes = report.head.geometry.stored_bytes();
        let bases = report.head.bases.clone();
        let reads = wanted.map(|(sequence, extents)| {
            let data_start = data_starts.get(sequence).copied().unwrap_or_default();
            self.read_segment(&bases, *sequence, extents, (data_start, stored_bytes))
        });
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(read) = reads.next().await {
            let Some((sequence, what, blocks)) = read? else { continue };
            let has = |map: &Map| {
                let of_it =
                    |block: &u64| map.extents().place(*block).is_some_and(|it| it.0 == sequence);
                blocks.iter().any(of_it)
            };
            let hit = moments.iter().filter(|(_, map)| has(map));
            let snapshots = hit.filter_map(|(name, _)| name.clone()).collect();
            let is_of_image = moments.iter().any(|(name, map)| name.is_none() && has(map));
            let (key, ranges) = (Key::Segment(sequence), merged(blocks, block_bytes));
            report.findings.push(Finding { key, what, ranges, is_of_image, snapshots });
        }
        Ok(())
    }

    /// What is wrong with a segment: the blocks of the image that cannot be read.
    async fn read_segment(
        &self,
        bases: &Bases,
        sequence: u64,
        extents: &Extents,
        (data_start, stored_bytes): (usize, usize),
    ) -> Result<Option<(u64, &'static str, Vec<u64>)>, String> {
        let mut bad = Vec::new();
        let whole = HEADER_BYTES_MAX + DATA_BYTES_MAX + DATA_BYTES_MAX / 512 * 4;
        let key = Key::Segment(sequence);
        let read = self.read(bases, key, whole, |bytes, _| {
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
        Ok((!is_good).then(|| (sequence, read.what(), bad)))
    }
}

impl Report {
    /// Notes that an object is wrong without which nothing is known of any block of the image, or
    /// of a snapshot.
    fn all_is_hit(&mut self, Hit { key, what }: Hit, snapshot: Option<&Snapshot>) {
        let size_bytes = snapshot.map_or(self.head.geometry.size_bytes, |it| it.size_bytes);
        let name = snapshot.map(|it| it.name.clone());
        if let Some(finding) = self.findings.iter_mut().find(|it| it.key == key) {
            finding.snapshots.extend(name);
            return;
        }
        let ranges = std::iter::once(0..size_bytes).collect();
        let is_of_image = name.is_none();
        let snapshots = name.into_iter().collect();
        self.findings.push(Finding { key, what, ranges, is_of_image, snapshots });
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
