//! The model of a file: an array of bytes, and the values that may be there instead.

/// Bytes of which it is not known whether they were written.
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
    /// Left by writes that failed or were dropped; any byte of them may be there.
    doubts: Vec<Doubt>,
}

impl Model {
    /// Is a file of `size` zeroes.
    pub fn new(size: u64) -> Model {
        Model { bytes: vec![0; size as usize], doubts: Vec::new() }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Notes that `data` was written.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.settle(offset, end);
        self.grow(end);
        self.bytes[offset as usize..end as usize].copy_from_slice(data);
    }

    /// Notes that any bytes of `data` may have been written.
    pub fn doubt(&mut self, offset: u64, data: &[u8]) {
        if !data.is_empty() {
            self.doubts.push(Doubt { offset, bytes: data.to_vec() });
        }
    }

    /// Notes that the size was set.
    pub fn set_size(&mut self, size: u64) {
        self.settle(size, u64::MAX);
        self.bytes.resize(size as usize, 0);
    }

    /// Notes that the file is at least so long: a hole.
    pub fn grow(&mut self, size: u64) {
        if size > self.size() {
            self.bytes.resize(size as usize, 0);
        }
    }

    /// Takes the file for what it has become: nothing is in doubt any more.
    pub fn adopt(&mut self, bytes: &[u8]) {
        *self = Model { bytes: bytes.to_vec(), doubts: Vec::new() };
    }

    /// Tells whether all is known for sure.
    pub fn is_certain(&self) -> bool {
        self.doubts.is_empty()
    }

    /// Returns how many bytes a read of `len` at `offset` gives.
    pub fn readable(&self, offset: u64, len: usize) -> usize {
        self.size().saturating_sub(offset).min(len as u64) as usize
    }

    /// Judges what was read at `offset`.
    ///
    /// # Errors
    /// The first byte that is wrong, and what it should be.
    pub fn judge(&self, offset: u64, read: &[u8]) -> Result<(), (u64, u8)> {
        let behind = self.bytes.get(offset as usize..).unwrap_or_default();
        let expected = &behind[..behind.len().min(read.len())];
        if expected == read {
            return Ok(());
        }
        for (at, byte) in (offset..).zip(read) {
            let known = self.bytes.get(at as usize).copied();
            if known != Some(*byte) && !self.may_be(at, *byte) {
                return Err((at, known.unwrap_or(0)));
            }
        }
        Ok(())
    }

    fn may_be(&self, at: u64, byte: u8) -> bool {
        let mut here = self.doubts.iter().filter(|doubt| (doubt.offset..doubt.end()).contains(&at));
        here.any(|doubt| doubt.bytes[(at - doubt.offset) as usize] == byte)
    }

    /// Forgets the doubts from `from` to before `end`.
    fn settle(&mut self, from: u64, end: u64) {
        if self.doubts.is_empty() {
            return;
        }
        let mut left = Vec::new();
        for doubt in self.doubts.drain(..) {
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
        self.doubts = left;
    }
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
    fn what_was_cut_off_is_zero_when_the_file_grows_again() {
        let mut model = Model::new(0);
        model.write(0, &[1; 4]);
        model.set_size(2);
        model.grow(4);
        assert_eq!(model.judge(0, &[1, 1, 0, 0]), Ok(()));
        assert_eq!(model.judge(0, &[1, 1, 0, 0, 0]), Err((4, 0)), "longer than the file");
    }
}
