//! Pins of folios.

use crate::folio::{Folio, FolioId, State};
use crate::frames::Frames;

/// Keeps the memory and the identity of a folio until dropped. The folio may leave its tree
/// meanwhile.
///
/// A pin does not keep the bytes: an operation that locks the folio may change them. As with the
/// kernel's page cache, a read that overlaps a write may see a part of the write.
#[derive(Debug)]
pub struct Pin<'a> {
    frames: &'a Frames,
    id: FolioId,
}

impl<'a> Pin<'a> {
    /// Takes over a pin that the folio's state counts already.
    #[inline]
    pub(crate) fn adopt(frames: &'a Frames, id: FolioId) -> Pin<'a> {
        Pin { frames, id }
    }

    /// Drops the value but does not take off the pin: the pin has another owner, or the caller has
    /// taken it off already.
    pub(crate) fn forget(self) {
        core::mem::forget(self);
    }

    /// Returns the folio's number.
    #[inline]
    pub fn id(&self) -> FolioId {
        self.id
    }

    /// Returns the folio's header.
    #[inline]
    pub fn folio(&self) -> &'a Folio {
        self.frames.folio(self.id)
    }

    /// Returns the folio's current state.
    #[inline]
    pub fn state(&self) -> State {
        self.folio().state()
    }

    /// Returns the address of byte `offset` of the file, and the number of the folio's bytes from
    /// there on. The folio must hold that byte.
    #[inline]
    pub fn at(&self, offset: u64) -> (*mut u8, usize) {
        let folio = self.folio();
        let bytes = (crate::FRAME_BYTES as u64) << folio.order();
        let inside = offset & (bytes - 1);
        (self.frames.data(self.id).wrapping_add(inside as usize), (bytes - inside) as usize)
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.unpin(self.id);
    }
}
