//! Edits of the head while writers run: snapshots that are made and removed, and an image that
//! grows.
//!
//! [`Edits`] reads a new snapshot from the objects themselves; the snapshot must not change until
//! an edit removes it.

use crate::history::{History, Version};
use crate::run::SIZE_BYTES;
use crate::sizes::Sizes;
use crate::store::Store;
use nowait_image_format::{
    Answer, Content, Edit, Editor, Encryption, Head, Header, ImageKey, Key, Map, Operation, Part,
    Snapshot, Ticket, checkpoint,
};
use std::collections::BTreeMap;

/// Numbers of editors begin here, so that they differ from writers'.
pub const EDITORS: usize = 1 << 20;

const EDITORS_MAX: usize = 4;

struct Editing {
    editor: Editor,
    edit: Edit,
    /// The epoch, and the number of flushed changes, of the newest writer when the edit began.
    newest: Option<(u64, usize)>,
    size: Option<usize>,
    is_alive: bool,
}

/// All edits of a run.
#[derive(Default)]
pub struct Edits {
    all: Vec<Editing>,
    /// The snapshots that no edit has begun to remove, with the version of each block.
    kept: BTreeMap<String, (Snapshot, Vec<Version>)>,
    /// The possible sizes of the image.
    pub sizes: Sizes,
    /// Number of snapshots made.
    pub made: u64,
    /// Number of snapshots removed.
    pub removed: u64,
    key: Option<ImageKey>,
}

/// Writers as edits see them: their epochs, and their histories.
pub type Histories<'a> = Vec<(u64, &'a History)>;

impl Edits {
    /// Returns an empty list of edits; `key` is the key of the image, if it is encrypted.
    pub fn of(key: Option<ImageKey>) -> Edits {
        Edits { key, sizes: Sizes::of(SIZE_BYTES), ..Edits::default() }
    }

    /// Begins to make a snapshot, unless too many edits run.
    pub fn snapshot(&mut self, histories: &Histories<'_>, now_ns: u64) {
        let name = format!("snapshot {}", self.all.len());
        self.begin(Edit::Snapshot(name), histories, now_ns);
    }

    /// Checks the snapshots, and begins to remove one, unless none exists or too many edits run.
    pub fn remove(&mut self, nth: usize, store: &Store, now_ns: u64) -> Result<(), String> {
        let nth = nth % self.kept.len().max(1);
        self.judge(store)?;
        let Some(name) = self.kept.keys().nth(nth).cloned() else { return Ok(()) };
        if self.alive().count() < EDITORS_MAX {
            let gone = self.kept.remove(&name).map(|(snapshot, _)| snapshot);
            self.begin(Edit::Remove(gone.into_iter().collect()), &Vec::new(), now_ns);
        }
        Ok(())
    }

    /// Begins to grow the image to `size_bytes`, unless too many edits run.
    pub fn grow(&mut self, size_bytes: u64, now_ns: u64) {
        self.begin(Edit::Grow(size_bytes), &Vec::new(), now_ns);
    }

    fn begin(&mut self, edit: Edit, histories: &Histories<'_>, now_ns: u64) {
        // An edit retries when another edit succeeds: many edits at a time would retry too often.
        if self.alive().count() >= EDITORS_MAX {
            return;
        }
        let newest = histories.iter().max_by_key(|(epoch, _)| *epoch);
        let newest = newest.map(|(epoch, history)| (*epoch, history.flushed));
        let editor = Editor::new(edit.clone(), now_ns);
        let size = match &edit {
            Edit::Grow(size_bytes) => Some(self.sizes.begin(*size_bytes)),
            _ => None,
        };
        self.all.push(Editing { editor, edit, newest, size, is_alive: true });
    }

    /// Kills an edit in progress, which may have taken effect, or may still take effect.
    pub fn kill(&mut self, nth: usize) {
        let mut alive: Vec<&mut Editing> = self.all.iter_mut().filter(|it| it.is_alive).collect();
        let count = alive.len().max(1);
        if let Some(editing) = alive.get_mut(nth % count) {
            editing.is_alive = false;
        }
    }

    /// Returns the time of the next action of an edit.
    pub fn next_ns(&self) -> Option<u64> {
        self.alive().filter_map(|it| it.editor.next_ns()).min()
    }

    fn alive(&self) -> impl Iterator<Item = &Editing> {
        self.all.iter().filter(|it| it.is_alive)
    }

    /// Gives each edit in progress a turn.
    pub fn turn(&mut self, now_ns: u64) {
        let alive = self.all.iter_mut().filter(|it| it.is_alive);
        alive.for_each(|it| it.editor.turn(now_ns));
    }

    /// Passes an answer on to its edit, unless this edit was killed or has ended.
    pub fn answer(&mut self, client: usize, ticket: Ticket, answer: Answer, now_ns: u64) {
        let editing = &mut self.all[client - EDITORS];
        if editing.is_alive {
            editing.editor.answer(ticket, answer, now_ns);
        }
    }

    /// Returns the next operation of any edit in progress, with the number of its editor.
    pub fn pop_operation(&mut self) -> Option<(usize, Ticket, Operation)> {
        let alive = self.all.iter_mut().enumerate().filter(|(_, it)| it.is_alive);
        let pop = |(nth, it): (usize, &mut Editing)| {
            it.editor.pop_operation().map(|(ticket, operation)| (nth + EDITORS, ticket, operation))
        };
        alive.into_iter().find_map(pop)
    }

    /// Checks the outcomes of newly ended edits, and reads new snapshots.
    pub fn end(&mut self, histories: &Histories<'_>, store: &Store) -> Result<(), String> {
        for editing in self.all.iter_mut().filter(|it| it.is_alive) {
            let Some(outcome) = editing.editor.outcome() else { continue };
            editing.is_alive = false;
            editing.size.into_iter().for_each(|it| self.sizes.end(it, outcome.is_ok()));
            match (&editing.edit, outcome) {
                // `begin` was told of no writer that had found the image.
                (_, Err("no such image")) if editing.newest.is_none() => {}
                (
                    Edit::Grow(_),
                    Err("the image is larger: stop its server, then add --shrink to cut it off"),
                )
                | (
                    Edit::Grow(_)
                    | Edit::Clone { .. }
                    | Edit::Made(_)
                    | Edit::Release(_)
                    | Edit::Retire(_),
                    Ok(_),
                ) => {}
                (edit, Err(why)) => return Err(format!("{edit:?}: {why}")),
                (Edit::Remove(_), Ok(_)) => self.removed += 1,
                (Edit::Snapshot(name), Ok(head)) => {
                    let snapshot = head.snapshot(name).ok_or("it is not in its head")?.clone();
                    let image = read(store, self.key.as_ref(), head, &snapshot)?;
                    may_be(&image, editing.newest, histories)
                        .map_err(|why| format!("{name}: {why}"))?;
                    self.kept.insert(name.clone(), (snapshot, image));
                    self.made += 1;
                }
            }
        }
        Ok(())
    }

    /// Fails if the image cannot have had this size at any time since `since`.
    pub fn judge_size(&self, size_bytes: u64, since: u64) -> Result<(), String> {
        match self.sizes.may_be(size_bytes, since) {
            true => Ok(()),
            false => Err(format!("the image has {size_bytes} bytes after {:?}", self.sizes)),
        }
    }

    /// Returns one of the snapshots and its content, if there is any.
    pub fn any(&self) -> Option<(Snapshot, Vec<Version>)> {
        self.kept.values().next().cloned()
    }

    /// Describes one of the edits in progress, if there are any.
    pub fn unfinished(&self) -> Option<String> {
        self.alive().next().map(|it| format!("{:?} does not end", it.edit))
    }

    /// Fails if the image's size is impossible, or if one of the `kept` snapshots is gone or
    /// changed.
    pub fn judge(&self, store: &Store) -> Result<(), String> {
        if self.kept.is_empty() && !self.sizes.were_changed() {
            return Ok(());
        }
        let head = store.head()?;
        self.judge_size(head.geometry.size_bytes, self.sizes.now())?;
        for (name, (snapshot, image)) in &self.kept {
            if head.snapshot(name) != Some(snapshot) {
                return Err(format!("{name} is gone"));
            }
            let now = read(store, self.key.as_ref(), &head, snapshot)?;
            if now != *image {
                return Err(format!("{name} was {image:?} and is {now:?}"));
            }
        }
        Ok(())
    }
}

/// Checks that a snapshot is a state of one of the image's writers, no earlier than the durable
/// state when the snapshot was requested. Zeroes are right if no writer had found the image by
/// then.
fn may_be(
    image: &[Version],
    newest: Option<(u64, usize)>,
    histories: &Histories<'_>,
) -> Result<(), String> {
    let (epoch, flushed) = newest.unwrap_or((0, 0));
    let from = |it: u64| if it == epoch { flushed } else { 0 };
    let mut since = histories.iter().filter(|(it, _)| *it >= epoch);
    let is_new = newest.is_none() && image.iter().all(|version| *version == 0);
    if is_new || since.any(|(it, history)| history.find(image, from(*it)).is_some()) {
        return Ok(());
    }
    Err(format!("{image:?} with {flushed} changes flushed of {histories:?}"))
}

fn read(
    store: &Store,
    key: Option<&ImageKey>,
    head: &Head,
    snapshot: &Snapshot,
) -> Result<Vec<Version>, String> {
    let Head { geometry, .. } = head.as_of(snapshot);
    let cipher = Encryption::cipher(geometry.encryption.as_ref(), key)?;
    let object =
        |key: Key| store.object(head.image, key).ok_or(format!("{} lacks {key}", snapshot.name));
    let damage = |it: nowait_image_format::Damage| format!("{} is damaged: {}", snapshot.name, it);
    let mut parts = Vec::new();
    for number in 0..snapshot.checkpoint.parts {
        let part = object(snapshot.checkpoint.key(number))?;
        parts.push(Part::parse(part).map_err(damage)?);
    }
    let position = snapshot.checkpoint.position;
    let mut map: Map = checkpoint::assemble(&parts, position, geometry).map_err(damage)?;
    let mut next = position;
    while next < snapshot.end {
        let segment = object(Key::Segment(next))?;
        let (header, data_start) =
            Header::parse(segment, segment.len() as u64, geometry).map_err(damage)?;
        next = match header.content {
            Content::Fence { resume, .. } => resume,
            Content::Changes(records) => {
                map.replay(next, data_start, &records);
                next + 1
            }
        };
    }
    let mut image = Vec::new();
    for block in 0..crate::run::BLOCKS as u64 {
        let Some((sequence, index)) = map.extents().place(block) else {
            image.push(0);
            continue;
        };
        let segment = object(Key::Segment(sequence))?;
        let data_start = map.segments().get(&sequence).map_or(0, |it| it.data_start as usize);
        let at = data_start + index as usize * geometry.stored_bytes();
        let stored = segment.get(at..at + geometry.stored_bytes()).unwrap_or_default();
        let (codec, mut data) = (head.codec(cipher.as_ref(), sequence), Vec::new());
        codec.append(&mut data, stored, block).map_err(damage)?;
        image.push(data.first_chunk().map_or(0, |word| Version::from_le_bytes(*word)));
    }
    Ok(image)
}
