//! The page cache: cached pages, pages being read, and the waits of transfers.

use super::{Inode, PAGE_BYTES};
use crate::{cores, kernel::device::Pace, schedule::World};
use core::ops::Range;

const MARKED_PPM: u32 = 100_000;

pub(super) fn decide_read(
    world: &mut World,
    ino: u64,
    Range { start: offset, end }: Range<u64>,
    waits: bool,
) -> Result<(u64, u64, Pace), i32> {
    let len = end - offset;
    let (cached_rate, in_memory) = (world.rates.cached, world.inode(ino).in_memory);
    let mut first_missing = None;
    let now = world.now;
    world.inode(ino).take_in(now);
    for page in Inode::pages(offset, end) {
        // Draw only on a kernel that marks pages, so that runs on other kernels do not change.
        if !waits && world.marks_pages && world.prng.chance(MARKED_PPM) {
            let len = (page * PAGE_BYTES).saturating_sub(offset);
            return Ok((offset, len, Pace::AtOnce));
        }
        let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
        let inode = world.inode(ino);
        // The read of a page that a direct write has dropped ends after this write.
        let comes_later = inode.moved_at(&bytes, false) > now || inode.coming.contains_key(&page);
        let is_cached = inode.is_cached(page) || in_memory;
        if comes_later || !is_cached && !world.prng.chance(cached_rate) {
            first_missing = Some(page);
            break;
        }
    }
    let pages = |from: u64| Inode::pages(from, offset + len);
    match first_missing {
        None => Ok((offset, len, Pace::AtOnce)),
        Some(page) if !waits => {
            if !world.starts_no_read {
                world.start_read(ino, pages(page * PAGE_BYTES));
            }
            match (page * PAGE_BYTES).saturating_sub(offset) {
                0 => Err(libc::EAGAIN),
                len => Ok((offset, len, Pace::AtOnce)),
            }
        }
        Some(_) => {
            let inode = world.inode(ino);
            let pace = inode.comes_at(pages(offset)).map_or(Pace::ByDevice, Pace::At);
            if pace == Pace::ByDevice {
                inode.cache(pages(offset));
            }
            Ok((offset, len, pace))
        }
    }
}

impl Inode {
    pub(super) fn take_in(&mut self, now: u64) {
        let there = self.coming.extract_if(.., |_, at| *at <= now);
        self.cached.extend(there.map(|(page, _)| page));
    }

    pub(super) fn has_page(&self, page: u64) -> bool {
        self.is_cached(page) || self.coming.contains_key(&page)
    }

    pub(super) fn cache(&mut self, pages: impl Iterator<Item = u64>) {
        for page in pages {
            self.coming.remove(&page);
            self.cached.insert(page);
        }
    }

    pub(super) fn uncache(&mut self, page: u64) {
        self.coming.remove(&page);
        self.cached.remove(&page);
    }

    /// `None`: the read of at least one page has not begun.
    fn comes_at(&self, mut pages: impl Iterator<Item = u64>) -> Option<u64> {
        pages.try_fold(0, |latest: u64, page| {
            let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            let there = self.is_cached(page).then(|| self.moved_at(&bytes, false));
            self.coming.get(&page).copied().or(there).map(|at| latest.max(at))
        })
    }
}

impl World {
    pub(super) fn start_read(&mut self, ino: u64, pages: impl Iterator<Item = u64>) {
        let (now, time) = (self.now, self.drawn_time());
        let inode = self.inode(ino);
        for page in pages {
            if !inode.is_cached(page) && !inode.coming.contains_key(&page) {
                let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                let at = inode.moved_at(&bytes, false).max(now) + time;
                inode.coming.insert(page, at);
            }
        }
    }

    pub(super) fn pace_of_write(&mut self, ino: u64, range: &Range<u64>) -> Pace {
        let (now, cached_rate) = (self.now, self.rates.cached);
        let inode = self.inode(ino);
        inode.take_in(now);
        let size = inode.medium.size();
        let is_part = |at: u64| !at.is_multiple_of(PAGE_BYTES) && at < size;
        let edges = [range.start, range.end].into_iter().filter(|at| is_part(*at));
        let missing: Vec<u64> = edges
            .map(|at| at / PAGE_BYTES)
            .filter(|page| inode.allocated.contains(page) && !inode.is_cached(*page))
            .collect();
        let mut at = 0;
        for page in missing {
            let comes = self.inode(ino).coming.get(&page).copied();
            if comes.is_some() || !self.prng.chance(cached_rate) {
                at = at.max(comes.unwrap_or_else(|| now + self.drawn_time()));
            }
        }
        if at > now {
            return Pace::At(at);
        }
        if self.cores.is_some() {
            return Pace::HeldUp(cores::TRANSFER_NS);
        }
        let (rate, longest) = self.throttled;
        match rate > 0 && self.prng.chance(rate) {
            true => Pace::HeldUp(self.prng.range(longest / 4..=longest)),
            false => Pace::AtOnce,
        }
    }
}
