//! The requests to an image and their answers; and the contents that reads may find, or a power
//! failure may leave.
//!
//! The image is divided into cells; requests are of whole cells, and a cell is a fourth of a
//! sector. Each changing request writes its own number and the cell's, or zeroes. The number of
//! events serves as the time.

use nowait_sim::Faults;
use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

pub(crate) const CELL: u64 = 128;
/// Cells that a device writes atomically.
const SECTOR: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Write,
    Zero,
    /// Leaves zeroes, or the old content.
    Trim,
    Flush,
    Look,
}

#[derive(Clone, Debug)]
struct Entry {
    deed: Deed,
    cells: Range<u64>,
    /// A successful answer promises that the change is durable.
    durable: bool,
    begun: u64,
    /// The time of the request's answer, and `true` if the request succeeded.
    ended: Option<(u64, bool)>,
}

impl Entry {
    fn content(&self, number: usize, cell: u64) -> u64 {
        match self.deed {
            Deed::Write => stamp(number, cell),
            _ => 0,
        }
    }

    fn ended_at(&self) -> Option<u64> {
        self.ended.map(|(at, _)| at)
    }

    /// Returns the time of a successful answer; `None`: the effect of the request is not certain.
    fn done_at(&self) -> Option<u64> {
        let certain = matches!(self.deed, Deed::Write | Deed::Zero | Deed::Flush);
        self.ended.filter(|(_, done)| *done && certain).map(|(at, _)| at)
    }

    fn syncs(&self) -> bool {
        self.durable || self.deed == Deed::Flush
    }
}

fn stamp(number: usize, cell: u64) -> u64 {
    (number as u64) << 20 | cell
}

#[derive(Debug)]
struct Log {
    entries: Vec<Entry>,
    /// The changes of each cell, in the order of the requests; the first is the empty state.
    changes: Vec<Vec<usize>>,
    now: u64,
    faulty: bool,
}

#[derive(Debug)]
pub(crate) struct History(Mutex<Log>);

impl History {
    pub(crate) fn new(cells: u64, faulty: bool) -> History {
        let empty = Entry {
            deed: Deed::Zero,
            cells: 0..cells,
            durable: true,
            begun: 0,
            ended: Some((0, true)),
        };
        let changes = vec![vec![0]; cells as usize];
        History(Mutex::new(Log { entries: vec![empty], changes, now: 1, faulty }))
    }

    /// No thread makes a system call under this lock, so no thread ever waits for it.
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> u64 {
        self.lock().tick()
    }

    pub(crate) fn begin(&self, deed: Deed, cells: Range<u64>, durable: bool) -> usize {
        let mut log = self.lock();
        let (begun, number) = (log.tick(), log.entries.len());
        if matches!(deed, Deed::Write | Deed::Zero | Deed::Trim) {
            cells.clone().for_each(|cell| log.changes[cell as usize].push(number));
        }
        log.entries.push(Entry { deed, cells, durable, begun, ended: None });
        number
    }

    pub(crate) fn end(&self, number: usize, done: bool) {
        let mut log = self.lock();
        let at = log.tick();
        let before = log.entries[number].ended.replace((at, done));
        assert_eq!(before, None, "request {number} is answered once");
    }

    pub(crate) fn bytes_of(number: usize, cells: Range<u64>) -> Vec<u8> {
        let words = CELL as usize / 8;
        cells.flat_map(|cell| stamp(number, cell).to_le_bytes().repeat(words)).collect()
    }

    pub(crate) fn end_read(&self, number: usize, bytes: &[u8]) {
        self.end(number, true);
        let log = self.lock();
        let Entry { begun, ref cells, .. } = log.entries[number];
        assert_eq!(bytes.len() as u64, (cells.end - cells.start) * CELL);
        for (cell, found) in cells.clone().zip(bytes.chunks(CELL as usize)) {
            log.judge(cell, content(found), |it| it.done_at().is_some_and(|at| at < begun));
        }
    }

    /// Checks an answer that calls these cells a hole: zeroes must be legal in them.
    pub(crate) fn is_hole(&self, number: usize, cells: Range<u64>) {
        let log = self.lock();
        let begun = log.entries[number].begun;
        for cell in cells {
            log.judge(cell, Some(0), |it| it.done_at().is_some_and(|at| at < begun));
        }
    }

    pub(crate) fn judge_cut(&self, path: &str, power: &Faults) {
        let left = nowait_machine::left_after_cut(path, power);
        let log = self.lock();
        let durable: Vec<bool> = log.entries.iter().map(|it| log.is_durable(it)).collect();
        let found: Vec<Option<u64>> = left.chunks(CELL as usize).map(content).collect();
        assert_eq!(found.len(), log.changes.len(), "the size of what is left");
        for (cell, found) in found.iter().enumerate() {
            let changes = log.changes[cell].iter();
            let newest = changes.filter(|it| durable[**it]).map(|it| log.entries[*it].begun).max();
            log.judge_after(cell as u64, *found, newest);
        }
        log.judge_sectors(&found);
    }
}

fn content(cell: &[u8]) -> Option<u64> {
    let first = cell.first_chunk().copied().expect("a cell has eight bytes");
    let is_whole = cell.chunks(8).all(|word| word == first);
    is_whole.then_some(u64::from_le_bytes(first))
}

impl Log {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// The newest change that `counts` accepts has replaced each change that ended before this one
    /// began.
    fn judge(&self, cell: u64, found: Option<u64>, counts: impl Fn(&Entry) -> bool) {
        let changes = self.changes[cell as usize].iter().map(|number| &self.entries[*number]);
        let newest = changes.filter(|it| counts(it)).map(|it| it.begun).max();
        self.judge_after(cell, found, newest);
    }

    /// A cell may show any change that had not ended before the time `newest`.
    fn judge_after(&self, cell: u64, found: Option<u64>, newest: Option<u64>) {
        let newest = newest.unwrap_or(0);
        let is_legal = |number: &&usize| {
            let entry = &self.entries[**number];
            entry.ended_at().is_none_or(|at| at >= newest)
                && found == Some(entry.content(**number, cell))
        };
        let is_known = self.changes[cell as usize].iter().any(|number| is_legal(&number));
        assert!(is_known, "{}", self.explained(cell, found, newest));
    }

    fn explained(&self, cell: u64, found: Option<u64>, newest: u64) -> String {
        let changes = self.changes[cell as usize].iter().map(|number| {
            let Entry { deed, durable, begun, ended, .. } = &self.entries[*number];
            format!("{number}: {deed:?} (durable: {durable}) from {begun} to {ended:?}")
        });
        let changes: Vec<String> = changes.collect();
        let found = found.map(|it| (it >> 20, it & 0xf_ffff));
        let changes = changes.join("\n");
        format!("cell {cell}: found (request, cell) {found:?}, not before {newest}, of\n{changes}")
    }

    /// Returns `true` if a change must remain after a power cut now.
    fn is_durable(&self, change: &Entry) -> bool {
        let Some(done) = change.done_at() else { return false };
        let flush = |it: &&Entry| it.deed == Deed::Flush && it.begun > done;
        change.durable && self.counts(change, change.begun)
            || self.entries.iter().filter(flush).any(|flush| self.counts(flush, change.begun))
    }

    /// Returns `true` if the success of `sync` proves that a change begun at `since` is durable. No
    /// other sync may have failed meanwhile: the kernel reports an error to one sync only.
    fn counts(&self, sync: &Entry, since: u64) -> bool {
        let Some(done) = sync.done_at() else { return false };
        let has_failed = |it: &Entry| match it.ended {
            Some((_, true)) => false,
            Some((at, false)) => at > since,
            None => self.faulty,
        };
        !self.entries.iter().any(|it| it.syncs() && it.begun < done && has_failed(it))
    }

    /// Checks that no sector is torn. If one cell shows a write, the write's other cells in the
    /// sector show nothing that ended before the write began.
    fn judge_sectors(&self, found: &[Option<u64>]) {
        for (sector, contents) in found.chunks(SECTOR as usize).enumerate() {
            let first = sector as u64 * SECTOR;
            for whole in contents.iter().flatten().filter(|content| **content != 0) {
                let change = &self.entries[(whole >> 20) as usize];
                let others = (first..).zip(contents);
                let covered = others.filter(|(cell, _)| change.cells.contains(cell));
                covered.for_each(|(cell, seen)| self.judge_after(cell, *seen, Some(change.begun)));
            }
        }
    }
}
