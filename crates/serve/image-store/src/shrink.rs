//! Makes an image smaller. Only a writer can do that, so this process takes the image over.

use crate::client::Client;
use crate::image::{StoredImage, writer};
use crate::place::StoreOptions;
use crate::reader::{Reader, blocking, client};
use crate::status::Status;
use crate::url::StoreUrl;
use nowait_image_format::{Geometry, Head, Settings};
use std::io;
use std::time::Duration;

/// How long a shrink waits for deletions; the next writer deletes the rest.
const CLEANS_WITHIN: Duration = Duration::from_mins(1);

/// Makes an image smaller: the data behind its new end is gone, except in snapshots. The call takes
/// the image over, so the present writer fails. If the image has the size already, the call changes
/// nothing. Returns the earlier head. Blocks: opening, cutting and closing may each take the time
/// limit for opening, and deletions a minute.
///
/// # Errors
/// One line: the size is not possible or is larger than the image, there is no image, the image is
/// damaged, the key is wrong, or the store cannot be used. If another writer took the image over
/// before the cut, the image keeps its size. If the store did not answer in time, the image may be
/// smaller, or may become smaller later.
pub fn shrink(url: &StoreUrl, options: &StoreOptions, size_bytes: u64) -> io::Result<Head> {
    let client = client(url, options)?;
    let before = head(url, &client)?;
    if before.geometry.size_bytes == size_bytes {
        return Ok(before);
    }
    if let Err(why) = judge(before.geometry, size_bytes) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {why}")));
    }
    // Collect no garbage, because this writer ends soon.
    let settings = Settings { garbage_percent: 100, ..Settings::new(writer()?) };
    let image = StoredImage::open_with(url, options, settings)?;
    cut(&image, size_bytes, options.open_timeout, || head(url, &client))?;
    image.clean_within(CLEANS_WITHIN);
    image.close(options.open_timeout)?;
    Ok(before)
}

fn head(url: &StoreUrl, client: &Client) -> io::Result<Head> {
    blocking(url, Reader { client }.head())
}

fn judge(geometry: Geometry, size_bytes: u64) -> Result<(), String> {
    if size_bytes > geometry.size_bytes {
        return Err("the image is smaller: leave out --shrink to make it larger".to_owned());
    }
    let checked = Geometry::checked(geometry.block_bytes, size_bytes);
    checked.map(drop).map_err(|damage| damage.to_string())
}

/// Shrinks an image that this process has taken over. If the shrink fails, `head` reads the head:
/// if it has the new size, the shrink has succeeded.
pub(crate) fn cut(
    image: &StoredImage,
    size_bytes: u64,
    limit: Duration,
    head: impl Fn() -> io::Result<Head>,
) -> io::Result<()> {
    let Err(error) = image.shrink_within(size_bytes, limit) else { return Ok(()) };
    match (head(), image.status()) {
        // The store has replaced the head, but the answer was lost.
        (Ok(head), _) if head.geometry.size_bytes == size_bytes => Ok(()),
        (Ok(_), Status::Fenced { .. }) => {
            Err(io::Error::new(error.kind(), format!("{error}: nothing was cut off")))
        }
        _ => Err(error),
    }
}
