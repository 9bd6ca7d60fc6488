//! The medium: files by descriptor, the bytes that reads see, and the durable ones.
//!
//! ```text
//!  write ──▶ volatile ◀── read
//!              │ each change, in order
//!            pending ──(flush: those before its mark)──▶ durable ──▶ left after a power cut
//! ```
//!
//! A pending write is a snapshot of its sectors, so that the legal contents of a sector are exactly
//! its durable one and its pending ones.

use crate::{
    prng::{Prng, mix},
    sectors::{Map, Sectors, zero},
};
use core::ops::Range;
use nowait_sys::Errno;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) sector_bytes: usize,
    /// Chooses the bad sectors, which are the same after a power cut.
    salt: u64,
    files: Vec<File>,
    descriptors: BTreeMap<i32, Descriptor>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) file: usize,
    pub(crate) direct: bool,
}

/// One file: the state that reads see, and the durable part of it.
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) volatile: Sectors,
    pub(crate) durable: Sectors,
    pub(crate) pending: Vec<PendingChange>,
    changes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PendingChange {
    number: u64,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A write of these sectors; `size` is the new size if the file grew.
    Write { sectors: Map, size: Option<u64> },
    /// The size went up.
    Grow(u64),
    /// The size went down.
    Shrink(u64),
    /// The range became a hole.
    Punch(Range<u64>),
}

impl Store {
    pub(crate) fn new(sector_bytes: usize, salt: u64) -> Store {
        Store { sector_bytes, salt, files: Vec::new(), descriptors: BTreeMap::new() }
    }

    pub(crate) fn rebooted(&self, mut remains: impl FnMut(usize, &File) -> Sectors) -> Store {
        let files = self.files.iter().enumerate();
        let files = files.map(|(index, file)| File::new(remains(index, file))).collect();
        Store { files, ..self.clone() }
    }

    pub(crate) fn create(&mut self, fd: i32, size: u64) {
        let file = self.files.len();
        let before = self.descriptors.insert(fd, Descriptor { file, direct: false });
        assert!(before.is_none(), "descriptor {fd} is in use");
        self.files.push(File::new(Sectors::new(self.sector_bytes, size)));
    }

    pub(crate) fn open_direct(&mut self, fd: i32, direct_fd: i32) {
        let file = self.descriptor(fd).expect("an open descriptor").file;
        let before = self.descriptors.insert(direct_fd, Descriptor { file, direct: true });
        assert!(before.is_none(), "descriptor {direct_fd} is in use");
    }

    pub(crate) fn descriptor(&self, fd: i32) -> Result<Descriptor, Errno> {
        self.descriptors.get(&fd).copied().ok_or(Errno::BADF)
    }

    pub(crate) fn file(&self, file: usize) -> &File {
        &self.files[file]
    }

    pub(crate) fn file_mut(&mut self, file: usize) -> &mut File {
        &mut self.files[file]
    }

    pub(crate) fn by_fd(&self, fd: i32) -> Result<&File, Errno> {
        Ok(self.file(self.descriptor(fd)?.file))
    }

    pub(crate) fn by_fd_mut(&mut self, fd: i32) -> Result<&mut File, Errno> {
        let file = self.descriptor(fd)?.file;
        Ok(self.file_mut(file))
    }

    pub(crate) fn good_bytes(&self, file: usize, offset: u64, len: usize, bad_ppm: u32) -> usize {
        let sector_bytes = self.sector_bytes as u64;
        let end = offset + len as u64;
        let is_bad = |index: &u64| {
            let mut prng = Prng::new(self.salt ^ mix(mix(file as u64 + 1) ^ index));
            prng.chance(bad_ppm)
        };
        let bad = match bad_ppm {
            0 => None,
            _ => (offset / sector_bytes..end.div_ceil(sector_bytes)).find(is_bad),
        };
        bad.map_or(len, |index| (index * sector_bytes).saturating_sub(offset) as usize)
    }

    pub(crate) fn room(&self, file: usize, offset: u64, len: usize, capacity_bytes: u64) -> usize {
        let sector_bytes = self.sector_bytes as u64;
        let used: u64 = self.files.iter().map(|file| file.volatile.allocated_bytes()).sum();
        let mut free = capacity_bytes.saturating_sub(used) / sector_bytes;
        let end = offset + len as u64;
        for index in offset / sector_bytes..end.div_ceil(sector_bytes) {
            if self.file(file).volatile.is_hole(index) {
                if free == 0 {
                    return (index * sector_bytes).saturating_sub(offset) as usize;
                }
                free -= 1;
            }
        }
        len
    }
}

impl File {
    /// Makes an empty file; panics if `sector_bytes` is 0.
    pub fn empty(sector_bytes: usize) -> File {
        assert!(sector_bytes > 0, "a sector has bytes");
        File::new(Sectors::new(sector_bytes, 0))
    }

    fn new(sectors: Sectors) -> File {
        File { volatile: sectors.clone(), durable: sectors, pending: Vec::new(), changes: 0 }
    }

    /// Returns the size that reads see.
    pub fn size(&self) -> u64 {
        self.volatile.size()
    }

    /// Returns the bytes at `offset` that reads see: at most `len`, fewer at the end of the file.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.volatile.read(offset, len)
    }

    /// Returns a point in the file's history: a flush that begins now covers the changes before
    /// this point.
    pub fn mark(&self) -> u64 {
        self.changes
    }

    /// Writes `bytes` at `offset`; the change is pending.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.note(Change::write(&self.volatile, offset, bytes));
    }

    pub(crate) fn write_partly(&mut self, mut sectors: Map) {
        let end = self.volatile.size();
        zero(&mut sectors, self.volatile.sector_bytes(), end..u64::MAX);
        if !sectors.is_empty() {
            self.note(Change::Write { sectors, size: None });
        }
    }

    /// Cuts the file off, or extends it with zeroes; the change is pending.
    pub fn set_len(&mut self, len: u64) {
        let before = self.volatile.size();
        if len != before {
            self.note(if len > before { Change::Grow(len) } else { Change::Shrink(len) });
        }
    }

    /// Makes the part of `range` inside the file a hole; the change is pending.
    pub fn punch(&mut self, range: Range<u64>) {
        let end = range.end.min(self.volatile.size());
        if range.start < end {
            self.note(Change::Punch(range.start..end));
        }
    }

    fn note(&mut self, change: Change) {
        change.apply(&mut self.volatile);
        self.pending.push(PendingChange { number: self.changes, change });
        self.changes += 1;
    }

    /// Makes the changes before `mark` durable.
    pub fn flush(&mut self, mark: u64) {
        let count = self.pending.partition_point(|pending| pending.number < mark);
        for pending in self.pending.drain(..count) {
            pending.change.apply(&mut self.durable);
        }
    }

    /// Loses the pending writes before `mark` for which `lost` returns `true`: reads see them, and
    /// no flush writes them.
    pub fn forget(&mut self, mark: u64, mut lost: impl FnMut() -> bool) {
        for pending in self.pending.iter_mut().filter(|pending| pending.number < mark) {
            if let Change::Write { sectors, .. } = &mut pending.change
                && lost()
            {
                sectors.clear();
            }
        }
    }

    /// Makes a range durable, and, as a journal would, all sizes and holes: the effect of
    /// RWF_DSYNC.
    pub fn sync(&mut self, range: Range<u64>) {
        self.commit_journal();
        let sector_bytes = self.durable.sector_bytes();
        let covered = range.start / sector_bytes..range.end.div_ceil(sector_bytes);
        for pending in &mut self.pending {
            if let Change::Write { sectors, .. } = &mut pending.change {
                let synced: Map = sectors.extract_if(covered.clone(), |_, _| true).collect();
                self.durable.put(&synced);
            }
        }
    }

    /// The data of writes stays pending, without the parts that a later hole or truncation removed.
    fn commit_journal(&mut self) {
        let sector_bytes = self.durable.sector_bytes();
        let mut writes: Vec<PendingChange> = Vec::new();
        for mut pending in core::mem::take(&mut self.pending) {
            let hole = match &mut pending.change {
                Change::Write { size, .. } => {
                    self.durable.grow(size.take().unwrap_or(0));
                    writes.push(pending);
                    continue;
                }
                Change::Grow(_) => 0..0,
                Change::Shrink(len) => *len..u64::MAX,
                Change::Punch(range) => range.clone(),
            };
            for write in &mut writes {
                if let Change::Write { sectors, .. } = &mut write.change {
                    zero(sectors, sector_bytes, hole.clone());
                }
            }
            pending.change.apply(&mut self.durable);
        }
        self.pending = writes;
    }
}

impl Change {
    pub(crate) fn write(file: &Sectors, offset: u64, bytes: &[u8]) -> Change {
        let end = offset + bytes.len() as u64;
        let size = (end > file.size()).then_some(end);
        Change::Write { sectors: file.overlay(offset, bytes), size }
    }

    fn apply(&self, file: &mut Sectors) {
        match self {
            Change::Write { sectors, size } => {
                file.put(sectors);
                file.grow(size.unwrap_or(0));
            }
            Change::Grow(size) | Change::Shrink(size) => file.set_size(*size),
            Change::Punch(range) => file.zero(range.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Write(u64, Vec<u8>),
        SyncWrite(u64, Vec<u8>),
        SetLen(u64),
        Punch(u64, u64),
        Flush,
    }

    fn op() -> impl Strategy<Value = Op> {
        let place = || prop_oneof![0..2500u64, (0..5u64, 0..3u64).prop_map(|(n, d)| n * 512 + d)];
        let bytes = || (1..1100usize, 1..=u8::MAX).prop_map(|(len, byte)| vec![byte; len]);
        prop_oneof![
            4 => (place(), bytes()).prop_map(|(offset, bytes)| Op::Write(offset, bytes)),
            1 => (place(), bytes()).prop_map(|(offset, bytes)| Op::SyncWrite(offset, bytes)),
            1 => place().prop_map(Op::SetLen),
            1 => (place(), place()).prop_map(|(a, b)| Op::Punch(a.min(b), a.max(b))),
            1 => Just(Op::Flush),
        ]
    }

    fn apply(op: &Op, file: &mut File, model: &mut Vec<u8>) {
        match op {
            Op::Write(offset, bytes) | Op::SyncWrite(offset, bytes) => {
                let range = *offset as usize..*offset as usize + bytes.len();
                model.resize(model.len().max(range.end), 0);
                model[range].copy_from_slice(bytes);
                file.write(*offset, bytes);
                if matches!(op, Op::SyncWrite(..)) {
                    file.sync(*offset..offset + bytes.len() as u64);
                }
            }
            Op::SetLen(len) => {
                model.resize(*len as usize, 0);
                file.set_len(*len);
            }
            Op::Punch(from, to) => {
                let len = model.len();
                model[(*from as usize).min(len)..(*to as usize).min(len)].fill(0);
                file.punch(*from..*to);
            }
            Op::Flush => file.flush(file.mark()),
        }
    }

    fn bytes(sectors: &Sectors) -> Vec<u8> {
        sectors.read(0, usize::MAX)
    }

    proptest! {
        /// Without losses, a power cut changes nothing. With losses, it changes neither a file that
        /// was just flushed nor the last synchronous write.
        #[test]
        fn a_file_agrees_with_an_array_across_power_cuts(
            ops in prop::collection::vec(op(), 0..30),
            seed in any::<u64>(),
        ) {
            let mut file = File::new(Sectors::new(512, 700));
            let mut model = vec![0; 700];
            let mut prng = Prng::new(seed);
            for op in &ops {
                apply(op, &mut file, &mut model);
                prop_assert_eq!(&bytes(&file.volatile), &model);
                prop_assert_eq!(&bytes(&file.remains(&[], &Faults::none(), &mut prng)), &model);
                let left = bytes(&file.remains(&[], &Faults::volatile_cache(), &mut prng));
                if let Op::SyncWrite(offset, bytes) = op {
                    prop_assert_eq!(&left[*offset as usize..][..bytes.len()], &bytes[..]);
                }
                if matches!(op, Op::Flush) {
                    prop_assert_eq!(&left, &model);
                    prop_assert!(file.pending.is_empty());
                }
            }
        }
    }
}
