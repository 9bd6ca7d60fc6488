//! The possible contents of a file's pages.

use nowait::AlignedBuffer;
use std::{
    ops::Range,
    sync::{Mutex, MutexGuard},
};

pub(crate) const PAGE: u64 = 4096;
/// The unit that a device writes atomically.
const SECTOR: usize = 512;

/// Contents of a page in the order of writing; the first are zeroes.
#[derive(Clone, Debug, Default)]
struct Page {
    versions: Vec<u64>,
    /// The version up to which writes have ended: no read finds an earlier one any more.
    ended: usize,
    /// No version before this one may remain after a power cut.
    durable: usize,
}

pub(crate) struct Model(Mutex<State>);

#[derive(Clone, Debug)]
struct State {
    pages: Vec<Page>,
    next: u64,
    /// The losses that opens have reported so far; later opens do not report these losses again.
    told: LossesReported,
}

/// The losses that an open has reported: versions up to these may be lost, and later syncs by the
/// open promise nothing about them.
#[derive(Clone, Debug)]
pub(crate) struct LossesReported(Vec<usize>);

/// The promise of a successful sync: the versions up to which pages are durable.
pub(crate) struct Promise {
    first: u64,
    ended: Vec<usize>,
}

/// The first version of each page that a read may find.
pub(crate) struct LegalVersions {
    first: u64,
    ended: Vec<usize>,
}

impl Model {
    pub(crate) fn new(pages: u64) -> Model {
        let page = Page { versions: vec![0], ended: 0, durable: 0 };
        let told = LossesReported(vec![0; pages as usize]);
        Model(Mutex::new(State { pages: vec![page; pages as usize], next: 1, told }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

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

    pub(crate) fn begin_zero(&self, page: u64) {
        self.lock().pages[page as usize].versions.push(0);
    }

    pub(crate) fn end_write(&self, page: u64) {
        let mut pages = self.lock();
        let page = &mut pages.pages[page as usize];
        page.ended = page.versions.len() - 1;
    }

    pub(crate) fn is_written(&self, page: u64, version: usize) {
        let mut pages = self.lock();
        let ended = &mut pages.pages[page as usize].ended;
        *ended = version.max(*ended);
    }

    pub(crate) fn judge_version(&self, page: u64, version: usize, bytes: &[u8]) {
        let pages = self.lock();
        judge(page, bytes, &pages.pages[page as usize].versions[version..=version]);
    }

    pub(crate) fn newest(&self, page: u64) -> usize {
        self.lock().pages[page as usize].versions.len() - 1
    }

    pub(crate) fn is_durable(&self, page: u64, version: usize) {
        let mut pages = self.lock();
        let durable = &mut pages.pages[page as usize].durable;
        *durable = version.max(*durable);
    }

    /// Returns the losses that count as reported for an open made now.
    pub(crate) fn told(&self) -> LossesReported {
        self.lock().told.clone()
    }

    pub(crate) fn begin_sync(&self, range: Range<u64>) -> Promise {
        let LegalVersions { first, ended } = self.begin_read(range);
        Promise { first, ended }
    }

    pub(crate) fn end_sync(&self, promise: &Promise, told: &LossesReported) {
        let mut pages = self.lock();
        for (index, ended) in promise.ended.iter().enumerate() {
            let page = promise.first as usize + index;
            if *ended > told.0[page] {
                let durable = &mut pages.pages[page].durable;
                *durable = (*ended).max(*durable);
            }
        }
    }

    /// Records a failed sync: all that was written may be lost, and the open has reported this.
    pub(crate) fn has_failed(&self, told: &mut LossesReported) {
        let mut pages = self.lock();
        let all: Vec<usize> = pages.pages.iter().map(|page| page.versions.len() - 1).collect();
        *told = LossesReported(all);
        pages.told = told.clone();
    }

    pub(crate) fn begin_read(&self, range: Range<u64>) -> LegalVersions {
        let pages = self.lock();
        let ended = range.clone().map(|page| pages.pages[page as usize].ended).collect();
        LegalVersions { first: range.start, ended }
    }

    pub(crate) fn end_read(&self, seen: &LegalVersions, bytes: &[u8]) {
        let pages = self.lock();
        for (index, (found, ended)) in bytes.chunks(PAGE as usize).zip(&seen.ended).enumerate() {
            let page = seen.first + index as u64;
            let legal = &pages.pages[page as usize].versions[*ended..];
            judge(page, found, legal);
        }
    }

    pub(crate) fn judge(&self, bytes: &[u8]) {
        let pages = self.lock();
        assert_eq!(bytes.len(), pages.pages.len() * PAGE as usize, "the size of the file");
        pages.judge(bytes, |page| page.ended);
    }

    /// Checks the remains of the file after a power failure, or after failed writes were given up.
    pub(crate) fn judge_left(&self, bytes: &[u8]) {
        let pages = self.lock();
        let len = pages.pages.len() * PAGE as usize;
        assert!(bytes.len() >= len, "{} bytes are left", bytes.len());
        pages.judge(&bytes[..len], |page| page.durable);
    }
}

impl State {
    fn judge(&self, bytes: &[u8], first: impl Fn(&Page) -> usize) {
        for (page, found) in bytes.chunks(PAGE as usize).enumerate() {
            let of = &self.pages[page];
            judge(page as u64, found, &of.versions[first(of)..]);
        }
    }
}

pub(crate) fn judge(page: u64, found: &[u8], legal: &[u64]) {
    for (index, sector) in found.chunks(SECTOR).enumerate() {
        let stamp = u64::from_le_bytes(*sector.first_chunk().expect("a sector has eight bytes"));
        let is_whole = sector[8..] == sector[..sector.len() - 8];
        assert!(
            is_whole && legal.contains(&stamp),
            "page {page}, sector {index}: stamp {stamp} (whole: {is_whole}), legal are {legal:?}"
        );
    }
}
