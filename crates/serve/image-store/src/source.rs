//! An image on an object store, as the source of a block device. The chunk of a request moves to
//! the image's thread, and comes back with the end of the request.

use crate::{
    Failure, ImageKey, Request, Settings, Status, StoreOptions, StoreUrl, StoredImage, Watch,
    image::writer,
};
use core::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use nowait::{Errno, Nowait, Zeroing};
use nowait_device::{
    Chunk, Mailbox, Messages, RequestEnd, Shared, Source, Tag, Transfers, image::ImageError,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

type Done = Result<(), Errno>;

/// The time at which writes to an image on a store become durable, unless the client asks for a
/// durable write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When a flush of the client succeeds; without a flush, as with [`Durability::Interval`] of a
    /// second.
    #[default]
    Flush,
    /// A write ends only after it is durable.
    Each,
    /// Without a flush, the PUT of written blocks begins when the blocks fill a segment, or when
    /// this time is over and earlier PUTs have ended.
    Interval(Duration),
}

/// The options of an image on a store.
#[derive(Clone, Debug, Default)]
pub struct ObjectOptions {
    /// The options of the store.
    pub store: StoreOptions,
    /// The time at which writes become durable.
    pub durability: Durability,
    /// The most bytes of writes that are in memory and not durable yet; `None`: 64 MiB. A single
    /// write may have more bytes.
    pub write_buffer_bytes: Option<usize>,
    /// The file with the key of an encrypted image; `None`: `store` may have the key.
    pub key_file: Option<PathBuf>,
}

/// An image on an object store.
#[derive(Debug)]
pub struct Object {
    nowait: Nowait,
    image: StoredImage,
    shown: String,
    durable: bool,
    sync_limit: Duration,
    notice: Arc<Notice>,
}

#[derive(Debug)]
struct Notice {
    watch: Watch,
    shown: String,
    say: Option<fn(&str)>,
    is_said: AtomicBool,
}

impl Notice {
    fn errno(&self, failure: Failure) -> Errno {
        if failure == Failure::Invalid {
            return Errno::INVAL;
        }
        // If the image is still served, its thread has reported which object is lost.
        let is_served = matches!(self.watch.status(), Status::Serving { .. });
        if let Some(say) = self.say
            && !is_served
            && !self.is_said.swap(true, Relaxed)
        {
            say(&format!("{}: {}", self.shown, self.watch.status()));
        }
        Errno::IO
    }
}

fn settings(options: &ObjectOptions) -> io::Result<Settings> {
    let mut settings = Settings::new(writer()?);
    if let Durability::Interval(time) = options.durability {
        settings.linger_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }
    if let Some(bytes) = options.write_buffer_bytes {
        settings.buffer_bytes = bytes;
    }
    Ok(settings)
}

impl Object {
    /// `say` gets a line of text when the image fails later or has trouble with its store. The
    /// flush at the end of serving may take `sync_limit`.
    pub(crate) fn open(
        nowait: &Nowait,
        url: &StoreUrl,
        options: &ObjectOptions,
        key: Option<ImageKey>,
        read_only: bool,
        (say, sync_limit): (Option<fn(&str)>, Duration),
    ) -> io::Result<Object> {
        let store = StoreOptions { key, say, ..options.store.clone() };
        let image = match read_only {
            true => StoredImage::open_read_only(url, &store)?,
            false => StoredImage::open_with(url, &store, settings(options)?)?,
        };
        let (shown, watch) = (url.to_string(), image.watch());
        let notice = Notice { watch, shown: shown.clone(), say, is_said: AtomicBool::new(false) };
        Ok(Object {
            nowait: nowait.clone(),
            image,
            shown,
            durable: options.durability == Durability::Each,
            sync_limit,
            notice: Arc::new(notice),
        })
    }

    /// Returns the image on the store, for its status and its counters.
    pub fn image(&self) -> &StoredImage {
        &self.image
    }

    fn call(&self, request: Request) -> Result<Vec<u8>, Errno> {
        self.image.call(request).map_err(|failure| self.notice.errno(failure))
    }
}

impl Source for Object {
    fn nowait(&self) -> &Nowait {
        &self.nowait
    }

    fn path(&self) -> &Path {
        Path::new(&self.shown)
    }

    fn size(&self) -> Result<u64, ImageError> {
        Ok(self.image.geometry().size_bytes)
    }

    fn refresh_size(&self) -> Result<(), ImageError> {
        let reason = "the size of an image on an object store changes with nowait image resize \
                      only";
        Err(ImageError::new(format!("{}: {reason}", self.shown)))
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.image.geometry().block_bytes)
    }

    fn transfers(&self) -> Transfers<'_> {
        Transfers::Messages(self)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let read = self.call(Request::Read { offset, len: bytes.len() as u64 })?;
        bytes.copy_from_slice(&read);
        Ok(bytes.len())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Done {
        let request = Request::Write { offset, data: bytes.to_vec(), durable: self.durable };
        self.call(request).map(drop)
    }

    fn discard(&self, range: Range<u64>) -> Done {
        let (offset, len) = (range.start, range.end - range.start);
        self.call(Request::Discard { offset, len })?;
        if self.durable { self.sync_data() } else { Ok(()) }
    }

    /// A zeroed range takes no space in an image, so there is no allocation to keep.
    fn zero(&self, range: Range<u64>, _zeroing: Zeroing, _fast: bool) -> Done {
        self.discard(range)
    }

    fn extents(&self, at: u64, end: u64) -> Result<Vec<(u64, bool)>, Errno> {
        let block = self.block_bytes();
        let (offset, end) = (at / block * block, end.next_multiple_of(block));
        let told = self.call(Request::Extents { offset, len: end - offset })?;
        let (numbers, _) = told.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|it| u64::from_le_bytes(*it)).collect();
        Ok(numbers.chunks_exact(2).map(|run| (run[0], run[1] != 0)).collect())
    }

    fn sync_data(&self) -> Done {
        self.call(Request::Flush).map(drop)
    }

    fn sync_all(&self) -> Result<(), String> {
        self.image.close_within(self.sync_limit).map_err(|error| error.to_string())
    }
}

impl Messages for Object {
    fn read(&self, mut chunk: Chunk, offset: u64, tag: Tag, mailbox: &Arc<Mailbox>) {
        let (mailbox, notice) = (mailbox.clone(), self.notice.clone());
        let len = chunk.whole().len() as u64;
        self.image.submit(Request::Read { offset, len }, move |result| {
            let result = match result {
                Ok(bytes) => {
                    chunk.whole_mut().copy_from_slice(&bytes);
                    Ok(())
                }
                Err(failure) => Err(notice.errno(failure)),
            };
            mailbox.put(RequestEnd { tag, result, chunk: Some(chunk), extents: Vec::new() });
        });
    }

    fn write(
        &self,
        chunk: Chunk,
        (offset, durable): (u64, bool),
        blocks: Option<Shared>,
        tag: Tag,
        mailbox: &Arc<Mailbox>,
    ) {
        let (mailbox, notice) = (mailbox.clone(), self.notice.clone());
        let data = chunk.whole().to_vec();
        let request = Request::Write { offset, data, durable: durable || self.durable };
        self.image.submit(request, move |result| {
            drop(blocks);
            let result = result.map(drop).map_err(|failure| notice.errno(failure));
            mailbox.put(RequestEnd { tag, result, chunk: Some(chunk), extents: Vec::new() });
        });
    }

    fn flush(&self, tag: Tag, mailbox: &Arc<Mailbox>) {
        let (mailbox, notice) = (mailbox.clone(), self.notice.clone());
        self.image.submit(Request::Flush, move |result| {
            let result = result.map(drop).map_err(|failure| notice.errno(failure));
            mailbox.put(RequestEnd::plain(tag, result));
        });
    }
}

/// The time limit for the flush of an image that is dropped without a close.
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

impl Drop for Object {
    fn drop(&mut self) {
        let _ = self.image.close_within(DROPPED_WITHIN);
    }
}
