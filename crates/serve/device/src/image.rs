//! An image: a window of a source, such as a file or block device.

use crate::{
    AnySource, Backing, Source, Stats,
    claim::{self, Claim},
    flushes::{Flush, Flushes, KnownFailures},
    remote::{Cache as ServerCache, Patience, Remote},
    stripes::Stripes,
};
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use nowait::{CacheMode, Nowait, OpenOptions};
use std::{path::PathBuf, sync::Arc};

pub use crate::error::ImageError;

/// The cache between the clients and the device or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Cache {
    /// No cache. Files use direct I/O: neither nowait nor the kernel caches data.
    #[default]
    None,
    /// A cache of nowait, in the process: for images that no other program uses meanwhile.
    User,
    /// The kernel's page cache: coherent with other programs that read or write the file.
    Host,
}

/// How to open and present an image.
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    /// The file or block device, or the address of another source.
    pub path: PathBuf,
    /// The name by which clients ask for the image.
    pub name: String,
    /// The cache to use.
    pub cache: Cache,
    /// Refuse every change of the image.
    pub read_only: bool,
    /// Let other processes change the file meanwhile; only with `read_only`.
    pub force_share: bool,
    /// The offset in the file at which the window begins, in bytes.
    pub offset: u64,
    /// The length of the window in bytes; `None`: up to the end of the file, also after
    /// [`Image::resize`].
    pub length: Option<u64>,
    /// The size of a sector in bytes, a power of two from 512 to 65,536; `None`: the block size of
    /// the source (1 for a file with a cache).
    pub sector_bytes: Option<u32>,
    /// How long requests wait when the NBD server that holds the image cannot be reached.
    pub patience: Patience,
    /// With [`Cache::User`], the cache that all images on NBD servers share; other images do not
    /// use it.
    pub server_cache: Option<Arc<ServerCache>>,
}

/// The properties of an image that a front reports to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// No client may change the image.
    pub read_only: bool,
    /// Offsets and lengths of requests should be multiples of this, in bytes. Other requests work
    /// too, but more slowly.
    pub sector_bytes: u32,
    /// Requests run best if their offsets and lengths are multiples of this, in bytes.
    pub preferred_bytes: u32,
    /// The image has a cache, so it is useful if clients announce reads.
    pub caches: bool,
}

/// An image. `F` is the medium's handle of the image's file.
#[derive(Debug)]
pub struct Image<F = AnySource> {
    name: String,
    properties: Properties,
    /// Where the window begins in the file.
    start: u64,
    /// The size in bytes, a multiple of the sector size.
    size: AtomicU64,
    stats: Stats,
    file: F,
    /// The claim on the file against other programs; `None` if the source is not a file.
    pub(crate) claim: Option<Arc<Claim>>,
    length: Option<u64>,
    number: usize,
    /// Locks, so that a write of a part of a block does not undo another write to the block.
    pub(crate) stripes: Arc<Stripes>,
    pub(crate) flushes: Arc<Flushes>,
    /// The image uses the kernel's page cache: a failed durable write may mean that data of other
    /// clients is lost.
    is_cached_by_kernel: bool,
}

const PREFERRED_BYTES: u32 = 4096;
const SECTORS: core::ops::RangeInclusive<u32> = 512..=65_536;

impl<F> Image<F> {
    /// Makes an image of `size` bytes of `file`, from `start` on.
    pub fn new(name: &str, properties: Properties, start: u64, size: u64, file: F) -> Image<F> {
        Image {
            name: name.to_owned(),
            properties,
            start,
            size: AtomicU64::new(size),
            stats: Stats::default(),
            file,
            claim: None,
            length: None,
            number: 0,
            stripes: Stripes::new(),
            flushes: Arc::default(),
            is_cached_by_kernel: false,
        }
    }

    /// Returns the failures of which a new client need not be told: all so far.
    pub fn join(&self) -> KnownFailures {
        self.flushes.join()
    }

    /// Begins a durable write whose failure other clients must learn of. `None`: the write is not
    /// durable, or its failure concerns only its own client.
    pub(crate) fn begin_write(&self, durable: bool) -> Option<Flush> {
        let is_heard = durable && self.is_cached_by_kernel;
        is_heard.then(|| self.flushes.begin_write(self.flushes.failures()))
    }

    /// Returns the name by which clients ask for the image.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of the image among those that were opened together.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the properties of the image that clients see.
    pub fn properties(&self) -> Properties {
        self.properties
    }

    /// Returns the current size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    /// Returns the counters of the image.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the medium's handle of the file.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Converts an offset in the image into an offset in the file.
    pub fn place(&self, offset: u64) -> u64 {
        self.start + offset
    }

    /// Returns `true` if `len` bytes at `offset` lie in the image.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.size())
    }
}

impl Image {
    /// Opens the image that `options` describe. Blocks.
    ///
    /// # Errors
    /// As for [`Image::open_all`].
    pub fn open(nowait: &Nowait, options: &ImageOptions) -> Result<Image, ImageError> {
        let image = Image::open_all(nowait, core::slice::from_ref(options))?.pop();
        image.ok_or_else(|| ImageError::new("no image".to_owned()))
    }

    /// Opens the images that `all` describe: files and exports of NBD servers. Blocks.
    ///
    /// # Errors
    /// A file cannot be opened as its options say, or a server cannot be reached; as for
    /// [`Image::of_sources`].
    pub fn open_all(nowait: &Nowait, all: &[ImageOptions]) -> Result<Vec<Image>, ImageError> {
        Image::of_sources(all, all.iter().map(|options| open_source(nowait, options)))
    }

    /// Makes the images that `all` describe from `sources`, which have the same order, and claims
    /// files. While an image of a file exists, the server locks the file as QEMU does. Another
    /// process that respects these locks can write the file only if all images of the file have
    /// `force_share`. If an image may write the file, another process can read the file only if
    /// that process permits others to write it. Several images may be windows of one file. Blocks.
    ///
    /// # Errors
    /// Options contradict each other; a source could not be opened, or another process uses the
    /// file; a window is empty, lies outside the file, or is not of whole sectors; two windows
    /// overlap, one of them can be written, and neither has `force_share`.
    pub fn of_sources(
        all: &[ImageOptions],
        sources: impl IntoIterator<Item = Result<AnySource, ImageError>>,
    ) -> Result<Vec<Image>, ImageError> {
        all.iter().try_for_each(check_share)?;
        let images = all.iter().zip(sources);
        let images = images.map(|(options, source)| Image::window(options, source?));
        let mut images = images.collect::<Result<Vec<_>, _>>()?;
        images.iter_mut().enumerate().for_each(|(number, image)| image.number = number);
        claim::take(&mut images, all)?;
        Ok(images)
    }

    fn window(options: &ImageOptions, file: AnySource) -> Result<Image, ImageError> {
        let needed = file.block_bytes() as u32;
        let sector_bytes = options.sector_bytes.unwrap_or(needed);
        let shown = options.path.display();
        check_sector(sector_bytes, options.sector_bytes.is_some(), needed)
            .map_err(|reason| ImageError::new(format!("{shown}: {reason}")))?;
        let properties = Properties {
            read_only: options.read_only || file.is_read_only(),
            sector_bytes,
            preferred_bytes: PREFERRED_BYTES.max(sector_bytes),
            caches: options.cache != Cache::None,
        };
        let mut image = Image::new(&options.name, properties, options.offset, 0, file);
        image.length = options.length;
        image.is_cached_by_kernel = options.cache == Cache::Host;
        let sector = u64::from(sector_bytes);
        let whole = |bytes: u64| bytes.is_multiple_of(sector);
        if options.length == Some(0) {
            return Err(ImageError::new(format!(
                "{shown}: the window has 0 bytes: leave it out or \
                 make it larger"
            )));
        }
        if !whole(options.offset) || !options.length.is_none_or(whole) {
            let reason = format!(
                "offset and size of the window must be multiples of the sector, \
                                  {sector} bytes"
            );
            return Err(ImageError::new(format!("{shown}: {reason}")));
        }
        let range = image.measure()?;
        if range.end < options.offset + options.length.unwrap_or(0) || range.start > range.end {
            let reason = format!("the window lies outside the file, which ends at {}", range.end);
            return Err(ImageError::new(format!("{shown}: {reason}")));
        }
        image.measure_size()?;
        Ok(image)
    }

    /// Determines the size of the file again; returns the size of the image before and after. If
    /// nowait's page cache caches the file, the call waits for the requests in flight.
    ///
    /// # Errors
    /// The size cannot be determined, or cannot change while the image is served.
    pub fn resize(&self) -> Result<(u64, u64), ImageError> {
        self.file.refresh_size()?;
        self.measure_size()
    }

    fn measure_size(&self) -> Result<(u64, u64), ImageError> {
        let range = self.measure()?;
        let there = range.end.saturating_sub(range.start);
        let bytes = self.length.unwrap_or(there).min(there);
        let size = bytes - bytes % u64::from(self.properties.sector_bytes);
        Ok((self.size.swap(size, Relaxed), size))
    }

    /// Returns how many bytes at the end of the window the image leaves out, because they fill no
    /// whole sector; 0 if the size cannot be determined.
    pub fn cut_off(&self) -> u64 {
        let there = self.measure().map_or(0, |range| range.end.saturating_sub(range.start));
        self.length.unwrap_or(there).min(there) % u64::from(self.properties.sector_bytes)
    }

    fn measure(&self) -> Result<Range<u64>, ImageError> {
        Ok(self.start..self.file.size()?)
    }

    /// Offsets and lengths of transfers must be multiples of the source's block size.
    pub(crate) fn alignment(&self) -> u64 {
        self.file.block_bytes()
    }
}

fn check_share(options: &ImageOptions) -> Result<(), ImageError> {
    if options.force_share && !options.read_only {
        let shown = options.path.display();
        return Err(ImageError::new(format!("{shown}: --force-share needs --read-only")));
    }
    Ok(())
}

/// Opens the file, or connects to the NBD server, that `options` name. Blocks.
///
/// # Errors
/// The file cannot be opened as the options say. The NBD server cannot be reached, or cannot make
/// writes durable though the image may be written. An image on an NBD server cannot have the cache
/// that the options name.
pub fn open_source(nowait: &Nowait, options: &ImageOptions) -> Result<AnySource, ImageError> {
    let address = match Backing::of(&options.path).map_err(ImageError::new)? {
        Backing::File(path) => {
            let mode = match options.cache {
                Cache::None => CacheMode::Direct,
                Cache::User => CacheMode::User,
                Cache::Host => CacheMode::Host,
            };
            let open = OpenOptions::new().read(true).write(!options.read_only).cache(mode);
            return Ok(Arc::new(open.open(nowait, &path)?));
        }
        Backing::Nbd(address) => address,
    };
    let shown = options.path.display();
    let cache =
        cache_of_server(options).map_err(|reason| ImageError::new(format!("{shown}: {reason}")))?;
    let remote = Remote::connect(nowait, &address, shown.to_string(), options.patience, cache)
        .map_err(|error| ImageError::new(format!("{shown}: {error}")))?;
    if !(options.read_only || remote.is_read_only() || remote.flushes()) {
        let reason = "the NBD server has no flush, so no write would be durable: add --read-only";
        return Err(ImageError::new(format!("{shown}: {reason}")));
    }
    Ok(Arc::new(remote))
}

fn cache_of_server(options: &ImageOptions) -> Result<Option<&Arc<ServerCache>>, &'static str> {
    match options.cache {
        Cache::None => Ok(None),
        Cache::Host => Err("--cache host works with files only: use --cache user"),
        Cache::User if options.force_share => {
            Err("--cache user does not see changes by others: leave out --cache user or \
                 --force-share")
        }
        Cache::User => Ok(options.server_cache.as_ref()),
    }
}

fn check_sector(sector: u32, asked: bool, needed: u32) -> Result<(), String> {
    if asked && !(sector.is_power_of_two() && SECTORS.contains(&sector)) {
        return Err(format!(
            "the sector size must be a power of two from 512 to 65536, not \
                            {sector}"
        ));
    }
    if sector < needed {
        return Err(format!("the image needs sectors of at least {needed} bytes"));
    }
    Ok(())
}
