//! Edits of a head by others than the image's writer. The writer finds the edit when it puts its
//! next head.
//!
//! ```text
//!   head is read ─▶ for a snapshot: headers behind the map, to the end of the log
//!     ─▶ head is put, if the store still has the same head ─▶ otherwise from the beginning
//! ```
//!
//! While the head stays the same, the writer deletes no segment of the log behind the head's
//! checkpoint. So the part of the log that the editor read is the image at one moment.

use crate::errands::Errand;
use crate::geometry::Geometry;
use crate::head::{
    CloneOf, EDITED_BYTES_MAX, HEAD_BYTES_MAX, Head, NAME_BYTES_MAX, RETIRED_MAX, SNAPSHOTS_MAX,
    Snapshot, Writer,
};
use crate::outbox::{Outbox, Purpose};
use crate::recovery::DAMAGED_READS_MAX;
use crate::scan::{Behind, MISSED_READS_MAX, Next, Scan};
use crate::segment::Content;
use crate::stamp::ImageId;
use crate::store::{Answer, Costs, Key, Operation, Tag, Ticket};

const LOST: &str = "a part of its log is missing: see nowait image check";

const READS_MAX: u64 = 64;

/// An edit of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Adds a snapshot with this name. The snapshot has all data that is durable now.
    Snapshot(String),
    /// Removes snapshots, unless one of them has a clone that is not listed here. The caller has
    /// found that the listed clones do not exist.
    Remove(Vec<Snapshot>),
    /// Makes the image larger. A writer that serves the image gets the new size when it finds the
    /// edit. Only the writer can make the image smaller ([`crate::Request::Shrink`]).
    Grow(u64),
    /// Adds a clone to the list of its snapshot, before the clone is made.
    Clone {
        /// The snapshot.
        snapshot: String,
        /// The clone.
        clone: CloneOf,
    },
    /// Marks a listed clone as made.
    Made(ImageId),
    /// Removes a clone, which does not exist any more, from the list of its snapshot.
    Release(ImageId),
    /// Prepares the removal of the image: replaces its writer by one that does not write.
    Retire(Writer),
}

/// An edit in progress.
#[derive(Debug)]
pub struct Editor {
    edit: Edit,
    out: Outbox,
    head: Option<(Head, Tag)>,
    scan: Option<Scan>,
    /// `true`: the editor waits for a list of the segments behind the end of the log.
    is_at_end: bool,
    /// The heads that the editor has sent. A PUT of a sent head may have succeeded without an
    /// answer.
    sent: Vec<Head>,
    outcome: Option<Result<Head, &'static str>>,
}

impl Editor {
    /// Begins an edit.
    pub fn new(edit: Edit, now_ns: u64) -> Editor {
        let mut out = Outbox::new(now_ns);
        out.get(Purpose::ReadHead, Key::Head, HEAD_BYTES_MAX);
        let (head, scan, sent) = (None, None, Vec::new());
        Editor { edit, out, head, scan, is_at_end: false, sent, outcome: None }
    }

    /// Returns the head with the edit, or why the edit failed; `None` while it is in progress.
    pub fn outcome(&self) -> Option<&Result<Head, &'static str>> {
        self.outcome.as_ref()
    }

    /// Returns the counts of the operations so far.
    pub fn costs(&self) -> Costs {
        self.out.errands.costs
    }

    /// Does what is due at `now_ns`; see [`Editor::next_ns`].
    pub fn turn(&mut self, now_ns: u64) {
        self.out.now_ns = now_ns;
        self.out.errands.turn(now_ns);
    }

    /// Returns when to call [`Editor::turn`] if nothing else happens before; `None`: never.
    pub fn next_ns(&self) -> Option<u64> {
        self.out.errands.next_ns()
    }

    /// Takes the next operation that the caller must carry out on the store.
    pub fn pop_operation(&mut self) -> Option<(Ticket, Operation)> {
        self.out.errands.pop()
    }

    /// Continues with the store's answer. A second answer to an operation has no effect.
    pub fn answer(&mut self, ticket: Ticket, answer: Answer, now_ns: u64) {
        self.out.now_ns = now_ns;
        let Some(errand) = self.out.errands.answered(ticket) else { return };
        match (errand.purpose, answer) {
            (Purpose::ReadSegment(sequence), Answer::Missing) => {
                self.scan.iter_mut().for_each(|scan| scan.miss(sequence));
                self.go_on();
            }
            (Purpose::ConfirmEnd, Answer::Listed(places)) => {
                self.is_at_end = false;
                if let Some(scan) = &mut self.scan {
                    scan.take_list(places);
                }
                self.go_on();
            }
            // The store may be wrong, so the editor asks again.
            (_, Answer::Missing) if errand.damaged < MISSED_READS_MAX => {
                self.out.errands.reread(errand, now_ns);
            }
            (Purpose::ReadHead | Purpose::Judge(_), Answer::Missing) => {
                self.end(Err("no such image"));
            }
            (Purpose::Judge(why), Answer::Got { bytes, tag, .. }) => match Head::parse(&bytes) {
                // The head has changed, so the writer may have deleted objects that only the
                // previous head needed.
                Ok(head) if self.head.as_ref().is_none_or(|it| it.0.revision != head.revision) => {
                    self.take_head(head, tag);
                }
                Ok(_) => self.end(Err(why)),
                Err(_) => self.reread(errand),
            },
            (Purpose::ReadHead, Answer::Got { bytes, tag, .. }) => match Head::parse(&bytes) {
                Ok(head) => self.take_head(head, tag),
                Err(_) => self.reread(errand),
            },
            (Purpose::ReadSegment(sequence), Answer::Got { bytes, object_bytes, .. }) => {
                let known = self.head.as_ref().zip(self.scan.as_mut());
                let taken = known
                    .and_then(|((head, _), scan)| scan.take(sequence, &bytes, object_bytes, head));
                match taken {
                    Some(()) => self.go_on(),
                    None => self.reread(errand),
                }
            }
            (Purpose::AdvanceHead, Answer::Put(_)) => {
                let head = self.sent.pop().ok_or("internal failure: the head was not sent");
                self.end(head);
            }
            // An earlier PUT of this editor succeeded and its answer was lost, or another process
            // has replaced the head.
            (Purpose::AdvanceHead, Answer::Refused) => {
                self.out.get(Purpose::ReadHead, Key::Head, HEAD_BYTES_MAX);
            }
            _ => self.out.errands.again(errand, now_ns),
        }
    }

    fn reread(&mut self, errand: Errand<Purpose>) {
        match errand.damaged < DAMAGED_READS_MAX {
            true => self.out.errands.reread(errand, self.out.now_ns),
            false if let Purpose::ReadSegment(sequence) = errand.purpose => {
                self.scan.iter_mut().for_each(|scan| scan.damage(sequence));
                self.go_on();
            }
            false => self.end(Err("the head is damaged: see nowait image check")),
        }
    }

    /// Reads the head again, because the log does not match it.
    fn doubt(&mut self, why: &'static str) {
        self.out.errands.forget(|_| true);
        self.out.get(Purpose::Judge(why), Key::Head, HEAD_BYTES_MAX);
    }

    fn end(&mut self, outcome: Result<Head, &'static str>) {
        self.out.errands.forget(|_| true);
        self.outcome = Some(outcome);
    }

    fn take_head(&mut self, head: Head, tag: Tag) {
        if self.is_done(&head) {
            return self.end(Ok(head));
        }
        if let Err(why) = judge(&self.edit, &head) {
            return self.end(Err(why));
        }
        self.out.know(&head);
        self.is_at_end = false;
        self.scan = Some(Scan::new(&head, READS_MAX));
        self.head = Some((head, tag));
        match self.edit {
            Edit::Snapshot(_) => self.go_on(),
            _ => self.put(),
        }
    }

    /// Returns `true` if the head has the edit already: an earlier PUT of this editor may have
    /// succeeded.
    fn is_done(&self, head: &Head) -> bool {
        match &self.edit {
            Edit::Snapshot(name) => head.snapshot(name).is_some_and(|it| {
                self.sent.iter().filter_map(|sent| sent.snapshot(name)).any(|sent| sent.is(it))
            }),
            // The head may have another snapshot of the same name, made after the removal.
            Edit::Remove(gone) => !self.sent.is_empty() && left(gone, head).is_empty(),
            Edit::Grow(size) => !self.sent.is_empty() && head.geometry.size_bytes == *size,
            Edit::Clone { clone, .. } => clones(head).any(|it| it.image == clone.image),
            Edit::Made(image) => clones(head).any(|it| it.image == *image && it.is_made),
            Edit::Release(image) => clones(head).all(|it| it.image != *image),
            Edit::Retire(writer) => head.writer.nonce == writer.nonce,
        }
    }

    fn go_on(&mut self) {
        let known_end = self.head.as_ref().map_or(0, |it| it.0.known_end());
        while let Some(scan) = self.scan.as_mut().filter(|_| !self.is_at_end) {
            match scan.pop() {
                Next::Unknown => return scan.ask(&mut self.out),
                Next::End => match scan.judge_end(&mut self.out) {
                    None => return self.confirm_end(),
                    Some(Behind::Again) => {}
                    Some(Behind::Nothing) => return self.put(),
                    Some(Behind::More) => return self.doubt(LOST),
                },
                Next::Damaged => {
                    return self.doubt("a segment is damaged: see nowait image check");
                }
                Next::Lost if scan.doubt(&mut self.out) => {}
                Next::Lost => return self.doubt(LOST),
                Next::Segment(header, _) if header.leads_over(known_end) => {
                    return self.doubt("the log ends before a snapshot: see nowait image check");
                }
                Next::Segment(header, _) => {
                    if let Content::Fence { resume, .. } = header.content {
                        scan.skip(resume);
                    }
                }
            }
        }
    }

    fn confirm_end(&mut self) {
        self.is_at_end = true;
        let end = self.end_of_log();
        self.out.list_from(Purpose::ConfirmEnd, end);
    }

    fn end_of_log(&self) -> u64 {
        self.scan.as_ref().map_or(1, Scan::next)
    }

    fn put(&mut self) {
        self.out.errands.forget(|purpose| matches!(purpose, Purpose::ReadSegment(_)));
        let Some((head, tag)) = self.head.take() else { return };
        let edited = apply(&self.edit, head, self.end_of_log());
        let body = edited.encode();
        let is_more = matches!(self.edit, Edit::Snapshot(_) | Edit::Clone { .. });
        if is_more && body.len() > EDITED_BYTES_MAX {
            return self.end(Err("the image has too many snapshots or clones: remove one"));
        }
        self.out.put_head(Purpose::AdvanceHead, body, &tag);
        self.sent.push(edited);
    }
}

fn clones(head: &Head) -> impl Iterator<Item = &CloneOf> {
    head.snapshots.iter().flat_map(|it| &it.clones)
}

fn left(snapshots: &[Snapshot], head: &Head) -> Vec<Snapshot> {
    let is_one = |there: &&Snapshot| snapshots.iter().any(|it| it.is(there));
    head.snapshots.iter().filter(is_one).cloned().collect()
}

fn is_cloned(there: &Snapshot, listed: &[Snapshot]) -> bool {
    let known = listed.iter().find(|it| it.is(there)).map_or(&[][..], |it| &it.clones);
    there.clones.iter().any(|clone| !known.contains(clone))
}

fn judge(edit: &Edit, head: &Head) -> Result<(), &'static str> {
    match edit {
        Edit::Snapshot(name) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
            Err("the name of a snapshot must have 1 to 255 bytes")
        }
        Edit::Snapshot(name) if head.snapshot(name).is_some() => {
            Err("a snapshot of this name exists: choose another name")
        }
        Edit::Snapshot(_) if head.snapshots.len() >= SNAPSHOTS_MAX => {
            Err("the image has the largest number of snapshots: remove one")
        }
        Edit::Clone { snapshot, .. } if head.snapshot(snapshot).is_none() => {
            Err("no such snapshot: see nowait image info")
        }
        Edit::Made(image) if clones(head).all(|it| it.image != *image) => {
            Err("the snapshot was removed meanwhile")
        }
        Edit::Remove(gone) if left(gone, head).is_empty() => {
            Err("no such snapshot: see nowait image info")
        }
        Edit::Remove(gone) if left(gone, head).iter().any(|it| is_cloned(it, gone)) => {
            Err("the snapshot has a clone: see nowait image info")
        }
        // Leaves room for checkpoints that a writer has begun.
        Edit::Remove(gone) if head.retired.len() + gone.len() > RETIRED_MAX - 64 => {
            Err("too many objects wait for deletion: serve the image once, then try again")
        }
        Edit::Grow(size) if *size < head.geometry.size_bytes => {
            Err("the image is larger: stop its server, then add --shrink to cut it off")
        }
        Edit::Grow(size) => match Geometry::checked(head.geometry.block_bytes, *size) {
            Ok(_) => Ok(()),
            Err(damage) => Err(damage.0),
        },
        _ => Ok(()),
    }
}

fn apply(edit: &Edit, mut head: Head, end: u64) -> Head {
    head.revision += 1;
    match edit {
        Edit::Snapshot(name) => {
            let (checkpoint, size_bytes) = (head.checkpoint, head.geometry.size_bytes);
            let name = name.clone();
            let clones = Vec::new();
            head.snapshots.push(Snapshot { name, checkpoint, end, size_bytes, clones });
        }
        Edit::Remove(gone) => {
            let is_gone = |it: &mut Snapshot| gone.iter().any(|one| one.is(it));
            let gone: Vec<Snapshot> = head.snapshots.extract_if(.., is_gone).collect();
            gone.into_iter().for_each(|it| head.retire(it.checkpoint));
        }
        Edit::Grow(size) => head.geometry.size_bytes = *size,
        Edit::Clone { snapshot, clone } => {
            let of = head.snapshots.iter_mut().find(|it| it.name == *snapshot);
            of.into_iter().for_each(|it| it.clones.push(clone.clone()));
        }
        Edit::Made(image) => {
            let clones = head.snapshots.iter_mut().flat_map(|it| &mut it.clones);
            clones.filter(|it| it.image == *image).for_each(|it| it.is_made = true);
        }
        Edit::Retire(writer) => (head.epoch, head.writer) = (head.epoch + 1, writer.clone()),
        Edit::Release(image) => {
            head.snapshots.iter_mut().for_each(|it| it.clones.retain(|it| it.image != *image));
        }
    }
    head
}
