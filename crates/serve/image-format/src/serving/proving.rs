//! Proofs that the writer still has the image.
//!
//! The fence of the next writer stops a replaced writer. The next writer may delete its fence, but
//! only when no earlier writer has a valid proof. No fence stops a writer whose image was removed.
//! So flushes and reads succeed only within a minute after a head in the store named this writer. A
//! flush that covers no new segment needs no proof.
//!
//! Without a proof from the last minute, the writer puts only segments less than `WINDOW` places
//! behind the first place whose segment was not durable at the last proof. The next writer puts its
//! fence at that place or behind it, and its log continues `WINDOW` places behind the fence. So no
//! late segment can enter the next writer's log, even if the fence was deleted.

use super::{PROOF_NS, Serving};
use crate::head::HEAD_BYTES_MAX;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::segment::WINDOW;
use crate::store::Key;

impl Serving {
    /// Records that the writer had the image at `proof_ns` or later, and that all segments before
    /// `durable` were durable then.
    pub(super) fn note_proof(&mut self, proof_ns: u64, durable: u64) {
        self.proof_ns = self.proof_ns.max(proof_ns);
        self.proven_until = self.proven_until.max(durable.saturating_add(WINDOW));
    }

    pub(super) fn may_send(&mut self, sequence: u64, out: &mut Outbox) -> bool {
        let is_near = sequence < self.proven_until;
        self.is_proven(out) || is_near || mistake::makes(Mistake::SendUnproven)
    }

    /// Returns `true` if there is a proof that the writer had the image within the last minute.
    /// Requests a new proof if the last one is more than half a minute old. So if calls are
    /// frequent, the new proof comes before the old one expires.
    pub(super) fn is_proven(&mut self, out: &mut Outbox) -> bool {
        let age_ns = out.now_ns - self.proof_ns;
        if age_ns > PROOF_NS / 2 && !self.is_proving {
            self.is_proving = true;
            self.durable_then = self.tail.durable();
            out.get(Purpose::ProveHead, Key::Head, HEAD_BYTES_MAX);
        }
        age_ns <= PROOF_NS || mistake::makes(Mistake::NeverAsk)
    }

    pub(super) fn prove(&mut self, out: &mut Outbox) {
        if !self.unproven.is_empty() && self.is_proven(out) {
            self.unproven.drain(..).for_each(|(id, data)| out.end(id, Ok(data)));
        }
    }
}
