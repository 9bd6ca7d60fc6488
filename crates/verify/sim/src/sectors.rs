//! A sparse file of whole sectors.

use core::ops::Range;
use std::{collections::BTreeMap, sync::Arc};

/// Sectors by index, each of the file's sector size. A missing sector is a hole.
pub(crate) type Map = BTreeMap<u64, Arc<[u8]>>;

/// The bytes of a file and its size. The bytes beyond the size, in its last sector, are zero.
#[derive(Clone, Debug)]
pub(crate) struct Sectors {
    sector_bytes: u64,
    size: u64,
    map: Map,
}

impl Sectors {
    pub(crate) fn new(sector_bytes: usize, size: u64) -> Sectors {
        Sectors { sector_bytes: sector_bytes as u64, size, map: Map::new() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.map.len() as u64 * self.sector_bytes
    }

    pub(crate) fn is_hole(&self, index: u64) -> bool {
        !self.map.contains_key(&index)
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset));
        let mut bytes = vec![0; len as usize];
        for (index, at, part) in parts(self.sector_bytes, offset, len) {
            if let Some(sector) = self.map.get(&index) {
                bytes[at..][..part.len()].copy_from_slice(&sector[part]);
            }
        }
        bytes
    }

    pub(crate) fn overlay(&self, offset: u64, bytes: &[u8]) -> Map {
        let mut map = Map::new();
        for (index, at, part) in parts(self.sector_bytes, offset, bytes.len() as u64) {
            let mut sector = match self.map.get(&index) {
                Some(sector) => sector.to_vec(),
                None => vec![0; self.sector_bytes as usize],
            };
            let len = part.len();
            sector[part].copy_from_slice(&bytes[at..][..len]);
            map.insert(index, sector.into());
        }
        map
    }

    pub(crate) fn put(&mut self, sectors: &Map) {
        self.map.extend(sectors.iter().map(|(index, sector)| (*index, sector.clone())));
    }

    pub(crate) fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        self.zero(size..u64::MAX);
        self.size = size;
    }

    pub(crate) fn zero(&mut self, range: Range<u64>) {
        zero(&mut self.map, self.sector_bytes, range);
    }
}

/// Drops the sectors in `range`, and zeroes the parts of sectors that lie in it.
pub(crate) fn zero(map: &mut Map, sector_bytes: u64, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    let (first, last) = (range.start / sector_bytes, (range.end - 1) / sector_bytes);
    for index in map.range(first..=last).map(|(index, _)| *index).collect::<Vec<_>>() {
        let base = index * sector_bytes;
        let from = range.start.saturating_sub(base).min(sector_bytes) as usize;
        let to = (range.end - base).min(sector_bytes) as usize;
        if (from, to) == (0, sector_bytes as usize) {
            map.remove(&index);
        } else if let Some(sector) = map.get_mut(&index) {
            let mut bytes = sector.to_vec();
            bytes[from..to].fill(0);
            *sector = bytes.into();
        }
    }
}

/// Splits bytes into sectors: index, beginning of the part in the bytes, range in the sector.
fn parts(
    sector_bytes: u64,
    offset: u64,
    len: u64,
) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let end = offset + len;
    let first = offset / sector_bytes;
    (first..end.div_ceil(sector_bytes).max(first)).filter_map(move |index| {
        let base = index * sector_bytes;
        let (from, to) = (base.max(offset), (base + sector_bytes).min(end));
        let part = (from - base) as usize..(to - base) as usize;
        (from < to).then_some((index, (from - offset) as usize, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Write(u64, Vec<u8>),
        Zero(u64, u64),
        SetSize(u64),
    }

    /// Draws any offset, or one near the end of a sector, where mistakes are likely.
    fn place() -> impl Strategy<Value = u64> {
        prop_oneof![0..2100u64, (0..5u64, 0..3u64).prop_map(|(n, d)| (n * 512 + d).max(1) - 1)]
    }

    fn op() -> impl Strategy<Value = Op> {
        let bytes = (1..1200usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
        prop_oneof![
            (place(), bytes).prop_map(|(offset, bytes)| Op::Write(offset, bytes)),
            (place(), place()).prop_map(|(a, b)| Op::Zero(a.min(b), a.max(b))),
            place().prop_map(Op::SetSize),
        ]
    }

    fn apply(op: &Op, file: &mut Sectors, model: &mut Vec<u8>) {
        match op {
            Op::Write(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                model.resize(model.len().max(end), 0);
                model[*offset as usize..end].copy_from_slice(bytes);
                file.put(&file.overlay(*offset, bytes));
                file.grow(end as u64);
            }
            Op::Zero(from, to) => {
                let len = model.len();
                model[(*from as usize).min(len)..(*to as usize).min(len)].fill(0);
                file.zero(*from..*to);
            }
            Op::SetSize(size) => {
                model.resize(*size as usize, 0);
                file.set_size(*size);
            }
        }
    }

    proptest! {
        #[test]
        fn a_file_agrees_with_an_array(ops in prop::collection::vec(op(), 0..40), at in place()) {
            let (mut file, mut model) = (Sectors::new(512, 0), Vec::new());
            for op in &ops {
                apply(op, &mut file, &mut model);
                prop_assert_eq!(file.size(), model.len() as u64);
            }
            prop_assert_eq!(file.read(0, usize::MAX), &model[..]);
            let from = (at as usize).min(model.len());
            let to = (from + 700).min(model.len());
            prop_assert_eq!(file.read(at, 700), &model[from..to]);
        }
    }

    #[test]
    fn holes_take_up_nothing() {
        let mut file = Sectors::new(4096, 1 << 40);
        assert_eq!(file.allocated_bytes(), 0);
        file.put(&file.overlay(1 << 39, &[7]));
        assert_eq!(file.allocated_bytes(), 4096);
        assert!(!file.is_hole((1 << 39) / 4096) && file.is_hole(0));
        file.set_size(0);
        assert_eq!(file.allocated_bytes(), 0);
    }
}
