//! Repair of an image whose log has lost a part: shows the loss, and makes the image usable in one
//! of two ways.
//!
//! ```text
//!   log   there │ there │ lost │ there │ there       the writer has acknowledged all
//!   cut   there │ there ▏                             the image as it was at that moment
//!   skip  there │ there │      │ there │ there       existing segments; the lost bytes are older
//! ```
//! The repair takes the image over as a writer. If an earlier writer may still serve the image, the
//! repair waits until that writer must have noticed this. The repair then puts a fence and a
//! checkpoint behind all existing segments, and closes the image. The repair deletes no object; a
//! later writer does. A repair that is killed half-way has changed no data.

use crate::client::Client;
use crate::image::writer;
use crate::place::StoreOptions;
use crate::reader::{LogEnd, READS_MAX, Read, Reader, blocking, client, pause, segments};
use crate::url::StoreUrl;
use nowait_image_format::head::HEAD_BYTES_MAX;
use nowait_image_format::segment::WINDOW;
use nowait_image_format::{
    Answer, Change, Checkpoint, Content, Head, Header, ImageId, Key, Map, Operation, Part, Record,
    Tag,
};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// How often [`look`] reads the log if the head changes meanwhile.
const ROUNDS_MAX: u32 = 5;

/// How often the repair tries to put the fence while a running writer puts segments.
const FENCES_MAX: u32 = 5;

/// A lost part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The name of the first lost segment.
    pub name: String,
    /// `missing`, `damaged`, or the reason why this segment does not belong to the log.
    pub what: &'static str,
    /// The number of lost segments, whose contents are unknown.
    pub lost: u64,
    /// The number of segments with changes between the last checkpoint and the first lost segment.
    pub before: u64,
    /// The number of segments with changes that exist behind the first lost segment.
    pub behind: u64,
    /// The bytes of the image that the segments behind the first lost one have changed, in
    /// ascending order.
    pub ranges: Vec<Range<u64>>,
}

/// A way to repair an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// End the log before the first lost segment: the image is as it was before that segment.
    Cut,
    /// Leave out the lost segments: the bytes that only they changed are as they were before.
    Skip,
}

struct Log {
    map: Map,
    loss: Option<Loss>,
    epoch: u64,
}

/// Looks for a lost part of an image's log; returns `None` if no part is lost. Puts no object.
/// Blocks.
///
/// # Errors
/// One line: there is no image, its map is lost or damaged, or the store cannot be used.
pub fn look(url: &StoreUrl, options: &StoreOptions) -> io::Result<Option<Loss>> {
    let client = client(url, options)?;
    let found = async {
        let reader = Reader { client: &client };
        for _ in 0..ROUNDS_MAX {
            let listed = reader.list().await?;
            let head = reader.head().await?;
            let listed = segments(&listed, head.image);
            let loss = reader.followed(&head, &listed, Way::Skip, u64::MAX).await?.loss;
            // If the head has changed, another writer may have come, or a writer may have deleted
            // objects that only the earlier head needed.
            if loss.is_none() || reader.head().await? == head {
                return Ok(loss);
            }
        }
        Err("the head changes too fast to be read: stop the image's server first".to_owned())
    };
    blocking(url, found)
}

/// Repairs an image whose log has lost a part, and replaces its writer. If an earlier writer may
/// not know this yet, the call runs `wait`, as [`crate::catalog::remove`] does. Returns the loss;
/// if there is none, changes nothing and returns `None`. Blocks.
///
/// # Errors
/// As for [`look`]; or another writer has taken the image over meanwhile. After an error this call
/// may have replaced the writer. If the store did not answer, the image may even be repaired.
pub fn repair(
    url: &StoreUrl,
    options: &StoreOptions,
    way: Way,
    wait: impl FnOnce(&Head),
) -> io::Result<Option<Loss>> {
    let Some(loss) = look(url, options)? else { return Ok(None) };
    let client = client(url, options)?;
    let (before, taken, tag) = blocking(url, take(&client, way))?;
    if !before.is_quiet {
        wait(&before);
    }
    blocking(url, repaired(&client, (taken, tag), way))?;
    Ok(Some(loss))
}

async fn take(client: &Client, way: Way) -> Result<(Head, Head, Tag), String> {
    let reader = Reader { client };
    let (head, tag) = head_of(client).await?;
    let listed = segments(&reader.list().await?, head.image);
    let epoch = reader.followed(&head, &listed, way, u64::MAX).await?.epoch;
    let (revision, epoch) = (head.revision + 1, head.epoch.max(epoch) + 1);
    let writer = writer().map_err(|error| error.to_string())?;
    let (is_closed, is_quiet) = (false, false);
    let taken = Head { revision, epoch, writer, is_closed, is_quiet, ..head.clone() };
    let tag = put_head(client, &taken, &tag).await?;
    Ok((head, taken, tag))
}

async fn repaired(client: &Client, (taken, tag): (Head, Tag), way: Way) -> Result<(), String> {
    let reader = Reader { client };
    let at = fence(client, &taken).await?;
    let position = at + WINDOW;
    // The earlier writer puts no more segments of the log. Leave the fence out of the list: the
    // fence must not count as proof that segments at earlier places were durable.
    let mut listed = segments(&reader.list().await?, taken.image);
    listed.retain(|sequence| *sequence < at);
    let Log { mut map, epoch: last, .. } = reader.followed(&taken, &listed, way, at).await?;
    if last >= taken.epoch {
        return Err("the server of this image still writes: stop that server first".to_owned());
    }
    map.fence(at);
    for sequence in listed.range(taken.checkpoint.position..) {
        // Keep each segment in the map, so that the next writer deletes the superfluous ones.
        map.fence(*sequence);
    }
    let parts = Part::of(&map, &taken, position);
    let epoch = taken.epoch;
    for part in &parts {
        let key = Key::Part { epoch, nth: 1, number: part.number };
        if !put_if_absent(client, taken.image, key, part.encode()).await? {
            return Err(format!("{key} exists, from another writer: stop the other server"));
        }
    }
    let checkpoint = Checkpoint { position, parts: parts.len() as u32, epoch, nth: 1 };
    let closed = Head { is_closed: true, end: position, ..taken.advanced(checkpoint, position) };
    put_head(client, &closed, &tag).await?;
    Ok(())
}

impl Reader<'_> {
    /// Follows the log from the end of the checkpoint up to `until`, also past lost segments, and
    /// applies it to the map in the given `way`.
    async fn followed(
        &self,
        head: &Head,
        listed: &BTreeSet<u64>,
        way: Way,
        until: u64,
    ) -> Result<Log, String> {
        let mut hits = Vec::new();
        let map = self.map(head, &mut hits).await?;
        let Some(map) = map else {
            let hit = hits.first().map(|hit| format!("{} is {}", hit.key, hit.what));
            let hit = hit.unwrap_or_default();
            return Err(format!("{hit}: the map is lost and cannot be rebuilt: restore a backup"));
        };
        let mut log = Log { map, loss: None, epoch: 0 };
        let (mut next, mut before) = (head.checkpoint.position, 0);
        let end = LogEnd::Behind(listed);
        let mut ranges = Vec::new();
        let loss = |at: u64, what| {
            let name = Key::Segment(at).name(head.image_of(Key::Segment(at)));
            Loss { name, what, lost: 0, before: 0, behind: 0, ranges: Vec::new() }
        };
        while next < until {
            let read = self.header(head, next).await.1?;
            let Read::Good((header, data_start)) = read else {
                let is_missing = matches!(read, Read::Missing);
                if is_missing && next >= head.known_end() && !self.is_lost(head, next, end).await? {
                    break;
                }
                let lost = Loss { before, ..loss(next, read.what()) };
                let lost = log.loss.get_or_insert(lost);
                // A fence has no data, so a lost fence does not count as a lost segment.
                let was_fence = self.was_fence(head, next, log.epoch).await?;
                lost.lost += u64::from(!was_fence);
                next += if was_fence { WINDOW } else { 1 };
                continue;
            };
            if header.epoch > head.epoch && header.writer != head.writer.nonce {
                let later = Loss { before, ..loss(next, "newer than the head") };
                log.loss.get_or_insert(later);
            }
            log.epoch = log.epoch.max(header.epoch);
            match (header.content, &mut log.loss) {
                (Content::Fence { resume, .. }, _) => {
                    if log.loss.is_none() || way == Way::Skip {
                        log.map.fence(next);
                    }
                    next = resume;
                }
                (Content::Changes(records), loss) => {
                    if loss.is_none() || way == Way::Skip {
                        log.map.replay(next, data_start, &records);
                    }
                    match loss {
                        Some(loss) => {
                            loss.behind += 1;
                            ranges.extend(records.iter().map(|it| bytes_of(it, head)));
                        }
                        None => before += 1,
                    }
                    next += 1;
                }
            }
        }
        log.loss.iter_mut().for_each(|loss| loss.ranges = merged(core::mem::take(&mut ranges)));
        Ok(log)
    }

    /// Returns `true` if the lost segment `at` was a fence. Then another writer continued the log a
    /// window behind the fence, and no segment within this window belongs to the log.
    async fn was_fence(&self, head: &Head, at: u64, epoch: u64) -> Result<bool, String> {
        let behind = self.header(head, at.saturating_add(WINDOW)).await.1?;
        let Read::Good((Header { epoch: of, sequence, durable, .. }, _)) = behind else {
            return Ok(false);
        };
        if of <= epoch || durable != sequence {
            return Ok(false);
        }
        // If `at` was a fence, the segments behind it were in flight when a writer put the fence,
        // so none of them shows that a segment at `at` was durable.
        for sequence in at + 1..at + WINDOW {
            if let Read::Good((header, _)) = self.header(head, sequence).await.1?
                && header.proves(at)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn bytes_of(Record { block, blocks, change }: &Record, head: &Head) -> Range<u64> {
    let (Change::Data | Change::Zero) = change;
    let size = u64::from(head.geometry.block_bytes);
    block * size..(block + u64::from(*blocks)) * size
}

pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

async fn fence(client: &Client, head: &Head) -> Result<u64, String> {
    for _ in 0..FENCES_MAX {
        let listed = segments(&Reader { client }.list().await?, head.image);
        let last = listed.last().copied().unwrap_or(0);
        let at = (last + 1).max(head.known_end());
        let (image, epoch, writer) = (head.image, head.epoch, head.writer.nonce);
        let content = Content::Fence { resume: at + WINDOW, writer: head.writer.name.clone() };
        let header = Header { image, epoch, writer, sequence: at, durable: at, content };
        let body = header.encode(head.geometry);
        if put_if_absent(client, image, Key::Segment(at), body).await? {
            return Ok(at);
        }
    }
    Err("the server of this image still writes: stop that server first".to_owned())
}

/// Returns `true` if the store took the object, or the existing object has the same bytes.
pub(crate) async fn put_if_absent(
    client: &Client,
    image: ImageId,
    key: Key,
    body: Vec<u8>,
) -> Result<bool, String> {
    let body = Arc::new(body);
    for tried in 0..READS_MAX {
        pause(tried).await;
        let put = Operation::PutIfAbsent { image, key, body: Arc::clone(&body) };
        match client.run(put).await {
            Answer::Put(_) => return Ok(true),
            // An earlier PUT of this call may have succeeded though its answer was lost.
            Answer::Refused => {
                let range = 0..body.len() as u64;
                let get = Operation::Get { of: None, image, key, range, data: None };
                let there = client.run(get).await;
                return Ok(matches!(there, Answer::Got { bytes, .. } if bytes == *body));
            }
            _ => {}
        }
    }
    Err(client.last_error().unwrap_or_else(|| format!("{key} cannot be written")))
}

async fn head_of(client: &Client) -> Result<(Head, Tag), String> {
    for tried in 0..READS_MAX {
        pause(tried).await;
        let (image, key, range) = (ImageId::default(), Key::Head, 0..HEAD_BYTES_MAX as u64);
        let get = Operation::Get { of: None, image, key, range, data: None };
        if let Answer::Got { bytes, tag, .. } = client.run(get).await
            && let Ok(head) = Head::parse(&bytes)
        {
            return Ok((head, tag));
        }
    }
    Err(client.last_error().unwrap_or_else(|| "the head cannot be read".to_owned()))
}

async fn put_head(client: &Client, head: &Head, tag: &Tag) -> Result<Tag, String> {
    let body = Arc::new(head.encode());
    for tried in 0..READS_MAX {
        pause(tried).await;
        let (key, body, tag) = (Key::Head, Arc::clone(&body), tag.clone());
        match client.run(Operation::PutIfMatch { key, body, tag }).await {
            Answer::Put(tag) => return Ok(tag),
            Answer::Refused => {
                let (now, tag) = head_of(client).await?;
                return match now == *head {
                    true => Ok(tag),
                    false => {
                        Err(format!("{} took over the image during this command", now.writer.name))
                    }
                };
            }
            _ => {}
        }
    }
    Err(client.last_error().unwrap_or_else(|| "the head cannot be written".to_owned()))
}
