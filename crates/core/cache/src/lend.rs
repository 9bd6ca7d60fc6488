//! Bytes of a cached file, lent without a copy.
//!
//! A shared slice must not change while it lives: in Rust that is undefined behaviour. So a count
//! of guards in a folio's state word keeps writers from locking a lent folio. Writers wait until
//! the last guard is dropped. The alternatives were raw pointers, from which every caller would
//! have to copy, or a second folio for each write to a lent page.
//!
//! While an operation waits for a folio, the folio gets no new guards, because readers that take
//! turns could keep a writer out for ever. Truncation and invalidation remove lent folios from the
//! tree; the guard keeps the old bytes. Only a truncation that ends inside a lent folio waits,
//! because it zeroes the rest of the folio.

use crate::FRAME_BYTES;
use crate::file::CachedFile;
use crate::folio::FolioId;
use crate::mapping::Mapping;
use crate::pin::Pin;
use crate::primitives::Arc;
use crate::read::page;
use smallvec::SmallVec;

/// Most ranges lie in one or two folios, and then need no allocation.
const FOLIOS_INLINE: usize = 2;

/// Bytes of a cached file that do not change, in the memory of the cache, until this value is
/// dropped.
///
/// Hold it no longer than a reply takes to send: the cache cannot reclaim its frames, and writes to
/// its folios wait. The holder must not wait for such a write.
#[derive(Debug)]
pub struct PinnedRange {
    /// Not the file, whose owner may close the descriptors meanwhile.
    mapping: Arc<Mapping>,
    folios: SmallVec<[FolioId; FOLIOS_INLINE]>,
    offset: u64,
    len: usize,
}

impl CachedFile {
    /// Lends the `len` bytes from byte `offset` on, up to the end of the file. Neither blocks nor
    /// reads from the device. `None`: a page is missing or not uptodate, or an operation has locked
    /// a folio or waits for it. The caller then reads instead.
    pub fn pin_range(&self, offset: u64, len: usize) -> Option<PinnedRange> {
        let end = offset.saturating_add(len as u64).min(self.size());
        let len = end.saturating_sub(offset) as usize;
        let (mapping, folios) = (self.mapping().clone(), SmallVec::new());
        let mut range = PinnedRange { mapping, folios, offset, len };
        let mut at = offset;
        while at < end {
            // If this returns `None`, the drop of `range` gives back the folios taken before.
            let pin = self.mapping().find_guarded(page(at))?;
            let folio = pin.folio();
            at = (folio.index() + folio.pages()) * FRAME_BYTES as u64;
            range.folios.push(pin.id());
            pin.forget();
        }
        Some(range)
    }
}

impl PinnedRange {
    /// Returns the number of lent bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if no bytes are lent, for example behind the end of the file.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes in order, one slice for each folio.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let frames = self.mapping.cache().frames();
        let end = self.offset + self.len as u64;
        self.folios.iter().map(move |id| {
            let folio = frames.folio(*id);
            let first = folio.index() * FRAME_BYTES as u64;
            let from = self.offset.max(first);
            let inside = (from - first) as usize;
            let bytes = (FRAME_BYTES << folio.order()) - inside;
            let len = bytes.min((end - from) as usize);
            // SAFETY: the slice lies in the folio's memory. The folio is pinned, so its memory
            // stays. It is guarded until `self` is dropped, so no operation locks it to write to
            // it. It is uptodate, so no read from the device writes to it either.
            unsafe { core::slice::from_raw_parts(frames.data(*id).add(inside), len) }
        })
    }
}

impl Drop for PinnedRange {
    fn drop(&mut self) {
        for id in &self.folios {
            self.mapping.give_back_guard(Pin::adopt(&self.mapping.cache().frames, *id));
        }
    }
}
