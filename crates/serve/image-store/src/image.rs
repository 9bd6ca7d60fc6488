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

/// How long the head of an image may take at least that is closed.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// Beyond its time to open, which the thread itself watches.
const GRACE: Duration = Duration::from_secs(5);

/// An image on a store, and its writer or a reader. Dropped, it loses what was not flushed.
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
    /// Makes an empty image, where none is; encrypted, if `options` have a key. Blocks.
    ///
    /// # Errors
    /// There is one already; the store cannot be used: in one line.
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

    /// Compares the key of `options` with that of an image, if there is one. Blocks, for as long
    /// as a few GETs take; a store that does not answer is left to what opens the image.
    ///
    /// # Errors
    /// It is not its key: in one line.
    pub fn compare_key(url: &StoreUrl, options: &StoreOptions) -> io::Result<()> {
        let client = reader::client(url, options)?;
        let look = async { Reader { client: &client }.look().await };
        let Ok(reader::Read::Good(head)) = reader::blocking(url, look) else { return Ok(()) };
        Encryption::cipher(head.geometry.encryption.as_ref(), options.key.as_ref())
            .map(drop)
            .map_err(|why| io::Error::other(format!("{url}: {why}")))
    }

    /// Takes an image over, from whichever writer it has. Blocks.
    ///
    /// # Errors
    /// There is none, it is damaged, the key is not its own, or the store cannot be used: in one
    /// line. If it is the key, nothing was put, and the writer that it has goes on.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> io::Result<StoredImage> {
        StoredImage::open_with(url, options, Settings::new(writer()?))
    }

    /// As [`StoredImage::open`], with settings of the caller's; [`writer`] names it. The key is
    /// that of `options`.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(
        url: &StoreUrl,
        options: &StoreOptions,
        settings: Settings,
    ) -> io::Result<StoredImage> {
        StoredImage::begin(url, options, settings, Origin::TakeOver)
    }

    /// Opens an image to read it as it is now: nothing is put, and its writer goes on. What that
    /// writes is not seen, and what it deletes cannot be read any more. Of a snapshot nothing is
    /// deleted. Blocks.
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

    /// Starts the thread of an image, and waits until it is open.
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
            // A look-up of a name may hang; nothing waits for it.
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

    /// Returns where it is.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Returns its blocks.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns how it is.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns what tells that, for callbacks.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Returns what it has cost, and what it has to do.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Returns why an operation of the store failed, the last one that did.
    pub fn last_error(&self) -> Option<String> {
        self.client.last_error()
    }

    /// Tells whether its cache is not asked for now, because the disk of that does not answer.
    pub fn is_cache_aside(&self) -> bool {
        self.client.is_cache_aside()
    }

    /// Begins a request, which must be of whole blocks. `done` is called when it has ended, on a
    /// thread that other requests wait for; or at once, on this one, if the image is closed.
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

    /// Reads whole blocks. Blocks.
    ///
    /// # Errors
    /// They are not, or the image is not this writer's any more.
    pub fn read_at(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        self.asked(Request::Read { offset, len })
    }

    /// Writes whole blocks; they are durable after the next flush. Blocks.
    ///
    /// # Errors
    /// As for [`StoredImage::read_at`].
    pub fn write_at(&self, offset: u64, data: Vec<u8>) -> io::Result<()> {
        self.asked(Request::Write { offset, data, durable: false }).map(drop)
    }

    /// Makes whole blocks zeroes, which takes no place. Blocks.
    ///
    /// # Errors
    /// As for [`StoredImage::read_at`].
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.asked(Request::Discard { offset, len }).map(drop)
    }

    /// Makes durable what ended before. Blocks.
    ///
    /// # Errors
    /// The image is not this writer's any more.
    pub fn flush(&self) -> io::Result<()> {
        self.asked(Request::Flush).map(drop)
    }

    /// Makes all durable and says in the head that the log ends here, within a time: nothing that
    /// is lost later is taken for that end. Blocks.
    ///
    /// # Errors
    /// Not all could be made durable.
    pub fn close(self, limit: Duration) -> io::Result<()> {
        self.close_within(limit)
    }

    /// As [`StoredImage::close`]; requests that come later fail. Blocks.
    ///
    /// # Errors
    /// As there.
    pub fn close_within(&self, limit: Duration) -> io::Result<()> {
        let begin = Instant::now();
        self.flush_within(limit)?;
        let left = limit.saturating_sub(begin.elapsed()).max(CLOSES_WITHIN);
        // All is durable. If the head does not say so, the next writer reads some more, and a
        // removal waits: no error of what was asked.
        let _ = self.asked_within(Request::Close, left, "not closed");
        Ok(())
    }

    /// As [`StoredImage::flush`], within a time. Blocks.
    ///
    /// # Errors
    /// Not all could be made durable.
    pub fn flush_within(&self, limit: Duration) -> io::Result<()> {
        self.asked_within(Request::Flush, limit, "not flushed")
    }

    /// Makes the image smaller, within a time. [`StoredImage::geometry`] stays as it was. Blocks.
    ///
    /// # Errors
    /// It is not known to be smaller, and may be; or it is not this writer's any more.
    pub fn shrink_within(&self, size_bytes: u64, limit: Duration) -> io::Result<()> {
        self.asked_within(Request::Shrink { size_bytes }, limit, "not known to be smaller")
    }

    /// Waits until what nothing needs any more is deleted, or for a time: the next writer deletes
    /// what is left. Blocks.
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

    /// Carries a request out. Blocks.
    ///
    /// # Errors
    /// As for [`StoredImage::read_at`].
    pub fn call(&self, request: Request) -> Result<Vec<u8>, Failure> {
        let (sender, ended) = mpsc::sync_channel(1);
        self.submit(request, move |result| drop(sender.send(result)));
        ended.recv().unwrap_or(Err(Failure::Io))
    }

    fn asked(&self, request: Request) -> io::Result<Vec<u8>> {
        self.call(request).map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> io::Error {
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

/// Returns a client for an image that can be written.
fn prepared(url: &StoreUrl, options: &StoreOptions) -> io::Result<Client> {
    if url.snapshot.is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{url}: a snapshot is only read: say --read-only"),
        ));
    }
    reader::client(url, options)
}

/// Returns what this process is called as a writer, with a number that was drawn.
///
/// # Errors
/// Nothing could be drawn.
pub fn writer() -> io::Result<Writer> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "a host" } else { host.trim() };
    let name = format!("{host}, process {}", std::process::id());
    Ok(Writer { nonce: drawn()?, name })
}

/// Draws a number that no other has.
pub(crate) fn drawn() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
