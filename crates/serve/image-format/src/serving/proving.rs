//! Proofs that the image is still this writer's.
//!
//! A writer that was replaced is told so by the fence in its way, unless that was deleted since:
//! the next writer does that a minute later at the earliest. One whose image was removed finds
//! nothing in its way. So flushes and reads end only within a minute after the head was seen to be
//! this writer's.
//!
//! Nor are segments sent later than that, but for those that a fence of the next writer would lie
//! before: it was put no farther on than all was durable at the last proof. Behind a fence that is
//! deleted they would be in a log that has gone on.

use super::{PROOF_NS, Serving};
use crate::head::HEAD_BYTES_MAX;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::segment::WINDOW;
use crate::store::Key;

impl Serving {
    /// Notes that the image was this writer's at a time, when all was durable before a place.
    pub(super) fn note_proof(&mut self, proof_ns: u64, durable: u64) {
        self.proof_ns = self.proof_ns.max(proof_ns);
        self.proven_until = self.proven_until.max(durable.saturating_add(WINDOW));
    }

    /// Tells whether a segment may be sent.
    pub(super) fn may_send(&mut self, sequence: u64, out: &mut Outbox) -> bool {
        let is_near = sequence < self.proven_until;
        self.is_proven(out) || is_near || mistake::makes(Mistake::SendUnproven)
    }

    /// Tells whether the image was this writer's a short time ago. The head is asked for if not,
    /// and before that time is over, so that those who ask often need not wait.
    pub(super) fn is_proven(&mut self, out: &mut Outbox) -> bool {
        let age_ns = out.now_ns - self.proof_ns;
        if age_ns > PROOF_NS / 2 && !self.is_proving {
            self.is_proving = true;
            self.durable_then = self.tail.durable();
            out.get(Purpose::ProveHead, Key::Head, HEAD_BYTES_MAX);
        }
        age_ns <= PROOF_NS || mistake::makes(Mistake::NeverAsk)
    }

    /// Ends the reads that wait for a proof.
    pub(super) fn prove(&mut self, out: &mut Outbox) {
        if !self.unproven.is_empty() && self.is_proven(out) {
            self.unproven.drain(..).for_each(|(id, data)| out.end(id, Ok(data)));
        }
    }
}
