//! The client of a store: carries out the state machine's operations, and translates the store's
//! answers.

use crate::cache::{Cache, Segment, origin, pages_of};
use crate::place::{Place, one_line};
use crate::status::CacheFigures;
use futures_util::{FutureExt, StreamExt};
use nowait_image_format::{Answer, Data, ImageId, Key, Operation, Tag};
use nowait_sys::mutex::Mutex;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, ObjectStoreExt, PutMode, PutPayload, PutResult,
    UpdateVersion,
};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Carries out operations of one image on a store.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
    timeout: Duration,
    last_error: Arc<Mutex<Option<LastError>>>,
    /// GETs, the bytes that they requested, and data reads that the cache answered or did not
    /// answer.
    asked: Arc<[AtomicU64; 4]>,
    cache: Option<Arc<Cache>>,
    store: Arc<str>,
    say: Option<fn(&str)>,
}

#[derive(Debug)]
struct LastError {
    text: String,
    is_hopeless: bool,
}

impl Client {
    /// Makes a client for an image; each request to the store fails after `timeout`.
    pub fn new(place: Place, timeout: Duration) -> Client {
        let (last_error, asked) = (Arc::default(), Arc::default());
        let (cache, store, say) = (None, Arc::from(""), None);
        Client { place, timeout, last_error, asked, cache, store, say }
    }

    /// Adds a cache. `store` is a text that identifies the store in the cache.
    #[must_use]
    pub fn with(self, cache: Option<Arc<Cache>>, store: &str) -> Client {
        Client { cache, store: Arc::from(store), ..self }
    }

    /// Adds a function that reports events to the user.
    #[must_use]
    pub fn telling(self, say: Option<fn(&str)>) -> Client {
        Client { say, ..self }
    }

    pub(crate) fn say(&self, text: &str) {
        if let Some(say) = self.say {
            say(text);
        }
    }

    fn segment(&self, image: ImageId, of: Option<&str>, sequence: u64) -> Segment {
        let base = of.map(Path::from);
        let path = base.as_ref().unwrap_or(&self.place.prefix);
        Segment { origin: origin(image, &self.store, path.as_ref()), sequence }
    }

    /// Removes the pages of this image's segments from the cache, from segment `sequence` on.
    pub(crate) fn forget(&self, image: ImageId, sequence: u64) {
        if let Some(cache) = &self.cache {
            cache.forget(self.segment(image, None, sequence));
        }
    }

    pub(crate) fn beside(&self, image: &str) -> Client {
        Client::new(self.place.beside(image), self.timeout)
    }

    /// Returns the place of the image.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns why the last failed operation failed; `None`: no operation has failed so far.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().as_ref().map(|error| error.text.clone())
    }

    /// Returns the time limit for one request to the store.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn is_well(&self) -> bool {
        self.last_error.lock().is_none()
    }

    pub(crate) fn asked(&self) -> (u64, u64) {
        let [gets, bytes, ..] = &*self.asked;
        (gets.load(Relaxed), bytes.load(Relaxed))
    }

    pub(crate) fn cache_figures(&self) -> CacheFigures {
        let [.., hits, misses] = &*self.asked;
        CacheFigures { hits: hits.load(Relaxed), misses: misses.load(Relaxed) }
    }

    pub(crate) fn is_cache_aside(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.is_aside())
    }

    /// Returns `true` if retries cannot mend the last failure, for example missing credentials.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.last_error.lock().as_ref().is_some_and(|error| error.is_hopeless)
    }

    /// Carries out an operation.
    pub async fn run(&self, operation: Operation) -> Answer {
        match operation {
            Operation::PutIfAbsent { image, key, body } => {
                let path = self.place.path(image, key);
                let answer = self.put(&path, body_of(&body), PutMode::Create).await;
                if let (Answer::Put(_), Key::Segment(sequence)) = (&answer, key) {
                    self.keep(image, sequence, &body);
                }
                answer
            }
            Operation::PutIfMatch { key, body, tag } => {
                let mode = PutMode::Update(version_of(&tag));
                let path = self.place.path(ImageId::default(), key);
                self.put(&path, body_of(&body), mode).await
            }
            Operation::Get { of, image, key, range, data } => {
                let from = (of.as_deref(), image);
                match (&self.cache, key, data) {
                    (Some(cache), Key::Segment(sequence), Some(Data { anew })) => {
                        self.get_data(cache, from, (sequence, anew), range).await
                    }
                    _ => self.get(from, key, range).await,
                }
            }
            Operation::List { image, from } => self.list(image, from).await,
            Operation::Delete { image, key } => self.delete(&self.place.path(image, key)).await,
        }
    }

    pub(crate) async fn put(&self, path: &Path, body: PutPayload, mode: PutMode) -> Answer {
        let put = self.place.store.put_opts(path, body, mode.into());
        match self.limited(put).await {
            Some(Ok(PutResult { e_tag, version, .. })) => match tag_of(e_tag, version) {
                Some(tag) => Answer::Put(tag),
                // The object in the store will show whether the PUT has succeeded.
                None => self.failed("the store gives no ETag"),
            },
            // There were two simultaneous requests for the same object. The store may have carried
            // out neither.
            Some(Err(error)) if is_conflict(&error) => self.failed_with(&error),
            Some(Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => Answer::Refused,
            Some(Err(error)) => self.failed_with(&error),
            None => Answer::Failed,
        }
    }

    /// Answers a GET of data at once, if a cache in memory holds all of the data.
    pub(crate) fn run_now(&self, operation: &Operation) -> Option<Answer> {
        let Operation::Get { of, image, key, range, data } = operation else { return None };
        let (cache, Key::Segment(sequence), Some(Data { anew: false })) =
            (self.cache.as_ref()?, *key, *data)
        else {
            return None;
        };
        let segment = self.segment(*image, of.as_deref(), sequence);
        let bytes = cache.read_now(segment, range)?;
        self.asked[2].fetch_add(1, Relaxed);
        Some(Answer::Got { bytes, object_bytes: range.end, tag: Tag::new() })
    }

    async fn get_data(
        &self,
        cache: &Arc<Cache>,
        (of, image): (Option<&str>, ImageId),
        (sequence, anew): (u64, bool),
        range: Range<u64>,
    ) -> Answer {
        let segment = self.segment(image, of, sequence);
        let cached = async || match anew {
            true => None,
            false => cache.read(segment, &range).await,
        };
        let got = |bytes| Answer::Got { bytes, object_bytes: range.end, tag: Tag::new() };
        let hit = |bytes| {
            self.asked[2].fetch_add(1, Relaxed);
            got(bytes)
        };
        if let Some(bytes) = cached().await {
            return hit(bytes);
        }
        let Ok(_turn) = tokio::time::timeout(self.timeout, cache.turn(segment, &range)).await
        else {
            return self.failed(&format!("no answer of the store within {:?}", self.timeout));
        };
        // Another read may have cached the data meanwhile.
        if let Some(bytes) = cached().await {
            return hit(bytes);
        }
        self.asked[3].fetch_add(1, Relaxed);
        let pages = pages_of(&range);
        match self.get((of, image), Key::Segment(sequence), pages.clone()).await {
            Answer::Got { bytes, object_bytes, .. } => {
                cache.insert(segment, pages.start, &bytes, (object_bytes, anew));
                let end = bytes.len().min((range.end - pages.start) as usize);
                let start = end.min((range.start - pages.start) as usize);
                got(bytes[start..end].to_vec())
            }
            other => other,
        }
    }

    fn keep(&self, image: ImageId, sequence: u64, body: &[u8]) {
        if let Some(cache) = &self.cache {
            let segment = self.segment(image, None, sequence);
            cache.insert(segment, 0, body, (body.len() as u64, true));
        }
    }

    async fn get(
        &self,
        (of, image): (Option<&str>, ImageId),
        key: Key,
        range: Range<u64>,
    ) -> Answer {
        let base = of.map(|of| self.place.beside(of));
        let path = &base.as_ref().unwrap_or(&self.place).path(image, key);
        self.asked[0].fetch_add(1, Relaxed);
        self.asked[1].fetch_add(range.end - range.start, Relaxed);
        let get = async {
            let asked = GetRange::Bounded(range.clone());
            let options = GetOptions { range: Some(asked), ..GetOptions::default() };
            let got = match self.place.store.get_opts(path, options).await {
                Err(error) if is_behind_end(&error) => {
                    let meta = self.place.store.head(path).await?;
                    // If the range begins at the end of the object or behind it, the answer is
                    // empty; otherwise the error stands.
                    return match tag_of(meta.e_tag, meta.version) {
                        Some(tag) if meta.size <= range.start => {
                            Ok(Some((Vec::new(), meta.size, tag)))
                        }
                        _ => Err(error),
                    };
                }
                other => other?,
            };
            read_body(got, &range).await
        };
        match self.limited(get).await {
            Some(Ok(Some((bytes, object_bytes, tag)))) => Answer::Got { bytes, object_bytes, tag },
            Some(Ok(None)) => self.failed("a GET returned another length than it announced"),
            Some(Err(Error::NotFound { .. })) => Answer::Missing,
            Some(Err(error)) => self.failed_with(&error),
            None => Answer::Failed,
        }
    }

    /// Lists at most 1,000 of the image's segments from the number `from` on. A folder lists them
    /// in any order.
    async fn list(&self, image: ImageId, from: u64) -> Answer {
        const PLACES_MAX: usize = 1000;
        let before = self.place.path(image, Key::Segment(from.saturating_sub(1)));
        let folder = self.place.below("log");
        let list = async {
            let mut places = Vec::new();
            let mut listed = self.place.store.list_with_offset(Some(&folder), &before);
            while let Some(meta) = listed.next().await {
                let name = meta?.location;
                let parts = name.prefix_match(&self.place.prefix).into_iter().flatten();
                let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
                places.extend(Key::segment_of(&name, image).filter(|place| *place >= from));
                if places.len() == PLACES_MAX {
                    break;
                }
            }
            Ok(places)
        };
        match self.limited(list).await {
            Some(Ok(places)) => Answer::Listed(places),
            Some(Err(error)) => self.failed_with(&error),
            None => Answer::Failed,
        }
    }

    pub(crate) async fn delete(&self, path: &Path) -> Answer {
        match self.limited(self.place.store.delete(path)).await {
            Some(Ok(()) | Err(Error::NotFound { .. })) => Answer::Deleted,
            Some(Err(error)) => self.failed_with(&error),
            None => Answer::Failed,
        }
    }

    /// Waits for at most the time limit. A panic counts as a failure, because the crate
    /// `object_store` may panic at an unexpected reply.
    async fn limited<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let caught = AssertUnwindSafe(work).catch_unwind();
        let why = match tokio::time::timeout(self.timeout, caught).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(_)) => "the answer of the store is invalid".to_owned(),
            Err(_) => format!("no answer of the store within {:?}", self.timeout),
        };
        self.failed(&why);
        None
    }

    fn failed(&self, why: &str) -> Answer {
        let error = LastError { text: why.to_owned(), is_hopeless: false };
        *self.last_error.lock() = Some(error);
        Answer::Failed
    }

    fn failed_with(&self, error: &Error) -> Answer {
        let is_hopeless = matches!(
            error,
            Error::Unauthenticated { .. }
                | Error::PermissionDenied { .. }
                | Error::NotFound { .. }
                | Error::NotSupported { .. }
                | Error::NotImplemented { .. }
        ) || is_denied(error);
        *self.last_error.lock() = Some(LastError { text: one_line(error), is_hopeless });
        Answer::Failed
    }
}

/// Bytes, whole length and tag; `None` if the store sent another range or length, or no tag.
type Body = Option<(Vec<u8>, u64, Tag)>;

/// Reads the body of an answer; stops if the store sends more bytes than were requested.
async fn read_body(got: GetResult, asked: &Range<u64>) -> Result<Body, Error> {
    let (said, size) = (got.range.clone(), got.meta.size);
    let expected = asked.start..asked.end.min(size);
    let Some(tag) = tag_of(got.meta.e_tag.clone(), got.meta.version.clone()) else {
        return Ok(None);
    };
    if said != expected {
        return Ok(None);
    }
    let len = (said.end - said.start) as usize;
    let (mut bytes, mut stream) = (Vec::new(), got.into_stream());
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        if piece.len() > len - bytes.len() {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes.len() == len).then_some((bytes, size, tag)))
}

fn body_of(body: &Arc<Vec<u8>>) -> PutPayload {
    /// Shares the memory with the state machine, which may have to put the same bytes again.
    struct Whole(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Whole {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    PutPayload::from_bytes(bytes::Bytes::from_owner(Whole(Arc::clone(body))))
}

/// Joins ETag and version, because some stores compare the one and some the other.
fn tag_of(e_tag: Option<String>, version: Option<String>) -> Option<Tag> {
    if e_tag.is_none() && version.is_none() {
        return None;
    }
    Some(format!("{}\n{}", e_tag.unwrap_or_default(), version.unwrap_or_default()))
}

fn version_of(tag: &Tag) -> UpdateVersion {
    let (e_tag, version) = tag.split_once('\n').unwrap_or((tag, ""));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UpdateVersion { e_tag: some(e_tag), version: some(version) }
}

pub(crate) fn update(tag: &Tag) -> PutMode {
    PutMode::Update(version_of(tag))
}

/// Returns `true` if the store refused a PUT because of a simultaneous request for the same object:
/// S3 answers 409 then. Azure answers 409 if the object exists, too, which is no conflict.
fn is_conflict(error: &Error) -> bool {
    let Error::AlreadyExists { source, .. } = error else { return false };
    let text = source.to_string();
    // No URL contains a `<`, whatever the name of the image.
    text.contains("status code: 409") && !text.contains("<Code>BlobAlreadyExists</Code>")
}

fn is_behind_end(error: &Error) -> bool {
    says(error, &["status code: 416", "object was only"])
}

/// The crate `object_store` reports a denial only in the text for token requests, and for requests
/// without a single object, such as deletions on Azure.
fn is_denied(error: &Error) -> bool {
    says(error, &["status code: 401", "status code: 403"])
}

fn says(error: &Error, texts: &[&str]) -> bool {
    let Error::Generic { source, .. } = error else { return false };
    let mut source: Option<&dyn std::error::Error> = Some(source.as_ref());
    while let Some(error) = source {
        let text = error.to_string();
        if texts.iter().any(|it| text.contains(it)) {
            return true;
        }
        source = error.source();
    }
    false
}
