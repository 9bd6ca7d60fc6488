//! A model of a file's pages: what reads, the end of the process, and a power failure may show.

use crate::model::{PAGE, judge};
use nowait_sys::aligned::AlignedBuffer;
use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The write's request is being submitted, or was refused.
    Begun,
    /// The write's request was accepted, and nothing has tried to cancel it.
    Accepted,
    /// The write's request may be or was cancelled.
    Doubtful,
    Ended,
}

/// The stamps of a page's contents in the order of submission; 0 for zeroes.
struct Page {
    versions: Vec<(u64, Known)>,
    /// No version before this one may remain after a power cut.
    durable: usize,
}

impl Page {
    fn last(&self, end: usize, is_known: impl Fn(Known) -> bool) -> usize {
        let mut versions = self.versions[..=end].iter();
        versions.rposition(|(_, known)| is_known(*known)).unwrap_or(0)
    }

    fn newest(&self) -> usize {
        self.versions.len() - 1
    }
}

fn is_certain(known: Known) -> bool {
    matches!(known, Known::Accepted | Known::Ended)
}

pub(crate) struct Accepted(Mutex<State>);

struct State {
    pages: Vec<Page>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Version(u64, usize);

#[derive(Debug)]
pub(crate) struct Promise(Vec<usize>);

/// The versions of each page that a read may find.
#[derive(Debug)]
pub(crate) struct Legal {
    first: u64,
    from: Vec<usize>,
    /// `Some`: only the reading thread writes the page, and the read finds no later version.
    to: Vec<Option<usize>>,
}

impl Accepted {
    pub(crate) fn new(pages: u64) -> Accepted {
        let page = || Page { versions: vec![(0, Known::Ended)], durable: 0 };
        Accepted(Mutex::new(State { pages: (0..pages).map(|_| page()).collect(), next: 1 }))
    }

    /// No thread makes a system call under this lock, so the thread that ends the process can take
    /// it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_write(&self, page: u64) -> (AlignedBuffer, Version) {
        let mut state = self.lock();
        let stamp = state.next;
        state.next += 1;
        let versions = &mut state.pages[page as usize].versions;
        versions.push((stamp, Known::Begun));
        let version = Version(page, versions.len() - 1);
        let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
        bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
        (bytes, version)
    }

    pub(crate) fn learn(&self, Version(page, version): Version, known: Known) {
        self.lock().pages[page as usize].versions[version].1 = known;
    }

    pub(crate) fn is_durable(&self, Version(page, version): Version) {
        let mut state = self.lock();
        let durable = &mut state.pages[page as usize].durable;
        *durable = version.max(*durable);
    }

    /// A sync covers the writes that have ended, and in the pages `in_order` also the accepted
    /// ones.
    pub(crate) fn begin_sync(&self, in_order: Range<u64>) -> Promise {
        let covered = |(page, it): (u64, &Page)| {
            let accepted = in_order.contains(&page);
            it.last(it.newest(), |known| known == Known::Ended || accepted && is_certain(known))
        };
        Promise((0..).zip(&self.lock().pages).map(covered).collect())
    }

    pub(crate) fn end_sync(&self, promise: &Promise) {
        let mut state = self.lock();
        for (page, version) in state.pages.iter_mut().zip(&promise.0) {
            // Accepted requests may have been cancelled meanwhile.
            page.durable = page.last(*version, is_certain).max(page.durable);
        }
    }

    /// `own`: the pages that only the reading thread writes, if requests take effect in order.
    pub(crate) fn begin_read(&self, pages: Range<u64>, own: Option<&Range<u64>>) -> Legal {
        let state = self.lock();
        let is_known =
            |known| if own.is_some() { is_certain(known) } else { known == Known::Ended };
        let all = || pages.clone().map(|page| (page, &state.pages[page as usize]));
        let from = all().map(|(_, it)| it.last(it.newest(), is_known)).collect();
        let is_own = |page| own.is_some_and(|own| own.contains(&page));
        let to = all().map(|(page, it)| is_own(page).then(|| it.newest())).collect();
        Legal { first: pages.start, from, to }
    }

    pub(crate) fn end_read(&self, read: &Legal, bytes: &[u8]) {
        let state = self.lock();
        for (index, found) in bytes.chunks(PAGE as usize).enumerate() {
            let page = read.first + index as u64;
            let of = &state.pages[page as usize];
            let to = read.to[index].unwrap_or(of.newest());
            // An earlier write may have been cancelled since.
            let from = of.last(read.from[index], is_certain);
            judge(page, found, &stamps(&of.versions[from..=to]));
        }
    }

    pub(crate) fn judge_done(&self, bytes: &[u8]) {
        let state = self.lock();
        assert_eq!(bytes.len(), state.pages.len() * PAGE as usize, "the size of the file");
        for (number, found) in bytes.chunks(PAGE as usize).enumerate() {
            let page = &state.pages[number];
            let first = page.last(page.newest(), is_certain);
            judge(number as u64, found, &stamps(&page.versions[first..]));
        }
    }

    pub(crate) fn judge_left(&self, mut bytes: Vec<u8>) {
        let state = self.lock();
        // A power cut before the first sync may leave the file shorter; all pages begin as zeroes.
        bytes.resize(state.pages.len() * PAGE as usize, 0);
        for (number, found) in bytes.chunks(PAGE as usize).enumerate() {
            let page = &state.pages[number];
            judge(number as u64, found, &stamps(&page.versions[page.durable..]));
        }
    }
}

fn stamps(versions: &[(u64, Known)]) -> Vec<u64> {
    versions.iter().map(|(stamp, _)| *stamp).collect()
}
