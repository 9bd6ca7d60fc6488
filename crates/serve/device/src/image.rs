//! An image: a window of a file or block device.

use crate::{
    Backing, Source, Stats,
    claim::{self, Claim},
    object::{Object, ObjectOptions},
    remote::{Cache as ServerCache, Patience, Remote},
    stripes::Stripes,
};
use core::{
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use nowait::{CacheMode, Error, Nowait, OpenOptions};
use nowait_image_store::{ImageKey, StoreOptions, StoreUrl, StoredImage, read_key};
use std::{path::PathBuf, sync::Arc};

/// Which page cache stands between the clients and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Cache {
    /// None: direct I/O. Nothing is twice in memory.
    #[default]
    None,
    /// nowait's own, in the process: for images that no other program uses meanwhile.
    User,
    /// The kernel's: coherent with others that read or write the file.
    Host,
}

/// How an image is opened and shown.
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    /// The file or block device.
    pub path: PathBuf,
    /// What clients ask for.
    pub name: String,
    /// Which page cache to use.
    pub cache: Cache,
    /// Refuse everything that changes the file.
    pub read_only: bool,
    /// Let other processes change it meanwhile; only with `read_only`.
    pub force_share: bool,
    /// Where the window begins, in bytes.
    pub offset: u64,
    /// How long the window is, in bytes; `None`: up to the end of the file, also if that moves.
    pub length: Option<u64>,
    /// The size of a sector in bytes, a power of two from 512 to 65,536; `None`: what direct I/O
    /// on the file needs.
    pub sector_bytes: Option<u32>,
    /// What becomes of it when its server cannot be reached.
    pub patience: Patience,
    /// What `cache` is for images on NBD servers, with [`Cache::User`]: one for all of them.
    pub server_cache: Option<Arc<ServerCache>>,
    /// How it is opened, if it lies on an object store.
    pub object: ObjectOptions,
}

/// What a front tells its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Nothing may be changed.
    pub read_only: bool,
    /// What requests should be a multiple of, in bytes. Others are served too, slowly.
    pub sector_bytes: u32,
    /// What they had better be a multiple of.
    pub preferred_bytes: u32,
    /// Announcing reads is of use: there is a cache.
    pub caches: bool,
}

/// An image, known to a medium by an `F`.
#[derive(Debug)]
pub struct Image<F> {
    name: String,
    properties: Properties,
    /// Where the window begins in the file.
    start: u64,
    /// In bytes, whole sectors.
    size: AtomicU64,
    stats: Stats,
    file: F,
    /// The right to it.
    pub(crate) claim: Option<Arc<Claim>>,
    length: Option<u64>,
    /// Its place among those that are served together.
    number: usize,
    /// Held while parts of blocks are written: what else is in them must not get lost.
    pub(crate) stripes: Arc<Stripes>,
}

const PREFERRED_BYTES: u32 = 4096;
/// Sectors that a front can serve.
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
        }
    }

    /// Returns what clients ask for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its place among those that were opened together.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns what it is like.
    pub fn properties(&self) -> Properties {
        self.properties
    }

    /// Returns the size in bytes, as of now.
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns what a medium knows the file by.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Returns where `offset` of the image is in the file.
    pub fn place(&self, offset: u64) -> u64 {
        self.start + offset
    }

    /// Tells whether `len` bytes at `offset` are in the image.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.size())
    }
}

/// Why an image cannot be served, in one line.
#[derive(Debug)]
pub struct ImageError(String);

impl ImageError {
    pub(crate) fn new(text: String) -> ImageError {
        ImageError(text)
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

impl From<std::io::Error> for ImageError {
    fn from(error: std::io::Error) -> ImageError {
        ImageError(error.to_string())
    }
}

impl From<Error> for ImageError {
    fn from(error: Error) -> ImageError {
        ImageError(error.to_string())
    }
}

impl Image<Source> {
    /// Opens the image that `options` describe. Blocks, as open(2) does.
    ///
    /// # Errors
    /// As for [`Image::open_all`].
    pub fn open(nowait: &Nowait, options: &ImageOptions) -> Result<Image<Source>, ImageError> {
        let image = Image::open_all(nowait, core::slice::from_ref(options))?.pop();
        image.ok_or_else(|| ImageError::new("no image".to_owned()))
    }

    /// Opens the images that `all` describe, and claims their files: as long as one of a file lives
    /// no other process that locks its images, as QEMU does, can change what is shown of it, or use
    /// what is written. Several may be windows of one file. Blocks, as open(2) does.
    ///
    /// # Errors
    /// A file cannot be opened so, or another process uses it; a window outside the file, or not of
    /// whole sectors; two windows that overlap where one can be written.
    pub fn open_all(
        nowait: &Nowait,
        all: &[ImageOptions],
    ) -> Result<Vec<Image<Source>>, ImageError> {
        check_stores(all)?;
        // All keys first: nothing is taken over in vain.
        let keys = all.iter().map(key_of).collect::<Result<Vec<_>, _>>()?;
        if all.len() > 1 {
            all.iter()
                .zip(&keys)
                .try_for_each(|(options, key)| compare_key(options, key.as_ref()))?;
        }
        let each = all.iter().zip(keys);
        let images = each.map(|(options, key)| Image::open_one(nowait, options, key));
        let mut images = images.collect::<Result<Vec<_>, _>>()?;
        images.iter_mut().enumerate().for_each(|(number, image)| image.number = number);
        claim::take(&mut images, all)?;
        Ok(images)
    }

    fn open_one(
        nowait: &Nowait,
        options: &ImageOptions,
        key: Option<ImageKey>,
    ) -> Result<Image<Source>, ImageError> {
        if options.force_share && !options.read_only {
            let shown = options.path.display();
            return Err(ImageError(format!("{shown}: --force-share is for --read-only")));
        }
        let file = open_source(nowait, options, key)?;
        let needed = file.block_bytes() as u32;
        let sector_bytes = options.sector_bytes.unwrap_or(needed);
        let shown = options.path.display();
        check_sector(sector_bytes, options.sector_bytes.is_some(), needed)
            .map_err(|reason| ImageError(format!("{shown}: {reason}")))?;
        let properties = Properties {
            read_only: options.read_only || is_fixed(&file),
            sector_bytes,
            preferred_bytes: PREFERRED_BYTES.max(sector_bytes),
            caches: options.cache != Cache::None,
        };
        let mut image = Image::new(&options.name, properties, options.offset, 0, file);
        image.length = options.length;
        let sector = u64::from(sector_bytes);
        let whole = |bytes: u64| bytes.is_multiple_of(sector);
        if options.length == Some(0) {
            return Err(ImageError(format!("{shown}: a window of 0 bytes serves nothing")));
        }
        if !whole(options.offset) || !options.length.is_none_or(whole) {
            let reason = format!("the window must be of whole sectors of {sector} bytes");
            return Err(ImageError(format!("{shown}: {reason}")));
        }
        let range = image.measure()?;
        if range.end < options.offset + options.length.unwrap_or(0) || range.start > range.end {
            let reason = format!("the window lies outside the file, which ends at {}", range.end);
            return Err(ImageError(format!("{shown}: {reason}")));
        }
        image.measure_size()?;
        Ok(image)
    }

    /// Takes the file as it is now, and its size; returns the size of the image before and after.
    /// With the user-space page cache it waits for the requests in flight.
    ///
    /// # Errors
    /// The size cannot be found out; it stays as it was. A server tells it only once.
    pub fn resize(&self) -> Result<(u64, u64), ImageError> {
        match &self.file {
            Source::File(file) => file.look_again()?,
            Source::Remote(remote) => {
                let reason = "its size stays as it was when the server was connected";
                return Err(ImageError(format!("{}: {reason}", remote.shown())));
            }
            Source::Object(object) => {
                let reason = "an image on an object store keeps its size";
                return Err(ImageError(format!("{}: {reason}", object.shown())));
            }
        }
        self.measure_size()
    }

    fn measure_size(&self) -> Result<(u64, u64), ImageError> {
        let range = self.measure()?;
        let there = range.end.saturating_sub(range.start);
        let bytes = self.length.unwrap_or(there).min(there);
        let size = bytes - bytes % u64::from(self.properties.sector_bytes);
        Ok((self.size.swap(size, Relaxed), size))
    }

    /// Returns how many bytes at the end of the file are no whole sector and are not served.
    pub fn cut_off(&self) -> u64 {
        let there = self.measure().map_or(0, |range| range.end.saturating_sub(range.start));
        self.length.unwrap_or(there).min(there) % u64::from(self.properties.sector_bytes)
    }

    /// Returns where the window begins and the file ends.
    fn measure(&self) -> Result<Range<u64>, ImageError> {
        let end = match &self.file {
            Source::File(file) => file.extent()?,
            Source::Remote(remote) => remote.size(),
            Source::Object(object) => object.size(),
        };
        Ok(self.start..end)
    }

    /// Returns what direct I/O on the file needs offsets and lengths to be a multiple of.
    pub(crate) fn alignment(&self) -> u64 {
        self.file.block_bytes()
    }
}

/// Opens the file, or connects to the server.
fn open_source(
    nowait: &Nowait,
    options: &ImageOptions,
    key: Option<ImageKey>,
) -> Result<Source, ImageError> {
    let address = match Backing::of(&options.path).map_err(ImageError)? {
        Backing::File(path) => {
            let mode = match options.cache {
                Cache::None => CacheMode::Direct,
                Cache::User => CacheMode::User,
                Cache::Host => CacheMode::Host,
            };
            let open = OpenOptions::new().read(true).write(!options.read_only).cache(mode);
            return Ok(Source::File(open.open(nowait, &path)?));
        }
        Backing::Object(url) => return open_object(nowait, options, &url, key),
        Backing::Nbd(address) => address,
    };
    let shown = options.path.display();
    let cache =
        cache_of_server(options).map_err(|reason| ImageError(format!("{shown}: {reason}")))?;
    let remote = Remote::connect(nowait, &address, shown.to_string(), options.patience, cache)
        .map_err(|error| ImageError(format!("{shown}: {error}")))?;
    if !(options.read_only || remote.is_read_only() || remote.flushes()) {
        let reason = "the server has no flush, nothing written would be safe: say read-only";
        return Err(ImageError(format!("{shown}: {reason}")));
    }
    Ok(Source::Remote(Arc::new(remote)))
}

/// Returns the cache of an image on an NBD server.
///
/// # Errors
/// There is none that would be true.
fn cache_of_server(options: &ImageOptions) -> Result<Option<&Arc<ServerCache>>, &'static str> {
    match options.cache {
        Cache::None => Ok(None),
        Cache::Host => Err("--cache host is for files: say user"),
        Cache::User if options.force_share => {
            Err("--cache user does not see what others change: leave it or --force-share out")
        }
        Cache::User => Ok(options.server_cache.as_ref()),
    }
}

/// An image on a store has one writer: the second one would take it from the first.
fn check_stores(all: &[ImageOptions]) -> Result<(), ImageError> {
    let mut urls: Vec<StoreUrl> = Vec::new();
    for options in all {
        match Backing::of(&options.path).map_err(ImageError)? {
            Backing::Object(url) if urls.contains(&url) => {
                return Err(ImageError(format!("{url}: it is served once; name it once")));
            }
            Backing::Object(url) => urls.push(url),
            Backing::File(_) | Backing::Nbd(_) => {}
        }
    }
    Ok(())
}

/// Reads the key of an image, if it is to have one.
fn key_of(options: &ImageOptions) -> Result<Option<ImageKey>, ImageError> {
    let Some(path) = &options.object.key_file else { return Ok(options.object.store.key.clone()) };
    match Backing::of(&options.path).map_err(ImageError)? {
        Backing::Object(_) => Ok(Some(read_key(path)?)),
        Backing::File(_) | Backing::Nbd(_) => {
            let shown = options.path.display();
            let reason = "--key-file is for images on object stores: encrypt others by LUKS, say";
            Err(ImageError(format!("{shown}: {reason}")))
        }
    }
}

/// Compares the key of an image on a store with its own.
fn compare_key(options: &ImageOptions, key: Option<&ImageKey>) -> Result<(), ImageError> {
    let Backing::Object(url) = Backing::of(&options.path).map_err(ImageError)? else {
        return Ok(());
    };
    let store = StoreOptions { key: key.cloned(), ..options.object.store.clone() };
    Ok(StoredImage::compare_key(&url, &store)?)
}

/// Takes an image on a store over, or reads it as it is.
fn open_object(
    nowait: &Nowait,
    options: &ImageOptions,
    url: &StoreUrl,
    key: Option<ImageKey>,
) -> Result<Source, ImageError> {
    if options.cache == Cache::Host && options.object.store.cache.is_none() {
        let reason = "--cache host is for files: say user, or --cache-dir";
        return Err(ImageError(format!("{url}: {reason}")));
    }
    let later = (options.patience.say, options.object.store.open_timeout);
    let object = Object::open(nowait, url, &options.object, key, options.read_only, later);
    let object = object.map_err(|error| ImageError(error.to_string()))?;
    Ok(Source::Object(Arc::new(object)))
}

/// Tells whether the other side lets nothing be changed.
fn is_fixed(source: &Source) -> bool {
    matches!(source, Source::Remote(remote) if remote.is_read_only())
}

fn check_sector(sector: u32, asked: bool, needed: u32) -> Result<(), String> {
    if asked && !(sector.is_power_of_two() && SECTORS.contains(&sector)) {
        return Err(format!("a sector has a power of two from 512 to 65536 bytes, not {sector}"));
    }
    if sector < needed {
        return Err(format!("direct I/O on it needs sectors of {needed} bytes or more"));
    }
    Ok(())
}
