//! A check reads an image and its snapshots, and reports damage. A check puts no object, and does
//! not replace the writer.
//!
//! ```text
//!   list ─▶ head ─▶ of the image and of each snapshot: parts of the map ─▶ headers behind it
//!   ─▶ each segment with blocks of one of them, whole ─▶ after a finding, head: changed? all again
//! ```

use crate::client::Client;
use crate::place::StoreOptions;
use crate::reader::{Hit, LogEnd, Read, Reader, blocking, client, segments};
use crate::repair::merged;
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_image_format::segment::HEADER_BYTES_MAX;
use nowait_image_format::{Cipher, Encryption, Extent, Head, ImageKey, Key, Map, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// How often a check reads an image if the head changes meanwhile.
const ROUNDS_MAX: u32 = 5;

const READS_AT_ONCE: usize = 4;

/// A missing or damaged object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The key of the object.
    pub key: Key,
    /// The path of the base to which the object belongs; `None`: it belongs to the image.
    pub of: Option<Arc<str>>,
    /// A short description of the damage.
    pub what: &'static str,
    /// The bytes of the image or of snapshots that cannot be read, in ascending order.
    pub ranges: Vec<Range<u64>>,
    /// The image itself has affected bytes.
    pub is_of_image: bool,
    /// The snapshots that have affected bytes.
    pub snapshots: Vec<String>,
}

impl Finding {
    fn of(head: &Head, key: Key, what: &'static str, ranges: Vec<Range<u64>>) -> Finding {
        let of = head.bases.of(key).map(|base| base.path.clone());
        Finding { key, of, what, ranges, is_of_image: false, snapshots: Vec::new() }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The head of the image.
    pub head: Head,
    /// The number of objects below the image's path in the store.
    pub objects: u64,
    /// The bytes of the objects below the image's path in the store.
    pub stored_bytes: u64,
    /// The bytes of the image's stored blocks, without blocks that only snapshots have. All other
    /// blocks of the image are zeroes.
    pub live_bytes: u64,
    /// The number of segments with bytes of the image or of snapshots.
    pub segments: u64,
    /// The damage. If there is none, every flushed byte can be read. But the check does not notice
    /// if the last segments of an image that was not closed are missing, because no object names
    /// them.
    pub findings: Vec<Finding>,
}

/// Reads all live data of an image and its snapshots, and verifies the checksums. With the key of
/// an encrypted image, also verifies the tags of the blocks. Blocks.
///
/// # Errors
/// One line: there is no image, its head is damaged, the key is wrong, or the store cannot be used.
pub fn check(url: &StoreUrl, options: &StoreOptions) -> io::Result<Report> {
    check_on(url, &client(url, options)?, options.key.as_ref())
}

pub(crate) fn check_on(
    url: &StoreUrl,
    client: &Client,
    key: Option<&ImageKey>,
) -> io::Result<Report> {
    blocking(url, async {
        for _ in 0..ROUNDS_MAX {
            let report = Reader { client }.report(key).await?;
            // If the head has changed, a writer may have deleted objects that only the earlier head
            // needed.
            if report.findings.is_empty() || (Reader { client }.head().await?) == report.head {
                return Ok(report);
            }
        }
        Err("the image changes too fast to be checked: stop its server first".to_owned())
    })
}

type Extents = Vec<(u64, Extent)>;

/// For each segment to read: the offset of its data, and the extents to verify.
type Wanted = BTreeMap<u64, (usize, Extents)>;

struct Moment {
    snapshot: Option<Snapshot>,
    head: Head,
}

impl Moment {
    fn end<'a>(&self, listed: &'a BTreeSet<u64>) -> LogEnd<'a> {
        match &self.snapshot {
            Some(snapshot) => LogEnd::At(snapshot.end),
            None => LogEnd::of(&self.head, listed),
        }
    }
}

fn moments(head: &Head) -> Vec<Moment> {
    let image = Moment { snapshot: None, head: head.clone() };
    let then = |snapshot: &Snapshot| {
        let (snapshot, head) = (Some(snapshot.clone()), head.as_of(snapshot));
        Moment { snapshot, head }
    };
    std::iter::once(image).chain(head.snapshots.iter().map(then)).collect()
}

/// Adds the extents of one map, by segment, so that the check reads each segment once for all maps.
fn add(wanted: &mut Wanted, map: &Map) {
    let mut own: BTreeMap<u64, Extents> = BTreeMap::new();
    for (block, extent) in map.extents().iter() {
        own.entry(extent.sequence).or_default().push((block, extent));
    }
    for (sequence, extents) in own {
        let data_start = map.segments().get(&sequence).map_or(0, |it| it.data_start as usize);
        let (_, all) = wanted.entry(sequence).or_insert((data_start, Vec::new()));
        all.extend(extents);
        all.sort_unstable_by_key(|(block, it)| (*block, it.blocks));
        all.dedup();
    }
}

impl Reader<'_> {
    async fn report(&self, key: Option<&ImageKey>) -> Result<Report, String> {
        // List before reading the head: a segment in the list was put before the head was read.
        let listed = self.list().await?;
        let head = self.head().await?;
        let cipher = match key {
            None => None,
            key => Encryption::cipher(head.geometry.encryption.as_ref(), key)?,
        };
        let mut report = Report {
            objects: listed.len() as u64,
            stored_bytes: listed.values().sum(),
            live_bytes: 0,
            segments: 0,
            findings: Vec::new(),
            head,
        };
        let listed = segments(&listed, report.head.image);
        let moments = moments(&report.head);
        let mut wanted = BTreeMap::new();
        // Keep only one map in memory at a time.
        for moment in &moments {
            let Moment { snapshot, head } = moment;
            let (map, hits) = self.recovered(head, moment.end(&listed)).await?;
            hits.into_iter().for_each(|hit| report.all_is_hit(hit, snapshot.as_ref()));
            let Some(map) = map else { continue };
            if snapshot.is_none() {
                let (_, live) = map.held_and_live();
                report.live_bytes = live * u64::from(head.geometry.block_bytes);
            }
            add(&mut wanted, &map);
        }
        report.segments = wanted.len() as u64;
        let known: Vec<Key> = report.findings.iter().map(|finding| finding.key).collect();
        wanted.retain(|sequence, _| !known.contains(&Key::Segment(*sequence)));
        let first = report.findings.len();
        self.read_segments(&wanted, cipher.as_ref(), &mut report).await?;
        if report.findings.len() > first {
            for moment in &moments {
                self.say_which(moment, &listed, &mut report.findings[first..]).await?;
            }
        }
        report.findings.sort_by_key(|finding| finding.key);
        Ok(report)
    }

    async fn read_segments(
        &self,
        all: &Wanted,
        cipher: Option<&Cipher>,
        report: &mut Report,
    ) -> Result<(), String> {
        let head = report.head.clone();
        let block_bytes = u64::from(head.geometry.block_bytes);
        let reads = all.iter().map(|(sequence, (data_start, extents))| {
            self.read_segment((&head, cipher), *sequence, extents, *data_start)
        });
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(read) = reads.next().await {
            let Some((sequence, what, blocks)) = read? else { continue };
            let bytes = |block| block * block_bytes..(block + 1) * block_bytes;
            let ranges = merged(blocks.into_iter().map(bytes).collect());
            let key = Key::Segment(sequence);
            report.findings.push(Finding::of(&head, key, what, ranges));
        }
        Ok(())
    }

    /// Adds `moment` to each finding with a damaged block that `moment` uses.
    async fn say_which(
        &self,
        moment: &Moment,
        listed: &BTreeSet<u64>,
        findings: &mut [Finding],
    ) -> Result<(), String> {
        let Moment { snapshot, head } = moment;
        let (Some(map), _) = self.recovered(head, moment.end(listed)).await? else { return Ok(()) };
        let bytes = u64::from(head.geometry.block_bytes);
        for finding in findings {
            let blocks = |range: &Range<u64>| range.start / bytes..range.end / bytes;
            let mut blocks = finding.ranges.iter().flat_map(blocks);
            let place = |block| map.extents().place(block).map(|it| Key::Segment(it.0));
            if blocks.any(|block| place(block) == Some(finding.key)) {
                finding.is_of_image |= snapshot.is_none();
                finding.snapshots.extend(snapshot.iter().map(|it| it.name.clone()));
            }
        }
        Ok(())
    }

    async fn read_segment(
        &self,
        (head, cipher): (&Head, Option<&Cipher>),
        sequence: u64,
        extents: &Extents,
        data_start: usize,
    ) -> Result<Option<(u64, &'static str, Vec<u64>)>, String> {
        let mut bad = Vec::new();
        let (stored_bytes, codec) = (head.geometry.stored_bytes(), head.codec(cipher, sequence));
        let blocks_max = head.geometry.segment_blocks_max() as usize;
        let whole = HEADER_BYTES_MAX + blocks_max * stored_bytes;
        let key = Key::Segment(sequence);
        let read = self.read((&head.bases, head.image), key, whole, |bytes, _| {
            bad.clear();
            for (block, extent) in extents {
                for at in 0..extent.blocks {
                    let start = data_start + (extent.index + at) as usize * stored_bytes;
                    let block = block + u64::from(at);
                    let stored = bytes.get(start..start + stored_bytes);
                    if stored.is_none_or(|it| codec.check(it, block).is_err()) {
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
    /// Adds an object whose damage makes all blocks of the image or snapshot unreadable.
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
        let finding = Finding::of(&self.head, key, what, ranges);
        self.findings.push(Finding { is_of_image, snapshots, ..finding });
    }
}
