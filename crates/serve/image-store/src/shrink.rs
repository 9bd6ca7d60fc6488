//! A smaller size, which only the writer of an image can give to it: so the image is taken over.

use crate::client::Client;
use crate::image::{StoredImage, writer};
use crate::place::StoreOptions;
use crate::reader::{Reader, blocking, client};
use crate::status::Status;
use crate::url::StoreUrl;
use nowait_image_format::{Geometry, Head, Settings};
use std::io;
use std::time::Duration;

/// How long the store may take for what is deleted; the next writer deletes the rest.
const CLEANS_WITHIN: Duration = Duration::from_mins(1);

/// Makes an image smaller: what is behind its new end is gone, but for what snapshots have of it.
/// It is taken over, so the writer that it has fails; if it has that size already, nothing is done.
/// Returns the head before. Blocks, for no longer than an image may take to be opened, as long
/// again, and a minute.
///
/// # Errors
/// It cannot be as small as that, or is smaller; there is none, it is damaged, the key is not its
/// own, or the store cannot be used: in one line. If another writer came meanwhile, nothing is cut
/// off. If the store did not answer in time, it may be smaller, or become so later.
pub fn shrink(url: &StoreUrl, options: &StoreOptions, size_bytes: u64) -> io::Result<Head> {
    let client = client(url, options)?;
    let before = head(url, &client)?;
    if before.geometry.size_bytes == size_bytes {
        return Ok(before);
    }
    if let Err(why) = judge(before.geometry, size_bytes) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {why}")));
    }
    // It is not there long enough to collect.
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

/// Says why an image does not become as small as that.
fn judge(geometry: Geometry, size_bytes: u64) -> Result<(), String> {
    if size_bytes > geometry.size_bytes {
        return Err("it is smaller: leave --shrink out to make it larger".to_owned());
    }
    let checked = Geometry::checked(geometry.block_bytes, size_bytes);
    checked.map(drop).map_err(|damage| damage.to_string())
}

/// Cuts an image off that was taken over. If that is not known to be done, the head says it.
pub(crate) fn cut(
    image: &StoredImage,
    size_bytes: u64,
    limit: Duration,
    head: impl Fn() -> io::Result<Head>,
) -> io::Result<()> {
    let Err(error) = image.shrink_within(size_bytes, limit) else { return Ok(()) };
    match (head(), image.status()) {
        // It was put, and the answer lost.
        (Ok(head), _) if head.geometry.size_bytes == size_bytes => Ok(()),
        (Ok(_), Status::Fenced { .. }) => {
            Err(io::Error::new(error.kind(), format!("{error}: nothing was cut off")))
        }
        _ => Err(error),
    }
}
