//! Reads an image without being its writer: by GETs and LISTs, which it repeats if they fail.

use crate::client::Client;
use crate::place::{Place, StoreOptions, one_line};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_image_format::checkpoint::{PART_BYTES_MAX, assemble};
use nowait_image_format::head::HEAD_BYTES_MAX;
use nowait_image_format::segment::{HEADER_BYTES_MAX, WINDOW};
use nowait_image_format::{
    Answer, Bases, Checkpoint, Content, Data, Head, Header, ImageId, Key, Map, Operation, Part,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// How often the reader requests an object that does not come or looks damaged.
pub(crate) const READS_MAX: u32 = 5;

/// After this many answers that an object is missing, the reader does not ask again.
const MISSES_MAX: u32 = 3;

/// The pause before the first repetition; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// The most parts of the map, or headers of segments, that the reader requests at the same time.
const READS_AHEAD: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) enum LogEnd<'a> {
    /// The log ends before the first missing segment, unless that segment has existed. The listed
    /// segments are in the store, but may not belong to the log.
    Behind(&'a BTreeSet<u64>),
    At(u64),
    /// The log ends where the head of a closed image says, and no listed segment may lie behind
    /// this end.
    Closed(u64, &'a BTreeSet<u64>),
}

impl LogEnd<'_> {
    pub(crate) fn of<'a>(head: &Head, listed: &'a BTreeSet<u64>) -> LogEnd<'a> {
        if head.is_closed { LogEnd::Closed(head.end, listed) } else { LogEnd::Behind(listed) }
    }
}

pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
}

/// The environment variables that identify a store, besides the options.
const ENDPOINTS: [&str; 8] = [
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
    "AZURITE_BLOB_STORAGE_URL",
    "GOOGLE_BASE_URL",
];

pub(crate) fn client(url: &StoreUrl, options: &StoreOptions) -> io::Result<Client> {
    let place = Place::new(url, options).map_err(io::Error::other)?;
    let said = ENDPOINTS.map(|name| std::env::var(name).unwrap_or_default());
    let store = format!("{:?} {:?} {said:?} {}", url.scheme, options.endpoint, url.bucket);
    let client = Client::new(place, options.request_timeout).with(options.cache.clone(), &store);
    Ok(client.telling(options.say))
}

/// Blocks, and adds the address of the image to the error.
pub(crate) fn blocking<T>(
    url: &StoreUrl,
    work: impl Future<Output = Result<T, String>>,
) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // Do not wait for a look-up of a host name, which may hang.
    runtime.shutdown_background();
    done.map_err(|why| io::Error::other(format!("{url}: {why}")))
}

impl Reader<'_> {
    /// Returns all objects below the image's path, by their names relative to this path, and their
    /// lengths. Other images may also lie below the path.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, u64>, String> {
        let place = self.client.place();
        let mut why = String::new();
        for tried in 0..READS_MAX {
            pause(tried).await;
            let mut listed = BTreeMap::new();
            let mut stream = place.store.list(Some(&place.prefix));
            let ended = loop {
                match tokio::time::timeout(self.client.timeout(), stream.next()).await {
                    Err(_) => {
                        break Err(format!(
                            "the store sent no list within {:?}",
                            self.client.timeout()
                        ));
                    }
                    Ok(None) => break Ok(()),
                    Ok(Some(Err(error))) => break Err(one_line(&error)),
                    Ok(Some(Ok(meta))) => {
                        if let Some(name) = meta.location.prefix_match(&place.prefix) {
                            let parts: Vec<_> = name.map(|part| part.as_ref().to_owned()).collect();
                            listed.insert(parts.join("/"), meta.size);
                        }
                    }
                }
            };
            match ended {
                Ok(()) => return Ok(listed),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// An error means that the store did not answer or failed.
    pub(crate) async fn look(&self) -> Result<Read<Head>, String> {
        let parse = |bytes: &[u8], _| Head::parse(bytes).ok();
        let of = (&Bases::default(), ImageId::default());
        self.read(of, Key::Head, HEAD_BYTES_MAX, parse).await
    }

    pub(crate) async fn head(&self) -> Result<Head, String> {
        match self.look().await? {
            Read::Good(head) => Ok(head),
            Read::Missing => Err("no such image".to_owned()),
            Read::Damaged => Err("the head is damaged: nothing can be read".to_owned()),
        }
    }

    /// Returns the map of an image from its head and its log up to `end`. Also returns the unusable
    /// parts of the checkpoint's map, or else the first unusable segment. `None`: the checkpoint's
    /// map cannot be read.
    pub(crate) async fn recovered(
        &self,
        head: &Head,
        end: LogEnd<'_>,
    ) -> Result<(Option<Map>, Vec<Hit>), String> {
        let mut hits = Vec::new();
        let mut map = self.map(head, &mut hits).await?;
        if let Some(map) = &mut map {
            hits.extend(self.replay(head, map, end).await?);
        }
        Ok((map, hits))
    }

    /// Returns `None`, and adds objects to `hits`, if a part of the map cannot be read or the parts
    /// do not form a map.
    pub(crate) async fn map(
        &self,
        head: &Head,
        hits: &mut Vec<Hit>,
    ) -> Result<Option<Map>, String> {
        let Checkpoint { parts, .. } = head.checkpoint;
        let mut read = Vec::new();
        let reads = (0..parts).map(|number| self.part(head, number));
        let mut reads = futures_util::stream::iter(reads).buffered(READS_AHEAD);
        while let Some((key, part)) = reads.next().await {
            match part? {
                Read::Good(part) => read.push(part),
                other => hits.push(Hit { key, what: other.what() }),
            }
        }
        if read.len() < parts as usize {
            return Ok(None);
        }
        let map = assemble(&read, head.checkpoint.position, head.geometry);
        if map.is_err() {
            let what = "contradicted by the other parts of the map";
            hits.push(Hit { key: head.checkpoint.key(0), what });
        }
        Ok(map.ok())
    }

    /// Returns the first object that could not be read or does not belong to the log.
    async fn replay(
        &self,
        head: &Head,
        map: &mut Map,
        end: LogEnd<'_>,
    ) -> Result<Option<Hit>, String> {
        let mut next = head.checkpoint.position;
        let (known, end_at) = match end {
            LogEnd::Behind(_) => (head.known_end(), u64::MAX),
            LogEnd::At(end) | LogEnd::Closed(end, _) => (end, end),
        };
        let hit = |at, what| Ok(Some(Hit { key: Key::Segment(at), what }));
        let reads = (next..end_at).map(|sequence| self.header(head, sequence));
        let mut reads = futures_util::stream::iter(reads).buffered(READS_AHEAD);
        while let Some((sequence, header)) = reads.next().await {
            // A segment before `next` lies behind a fence and is no part of the log.
            if sequence < next {
                continue;
            }
            match header? {
                Read::Good((header, _)) if header.leads_over(known) => {
                    return hit(next, "contradicted by the head");
                }
                // A user has put back an older head, or another writer has taken the image over.
                Read::Good((header, _)) if header.epoch > head.epoch => {
                    return hit(next, "newer than the head");
                }
                Read::Good((header, data_start)) => match header.content {
                    Content::Fence { resume, .. } => {
                        map.fence(next);
                        next = resume;
                    }
                    Content::Changes(records) => {
                        map.replay(next, data_start, &records);
                        next += 1;
                    }
                },
                Read::Missing if next >= known => match self.is_lost(head, next, end).await? {
                    true => return hit(next, Read::<()>::Missing.what()),
                    false => return Ok(None),
                },
                other => return hit(next, other.what()),
            }
        }
        match end {
            LogEnd::Closed(end, listed) => match listed.range(end..).next() {
                Some(later) => hit(*later, "newer than the head"),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Returns `true` if the missing segment `at` has existed: the list or a later segment shows
    /// this, or the end of the log is known to lie behind it.
    pub(crate) async fn is_lost(
        &self,
        head: &Head,
        at: u64,
        end: LogEnd<'_>,
    ) -> Result<bool, String> {
        let LogEnd::Behind(listed) = end else { return Ok(true) };
        if listed.contains(&at) || listed.range(at.saturating_add(WINDOW)..).next().is_some() {
            return Ok(true);
        }
        for sequence in listed.range(at..) {
            if let Read::Good((header, _)) = self.header(head, *sequence).await.1?
                && header.proves(at)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn part(&self, head: &Head, number: u32) -> (Key, Result<Read<Part>, String>) {
        let key = head.checkpoint.key(number);
        let read = self.read((&head.bases, head.image), key, PART_BYTES_MAX, |bytes, _| {
            let part = Part::parse(bytes).ok()?;
            let expected = (head.image_of(key), head.checkpoint.position, number);
            ((part.image, part.position, part.number) == expected).then_some(part)
        });
        (key, read.await)
    }

    pub(crate) async fn header(
        &self,
        head: &Head,
        sequence: u64,
    ) -> (u64, Result<Read<(Header, u32)>, String>) {
        let key = Key::Segment(sequence);
        let of = (&head.bases, head.image);
        let read = self.read(of, key, HEADER_BYTES_MAX, |bytes, object_bytes| {
            let (header, start) = Header::parse(bytes, object_bytes, head.geometry).ok()?;
            let expected = (head.image_of(key), sequence);
            ((header.image, header.sequence) == expected).then_some((header, start))
        });
        (sequence, read.await)
    }

    /// Repeats the read if the object does not come or `parse` finds it damaged. The bases in `of`
    /// tell which image has the object.
    pub(crate) async fn read<T>(
        &self,
        of: (&Bases, ImageId),
        key: Key,
        len: usize,
        parse: impl FnMut(&[u8], u64) -> Option<T>,
    ) -> Result<Read<T>, String> {
        self.read_range(of, (key, None), 0..len as u64, parse).await
    }

    /// Like [`Reader::read`], for a range; with [`Data`] a cache may answer.
    pub(crate) async fn read_range<T>(
        &self,
        (bases, image): (&Bases, ImageId),
        (key, mut data): (Key, Option<Data>),
        range: Range<u64>,
        mut parse: impl FnMut(&[u8], u64) -> Option<T>,
    ) -> Result<Read<T>, String> {
        let mut last = None;
        let mut misses = 0;
        for tried in 0..READS_MAX {
            pause(tried).await;
            let ((of, image), range) = (bases.owner(key, image), range.clone());
            match self.client.run(Operation::Get { of, image, key, range, data }).await {
                Answer::Missing => {
                    misses += 1;
                    last = Some(Read::Missing);
                    if misses == MISSES_MAX {
                        break;
                    }
                }
                Answer::Got { bytes, object_bytes, .. } => {
                    if let Some(it) = parse(&bytes, object_bytes) {
                        return Ok(Read::Good(it));
                    }
                    last = Some(Read::Damaged);
                    data.iter_mut().for_each(|it| it.anew = true);
                }
                _ => last = None,
            }
        }
        last.ok_or_else(|| self.client.last_error().unwrap_or_else(|| format!("no answer: {key}")))
    }
}

/// A missing or damaged object without which the map of the image is not known.
pub(crate) struct Hit {
    pub(crate) key: Key,
    pub(crate) what: &'static str,
}

pub(crate) fn segments(listed: &BTreeMap<String, u64>, image: ImageId) -> BTreeSet<u64> {
    listed.keys().filter_map(|name| Key::segment_of(name, image)).collect()
}

pub(crate) enum Read<T> {
    Good(T),
    Missing,
    Damaged,
}

impl<T> Read<T> {
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Read::Good(_) => "good",
            Read::Missing => "missing",
            Read::Damaged => "damaged",
        }
    }
}

pub(crate) async fn pause(tried: u32) {
    if tried > 0 {
        tokio::time::sleep(PAUSE * (1 << (tried - 1))).await;
    }
}
