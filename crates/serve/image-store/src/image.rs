//! An image on a store, as its callers use it.

use crate::client::Client;
use crate::driver::{Command, Commands, Plan, run};
use crate::place::StoreOptions;
use crate::reader::{self, Reader};
use crate::status::{Figures, Shared, Status, Watch};
use crate::url::StoreUrl;
use crate::viewing;
use nowait_image_format::{
    Encryption, Failure, Geometry, ImageId, ImageKey, Origin, Request, Settings, Writer,
};
use std::io::{self, Read};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The least time for the PUT of the head at a close, after the flush.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// The caller waits for the thread this much longer than the limits for opening and for one request
/// together: the thread itself observes the limit for opening.
const GRACE: Duration = Duration::from_secs(5);

/// An image on a store, opened to write or only to read it. Dropping this value may lose writes
/// that were not flushed.
#[derive(Debug)]
pub struct StoredImage {
    url: StoreUrl,
    client: Client,
    geometry: Geometry,
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl StoredImage {
    /// Makes an empty image, if none exists at `url`, and opens it. The image is encrypted if
    /// `options` have a key. Blocks.
    ///
    /// # Errors
    /// One line: the sizes are not possible, the image exists already, or the store cannot be used.
    pub fn create(
        url: &StoreUrl,
        options: &StoreOptions,
        size_bytes: u64,
        block_bytes: u32,
    ) -> io::Result<StoredImage> {
        let mut geometry = Geometry::checked(block_bytes, size_bytes)
            .map_err(|damage| io::Error::new(io::ErrorKind::InvalidInput, damage))?;
        if let Some(key) = &options.key {
            geometry.encryption = Some(Encryption::new(key, drawn()?));
        }
        let image: ImageId = drawn()?;
        let origin = Origin::Create { image, geometry };
        StoredImage::begin(url, options, Settings::new(writer()?), origin)
    }

    /// Compares the key of `options` with the key of an existing image. Blocks for a few GETs. If
    /// the head cannot be read, returns `Ok`: opening the image will fail later.
    ///
    /// # Errors
    /// One line: the key is not that of the image, only one of the two has a key, or the settings
    /// of the store are wrong.
    pub fn compare_key(url: &StoreUrl, options: &StoreOptions) -> io::Result<()> {
        let client = reader::client(url, options)?;
        let look = async { Reader { client: &client }.look().await };
        let Ok(reader::Read::Good(head)) = reader::blocking(url, look) else { return Ok(()) };
        Encryption::cipher(head.geometry.encryption.as_ref(), options.key.as_ref())
            .map(drop)
            .map_err(|why| io::Error::other(format!("{url}: {why}")))
    }

    /// Opens an image to write it, and takes it over from its present writer, if there is one.
    /// Blocks.
    ///
    /// # Errors
    /// One line: there is no image, it is damaged, the key is wrong, or the store cannot be used.
    /// If the key is wrong, the present writer continues.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> io::Result<StoredImage> {
        StoredImage::open_with(url, options, Settings::new(writer()?))
    }

    /// Like [`StoredImage::open`], with the caller's `settings`, except that `options` give the
    /// key. [`writer`] returns the writer for [`Settings::new`].
    ///
    /// # Errors
    /// As for [`StoredImage::open`].
    pub fn open_with(
        url: &StoreUrl,
        options: &StoreOptions,
        settings: Settings,
    ) -> io::Result<StoredImage> {
        StoredImage::begin(url, options, settings, Origin::TakeOver)
    }

    /// Opens an image or a snapshot to read it in its present state. The call puts no object, and
    /// the writer continues. Later writes stay invisible. A read of an image fails if the writer
    /// has meanwhile deleted data that the read needs. The data of a snapshot stay until the
    /// snapshot is removed. Blocks.
    ///
    /// # Errors
    /// As for [`StoredImage::open`].
    pub fn open_read_only(url: &StoreUrl, options: &StoreOptions) -> io::Result<StoredImage> {
        let client = reader::client(url, options)?;
        StoredImage::read_on(url, client, options.open_timeout, options.key.clone())
    }

    pub(crate) fn read_on(
        url: &StoreUrl,
        client: Client,
        open_timeout: Duration,
        key: Option<ImageKey>,
    ) -> io::Result<StoredImage> {
        let opens_until = Instant::now() + open_timeout;
        let plan = viewing::Plan { url: url.clone(), client: client.clone(), key, opens_until };
        let run = |queue, shared| viewing::run(plan, queue, shared);
        StoredImage::start(url, client, opens_until, run)
    }

    fn begin(
        url: &StoreUrl,
        options: &StoreOptions,
        settings: Settings,
        origin: Origin,
    ) -> io::Result<StoredImage> {
        let client = prepared(url, options)?;
        let settings = Settings { key: options.key.clone(), ..settings };
        StoredImage::begin_on(url, client, options.open_timeout, settings, origin)
    }

    pub(crate) fn begin_on(
        url: &StoreUrl,
        client: Client,
        open_timeout: Duration,
        settings: Settings,
        origin: Origin,
    ) -> io::Result<StoredImage> {
        let nonce = format!("{:032x}", u128::from_be_bytes(settings.writer.nonce));
        let opens_until = Instant::now() + open_timeout;
        let shown = url.to_string();
        let plan = Plan { client: client.clone(), settings, origin, nonce, opens_until, shown };
        StoredImage::start(url, client, opens_until, |queue, shared| run(plan, queue, shared))
    }

    fn start<F: Future<Output = ()>>(
        url: &StoreUrl,
        client: Client,
        opens_until: Instant,
        run: impl FnOnce(Commands, Arc<Shared>) -> F + Send + 'static,
    ) -> io::Result<StoredImage> {
        let (commands, queue) = unbounded_channel();
        let shared = Arc::new(Shared::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let told = shared.clone();
        let named = thread::Builder::new().name("nowait-store".to_owned());
        let thread = named.spawn(move || {
            runtime.block_on(run(queue, told));
            // Do not wait for a look-up of a host name, which may hang.
            runtime.shutdown_background();
        })?;
        let thread = Some(thread);
        let status = shared.opened(opens_until + GRACE + client.timeout());
        let geometry = match &status {
            Status::Serving { geometry, .. } | Status::Reading { geometry, .. } => *geometry,
            other => {
                let _ = commands.send(Command::End);
                return Err(io::Error::other(format!("{url}: {other}")));
            }
        };
        Ok(StoredImage { url: url.clone(), client, geometry, shared, commands, thread })
    }

    /// Returns the address of the image.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Returns the geometry of the image.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the status.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns a handle that reads the status and does not keep the image open, for callbacks.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Returns the counters of the image.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Returns why the last failed operation on the store failed; `None`: none has failed so far.
    pub fn last_error(&self) -> Option<String> {
        self.client.last_error()
    }

    /// Returns `true` if the cache does not read its folder at present, because the disk has not
    /// answered.
    pub fn is_cache_aside(&self) -> bool {
        self.client.is_cache_aside()
    }

    /// Begins a request, which must consist of whole blocks. When the request has ended, the
    /// image's thread calls `done`, which must not wait: other requests wait for this thread. If
    /// the thread has ended, the calling thread calls `done` with an error.
    pub fn submit(
        &self,
        request: Request,
        done: impl FnOnce(Result<Vec<u8>, Failure>) + Send + 'static,
    ) {
        let sent = self.commands.send(Command::Request(request, Box::new(done)));
        if let Err(error) = sent
            && let Command::Request(_, done) = error.0
        {
            done(Err(Failure::Io));
        }
    }

    /// Makes all writes durable within `limit`, and then stores the end of the log in the head, so
    /// that a later writer cannot take lost segments for the end. If the head cannot be stored, the
    /// call still succeeds. Blocks, for a second longer than `limit` at most.
    ///
    /// # Errors
    /// Not all writes became durable within `limit`.
    pub fn close(self, limit: Duration) -> io::Result<()> {
        self.close_within(limit)
    }

    /// Like [`StoredImage::close`], for a shared image: requests after a close fail.
    ///
    /// # Errors
    /// As for [`StoredImage::close`].
    pub fn close_within(&self, limit: Duration) -> io::Result<()> {
        let begin = Instant::now();
        self.flush_within(limit)?;
        let left = limit.saturating_sub(begin.elapsed()).max(CLOSES_WITHIN);
        // All writes are durable now. If the head does not name the end of the log, the next writer
        // reads a little more, and a removal waits. That is not an error of the close.
        let _ = self.asked_within(Request::Close, left, "");
        Ok(())
    }

    /// Makes earlier writes durable, within `limit`. Blocks.
    ///
    /// # Errors
    /// Not all writes became durable within `limit`.
    pub fn flush_within(&self, limit: Duration) -> io::Result<()> {
        self.asked_within(Request::Flush, limit, "not flushed")
    }

    /// Makes the image smaller, within `limit`. [`StoredImage::geometry`] still returns the old
    /// size. Blocks.
    ///
    /// # Errors
    /// The size is not possible, another writer has the image, or the outcome is unknown after
    /// `limit`.
    pub fn shrink_within(&self, size_bytes: u64, limit: Duration) -> io::Result<()> {
        self.asked_within(Request::Shrink { size_bytes }, limit, "not known to have shrunk")
    }

    /// Waits until the image's thread has deleted all superfluous objects, the image is no longer
    /// served, or `limit` is over. The next writer deletes the rest. Blocks.
    pub fn clean_within(&self, limit: Duration) {
        self.shared.cleaned(Instant::now() + limit);
    }

    fn asked_within(&self, request: Request, limit: Duration, late: &str) -> io::Result<()> {
        let (sender, ended) = mpsc::sync_channel(1);
        self.submit(request, move |result| drop(sender.send(result)));
        if let Ok(result) = ended.recv_timeout(limit) {
            return result.map(drop).map_err(|failure| self.error(failure));
        }
        let why = self.last_error().unwrap_or_else(|| "the store is slow".to_owned());
        let text = format!("{}: {late} within {limit:?}: {why}", self.url);
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// Carries out a request. Blocks.
    ///
    /// # Errors
    /// The request is invalid, the image is damaged or closed, or another writer has taken it over.
    pub fn call(&self, request: Request) -> Result<Vec<u8>, Failure> {
        let (sender, ended) = mpsc::sync_channel(1);
        self.submit(request, move |result| drop(sender.send(result)));
        ended.recv().unwrap_or(Err(Failure::Io))
    }

    pub(crate) fn error(&self, failure: Failure) -> io::Error {
        match failure {
            Failure::Invalid => io::Error::from(io::ErrorKind::InvalidInput),
            Failure::Io => io::Error::other(format!("{}: {}", self.url, self.status())),
        }
    }
}

impl Drop for StoredImage {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn prepared(url: &StoreUrl, options: &StoreOptions) -> io::Result<Client> {
    if url.snapshot.is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{url}: a snapshot is read only: add --read-only"),
        ));
    }
    reader::client(url, options)
}

/// Returns a new writer: a random number, and a name made of host name and process number.
///
/// # Errors
/// /dev/urandom could not be read.
pub fn writer() -> io::Result<Writer> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "a host" } else { host.trim() };
    let name = format!("{host}, process {}", std::process::id());
    Ok(Writer { nonce: drawn()?, name })
}

pub(crate) fn drawn() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
