//! Import of files and NBD servers into images on object stores, and export of images.
//!
//! ```text
//!   import   file, device or NBD server ── data, without zeroes ──▶ image on a store
//!   export   image on a store ── stored data ──▶ file (holes between), device or NBD server
//! ```
//! Users can interrupt an import, or an export into a file, and resume it later. A resumed import
//! writes only blocks that the image lacks. A resumed export continues behind the part of the file
//! that is known to be durable. Until the file is complete, its name contains a word for the state
//! of the image, so that no export resumes the file of another state.

use crate::view::RUN_BYTES_MAX;
use crate::{Request, StoreOptions, StoreUrl, StoredImage, View};
use nowait::{Nowait, Zeroing};
use nowait_device::image::ImageError;
use nowait_device::{Backing, Cache, Image, ImageOptions, Source};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The time limit for closing an image after an import.
const CLOSES_WITHIN: Duration = Duration::from_mins(1);

/// The bytes that an import reads from the source at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// The most writes of an import in flight.
const PIECES_AT_ONCE: usize = 64;

/// An export makes its file durable each time it has advanced by this many bytes in the image.
const SYNC_BYTES: u64 = 256 << 20;

/// The parameters of an import or export.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The image on a store.
    pub url: StoreUrl,
    /// The options of the store.
    pub store: StoreOptions,
    /// The other end: a file, a block device or an export of an NBD server.
    pub other: PathBuf,
    /// Resume an interrupted copy.
    pub resume: bool,
}

/// The result of an import or export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The size of the image in bytes.
    pub size_bytes: u64,
    /// Bytes of the image that this call has written. The others are zeroes, or were written
    /// before.
    pub written_bytes: u64,
}

/// The function that gets the progress: the bytes done, and the total.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Makes an image with the contents of a file, a device or an export of an NBD server, which must
/// not change meanwhile. If the source does not end at a block boundary, zeroes fill the last
/// block. With `resume`, the call continues with an existing image of the same size, and does not
/// write blocks that this image has. Blocks.
///
/// # Errors
/// One line: the source cannot be read, or is in use; the image exists already; or the store cannot
/// be used. The data that was copied so far stays in the image.
pub fn import(
    nowait: &Nowait,
    transfer: &Transfer,
    block_bytes: u32,
    progress: Progress<'_>,
) -> Result<Copied, ImageError> {
    let source = opened(nowait, &transfer.other, true)?;
    let there = source.size() + source.cut_off();
    let (url, options) = (&transfer.url, &transfer.store);
    if !transfer.resume {
        let size = there.next_multiple_of(u64::from(block_bytes));
        let image = StoredImage::create(url, options, size, block_bytes)?;
        return fill(&image, &**source.file(), there, None, progress);
    }
    let view = View::open(url, options)?;
    let geometry = view.geometry();
    if there.next_multiple_of(u64::from(geometry.block_bytes)) != geometry.size_bytes {
        let text = format!(
            "{url} has {} bytes, and {} has {there}: the image was not imported from that file",
            geometry.size_bytes,
            transfer.other.display()
        );
        return Err(ImageError::new(text));
    }
    let image = StoredImage::open(url, options)?;
    fill(&image, &**source.file(), there, Some(&view), progress)
}

/// Writes neither zeroes nor blocks that `view` has.
fn fill(
    image: &StoredImage,
    source: &dyn Source,
    there: u64,
    view: Option<&View>,
    progress: Progress<'_>,
) -> Result<Copied, ImageError> {
    let geometry = image.geometry();
    let block = geometry.block_bytes as usize;
    let mut copied = Copied { size_bytes: geometry.size_bytes, written_bytes: 0 };
    let mut writes = Writes::of(image);
    let (mut at, mut data_until) = (0, 0);
    while at < geometry.size_bytes {
        if at >= data_until {
            let (end, has_data) = extent(source, at, there);
            if has_data {
                data_until = end;
            } else if end >= there {
                break;
            } else {
                at = end - end % PIECE_BYTES;
            }
        }
        let mut piece = vec![0; (geometry.size_bytes - at).min(PIECE_BYTES) as usize];
        let wanted = (there - at).min(PIECE_BYTES) as usize;
        read_all(source, &mut piece[..wanted], at)?;
        let first = at / block as u64;
        let is_new = |index: usize, data: &[u8]| {
            data.iter().any(|byte| *byte != 0)
                && view.is_none_or(|view| !view.has(first + index as u64))
        };
        let mut blocks = piece.chunks_exact(block).enumerate().peekable();
        while let Some((index, data)) = blocks.next() {
            if !is_new(index, data) {
                continue;
            }
            let mut run = data.to_vec();
            while let Some((_, data)) = blocks.next_if(|(index, data)| is_new(*index, data)) {
                run.extend_from_slice(data);
            }
            copied.written_bytes += run.len() as u64;
            writes.begin((first + index as u64) * block as u64, run)?;
        }
        at += piece.len() as u64;
        progress(at, geometry.size_bytes);
    }
    writes.finish()?;
    image.close_within(CLOSES_WITHIN)?;
    progress(geometry.size_bytes, geometry.size_bytes);
    Ok(copied)
}

/// Returns the end of the source's extent that contains `at`. The `bool` is `true` if the import
/// must read the extent: it holds data, or it is a hole that ends in the same piece and before the
/// end of the source.
fn extent(source: &dyn Source, at: u64, there: u64) -> (u64, bool) {
    if at >= there {
        return (there, false);
    }
    let first = source.extents(at, there).ok().and_then(|extents| extents.first().copied());
    // If the source cannot report extents, treat all of it as data.
    let (end, has_data) = first.unwrap_or((there, true));
    let ends_in_piece = end - end % PIECE_BYTES <= at;
    (end, has_data || end < there && ends_in_piece)
}

fn read_all(source: &dyn Source, to: &mut [u8], at: u64) -> Result<(), ImageError> {
    let mut done = 0;
    while done < to.len() {
        let read = source.read_at(&mut to[done..], at + done as u64);
        match read {
            Ok(0) => return Err(of(source, "the file became shorter meanwhile")),
            Ok(bytes) => done += bytes,
            Err(errno) => return Err(of(source, &errno.to_string())),
        }
    }
    Ok(())
}

struct Writes<'a> {
    image: &'a StoredImage,
    pending: usize,
    sender: Sender<bool>,
    ends: Receiver<bool>,
}

impl Writes<'_> {
    fn of(image: &StoredImage) -> Writes<'_> {
        let (sender, ends) = channel();
        Writes { image, pending: 0, sender, ends }
    }

    fn begin(&mut self, offset: u64, data: Vec<u8>) -> Result<(), ImageError> {
        if self.pending >= PIECES_AT_ONCE {
            self.wait()?;
        }
        self.pending += 1;
        let sender = self.sender.clone();
        let request = Request::Write { offset, data, durable: false };
        self.image.submit(request, move |result| {
            let _ = sender.send(result.is_ok());
        });
        Ok(())
    }

    fn wait(&mut self) -> Result<(), ImageError> {
        self.pending -= 1;
        match self.ends.recv() {
            Ok(true) => Ok(()),
            _ => Err(ImageError::new(format!("{}: {}", self.image.url(), self.image.status()))),
        }
    }

    fn finish(mut self) -> Result<(), ImageError> {
        while self.pending > 0 {
            self.wait()?;
        }
        Ok(())
    }
}

/// Copies the present state of an image, or a snapshot, into a new file, onto a device or to an NBD
/// server. The image's writer continues. If the writer changes or moves data of the image
/// meanwhile, the call fails. Blocks.
///
/// # Errors
/// One line: the file exists already; the other end cannot be written, or is too small; the image
/// is damaged, or a writer has written to it meanwhile; or the store cannot be used.
pub fn export(
    nowait: &Nowait,
    transfer: &Transfer,
    progress: Progress<'_>,
) -> Result<Copied, ImageError> {
    let view = View::open(&transfer.url, &transfer.store)?;
    let size_bytes = view.geometry().size_bytes;
    let (target, start) = target(nowait, transfer, &view)?;
    let all = view.stored_bytes_from(start);
    let (mut written_bytes, mut end, mut synced) = (0, start, start);
    let copied = view.read_from(start, |offset, data| {
        // Sync the file before it becomes longer: see `resumed_at`.
        if offset - synced >= SYNC_BYTES {
            target.sync()?;
            synced = offset;
        }
        target.zero(end, offset)?;
        target.write(offset, data)?;
        end = offset + data.len() as u64;
        written_bytes += data.len() as u64;
        progress(written_bytes, all);
        Ok(())
    });
    copied?;
    target.sync()?;
    target.zero(end, size_bytes)?;
    if !view.is_current()? {
        let text = format!(
            "{}: written to during the copy: stop its server, then copy again",
            transfer.url
        );
        return Err(ImageError::new(text));
    }
    target.finish()?;
    Ok(Copied { size_bytes, written_bytes })
}

enum Target {
    /// A new file, in which unwritten bytes are zeroes, and two paths. The file has the first path
    /// until it is complete, and then the second.
    File(File, PathBuf, PathBuf),
    /// A device or an export of a server, which may have had other contents.
    Disk(Box<Image>),
}

/// Opens the destination of an export; returns the offset from which to write.
fn target(nowait: &Nowait, transfer: &Transfer, view: &View) -> Result<(Target, u64), ImageError> {
    let size_bytes = view.geometry().size_bytes;
    match Backing::of(&transfer.other).map_err(ImageError::new)? {
        Backing::File(path) if is_file(&path) => file(path, transfer.resume, view),
        _ => {
            let shown = transfer.other.display();
            if transfer.resume {
                return Err(ImageError::new(format!("{shown}: --resume works with files only")));
            }
            let disk = opened(nowait, &transfer.other, false)?;
            if disk.size() < size_bytes {
                let text = format!("{shown} has {} bytes, and the image {size_bytes}", disk.size());
                return Err(ImageError::new(text));
            }
            Ok((Target::Disk(Box::new(disk)), 0))
        }
    }
}

fn file(path: PathBuf, resume: bool, view: &View) -> Result<(Target, u64), ImageError> {
    if path.symlink_metadata().is_ok() {
        return Err(ImageError::new(format!(
            "{}: the file exists: choose another name",
            path.display()
        )));
    }
    let mut part = path.clone().into_os_string();
    part.push(format!(".{}.part", view.state()));
    let part = PathBuf::from(part);
    let mut options = OpenOptions::new();
    let opened = match resume {
        true => options.write(true).open(&part),
        false => options.write(true).create_new(true).open(&part),
    };
    let file = opened.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound if resume => {
                ": no interrupted export of this state of the \
                 image: leave out --resume"
            }
            io::ErrorKind::AlreadyExists => {
                ": an export was interrupted: add --resume, or remove the file"
            }
            _ => "",
        };
        ImageError::new(format!("{}: {error}{advice}", part.display()))
    })?;
    let start = resumed_at(file.metadata()?.len());
    file.set_len(start)?;
    Ok((Target::File(file, part, path), start))
}

/// Returns the offset up to which the file of an interrupted export, of length `len`, is durable.
/// An export syncs its file before the file reaches farther than `SYNC_BYTES` and a run behind the
/// place of the last sync.
fn resumed_at(len: u64) -> u64 {
    len.saturating_sub(SYNC_BYTES + RUN_BYTES_MAX) / SYNC_BYTES * SYNC_BYTES
}

impl Target {
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Target::File(file, path, _) => file.write_all_at(data, at).map_err(named(path)),
            Target::Disk(disk) => disk.file().write_all_at(data, at).map_err(|errno| {
                io::Error::other(format!("{}: {errno}", disk.file().path().display()))
            }),
        }
    }

    /// In a file the bytes are unwritten, so only the length changes.
    fn zero(&self, start: u64, end: u64) -> io::Result<()> {
        if start >= end {
            return Ok(());
        }
        match self {
            Target::File(file, path, _) => file.set_len(end).map_err(named(path)),
            Target::Disk(disk) => zero_disk(disk, start, end),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Target::File(file, path, _) => file.sync_all().map_err(named(path)),
            // This sync has no time limit, unlike [`Source::sync_all`].
            Target::Disk(disk) => {
                let synced = disk.file().sync_data();
                synced.map_err(|errno| io::Error::other(format!("flush: {errno}")))
            }
        }
    }

    fn finish(self) -> io::Result<()> {
        self.sync()?;
        let Target::File(_, part, path) = self else { return Ok(()) };
        std::fs::rename(&part, &path).map_err(named(&part))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder)?.sync_all().map_err(named(folder))
    }
}

/// Writes zeroes where the disk fails to zero a step by one request.
fn zero_disk(disk: &Image, start: u64, end: u64) -> io::Result<()> {
    const STEP: u64 = 1 << 30;
    let mut at = start;
    while at < end {
        let next = (at + STEP).min(end);
        if disk.file().zero(at..next, Zeroing::Hole, false).is_err() {
            let zeroes = vec![0; (next - at).min(PIECE_BYTES) as usize];
            while at < next {
                let len = (next - at).min(PIECE_BYTES) as usize;
                let written = disk.file().write_all_at(&zeroes[..len], at);
                written.map_err(|errno| {
                    io::Error::other(format!("{}: {errno}", disk.file().path().display()))
                })?;
                at += len as u64;
            }
        }
        at = next;
    }
    Ok(())
}

fn opened(nowait: &Nowait, path: &Path, read_only: bool) -> Result<Image, ImageError> {
    if let Some(url) = StoreUrl::of_path(path).map_err(ImageError::new)? {
        let text = format!("{url}: expected a file, a device or an NBD server");
        return Err(ImageError::new(text));
    }
    let cache = match Backing::of(path).map_err(ImageError::new)? {
        Backing::File(_) => Cache::Host,
        Backing::Nbd(_) => Cache::None,
    };
    let options = ImageOptions { path: path.to_owned(), cache, read_only, ..Default::default() };
    Image::open(nowait, &options)
}

/// Returns `true` for a file, existing or new, that is no block device and no image on a store.
fn is_file(path: &Path) -> bool {
    let is_device = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    !is_device && StoreUrl::of_path(path) == Ok(None)
}

fn named(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn of(source: &dyn Source, why: &str) -> ImageError {
    ImageError::new(format!("{}: {why}", source.path().display()))
}
