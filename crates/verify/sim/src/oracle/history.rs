//! The history of one file: its possible contents.

use super::Wrong;
use core::ops::Range;
use std::{collections::BTreeMap, sync::Arc};

#[derive(Clone, Debug)]
pub(super) struct History {
    sector_bytes: usize,
    /// Versions by sector; a missing sector was always zero.
    sectors: BTreeMap<u64, Vec<Version>>,
    /// Sizes that nothing has certainly replaced, the oldest first.
    sizes: Vec<Size>,
    /// Writes that may have made the file longer, each with the end of its bytes.
    grown: Vec<(Life, u64)>,
}

#[derive(Clone, Debug)]
struct Version {
    life: Life,
    content: Arc<[u8]>,
    /// Number of bytes of `content` that count: a whole sector, except at the end of a short write.
    len: usize,
}

/// A size that was set, with the growth by later writes that is durable.
#[derive(Clone, Debug)]
struct Size {
    life: Life,
    bytes_min: u64,
    bytes_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    begin: u64,
    end: Option<u64>,
    good: bool,
    doubted: bool,
}

impl Life {
    const ALWAYS: Life = Life::at_once(0);

    const fn at_once(now: u64) -> Life {
        Life { begin: now, end: Some(now), good: true, doubted: false }
    }

    const fn in_flight(begin: u64) -> Life {
        Life { begin, end: None, good: false, doubted: false }
    }

    fn is_covered(self, begin: u64) -> bool {
        self.good && !self.doubted && self.end.is_some_and(|end| end < begin)
    }

    /// Returns `true` if the change had ended, with any result, when `later` began.
    fn precedes(self, later: Life) -> bool {
        self.end.is_some_and(|end| end < later.begin)
    }
}

impl History {
    pub(super) fn new(sector_bytes: usize, size: u64) -> History {
        let base = Size { life: Life::ALWAYS, bytes_min: size, bytes_max: size };
        History { sector_bytes, sectors: BTreeMap::new(), sizes: vec![base], grown: Vec::new() }
    }

    pub(super) fn of(sector_bytes: usize, bytes: &[u8]) -> History {
        let mut history = History::new(sector_bytes, bytes.len() as u64);
        for (index, chunk) in (0..).zip(bytes.chunks(sector_bytes)) {
            let mut content = chunk.to_vec();
            content.resize(sector_bytes, 0);
            let base = Version { life: Life::ALWAYS, content: content.into(), len: sector_bytes };
            history.sectors.insert(index, vec![base]);
        }
        history
    }

    fn indexes(&self, range: &Range<u64>) -> Range<u64> {
        let sector_bytes = self.sector_bytes as u64;
        range.start / sector_bytes..range.end.div_ceil(sector_bytes)
    }

    fn versions(&mut self, index: u64) -> &mut Vec<Version> {
        let len = self.sector_bytes;
        let zeroes = || vec![Version { life: Life::ALWAYS, content: vec![0; len].into(), len }];
        self.sectors.entry(index).or_insert_with(zeroes)
    }

    pub(super) fn begin_write(&mut self, begin: u64, offset: u64, data: &[u8]) {
        let (life, len) = (Life::in_flight(begin), self.sector_bytes);
        let end = offset + data.len() as u64;
        for (index, content) in self.indexes(&(offset..end)).zip(data.chunks(len)) {
            self.versions(index).push(Version { life, content: content.into(), len });
        }
        if !data.is_empty() {
            self.grown.push((life, end));
        }
    }

    pub(super) fn end_write(&mut self, begin: u64, now: u64, range: Range<u64>, done: usize) {
        let sector_bytes = self.sector_bytes;
        let done_end = range.start + done as u64;
        for index in self.indexes(&range) {
            let covered = done_end.saturating_sub(index * sector_bytes as u64);
            let versions = self.versions(index);
            for version in versions.iter_mut().filter(|version| version.life.begin == begin) {
                version.life.end = Some(now);
                version.life.good = covered >= sector_bytes as u64;
                if covered > 0 {
                    version.len = sector_bytes.min(covered as usize);
                }
            }
        }
        for (life, bytes) in self.grown.iter_mut().filter(|(life, _)| life.begin == begin) {
            (life.end, life.good) = (Some(now), done > 0);
            *bytes = if done > 0 { done_end } else { *bytes };
        }
    }

    pub(super) fn flushed(&mut self, begin: u64, range: &Range<u64>) {
        let sector_bytes = self.sector_bytes as u64;
        let first = range.start.div_ceil(sector_bytes);
        let whole = first..(range.end / sector_bytes).max(first);
        for (_, versions) in self.sectors.range_mut(whole) {
            forget_replaced(versions, |life| life.is_covered(begin));
        }
        if *range == (0..u64::MAX) {
            self.settle_sizes(|life| life.is_covered(begin));
        }
    }

    pub(super) fn synced(&mut self, begin: u64, range: Range<u64>) {
        let is_it = |life: Life| life.good && life.begin == begin;
        for index in self.indexes(&range) {
            forget_replaced(self.versions(index), is_it);
        }
        self.settle_sizes(is_it);
    }

    /// Records a failed flush: earlier changes may be lost permanently, whatever later flushes
    /// return.
    pub(super) fn doubted(&mut self) {
        let versions = self.sectors.values_mut().flatten().map(|version| &mut version.life);
        let grown = self.grown.iter_mut().map(|(life, _)| life);
        let sizes = self.sizes.iter_mut().map(|size| &mut size.life);
        versions.chain(grown).chain(sizes).for_each(|life| life.doubted = true);
    }

    pub(super) fn set_len(&mut self, now: u64, bytes: u64) {
        self.zero(now, bytes..u64::MAX);
        self.sizes.push(Size { life: Life::at_once(now), bytes_min: bytes, bytes_max: bytes });
    }

    pub(super) fn zero(&mut self, now: u64, range: Range<u64>) {
        let (indexes, len) = (self.indexes(&range), self.sector_bytes);
        let zeroes: Arc<[u8]> = vec![0; len].into();
        for (_, versions) in self.sectors.range_mut(indexes) {
            versions.push(Version { life: Life::at_once(now), content: zeroes.clone(), len });
        }
    }

    /// Settled sizes replace earlier sizes, and settled growth enlarges earlier sizes.
    fn settle_sizes(&mut self, settled: impl Fn(Life) -> bool) {
        let set: Vec<Life> = self.sizes.iter().map(|size| size.life).collect();
        let is_replaced = |old: Life| set.iter().any(|new| settled(*new) && old.precedes(*new));
        self.sizes.retain(|size| !is_replaced(size.life));
        let sizes = &mut self.sizes;
        self.grown.retain(|(life, bytes)| {
            if is_replaced(*life) {
                return false;
            }
            if settled(*life) {
                for size in sizes.iter_mut().filter(|size| size.life.precedes(*life)) {
                    size.bytes_min = size.bytes_min.max(*bytes);
                    size.bytes_max = size.bytes_max.max(*bytes);
                }
            }
            let is_apart = |size: &Size| size.life.precedes(*life) || life.precedes(size.life);
            // Growth that overlapped with a change of the size may have come before or after it.
            !settled(*life) || !sizes.iter().all(is_apart)
        });
    }

    /// An error has the offset of the first wrong sector, or the wrong size.
    pub(super) fn judge(&self, left: &[u8]) -> Result<(), (u64, Wrong)> {
        let min = self.sizes.iter().map(|size| size.bytes_min).min().unwrap_or(0);
        let max = self.sizes.iter().map(|size| size.bytes_max);
        let max = max.chain(self.grown.iter().map(|(_, bytes)| *bytes)).max().unwrap_or(0);
        let size = left.len() as u64;
        if size < min || size > max {
            return Err((size, Wrong::Size(min, max)));
        }
        for (index, chunk) in (0u64..).zip(left.chunks(self.sector_bytes)) {
            let legal = match self.sectors.get(&index) {
                Some(versions) if is_legal(versions, chunk, 0) => continue,
                Some(versions) => versions.len(),
                None if chunk.iter().all(|byte| *byte == 0) => continue,
                None => 1,
            };
            return Err((index * self.sector_bytes as u64, Wrong::Content(legal)));
        }
        Ok(())
    }
}

fn forget_replaced(versions: &mut Vec<Version>, settled: impl Fn(Life) -> bool) {
    let new: Vec<Life> = versions.iter().map(|version| version.life).collect();
    versions.retain(|old| !new.iter().any(|new| settled(*new) && old.life.precedes(*new)));
}

/// Returns `true` if the bytes of `chunk` from `from` on can come from versions, each up to its
/// end.
fn is_legal(versions: &[Version], chunk: &[u8], from: usize) -> bool {
    versions.iter().any(|version| {
        let end = version.len.min(chunk.len());
        end > from
            && version.content[from..end] == chunk[from..end]
            && (end == chunk.len() || is_legal(versions, chunk, end))
    })
}
