//! The requests of a storm, compared with the results that they may have.
//!
//! * A transfer that was not cancelled moves all of its bytes, a stream read at least one; with
//!   ECANCELED a transfer moves none. If the program has closed a stream, its transfers may be
//!   short.
//! * Requests on one buffered file take effect in the order of submission.
//! * A direct read finds, in each sector, data that were not overwritten before the read began.
//! * A stream returns the bytes that were written to it, in order, from the beginning.

use super::failed;
use nowait_sys::Errno;

pub(crate) const BLOCK: usize = 4096;
pub(crate) const BLOCKS: u64 = 64;
const SECTOR: usize = 512;
/// Events that a poll reports unasked: POLLERR, POLLHUP, and POLLRDHUP with io_uring.
const ALWAYS: i64 = 0x8 | 0x10 | 0x2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    File { file: usize, block: u64, writes: bool },
    Stream { stream: usize, writes: bool },
    Poll { stream: usize, events: u16 },
    Sync,
}

#[derive(Debug)]
struct Entry {
    /// Several requests may have the same name.
    name: u64,
    what: What,
    len: usize,
    submitted: u64,
    ended: u64,
    /// A refused request has no result.
    res: Option<i64>,
    cancelled: bool,
    data: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    time: u64,
    /// The streams that the program closed, perhaps while requests on them were in flight.
    closed: Vec<usize>,
    threads_end: bool,
}

pub(crate) fn byte(number: usize, index: usize) -> u8 {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed as u8) ^ (index as u8).wrapping_mul(31) ^ ((index >> 8) as u8).wrapping_mul(7)
}

pub(crate) fn initial(file: usize, block: u64) -> Vec<u8> {
    (0..BLOCK)
        .map(|index| byte(usize::MAX / 2 + file * BLOCKS as usize + block as usize, index))
        .collect()
}

impl History {
    pub(crate) fn new(threads_end: bool) -> History {
        History { threads_end, ..History::default() }
    }

    pub(crate) fn submit(&mut self, name: u64, what: What, len: usize) -> usize {
        self.time += 1;
        self.entries.push(Entry {
            name,
            what,
            len,
            submitted: self.time,
            ended: u64::MAX,
            res: None,
            cancelled: false,
            data: Vec::new(),
        });
        self.entries.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// One request named `name` was cancelled: the one that had the name when there were `before`
    /// requests, or a later one.
    pub(crate) fn cancel(&mut self, name: u64, before: usize) {
        let had = self.entries[..before].iter().rposition(|entry| entry.name == name);
        let of_name = self.entries[had.unwrap_or(before)..].iter_mut();
        of_name.filter(|entry| entry.name == name).for_each(|entry| entry.cancelled = true);
    }

    pub(crate) fn close(&mut self, stream: usize) {
        self.closed.push(stream);
    }

    pub(crate) fn end(&mut self, number: usize, res: i64, memory: &[u8]) {
        self.time += 1;
        let entry = &mut self.entries[number];
        assert_eq!(entry.res, None, "two events: {entry:?}");
        (entry.ended, entry.res) = (self.time, Some(res));
        if entry.reads()
            && let Ok(moved) = usize::try_from(res)
        {
            entry.data = memory[..moved.min(entry.len)].to_vec();
        }
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let ended = self.entries.iter().filter(|entry| entry.res.is_some());
        let cancelled = ended.clone().filter(|entry| entry.res == Some(failed(Errno::CANCELED)));
        (cancelled.count(), ended.count())
    }

    /// The second file was used for direct requests.
    pub(crate) fn judge(&self, files: &[Vec<u8>; 3]) {
        self.entries.iter().for_each(|entry| self.judge_result(entry));
        for file in [0, 2] {
            (0..BLOCKS).for_each(|block| self.judge_ordered(file, block, &files[file]));
        }
        (0..BLOCKS).for_each(|block| self.judge_direct(1, block, &files[1]));
        let streams = self.entries.iter().filter_map(|entry| match entry.what {
            What::Stream { stream, .. } => Some(stream),
            _ => None,
        });
        (0..streams.max().map_or(0, |last| last + 1)).for_each(|stream| self.judge_stream(stream));
    }

    fn judge_result(&self, entry: &Entry) {
        let Some(res) = entry.res else { return };
        let moved = 0 < res && res <= entry.len as i64;
        let whole = res == entry.len as i64;
        let gone = |stream| self.closed.contains(&stream);
        // A ring gives up a stream request when the thread that began it ends. If the descriptor is
        // closed, too, the engine cannot begin the request again.
        let given_up = |stream| self.threads_end && gone(stream);
        let allowed = match entry.what {
            What::Poll { stream, .. } | What::Stream { stream, .. }
                if res == failed(Errno::CANCELED) =>
            {
                entry.cancelled || given_up(stream)
            }
            _ if res == failed(Errno::CANCELED) => entry.cancelled,
            What::File { .. } => whole || entry.cancelled && moved,
            What::Stream { writes: false, stream } => moved || res == 0 && gone(stream),
            What::Stream { writes: true, stream } => {
                let broken = res == failed(Errno::PIPE);
                whole || moved && (entry.cancelled || gone(stream)) || broken && gone(stream)
            }
            What::Poll { events, .. } => {
                let may = i64::from(events) | ALWAYS;
                res & may != 0 && res & !may == 0
            }
            What::Sync => res == 0,
        };
        assert!(allowed, "{res}: {:?} of {} bytes, {entry:?}", entry.what, entry.len);
    }

    fn on(&self, file: usize, block: u64) -> impl Iterator<Item = (usize, &Entry)> {
        let on = move |what| match what {
            What::File { file: its_file, block: its_block, .. } => {
                (its_file, its_block) == (file, block)
            }
            _ => false,
        };
        self.entries.iter().enumerate().filter(move |(_, entry)| on(entry.what))
    }

    fn judge_ordered(&self, file: usize, block: u64, in_the_end: &[u8]) {
        let mut state = initial(file, block);
        for (number, entry) in self.on(file, block) {
            if entry.writes() {
                (0..entry.moved()).for_each(|index| state[index] = byte(number, index));
            } else {
                let same = entry.data == state[..entry.data.len()];
                assert!(same, "file {file}, block {block}: read something else, {}", entry.told());
            }
        }
        let start = block as usize * BLOCK;
        assert!(in_the_end[start..start + BLOCK] == state, "file {file}, block {block} in the end");
    }

    fn judge_direct(&self, file: usize, block: u64, in_the_end: &[u8]) {
        let first = initial(file, block);
        let writes: Vec<_> =
            self.on(file, block).filter(|(_, it)| it.writes() && it.moved() > 0).collect();
        let may_find = |found: &[u8], sector: usize, begun: u64, ended: u64| {
            let range = sector..sector + SECTOR;
            let lasts = |until: u64| {
                !writes.iter().any(|(_, other)| until < other.submitted && other.ended < begun)
            };
            found == &first[range.clone()] && lasts(0)
                || writes.iter().any(|(number, write)| {
                    let came = write.submitted < ended && lasts(write.ended);
                    came && range
                        .clone()
                        .map(|index| byte(*number, index))
                        .eq(found.iter().copied())
                })
        };
        let check = |found: &[u8], begun, ended, told: &dyn Fn() -> String| {
            for sector in (0..found.len()).step_by(SECTOR) {
                let good = may_find(&found[sector..sector + SECTOR], sector, begun, ended);
                assert!(good, "direct, block {block}, at {sector}: {}", told());
            }
        };
        for (_, read) in self.on(file, block).filter(|(_, entry)| entry.reads()) {
            check(&read.data, read.submitted, read.ended, &|| read.told());
        }
        let start = block as usize * BLOCK;
        let told = || String::from("in the end");
        check(&in_the_end[start..start + BLOCK], u64::MAX, u64::MAX, &told);
    }

    fn judge_stream(&self, stream: usize) {
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for (number, entry) in self.entries.iter().enumerate() {
            match entry.what {
                What::Stream { stream: of, writes: true } if of == stream => {
                    written.extend((0..entry.moved()).map(|index| byte(number, index)));
                }
                What::Stream { stream: of, writes: false } if of == stream => {
                    read.extend_from_slice(&entry.data);
                }
                _ => {}
            }
        }
        let wrong = read.iter().zip(&written).position(|(one, other)| one != other);
        assert_eq!(wrong, None, "stream {stream}: something else was read from there on");
        assert!(read.len() <= written.len(), "stream {stream}: more was read than written");
    }
}

impl Entry {
    fn writes(&self) -> bool {
        matches!(self.what, What::File { writes: true, .. } | What::Stream { writes: true, .. })
    }

    fn reads(&self) -> bool {
        matches!(self.what, What::File { writes: false, .. } | What::Stream { writes: false, .. })
    }

    fn moved(&self) -> usize {
        self.res.and_then(|res| usize::try_from(res).ok()).unwrap_or(0)
    }

    fn told(&self) -> String {
        let Entry { what, len, submitted, ended, res, cancelled, .. } = self;
        format!("{what:?} of {len} bytes, {submitted} to {ended}, {res:?}, cancelled {cancelled}")
    }
}

/// Wrong histories, which the checks must refuse.
mod canaries {
    use super::*;

    const FILE: What = What::File { file: 0, block: 3, writes: true };
    const READ: What = What::File { file: 0, block: 3, writes: false };

    fn untouched() -> [Vec<u8>; 3] {
        [0, 1, 2].map(|file| (0..BLOCKS).flat_map(|block| initial(file, block)).collect())
    }

    fn written(number: usize) -> Vec<u8> {
        (0..BLOCK).map(|index| byte(number, index)).collect()
    }

    /// The requests are on one block, one after another, each with its result and the bytes that it
    /// read.
    fn ran(requests: &[(What, i64, &[u8])]) -> History {
        let mut history = History::default();
        for (what, res, memory) in requests {
            let number = history.submit(0, *what, BLOCK);
            history.end(number, *res, memory);
        }
        history
    }

    fn catches(history: &History, files: &[Vec<u8>; 3]) -> bool {
        let judge = std::panic::AssertUnwindSafe(|| history.judge(files));
        std::panic::catch_unwind(judge).is_err()
    }

    #[test]
    fn the_judge_of_a_storm_catches_what_is_wrong_and_nothing_else() {
        let (whole, all) = (BLOCK as i64, written(0));
        let mut files = untouched();
        files[0][3 * BLOCK..4 * BLOCK].copy_from_slice(&all);
        let good = ran(&[(FILE, whole, &[]), (READ, whole, &all)]);
        assert!(!catches(&good, &files));
        assert!(catches(&good, &untouched()), "the write is not in the file");
        let stale = ran(&[(FILE, whole, &[]), (READ, whole, &initial(0, 3))]);
        assert!(catches(&stale, &files), "the read overtook the write");
        for res in [0, 1, whole - 1, whole + 1, failed(Errno::IO), failed(Errno::CANCELED)] {
            assert!(catches(&ran(&[(READ, res, &initial(0, 3))]), &untouched()), "result {res}");
        }
        let mut cancelled = ran(&[(FILE, failed(Errno::CANCELED), &[])]);
        cancelled.cancel(0, 1);
        assert!(!catches(&cancelled, &untouched()));
        assert!(catches(&cancelled, &files), "it said that nothing was written");
    }

    #[test]
    fn the_judge_knows_direct_requests_and_streams() {
        let direct = |writes| What::File { file: 1, block: 3, writes };
        let whole = BLOCK as i64;
        let mut files = untouched();
        files[1][3 * BLOCK..4 * BLOCK].copy_from_slice(&written(1));
        let writes = (direct(true), whole, &[][..]);
        let read = |bytes: &[u8]| ran(&[writes, writes, (direct(false), whole, bytes)]);
        assert!(!catches(&read(&written(1)), &files));
        assert!(catches(&read(&written(0)), &files), "over-written before the read began");
        assert!(catches(&read(&initial(1, 3)), &files));
        let stream = |writes| What::Stream { stream: 0, writes };
        let passes = |bytes: &[u8]| ran(&[(stream(true), whole, &[]), (stream(false), 100, bytes)]);
        assert!(!catches(&passes(&written(0)), &untouched()));
        assert!(catches(&passes(&written(1)), &untouched()));
        assert!(catches(&ran(&[(stream(false), 1, &[7])]), &untouched()), "from nowhere");
        assert!(catches(&ran(&[(stream(false), 0, &[])]), &untouched()), "it was not closed");
        let poll = |events, res| ran(&[(What::Poll { stream: 0, events }, res, &[])]);
        assert!(!catches(&poll(1, 1), &untouched()));
        assert!(catches(&poll(1, 4), &untouched()), "ready for something else");
    }
}
