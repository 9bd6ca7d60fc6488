//! The state of a file after a power failure. See the table in `faults.rs`.

use crate::{
    faults::Faults,
    prng::Prng,
    sectors::{Map, Sectors},
    store::{Change, File},
};

struct Open<'a> {
    sectors: &'a Map,
    acknowledged: bool,
}

impl File {
    /// Draws the bytes that remain after a power cut.
    pub fn left_after_cut(&self, faults: &Faults, prng: &mut Prng) -> Vec<u8> {
        self.remains(&[], faults, prng).read(0, usize::MAX)
    }

    pub(crate) fn remains(&self, served: &[Change], faults: &Faults, prng: &mut Prng) -> Sectors {
        let mut left = self.durable.clone();
        let mut size = left.size();
        let (mut journal, journal_is_whole) = self.journal_left(faults, prng);
        let mut open = Vec::new();
        for pending in &self.pending {
            let kept = journal > 0;
            match &pending.change {
                Change::Write { sectors, size: grown } => {
                    open.push(Open { sectors, acknowledged: true });
                    if let Some(grown) = grown.filter(|_| kept) {
                        (size, journal) = (grown, journal - 1);
                    }
                }
                Change::Grow(grown) if kept => (size, journal) = (*grown, journal - 1),
                Change::Grow(_) => {}
                // If a hole or truncation is lost, all later changes of the file are lost, too.
                Change::Shrink(_) | Change::Punch(_) if !kept => {
                    settle(&mut left, open, faults, prng);
                    left.set_size(size);
                    return left;
                }
                Change::Shrink(_) | Change::Punch(_) => {
                    settle(&mut left, core::mem::take(&mut open), faults, prng);
                    journal -= 1;
                    if let Change::Punch(range) = &pending.change {
                        left.zero(range.clone());
                    }
                    if let Change::Shrink(len) = &pending.change {
                        left.set_size(*len);
                        size = *len;
                    }
                }
            }
        }
        for change in served {
            let Change::Write { sectors, size: grown } = change else { continue };
            open.push(Open { sectors, acknowledged: false });
            if prng.chance(faults.torn_ppm) && journal_is_whole {
                size = size.max(grown.unwrap_or(0));
            }
        }
        settle(&mut left, open, faults, prng);
        left.set_size(size);
        left
    }

    /// Draws how many changes of size and holes survive, the oldest first. The second value is
    /// `true` if all survive.
    fn journal_left(&self, faults: &Faults, prng: &mut Prng) -> (usize, bool) {
        let is_noted = |change: &Change| !matches!(change, Change::Write { size: None, .. });
        let all = self.pending.iter().filter(|pending| is_noted(&pending.change)).count();
        let drawn = prng.index(all + 1);
        let left = if prng.chance(faults.lost_ppm) { drawn } else { all };
        (left, left == all)
    }
}

/// Draws which of the writes `open` reached the medium, and applies those to `left`. No hole or
/// truncation lies between these writes.
fn settle(left: &mut Sectors, mut open: Vec<Open<'_>>, faults: &Faults, prng: &mut Prng) {
    if faults.reorder {
        prng.shuffle(&mut open);
    }
    // Without `reorder`, all writes after the first lost one are lost; that first one may be torn.
    let end = prng.index(open.len() + 1);
    let end = if prng.chance(faults.lost_ppm) { end } else { open.len() };
    for (index, write) in open.iter().enumerate() {
        let lost = if faults.reorder { prng.chance(faults.lost_ppm) } else { index >= end };
        let torn = prng.chance(faults.torn_ppm);
        if write.acknowledged && !lost && !(torn && faults.reorder) {
            left.put(write.sectors);
        } else if torn && (faults.reorder || index <= end) {
            left.put(&some_of(write.sectors, prng));
        }
    }
}

pub(crate) fn some_of(sectors: &Map, prng: &mut Prng) -> Map {
    let in_order = prng.chance(500_000);
    let end = prng.index(sectors.len() + 1);
    let drawn = sectors.iter().enumerate();
    let drawn = drawn.filter(|(n, _)| if in_order { *n < end } else { prng.chance(500_000) });
    drawn.map(|(_, (index, sector))| (*index, sector.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn file(size: u64) -> Store {
        let mut store = Store::new(512, 0);
        store.create(3, size);
        store
    }

    fn outcomes(file: &File, served: &[Change], faults: &Faults) -> Vec<Vec<u8>> {
        let mut prng = Prng::new(5);
        let draw = |_| {
            let left = file.remains(served, faults, &mut prng);
            left.read(0, usize::MAX).chunks(512).map(|sector| sector[0]).collect()
        };
        let mut all: Vec<Vec<u8>> = (0..300).map(draw).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn a_safe_cache_keeps_all_that_was_acknowledged() {
        let mut store = file(1024);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 1024]);
        let served = Change::write(&file.volatile, 0, &[2; 1024]);
        assert_eq!(outcomes(file, &[served], &Faults::none()), [[1, 1]]);
    }

    #[test]
    fn any_of_the_unflushed_writes_may_be_left() {
        let mut store = file(1024);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 512]);
        file.write(512, &[2; 512]);
        let faults = Faults { torn_ppm: 0, ..Faults::volatile_cache() };
        assert_eq!(outcomes(file, &[], &faults), [[0, 0], [0, 2], [1, 0], [1, 2]]);
        let in_order = Faults { reorder: false, ..faults };
        assert_eq!(outcomes(file, &[], &in_order), [[0, 0], [1, 0], [1, 2]]);
    }

    #[test]
    fn an_older_write_may_win_over_a_newer_one() {
        let mut store = file(512);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 512]);
        file.write(0, &[2; 512]);
        let only_order = Faults { reorder: true, ..Faults::none() };
        assert_eq!(outcomes(file, &[], &only_order), [[1], [2]]);
    }

    #[test]
    fn a_write_in_flight_may_be_torn_and_a_flushed_one_may_not() {
        let mut store = file(1024);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 1024]);
        file.flush(file.mark());
        assert_eq!(outcomes(file, &[], &Faults::volatile_cache()), [[1, 1]]);
        let served = Change::write(&file.volatile, 0, &[2; 1024]);
        let all = outcomes(file, &[served], &Faults::volatile_cache());
        assert_eq!(all, [[1, 1], [1, 2], [2, 1], [2, 2]]);
    }

    #[test]
    fn growth_may_be_lost_and_its_data_apart_from_it() {
        let mut store = file(512);
        let file = store.by_fd_mut(3).unwrap();
        file.write(512, &[1; 512]);
        let all = outcomes(file, &[], &Faults::volatile_cache());
        assert_eq!(all, [vec![0], vec![0, 0], vec![0, 1]]);
    }

    #[test]
    fn what_followed_a_lost_truncation_is_lost_too() {
        let mut store = file(0);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 1024]);
        file.flush(file.mark());
        file.set_len(0);
        file.write(0, &[2; 512]);
        let faults = Faults { torn_ppm: 0, ..Faults::volatile_cache() };
        assert_eq!(outcomes(file, &[], &faults), [vec![], vec![0], vec![1, 1], vec![2]]);
    }

    #[test]
    fn a_truncated_tail_never_comes_back() {
        let mut store = file(0);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 1024]);
        file.set_len(0);
        file.set_len(1024);
        file.flush(file.mark());
        assert_eq!(outcomes(file, &[], &Faults::volatile_cache()), [[0, 0]]);
    }

    #[test]
    fn a_synced_write_is_kept_and_takes_only_sizes_with_it() {
        let mut store = file(0);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 1536]);
        file.set_len(1024);
        file.write(1024, &[2; 512]);
        file.sync(1024..1536);
        let faults = Faults { torn_ppm: 0, ..Faults::volatile_cache() };
        assert_eq!(outcomes(file, &[], &faults), [[0, 0, 2], [1, 1, 2]]);
    }

    #[test]
    fn a_synced_write_cannot_be_undone_by_an_older_one() {
        let mut store = file(512);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 512]);
        file.write(0, &[2; 512]);
        file.sync(0..512);
        assert_eq!(outcomes(file, &[], &Faults::volatile_cache()), [[2]]);
    }

    #[test]
    fn forgotten_writes_stay_lost_after_a_flush() {
        let mut store = file(512);
        let file = store.by_fd_mut(3).unwrap();
        file.write(0, &[1; 512]);
        file.forget(file.mark(), || true);
        file.flush(file.mark());
        assert_eq!(file.volatile.read(0, 1), [1]);
        assert_eq!(outcomes(file, &[], &Faults::none()), [[0]]);
    }
}
