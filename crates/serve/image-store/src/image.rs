//! An image on a store, for its callers.

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

/// The least time for putting the head at a close, even if the flush has used up the limit.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// How much longer than the limit for opening a caller waits: the thread itself observes that
/// limit.
const GRACE: Duration = Duration::from_secs(5);

/// An image on a store, opened by a writer or a reader. Dropping it loses data that was not
/// flushed.
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
    /// Makes an empty image, where none exists; encrypted, if `options` have a key. Blocks.
    ///
    /// # Errors
    /// One line: the image exists already, or the store cannot be used.
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

    /// Compares the key of `options` with that of an image, if there is one. Blocks for a few GETs.
    /// If the store does not answer, opening the image decides later.
    ///
    /// # Errors
    /// One line: the key is not that of the image.
    pub fn compare_key(url: &StoreUrl, options: &StoreOptions) -> io::Result<()> {
        let client = reader::client(url, options)?;
        let look = async { Reader { client: &client }.look().await };
        let Ok(reader::Read::Good(head)) = reader::blocking(url, look) else { return Ok(()) };
        Encryption::cipher(head.geometry.encryption.as_ref(), options.key.as_ref())
            .map(drop)
            .map_err(|why| io::Error::other(format!("{url}: {why}")))
    }

    /// Takes an image over from its writer. Blocks.
    ///
    /// # Errors
    /// One line: there is no image, it is damaged, the key is wrong, or the store cannot be used.
    /// If the key is wrong, nothing was put, and the present writer continues.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> io::Result<StoredImage> {
        StoredImage::open_with(url, options, Settings::new(writer()?))
    }

    /// Like [`StoredImage::open`], with the caller's settings; [`writer`] makes the writer's name.
    /// The key is taken from `options`.
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

    /// Opens an image to read it in its present state. The call puts no object, and the writer
    /// continues. Later writes stay invisible; data that the writer has deleted cannot be read any
    /// more. Data of a snapshot stays. Blocks.
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

    /// Starts the thread of an image, and waits until the image is open.
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
            // A host name look-up may hang; the process does not wait for it.
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

    /// Returns a handle that reads the status, for callbacks.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Returns the counters.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Returns why the last failed operation of the store has failed.
    pub fn last_error(&self) -> Option<String> {
        self.client.last_error()
    }

    /// Returns `true` if the cache is not used at present because its disk does not answer.
    pub fn is_cache_aside(&self) -> bool {
        self.client.is_cache_aside()
    }

    /// Begins a request, which must consist of whole blocks. The image's thread, on which other
    /// requests wait, calls `done` at the end. If the image is closed, the calling thread calls
    /// `done` with an error at once.
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

    /// Makes all writes durable and stores the end of the log in the head, within `limit`, so that
    /// a later writer cannot take lost segments for the end. Blocks.
    ///
    /// # Errors
    /// Not all writes could be made durable.
    pub fn close(self, limit: Duration) -> io::Result<()> {
        self.close_within(limit)
    }

    /// Like [`StoredImage::close`]; later requests fail. Blocks.
    ///
    /// # Errors
    /// As for [`StoredImage::close`].
    pub fn close_within(&self, limit: Duration) -> io::Result<()> {
        let begin = Instant::now();
        self.flush_within(limit)?;
        let left = limit.saturating_sub(begin.elapsed()).max(CLOSES_WITHIN);
        // All writes are durable. If the head does not name the end, the next writer reads a little
        // more and a removal waits; that is not an error of the close.
        let _ = self.asked_within(Request::Close, left, "");
        Ok(())
    }

    /// Makes earlier writes durable, within `limit`. Blocks.
    ///
    /// # Errors
    /// Not all writes could be made durable.
    pub fn flush_within(&self, limit: Duration) -> io::Result<()> {
        self.asked_within(Request::Flush, limit, "not flushed")
    }

    /// Makes the image smaller, within `limit`. [`StoredImage::geometry`] keeps the old size.
    /// Blocks.
    ///
    /// # Errors
    /// The outcome is unknown, or another writer has the image.
    pub fn shrink_within(&self, size_bytes: u64, limit: Duration) -> io::Result<()> {
        self.asked_within(Request::Shrink { size_bytes }, limit, "not known to have shrunk")
    }

    /// Waits at most `limit` until all superfluous objects are deleted. The next writer deletes the
    /// rest. Blocks.
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
    /// The request is invalid, the image is damaged or closed, or another writer has it.
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

/// Returns a client for an image to be written.
fn prepared(url: &StoreUrl, options: &StoreOptions) -> io::Result<Client> {
    if url.snapshot.is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{url}: a snapshot is read only: add --read-only"),
        ));
    }
    reader::client(url, options)
}

/// Returns a writer with a random number, named after this host and process.
///
/// # Errors
/// The random number could not be read.
pub fn writer() -> io::Result<Writer> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "a host" } else { host.trim() };
    let name = format!("{host}, process {}", std::process::id());
    Ok(Writer { nonce: drawn()?, name })
}

/// Returns random bytes.
pub(crate) fn drawn() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
