//! Reading of an image without being its writer: by GETs and LISTs, which are tried again.

use crate::client::Client;
use crate::place::{Place, StoreOptions, one_line};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_log::checkpoint::{PART_BYTES_MAX, assemble};
use nowait_log::head::HEAD_BYTES_MAX;
use nowait_log::segment::{HEADER_BYTES_MAX, WINDOW};
use nowait_log::{
    Answer, Bases, Checkpoint, Content, Data, Head, Header, ImageId, Key, Map, Operation, Part,
};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// How often an object is asked for that does not come, or looks damaged.
pub(crate) const READS_MAX: u32 = 5;

/// How long the first of them waits for the next; each further one twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Parts of the map, or headers of segments, that are read at the same time.
const READS_AHEAD: usize = 16;

/// Where a log ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogEnd {
    /// Where nothing follows.
    Behind {
        /// A segment that is there, though perhaps not of the log.
        last: u64,
        /// The log reaches at least so far.
        known: u64,
    },
    /// Where a snapshot ends.
    At(u64),
}

/// Reads an image.
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
}

/// What else says which store it is.
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

/// Makes a client for an image.
pub(crate) fn client(url: &StoreUrl, options: &StoreOptions) -> io::Result<Client> {
    let place = Place::new(url, options).map_err(io::Error::other)?;
    let said = ENDPOINTS.map(|name| std::env::var(name).unwrap_or_default());
    let store = format!("{:?} {:?} {said:?} {}", url.scheme, options.endpoint, url.bucket);
    Ok(Client::new(place, options.request_timeout).with(options.cache.clone(), &store))
}

/// Waits for work with a store; its error is one of the image.
pub(crate) fn blocking<T>(
    url: &StoreUrl,
    work: impl Future<Output = Result<T, String>>,
) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A look-up of a name may hang; nothing waits for it.
    runtime.shutdown_background();
    done.map_err(|why| io::Error::other(format!("{url}: {why}")))
}

impl Reader<'_> {
    /// Returns the objects of the image, by their names behind its own, and their bytes.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, u64>, String> {
        let place = self.client.place();
        let mut why = String::new();
        for tried in 0..READS_MAX {
            pause(tried).await;
            let mut listed = BTreeMap::new();
            let mut stream = place.store.list(Some(&place.prefix));
            let ended = loop {
                match tokio::time::timeout(self.client.timeout(), stream.next()).await {
                    Err(_) => break Err(format!("no list within {:?}", self.client.timeout())),
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

    /// Returns the head, if there is one that can be read.
    pub(crate) async fn look(&self) -> Result<Read<Head>, String> {
        let parse = |bytes: &[u8], _| Head::parse(bytes).ok();
        self.read(&Bases::default(), Key::Head, HEAD_BYTES_MAX, parse).await
    }

    /// Returns the head of the image.
    pub(crate) async fn head(&self) -> Result<Head, String> {
        match self.look().await? {
            Read::Good(head) => Ok(head),
            Read::Missing => Err("there is no image".to_owned()),
            Read::Damaged => Err("its head is damaged: nothing of it can be read".to_owned()),
        }
    }

    /// Returns the map of an image, as the head and the log say, and what of that cannot be read.
    /// `None`: not even the map of the checkpoint.
    pub(crate) async fn recovered(
        &self,
        head: &Head,
        end: LogEnd,
    ) -> Result<(Option<Map>, Vec<Hit>), String> {
        let mut hits = Vec::new();
        let mut map = self.map(head, &mut hits).await?;
        if let Some(map) = &mut map {
            hits.extend(self.replay(head, map, end).await?);
        }
        Ok((map, hits))
    }

    /// The map of the checkpoint; `None`: it cannot be read.
    async fn map(&self, head: &Head, hits: &mut Vec<Hit>) -> Result<Option<Map>, String> {
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
            hits.push(Hit { key: head.checkpoint.key(0), what: "the parts are no map" });
        }
        Ok(map.ok())
    }

    /// Adds to a map what the log says behind it; returns where that cannot be read.
    async fn replay(&self, head: &Head, map: &mut Map, end: LogEnd) -> Result<Option<Hit>, String> {
        let mut next = head.checkpoint.position;
        let (last, known, end) = match end {
            LogEnd::Behind { last, known } => (last, known, u64::MAX),
            LogEnd::At(end) => (0, end, end),
        };
        let reads = (next..end).map(|sequence| self.header(head, sequence));
        let mut reads = futures_util::stream::iter(reads).buffered(READS_AHEAD);
        while let Some((sequence, header)) = reads.next().await {
            // Behind a fence the log goes on farther on.
            if sequence < next {
                continue;
            }
            match header? {
                Read::Good((header, _)) if header.leads_over(known) => {
                    return Ok(Some(Hit { key: Key::Segment(next), what: "another's" }));
                }
                Read::Good((header, data_start)) => match header.content {
                    Content::Fence { resume, .. } => next = resume,
                    Content::Changes(records) => {
                        map.replay(next, data_start, &records);
                        next += 1;
                    }
                },
                // What was in flight when a writer died may lie behind the end, but not farther.
                Read::Missing if next >= known && last < next.saturating_add(WINDOW) => {
                    return Ok(None);
                }
                other => return Ok(Some(Hit { key: Key::Segment(next), what: other.what() })),
            }
        }
        Ok(None)
    }

    /// Reads a part of the map.
    async fn part(&self, head: &Head, number: u32) -> (Key, Result<Read<Part>, String>) {
        let key = head.checkpoint.key(number);
        let read = self.read(&head.bases, key, PART_BYTES_MAX, |bytes, _| {
            let part = Part::parse(bytes).ok()?;
            let expected = (head.image_of(key), head.checkpoint.position, number);
            ((part.image, part.position, part.number) == expected).then_some(part)
        });
        (key, read.await)
    }

    /// Reads the header of a segment, and where its data begin.
    async fn header(
        &self,
        head: &Head,
        sequence: u64,
    ) -> (u64, Result<Read<(Header, u32)>, String>) {
        let key = Key::Segment(sequence);
        let read = self.read(&head.bases, key, HEADER_BYTES_MAX, |bytes, object_bytes| {
            let (header, start) = Header::parse(bytes, object_bytes, head.geometry).ok()?;
            let expected = (head.image_of(key), sequence);
            ((header.image, header.sequence) == expected).then_some((header, start))
        });
        (sequence, read.await)
    }

    /// Reads an object of at most `len` bytes, again if it does not come or makes no sense; where
    /// it is, the bases of the image say.
    pub(crate) async fn read<T>(
        &self,
        bases: &Bases,
        key: Key,
        len: usize,
        parse: impl FnMut(&[u8], u64) -> Option<T>,
    ) -> Result<Read<T>, String> {
        self.read_range(bases, (key, None), 0..len as u64, parse).await
    }

    /// The same of a range of an object; of data, if the image whose they may be is named.
    pub(crate) async fn read_range<T>(
        &self,
        bases: &Bases,
        (key, image): (Key, Option<ImageId>),
        range: Range<u64>,
        mut parse: impl FnMut(&[u8], u64) -> Option<T>,
    ) -> Result<Read<T>, String> {
        let (mut is_damaged, mut anew) = (false, false);
        for tried in 0..READS_MAX {
            pause(tried).await;
            let (of, image) = match image {
                None => (bases.of(key).map(|base| base.path.clone()), None),
                Some(image) => {
                    let (of, image) = bases.owner(key, image);
                    (of, Some(image))
                }
            };
            let data = image.map(|image| Data { image, anew });
            let range = range.clone();
            match self.client.run(Operation::Get { of, key, range, data }).await {
                Answer::Missing => return Ok(Read::Missing),
                Answer::Got { bytes, object_bytes, .. } => {
                    if let Some(it) = parse(&bytes, object_bytes) {
                        return Ok(Read::Good(it));
                    }
                    (is_damaged, anew) = (true, true);
                }
                _ => is_damaged = false,
            }
        }
        match is_damaged {
            true => Ok(Read::Damaged),
            false => Err(self.client.last_error().unwrap_or_else(|| format!("no answer: {key}"))),
        }
    }
}

/// An object without which nothing is known of any block.
pub(crate) struct Hit {
    pub(crate) key: Key,
    pub(crate) what: &'static str,
}

/// Returns the last segment of a list; 0: there is none.
pub(crate) fn last_segment(listed: &BTreeMap<String, u64>) -> u64 {
    let sequence = |name: &String| name.strip_prefix("log/")?.parse().ok();
    listed.keys().filter_map(sequence).max().unwrap_or(0)
}

/// What came of reading an object.
pub(crate) enum Read<T> {
    Good(T),
    Missing,
    Damaged,
}

impl<T> Read<T> {
    /// Returns the word for it.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Read::Good(_) => "good",
            Read::Missing => "missing",
            Read::Damaged => "damaged",
        }
    }
}

/// Waits before an operation that was tried so often.
pub(crate) async fn pause(tried: u32) {
    if tried > 0 {
        tokio::time::sleep(PAUSE * (1 << (tried - 1))).await;
    }
}
