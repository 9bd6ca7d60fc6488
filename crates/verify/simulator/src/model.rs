//! The model of a file: an array of bytes, and the other values that each byte may have.

use nowait_cache::FRAME_BYTES;

#[derive(Clone, Debug)]
struct Doubt {
    offset: u64,
    bytes: Vec<u8>,
}

impl Doubt {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The contents of one file as its user knows them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    bytes: Vec<u8>,
    doubts: Vec<Doubt>,
    /// Bytes that another process has overwritten. The cache may have them, and must not write
    /// them.
    stale: Vec<Doubt>,
}

impl Model {
    /// Returns a file of `size` zeroes.
    pub fn new(size: u64) -> Model {
        Model { bytes: vec![0; size as usize], ..Model::default() }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Records a write of `data`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.touch(offset, end);
        self.settle(offset, end);
        self.grow(end);
        self.bytes[offset as usize..end as usize].copy_from_slice(data);
    }

    /// Records that any bytes of `data` may have been written.
    pub fn doubt(&mut self, offset: u64, data: &[u8]) {
        if !data.is_empty() {
            self.touch(offset, offset + data.len() as u64);
            self.doubts.push(Doubt { offset, bytes: data.to_vec() });
        }
    }

    /// Records that another process has written `data`, inside the file.
    pub fn write_by_rival(&mut self, offset: u64, data: &[u8]) {
        let range = offset as usize..offset as usize + data.len();
        self.stale.push(Doubt { offset, bytes: self.bytes[range.clone()].to_vec() });
        let still =
            self.doubts.iter().filter(|it| it.offset < range.end as u64 && offset < it.end());
        let still: Vec<Doubt> = still.cloned().collect();
        self.stale.extend(still);
        self.settle(offset, range.end as u64);
        self.bytes[range].copy_from_slice(data);
    }

    /// Records that the file was opened again: nothing of it is cached.
    pub fn reopen(&mut self) {
        self.stale.clear();
    }

    /// The cache may write all cached bytes of dirty pages to disk, also stale ones.
    fn touch(&mut self, from: u64, end: u64) {
        let page = FRAME_BYTES as u64;
        let (from, end) = (from / page * page, end.next_multiple_of(page));
        for stale in &self.stale {
            let at = |byte: u64| (byte.clamp(stale.offset, stale.end()) - stale.offset) as usize;
            let bytes = stale.bytes[at(from)..at(end)].to_vec();
            let offset = from.max(stale.offset);
            self.doubts.extend((!bytes.is_empty()).then_some(Doubt { offset, bytes }));
        }
        self.stale = cut(core::mem::take(&mut self.stale), from, end);
    }

    /// Records a change of the size.
    pub fn set_size(&mut self, size: u64) {
        self.settle(size, u64::MAX);
        self.stale = cut(core::mem::take(&mut self.stale), size, u64::MAX);
        self.bytes.resize(size as usize, 0);
    }

    /// Records that the file is at least this long; new bytes are zeroes.
    pub fn grow(&mut self, size: u64) {
        if size > self.size() {
            self.bytes.resize(size as usize, 0);
        }
    }

    /// Takes the bytes as the content of the file: nothing is in doubt any more.
    pub fn adopt(&mut self, bytes: &[u8]) {
        *self = Model { bytes: bytes.to_vec(), ..Model::default() };
    }

    /// Returns `true` if every byte is certain.
    pub fn is_certain(&self) -> bool {
        self.doubts.is_empty()
    }

    /// Returns the number of bytes that a read of `len` at `offset` returns.
    pub fn readable(&self, offset: u64, len: usize) -> usize {
        self.size().saturating_sub(offset).min(len as u64) as usize
    }

    /// Checks the bytes of a read at `offset`.
    ///
    /// # Errors
    /// The offset of the first wrong byte, and the value expected there.
    pub fn judge(&self, offset: u64, read: &[u8]) -> Result<(), (u64, u8)> {
        self.judge_by(offset, read, |at, byte| {
            may_be(&self.doubts, at, byte) || may_be(&self.stale, at, byte)
        })
    }

    /// Checks the bytes on disk at `offset`; fails like [`Model::judge`].
    pub fn judge_disk(&self, offset: u64, found: &[u8]) -> Result<(), (u64, u8)> {
        self.judge_by(offset, found, |at, byte| may_be(&self.doubts, at, byte))
    }

    fn judge_by(
        &self,
        offset: u64,
        read: &[u8],
        may_be: impl Fn(u64, u8) -> bool,
    ) -> Result<(), (u64, u8)> {
        let behind = self.bytes.get(offset as usize..).unwrap_or_default();
        let expected = &behind[..behind.len().min(read.len())];
        if expected == read {
            return Ok(());
        }
        for (at, byte) in (offset..).zip(read) {
            let known = self.bytes.get(at as usize).copied();
            if known != Some(*byte) && !may_be(at, *byte) {
                return Err((at, known.unwrap_or(0)));
            }
        }
        Ok(())
    }

    fn settle(&mut self, from: u64, end: u64) {
        if !self.doubts.is_empty() {
            self.doubts = cut(core::mem::take(&mut self.doubts), from, end);
        }
    }
}

fn may_be(doubts: &[Doubt], at: u64, byte: u8) -> bool {
    let mut here = doubts.iter().filter(|doubt| (doubt.offset..doubt.end()).contains(&at));
    here.any(|doubt| doubt.bytes[(at - doubt.offset) as usize] == byte)
}

fn cut(doubts: Vec<Doubt>, from: u64, end: u64) -> Vec<Doubt> {
    let mut left = Vec::new();
    for doubt in doubts {
        let cut = |at: u64| (at.clamp(doubt.offset, doubt.end()) - doubt.offset) as usize;
        let (before, after) = (cut(from), cut(end));
        if before == doubt.bytes.len() || after == 0 {
            left.push(doubt);
            continue;
        }
        if before > 0 {
            left.push(Doubt { offset: doubt.offset, bytes: doubt.bytes[..before].to_vec() });
        }
        if after < doubt.bytes.len() {
            let offset = doubt.offset + after as u64;
            left.push(Doubt { offset, bytes: doubt.bytes[after..].to_vec() });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_allows_both_until_it_is_overwritten() {
        let mut model = Model::new(8);
        model.doubt(2, &[1; 4]);
        assert_eq!(model.judge(0, &[0, 0, 1, 0, 1, 1, 0, 0]), Ok(()));
        assert_eq!(model.judge(0, &[1]), Err((0, 0)));
        model.write(3, &[2; 2]);
        assert_eq!(model.judge(0, &[0, 0, 1, 2, 2, 0]), Ok(()));
        assert_eq!(model.judge(3, &[1]), Err((3, 2)));
        assert!(!model.is_certain());
        model.set_size(3);
        model.write(2, &[3]);
        assert!(model.is_certain());
        assert_eq!(model.readable(1, 10), 2);
    }

    #[test]
    fn what_a_rival_has_replaced_may_be_read_and_be_on_disk_only_if_its_page_was_written_to() {
        let page = FRAME_BYTES as u64;
        let mut model = Model::new(2 * page);
        model.write_by_rival(0, &vec![1; 2 * FRAME_BYTES]);
        assert_eq!(model.judge(0, &[0, 1]), Ok(()));
        assert_eq!(model.judge_disk(0, &[0]), Err((0, 1)));
        model.write(page + 3, &[2]);
        assert_eq!(model.judge_disk(page, &[0, 1, 0, 2]), Ok(()));
        assert_eq!(model.judge_disk(0, &[0]), Err((0, 1)));
        model.reopen();
        assert_eq!(model.judge(0, &[0]), Err((0, 1)));
    }

    #[test]
    fn what_was_cut_off_is_zero_when_the_file_grows_again() {
        let mut model = Model::new(0);
        model.write(0, &[1; 4]);
        model.set_size(2);
        model.grow(4);
        assert_eq!(model.judge(0, &[1, 1, 0, 0]), Ok(()));
        assert_eq!(model.judge(0, &[1, 1, 0, 0, 0]), Err((4, 0)), "longer than the file");
    }
}
