//! An image that the writer has: reads, writes, flushes, and their effects on the store.

use crate::cipher::Cipher;
use crate::collector::Collector;
use crate::errands::Errand;
use crate::head::{HEAD_BYTES_MAX, Head};
use crate::leftovers::Leftovers;
use crate::map::Map;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Over, Purpose};
use crate::publication::Publication;
use crate::recovery::{DAMAGED_READS_MAX, Found, judge, verdict};
use crate::request::{Failure, Request, RequestId, told_runs};
use crate::scan::MISSED_READS_MAX;
use crate::segment::WINDOW;
use crate::settings::{Settings, Usage};
use crate::stamp::{STAMP_BYTES, Stamp};
use crate::store::{Answer, Key, Tag};
use crate::tail::Tail;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

mod closing;
mod collecting;
mod proving;
mod reading;
mod shrinking;

use closing::Closing;
use reading::Read;
use shrinking::Shrink;

/// The time for which a proof that the writer has the image holds.
pub const PROOF_NS: u64 = 60_000_000_000;

/// The longest time that a flush waits for other flushes to share its PUT. Clients that each wait
/// for their flush send the next one shortly after each other. Without this pause the first of
/// these flushes would get a PUT of its own, and the others would wait for two PUTs.
const GATHER_NS: u64 = 500_000;

const VANISHED: &str = "an object is missing from the store: see nowait image check";

#[derive(Debug)]
pub(crate) struct Serving {
    settings: Settings,
    head: Head,
    tag: Tag,
    cipher: Option<Cipher>,
    map: Map,
    first: u64,
    tail: Tail,
    /// Waiting flushes: the place before which all must be durable, the arrival time, the request.
    flushes: VecDeque<(u64, u64, RequestId)>,
    /// A flush of segments before this place ends at once, without a new proof.
    promised: u64,
    /// The number of flushes when flushes last ended, including those that ended; `served_ns` is
    /// the time when they ended.
    crowd: usize,
    served_ns: u64,
    /// Changes that wait for memory, or until the image has become smaller, in their order.
    parked: VecDeque<(RequestId, Request)>,
    shrink: Option<Shrink>,
    reads: BTreeMap<u64, Read>,
    reads_begun: u64,
    /// Reads that have their data, and wait for a proof that the writer still has the image.
    unproven: Vec<(RequestId, Vec<u8>)>,
    is_proving: bool,
    /// The time when the last operation was sent that proved that the writer has the image.
    proof_ns: u64,
    /// The place before which all segments were durable when the current proof began.
    durable_then: u64,
    /// The place before which this writer may put segments without a newer proof.
    proven_until: u64,
    /// Before this time an earlier writer may not have noticed that it was replaced.
    alone_ns: u64,
    closing: Option<Closing>,
    publication: Publication,
    leftovers: Leftovers,
    collector: Collector,
}

impl Serving {
    pub(crate) fn new(settings: Settings, found: Found) -> Serving {
        let Found { head, tag, cipher, map, next, replayed, leftovers, proof_ns, is_alone } = found;
        let alone_ns = if is_alone { 0 } else { proof_ns.saturating_add(PROOF_NS) };
        Serving {
            first: next,
            tail: Tail::new(&head, cipher.clone(), settings.segment_blocks, next),
            publication: Publication::new(&head, replayed),
            leftovers,
            collector: Collector::new(settings.garbage_percent.min(100)),
            settings,
            head,
            tag,
            cipher,
            map,
            flushes: VecDeque::new(),
            promised: next,
            crowd: 0,
            served_ns: 0,
            parked: VecDeque::new(),
            shrink: None,
            reads: BTreeMap::new(),
            reads_begun: 0,
            unproven: Vec::new(),
            is_proving: false,
            proof_ns,
            durable_then: next,
            proven_until: next.saturating_add(WINDOW),
            alone_ns,
            closing: None,
        }
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn first_sequence(&self) -> u64 {
        self.first
    }

    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.tail.bytes()
    }

    pub(crate) fn deletions(&self) -> usize {
        self.publication.deletions()
    }

    pub(crate) fn usage(&self) -> Usage {
        let bytes = u64::from(self.head.geometry.block_bytes);
        let (held, live) = self.map.held_and_live();
        Usage { live_bytes: live * bytes, held_bytes: held * bytes }
    }

    pub(crate) fn submit(&mut self, id: RequestId, request: Request, out: &mut Outbox) {
        match self.judge_request(&request) {
            None => out.end(id, Err(Failure::Invalid)),
            Some(blocks) => match request {
                Request::Read { .. } => self.read(id, blocks, out),
                Request::Extents { .. } => {
                    let told =
                        told_runs(self.map.extents(), blocks, self.head.geometry.block_bytes);
                    self.end_read(id, told, out);
                }
                Request::Flush => self.flush(id, out),
                Request::Close => self.close(id, out),
                _ if self.closing.is_some() => out.end(id, Err(Failure::Io)),
                _ if !self.parked.is_empty() || self.must_wait(&request) => {
                    self.parked.push_back((id, request));
                }
                _ => self.change(id, request, blocks, out),
            },
        }
        self.go_on(out);
    }

    fn judge_request(&self, request: &Request) -> Option<Range<u64>> {
        let (offset, len) = match request {
            Request::Read { offset, len }
            | Request::Extents { offset, len }
            | Request::Discard { offset, len } => (*offset, *len),
            Request::Write { offset, data, .. } => (*offset, data.len() as u64),
            Request::Flush | Request::Close => (0, 0),
            Request::Shrink { size_bytes: 0 } => return None,
            Request::Shrink { size_bytes } => (0, *size_bytes),
        };
        let size = u64::from(self.head.geometry.block_bytes);
        let end = offset.checked_add(len).filter(|end| *end <= self.size_bytes())?;
        let whole = offset.is_multiple_of(size) && len.is_multiple_of(size);
        whole.then_some(offset / size..end / size)
    }

    fn must_wait(&self, request: &Request) -> bool {
        if self.keeps_waiting(request) {
            return true;
        }
        let Request::Write { data, .. } = request else { return false };
        let bytes = self.tail.bytes();
        bytes > 0 && bytes + data.len() > self.settings.buffer_bytes
    }

    fn change(&mut self, id: RequestId, request: Request, blocks: Range<u64>, out: &mut Outbox) {
        let size = self.head.geometry.block_bytes as usize;
        let (data, durable) = match request {
            Request::Write { data, durable, .. } => (data, durable),
            Request::Shrink { size_bytes } => {
                self.shrink = Some(Shrink::new(id, size_bytes));
                return;
            }
            _ => {
                self.discard(blocks, out);
                return out.end(id, Ok(Vec::new()));
            }
        };
        for (block, data) in blocks.zip(data.chunks_exact(size)) {
            self.make_room();
            self.tail.write(&mut self.map, block, data, out.now_ns);
        }
        match durable {
            true => self.flush(id, out),
            false => out.end(id, Ok(Vec::new())),
        }
    }

    fn discard(&mut self, mut blocks: Range<u64>, out: &mut Outbox) {
        while !self.map.extents().is_empty_in(blocks.clone()) {
            self.make_room();
            let end = blocks.end.min(blocks.start + u64::from(u32::MAX));
            self.tail.discard(&mut self.map, blocks.start..end, out.now_ns);
            blocks.start = end;
        }
    }

    fn make_room(&mut self) {
        if self.tail.open_is_full() {
            self.seal();
        }
    }

    fn flush(&mut self, id: RequestId, out: &mut Outbox) {
        let end = self.tail.next() + u64::from(!self.tail.open_is_empty());
        // `is_proven` may request a proof now, so that it arrives about when the segment is put.
        let is_kept = end <= self.promised || (self.is_proven(out) && end <= self.tail.durable());
        if !is_kept {
            return self.flushes.push_back((end, out.now_ns, id));
        }
        // This flush ends at once, so it does not count for `crowd`.
        self.promised = self.promised.max(end);
        out.end(id, Ok(Vec::new()));
    }

    /// Seals the open segment. A checkpoint may begin only between two segments, so one that is due
    /// begins here.
    fn seal(&mut self) {
        let bytes = self.tail.seal(&mut self.map);
        self.publication.count(bytes);
        self.collector.count();
        let position = self.tail.next();
        self.publication.begin(&self.settings, &self.head, &self.map, position);
    }

    /// Does everything that is possible without another answer of the store.
    pub(crate) fn go_on(&mut self, out: &mut Outbox) {
        self.end_flushes(out);
        loop {
            self.shrink();
            if self.is_seal_due(out.now_ns) {
                self.seal();
            }
            while let Some(sequence) = self.tail.unsent()
                && self.may_send(sequence, out)
                && let Some((sequence, body)) = self.tail.take_unsent()
            {
                let key = Key::Segment(sequence);
                out.put_if_absent(Purpose::PutSegment(sequence), key, body);
            }
            match self.parked.front() {
                Some((_, request)) if !self.must_wait(request) => {}
                _ => break,
            }
            let Some((id, request)) = self.parked.pop_front() else { break };
            match self.judge_request(&request) {
                Some(blocks) => self.change(id, request, blocks, out),
                // The image has become smaller since this request came.
                None => out.end(id, Err(Failure::Invalid)),
            }
        }
        let durable = self.tail.durable();
        self.collect(out);
        self.publication.clean(self.leftovers.go_on(out));
        self.publication.go_on(&self.head, &self.tag, durable, out);
        self.close_head(out);
    }

    fn end_flushes(&mut self, out: &mut Outbox) {
        let durable = self.tail.durable();
        let is_due = self.flushes.front().is_some_and(|(end, ..)| *end <= durable);
        if is_due && !self.is_proven(out) && !mistake::makes(Mistake::FlushUnproven) {
            return;
        }
        let mut served = 0;
        while let Some((end, _, id)) = self.flushes.pop_front_if(|(end, ..)| *end <= durable) {
            self.promised = self.promised.max(end);
            out.end(id, Ok(Vec::new()));
            served += 1;
        }
        if served > 0 {
            (self.crowd, self.served_ns) = (served + self.flushes.len(), out.now_ns);
        }
    }

    /// Returns `true` if the open segment should be sealed now. Flushes that come during a PUT, or
    /// soon after it, share the next PUT.
    fn is_seal_due(&self, now_ns: u64) -> bool {
        let is_wanted = !self.parked.is_empty()
            || self.closing.is_some()
            || self.gathered_ns().is_some_and(|due_ns| due_ns <= now_ns);
        let is_old = self.seal_ns().is_some_and(|due_ns| due_ns <= now_ns);
        let is_idle = self.tail.nothing_is_sealed();
        !self.tail.open_is_empty() && ((is_wanted && is_idle) || is_old)
    }

    /// Returns when to seal the open segment for a flush, once all sealed segments are durable;
    /// `None` if no flush needs the open segment.
    fn gathered_ns(&self) -> Option<u64> {
        let next = self.tail.next();
        let first = self.flushes.partition_point(|(end, ..)| *end <= next);
        let (_, came_ns, _) = self.flushes.get(first)?;
        let wait_ns = if self.flushes.len() - first < self.crowd { GATHER_NS } else { 0 };
        Some(came_ns.max(&self.served_ns) + wait_ns)
    }

    /// Returns when to seal the open segment even if no flush needs it.
    fn seal_ns(&self) -> Option<u64> {
        self.tail.open_since_ns().map(|since_ns| since_ns + self.settings.linger_ns)
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        let gathered_ns = self.gathered_ns().filter(|_| self.tail.nothing_is_sealed());
        self.seal_ns().into_iter().chain(gathered_ns).min()
    }

    pub(crate) fn answer(
        &mut self,
        errand: Errand<Purpose>,
        answer: Answer,
        out: &mut Outbox,
    ) -> Result<(), Over> {
        match (errand.purpose, answer) {
            (Purpose::ReadData { .. }, answer) => self.read_answered(errand, answer, out),
            (Purpose::ReadVictim(_) | Purpose::ReadLive { .. }, answer) => {
                self.victim_answered(errand, answer, out);
            }
            (
                Purpose::DeleteSegment(_) | Purpose::DeletePart { .. } | Purpose::DeleteLeftover,
                Answer::Deleted | Answer::Missing,
            ) => self.publication.deleted(errand.purpose, &mut self.map),
            (Purpose::LookForPart { epoch, number }, Answer::Got { .. }) => {
                self.leftovers.looked(epoch, number, true);
            }
            (Purpose::LookForPart { epoch, number }, Answer::Missing) => {
                self.leftovers.looked(epoch, number, false);
            }
            // The store may be wrong, so the writer asks again.
            (_, Answer::Missing) if errand.damaged < MISSED_READS_MAX => {
                out.errands.reread(errand, out.now_ns);
            }
            (Purpose::PutSegment(_) | Purpose::LookAtSegment(_), answer) => {
                self.segment_answered(errand, answer, out);
            }
            (Purpose::PutPart(_) | Purpose::LookAtPart(_), answer) => {
                self.part_answered(errand, answer, out);
            }
            (_, answer) => self.head_answered(errand, answer, out)?,
        }
        self.go_on(out);
        Ok(())
    }

    fn segment_answered(&mut self, errand: Errand<Purpose>, answer: Answer, out: &mut Outbox) {
        match (errand.purpose, answer) {
            (Purpose::PutSegment(sequence), Answer::Put(_)) => self.segment_is_put(sequence),
            (Purpose::PutSegment(sequence), Answer::Refused) => {
                // An earlier try of this PUT succeeded, or another writer's segment is here.
                if mistake::makes(Mistake::TrustRefusal) {
                    self.segment_is_put(sequence);
                } else {
                    let purpose = Purpose::LookAtSegment(sequence);
                    out.get(purpose, Key::Segment(sequence), STAMP_BYTES);
                }
            }
            (Purpose::LookAtSegment(_), Answer::Got { bytes, .. }) => {
                self.look(errand, &bytes, out);
            }
            (Purpose::LookAtSegment(_), Answer::Missing) => judge(VANISHED, out),
            _ => out.errands.again(errand, out.now_ns),
        }
    }

    fn part_answered(&mut self, errand: Errand<Purpose>, answer: Answer, out: &mut Outbox) {
        match (errand.purpose, answer) {
            (Purpose::PutPart(number), Answer::Put(_)) => self.publication.part_is_put(number),
            (Purpose::PutPart(number), Answer::Refused) => {
                if let Some(checkpoint) = self.publication.checkpoint() {
                    let key = checkpoint.key(number);
                    out.get(Purpose::LookAtPart(number), key, STAMP_BYTES);
                }
            }
            (Purpose::LookAtPart(_), Answer::Got { bytes, .. }) => self.look(errand, &bytes, out),
            (Purpose::LookAtPart(_), Answer::Missing) => judge(VANISHED, out),
            _ => out.errands.again(errand, out.now_ns),
        }
    }

    fn head_answered(
        &mut self,
        errand: Errand<Purpose>,
        answer: Answer,
        out: &mut Outbox,
    ) -> Result<(), Over> {
        match (errand.purpose, answer) {
            (Purpose::AdvanceHead, Answer::Put(tag)) => {
                if let Some(head) = self.publication.sent_head() {
                    self.note_proof(errand.sent_ns, head.end);
                    self.head_is_put(head, tag, out);
                }
            }
            (Purpose::CloseHead, Answer::Put(_)) => return Err(self.closed(out)),
            (Purpose::AdvanceHead | Purpose::CloseHead, Answer::Refused) => {
                out.get(Purpose::LookAtHead, Key::Head, HEAD_BYTES_MAX);
            }
            (purpose, Answer::Got { bytes, tag, .. }) if purpose.is_of_head() => {
                self.head_is_read(errand, &bytes, tag, out)?;
            }
            (purpose, Answer::Missing) if purpose.is_of_head() => {
                return Err(Over::Failed("the head is missing: the image was removed"));
            }
            _ => out.errands.again(errand, out.now_ns),
        }
        Ok(())
    }

    /// Judges the stamp of an existing object, after the store has refused a PUT with the same key.
    fn look(&mut self, errand: Errand<Purpose>, bytes: &[u8], out: &mut Outbox) {
        let number = match errand.purpose {
            Purpose::LookAtSegment(sequence) => Some(sequence),
            _ => self.publication.checkpoint().map(|it| it.position),
        };
        let own = number.map(|number| (self.head.image, self.head.epoch, number));
        let nonce = self.settings.writer.nonce;
        match (Stamp::parse(bytes), errand.purpose) {
            (Err(_), _) if errand.damaged < DAMAGED_READS_MAX => {
                out.errands.reread(errand, out.now_ns);
            }
            (Ok(it), purpose)
                if own == Some((it.image, it.epoch, it.number))
                    && (it.writer == nonce || mistake::makes(Mistake::IgnoreNonce)) =>
            {
                match purpose {
                    Purpose::LookAtPart(number) => self.publication.part_is_put(number),
                    _ => self.segment_is_put(number.unwrap_or_default()),
                }
            }
            _ => judge("another writer's object has this name: stop the other server", out),
        }
    }

    fn segment_is_put(&mut self, sequence: u64) {
        self.tail.put(sequence);
        if mistake::makes(Mistake::DeleteAtOnce) {
            self.publication.delete(sequences(self.map.dead()));
        }
    }

    fn head_is_put(&mut self, head: Head, tag: Tag, out: &mut Outbox) {
        let has_fences = out.now_ns >= self.alone_ns;
        self.publication.head_is_put(&head, &self.map, has_fences);
        (self.head, self.tag) = (head, tag);
        self.end_shrink(out);
        if mistake::makes(Mistake::DeleteByNewerMap) {
            let mut dead = sequences(self.map.dead());
            dead.retain(|sequence| *sequence < self.head.checkpoint.position);
            self.publication.delete(dead);
        }
    }

    fn head_is_read(
        &mut self,
        errand: Errand<Purpose>,
        bytes: &[u8],
        tag: Tag,
        out: &mut Outbox,
    ) -> Result<(), Over> {
        let Ok(head) = Head::parse(bytes) else {
            if errand.damaged >= DAMAGED_READS_MAX {
                return Err(Over::Failed("the head is damaged"));
            }
            out.errands.reread(errand, out.now_ns);
            return Ok(());
        };
        let is_own = head.writer.nonce == self.settings.writer.nonce;
        match errand.purpose {
            Purpose::Judge(why) => return Err(verdict(is_own, head, why)),
            _ if !is_own => return Err(verdict(false, head, "")),
            Purpose::ProveLoss { read, sequence } => {
                self.note_proof(errand.sent_ns, 0);
                self.lose(read, sequence, out);
            }
            // The last PUT had succeeded, though the head may have been edited since.
            Purpose::LookAtHead if head.is_closed => return Err(self.closed(out)),
            Purpose::LookAtHead if self.publication.checkpoint() == Some(head.checkpoint) => {
                self.head_is_put(head, tag, out);
            }
            // The head was edited. This writer's next PUT starts from the edited head.
            Purpose::LookAtHead => {
                self.tag = tag;
                if !mistake::makes(Mistake::OverwriteEdits) {
                    self.head = head;
                }
                self.publication.head_is_not_put();
                self.closing.iter_mut().for_each(Closing::head_is_not_put);
            }
            _ => {
                self.is_proving = false;
                self.note_proof(errand.sent_ns, self.durable_then);
                self.prove(out);
            }
        }
        Ok(())
    }
}

fn sequences(dead: Vec<(u64, u64)>) -> Vec<u64> {
    dead.into_iter().map(|(sequence, _)| sequence).collect()
}
