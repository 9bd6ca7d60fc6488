//! The oracle: checks the state after a power cut against the promises of the device.
//!
//! The oracle knows nothing of the device. Its caller reports the beginning and the result of each
//! write and flush, and each hole and change of size. A sector may hold the content from any write
//! that no later write has certainly replaced:
//!
//! ```text
//!  write A ├──────┤ok
//!  write B            ├──────┤ok
//!  flush                         ├────┤ok       from here on A cannot come back
//! ```
//!
//! B has certainly replaced A under three conditions: B began after A had ended; B succeeded; and B
//! was synchronous, or a flush that began after B's end succeeded. If two writes overlapped in
//! time, either may be the later one. A write that failed or never ended may have changed any of
//! its sectors; so may a short write, after its last whole sector. If a flush fails, later flushes
//! do not cover the writes that began before the failure.

mod history;

use core::{fmt, ops::Range};
use history::History;
use nowait_sys::Errno;
use std::collections::BTreeMap;

/// The known state of some files. Offsets and lengths are multiples of the sector size.
///
/// Methods panic if a file or request is unknown, or an id is in use. They also panic if a write, a
/// hole or a size is not aligned.
#[derive(Clone, Debug)]
pub struct Oracle {
    sector_bytes: usize,
    /// Number of records, which serves as the time.
    now: u64,
    files: BTreeMap<i32, History>,
    open: BTreeMap<u64, Open>,
}

#[derive(Clone, Debug)]
struct Open {
    fd: i32,
    begin: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Write { offset: u64, len: usize, sync: bool },
    Flush(Range<u64>),
}

/// A sector or size that no promise allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The descriptor of the file.
    pub fd: i32,
    /// First byte of the wrong sector; or the size of the file, if the size is wrong.
    pub offset: u64,
    /// The kind of violation.
    pub what: Wrong,
}

/// The kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The sector holds none of this number of legal contents.
    Content(usize),
    /// The size is not between these two sizes, which are legal.
    Size(u64, u64),
}

impl Oracle {
    /// Makes an oracle without files.
    pub fn new(sector_bytes: usize) -> Oracle {
        assert!(sector_bytes > 0, "a sector has bytes");
        Oracle { sector_bytes, now: 0, files: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// Records a file of `size` zero bytes, durable from the beginning.
    pub fn create(&mut self, fd: i32, size: u64) {
        self.files.insert(fd, History::new(self.sector_bytes, size));
    }

    /// Records the beginning of a write; `sync`: with RWF_DSYNC or RWF_SYNC. The id is free again
    /// after [`Oracle::end`].
    pub fn begin_write(&mut self, id: u64, fd: i32, offset: u64, data: &[u8], sync: bool) {
        self.assert_aligned(offset, data.len() as u64);
        let begin = self.begin(id, fd, What::Write { offset, len: data.len(), sync });
        self.file(fd).begin_write(begin, offset, data);
    }

    /// Records the beginning of an fsync or fdatasync.
    pub fn begin_flush(&mut self, id: u64, fd: i32) {
        self.begin_flush_of(id, fd, 0..u64::MAX);
    }

    /// Records the beginning of an fsync or fdatasync of a range. Its success promises only the
    /// whole sectors of that range, and the size only if the range is `0..u64::MAX`.
    pub fn begin_flush_of(&mut self, id: u64, fd: i32, range: Range<u64>) {
        self.begin(id, fd, What::Flush(range));
        self.file(fd);
    }

    /// Records the result of a write or flush that the program saw.
    pub fn end(&mut self, id: u64, result: Result<u32, Errno>) {
        self.now += 1;
        let now = self.now;
        let Open { fd, begin, what } = self.open.remove(&id).expect("it is in flight");
        let file = self.file(fd);
        match (what, result) {
            (What::Write { offset, len, sync }, result) => {
                let done = result.map_or(0, |done| done as usize);
                file.end_write(begin, now, offset..offset + len as u64, done);
                if sync {
                    file.synced(begin, offset..offset + done as u64);
                }
            }
            (What::Flush(range), Ok(_)) => file.flushed(begin, &range),
            (What::Flush(_), Err(_)) => file.doubted(),
        }
    }

    /// Records a change of a file's size, which takes no time.
    pub fn set_len(&mut self, fd: i32, len: u64) {
        self.assert_aligned(len, 0);
        self.now += 1;
        let now = self.now;
        self.file(fd).set_len(now, len);
    }

    /// Records a hole, which takes no time.
    pub fn punch(&mut self, fd: i32, range: Range<u64>) {
        self.assert_aligned(range.start, range.end);
        self.now += 1;
        let now = self.now;
        self.file(fd).zero(now, range);
    }

    /// Checks the bytes that remain of a file after a power cut.
    ///
    /// # Errors
    /// The first sector, or the size, that breaks a promise.
    pub fn judge(&self, fd: i32, left: &[u8]) -> Result<(), Violation> {
        self.files[&fd].judge(left).map_err(|(offset, what)| Violation { fd, offset, what })
    }

    /// Continues after a power cut with the bytes `left` of a file: they are durable, and no
    /// request on this file is in flight.
    pub fn adopt(&mut self, fd: i32, left: &[u8]) {
        self.open.retain(|_, open| open.fd != fd);
        self.files.insert(fd, History::of(self.sector_bytes, left));
    }

    fn begin(&mut self, id: u64, fd: i32, what: What) -> u64 {
        self.now += 1;
        let before = self.open.insert(id, Open { fd, begin: self.now, what });
        assert!(before.is_none(), "id {id} is in use");
        self.now
    }

    fn file(&mut self, fd: i32) -> &mut History {
        self.files.get_mut(&fd).expect("the file is known")
    }

    fn assert_aligned(&self, a: u64, b: u64) {
        let align = self.sector_bytes as u64;
        assert!(
            a.is_multiple_of(align) && b.is_multiple_of(align),
            "the oracle judges whole sectors"
        );
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { fd, offset, what } = self;
        match what {
            Wrong::Content(legal) => {
                write!(f, "fd {fd}: the sector at {offset:#x} has none of {legal} legal contents")
            }
            Wrong::Size(min, max) => {
                write!(f, "fd {fd}: the size {offset} is not between {min} and {max}")
            }
        }
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = 4;

    fn oracle(size: u64) -> Oracle {
        let mut oracle = Oracle::new(SECTOR);
        oracle.create(3, size);
        oracle
    }

    impl Oracle {
        fn begin_fill(&mut self, id: u64, offset: u64, byte: u8) {
            self.begin_write(id, 3, offset, &[byte; SECTOR], false);
        }

        fn fill(&mut self, offset: u64, byte: u8) {
            self.begin_fill(99, offset, byte);
            self.end(99, Ok(SECTOR as u32));
        }

        fn flush(&mut self) {
            self.begin_flush(99, 3);
            self.end(99, Ok(0));
        }

        fn legal(&self) -> Vec<u8> {
            (0..10).filter(|byte| self.judge(3, &[*byte; SECTOR]).is_ok()).collect()
        }
    }

    #[test]
    fn until_a_flush_any_write_may_be_left() {
        let mut oracle = oracle(4);
        oracle.fill(0, 1);
        oracle.fill(0, 2);
        assert_eq!(oracle.legal(), [0, 1, 2]);
        oracle.flush();
        assert_eq!(oracle.legal(), [2]);
        oracle.begin_fill(1, 0, 3);
        assert_eq!(oracle.legal(), [2, 3]);
    }

    #[test]
    fn a_flush_covers_only_what_had_ended_before_it() {
        let mut oracle = oracle(4);
        oracle.begin_fill(1, 0, 1);
        oracle.begin_flush(2, 3);
        oracle.end(1, Ok(4));
        oracle.end(2, Ok(0));
        assert_eq!(oracle.legal(), [0, 1]);
    }

    #[test]
    fn writes_at_the_same_time_stay_both_possible() {
        let mut oracle = oracle(4);
        oracle.begin_fill(1, 0, 1);
        oracle.begin_fill(2, 0, 2);
        oracle.end(1, Ok(4));
        oracle.end(2, Ok(4));
        oracle.flush();
        assert_eq!(oracle.legal(), [1, 2]);
    }

    #[test]
    fn a_failed_write_may_be_there_and_a_failed_flush_proves_nothing() {
        let mut oracle = oracle(4);
        oracle.begin_fill(1, 0, 1);
        oracle.end(1, Err(Errno::IO));
        oracle.flush();
        assert_eq!(oracle.legal(), [0, 1]);
        oracle.fill(0, 2);
        oracle.begin_flush(1, 3);
        oracle.end(1, Err(Errno::IO));
        oracle.flush();
        assert_eq!(oracle.legal(), [0, 1, 2]);
        oracle.fill(0, 3);
        oracle.flush();
        assert_eq!(oracle.legal(), [3]);
    }

    #[test]
    fn a_short_write_covers_its_first_bytes_only() {
        let mut oracle = oracle(8);
        oracle.begin_write(1, 3, 0, &[1; 8], false);
        oracle.end(1, Ok(6));
        oracle.flush();
        assert_eq!(oracle.judge(3, &[1, 1, 1, 1, 1, 1, 0, 0]), Ok(()));
        assert_eq!(oracle.judge(3, &[1, 1, 1, 1, 0, 0, 0, 0]), Ok(()), "unproven, not illegal");
        let torn = Violation { fd: 3, offset: 4, what: Wrong::Content(2) };
        assert_eq!(oracle.judge(3, &[1, 1, 1, 1, 1, 0, 0, 0]), Err(torn));
        let lost = Violation { fd: 3, offset: 0, what: Wrong::Content(1) };
        assert_eq!(oracle.judge(3, &[0; 8]), Err(lost));
    }

    #[test]
    fn a_synchronous_write_needs_no_flush() {
        let mut oracle = oracle(0);
        oracle.begin_write(1, 3, 0, &[1; 4], true);
        oracle.end(1, Ok(4));
        assert_eq!(oracle.legal(), [1]);
        let lost = Violation { fd: 3, offset: 0, what: Wrong::Size(4, 4) };
        assert_eq!(oracle.judge(3, &[]), Err(lost));
    }

    #[test]
    fn sizes_are_kept_by_a_flush() {
        let mut oracle = oracle(0);
        oracle.fill(4, 1);
        assert_eq!(oracle.judge(3, &[]), Ok(()));
        oracle.flush();
        let lost = Violation { fd: 3, offset: 4, what: Wrong::Size(8, 8) };
        assert_eq!(oracle.judge(3, &[0; 4]), Err(lost));
        oracle.set_len(3, 4);
        assert_eq!(oracle.judge(3, &[0; 4]), Ok(()));
        oracle.flush();
        oracle.set_len(3, 8);
        oracle.flush();
        assert_eq!(oracle.judge(3, &[0; 8]), Ok(()), "what was cut off is zero");
        assert!(oracle.judge(3, &[0, 0, 0, 0, 1, 1, 1, 1]).is_err());
    }

    #[test]
    fn after_a_power_cut_what_is_left_is_durable() {
        let mut oracle = oracle(4);
        oracle.fill(0, 1);
        oracle.begin_fill(1, 0, 2);
        oracle.adopt(3, &[1; 4]);
        assert_eq!(oracle.legal(), [1]);
    }
}
