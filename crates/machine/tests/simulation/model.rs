//! What the pages of a file may hold.

use nowait::AlignedBuffer;
use std::{
    ops::Range,
    sync::{Mutex, MutexGuard},
};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// What a device writes at once.
const SECTOR: usize = 512;

/// Contents of a page in the order in which they were written; the first are zeroes.
#[derive(Clone, Debug, Default)]
struct Page {
    /// Stamps; 0 stands for zeroes.
    versions: Vec<u64>,
    /// Versions up to here were written for good: none before can be read any more.
    ended: usize,
}

/// All pages.
pub(crate) struct Model(Mutex<Pages>);

struct Pages {
    pages: Vec<Page>,
    next: u64,
}

/// What a read may find: from which version on, for each page.
pub(crate) struct Seen {
    first: u64,
    ended: Vec<usize>,
}

impl Model {
    pub(crate) fn new(pages: u64) -> Model {
        let page = Page { versions: vec![0], ended: 0 };
        Model(Mutex::new(Pages { pages: vec![page; pages as usize], next: 1 }))
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns what is to be written to a page.
    pub(crate) fn begin_write(&self, page: u64) -> AlignedBuffer {
        let mut pages = self.lock();
        let stamp = pages.next;
        pages.next += 1;
        pages.pages[page as usize].versions.push(stamp);
        let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&stamp.to_le_bytes());
        }
        bytes
    }

    /// Zeroes are to be written to a page.
    pub(crate) fn begin_zero(&self, page: u64) {
        self.lock().pages[page as usize].versions.push(0);
    }

    pub(crate) fn end_write(&self, page: u64) {
        let mut pages = self.lock();
        let page = &mut pages.pages[page as usize];
        page.ended = page.versions.len() - 1;
    }

    pub(crate) fn begin_read(&self, range: Range<u64>) -> Seen {
        let pages = self.lock();
        let ended = range.clone().map(|page| pages.pages[page as usize].ended).collect();
        Seen { first: range.start, ended }
    }

    /// Judges what a read has found.
    pub(crate) fn end_read(&self, seen: &Seen, bytes: &[u8]) {
        let pages = self.lock();
        for (index, (found, ended)) in bytes.chunks(PAGE as usize).zip(&seen.ended).enumerate() {
            let page = seen.first + index as u64;
            let legal = &pages.pages[page as usize].versions[*ended..];
            judge(page, found, legal);
        }
    }

    /// Judges the file when nothing is in flight.
    pub(crate) fn judge(&self, bytes: &[u8]) {
        let pages = self.lock();
        assert_eq!(bytes.len(), pages.pages.len() * PAGE as usize, "the size of the file");
        for (page, found) in bytes.chunks(PAGE as usize).enumerate() {
            judge(page as u64, found, &pages.pages[page].versions[pages.pages[page].ended..]);
        }
    }
}

fn judge(page: u64, found: &[u8], legal: &[u64]) {
    for (index, sector) in found.chunks(SECTOR).enumerate() {
        let stamp = u64::from_le_bytes(*sector.first_chunk().expect("a sector has eight bytes"));
        let is_whole = sector.chunks(8).all(|word| word == stamp.to_le_bytes());
        assert!(
            is_whole && legal.contains(&stamp),
            "page {page}, sector {index}: stamp {stamp} (whole: {is_whole}), legal are {legal:?}"
        );
    }
}
