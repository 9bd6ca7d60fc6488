//! Claims on image files against other programs. The server takes the same locks as QEMU, so that
//! neither opens a file that the other uses in a conflicting way. Unless the server shares a block
//! device, it also opens the device exclusively, and keeps that descriptor if it may write the
//! device.
//!
//! | byte of the file | is locked while |
//! |---|---|
//! | 100 + n | a process uses the file for n |
//! | 200 + n | a process does not permit others to use the file for n |
//!
//! n is 0 for reading, 1 for writing, 3 for changing the size of the file. Each process first locks
//! its bytes and then looks for the locks of others: of two processes that conflict and come at
//! once, at least one finds the other's locks. All locks are shared and belong to the open file, so
//! the kernel releases them when it closes the file, also after a kill. But the kernel may close
//! the file a moment after the process has ended, when it has finished the requests in flight.
//! Therefore the server retries a claim for a while before it gives up: otherwise a restarted
//! server could fail to start.
//!
//! Source: QEMU, block/file-posix.c, raw_check_lock_bytes.

use crate::{Image, ImageOptions, error::ImageError, source::Transfers};
use nowait::{Errno, File};
use nowait_sys::{
    Fd,
    file::{self, O_EXCL, O_RDONLY},
    lock,
};
use std::{
    os::fd::{AsFd, AsRawFd},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const USED: u64 = 100;
const REFUSED: u64 = 200;
const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Claim {
    /// The open file that owns the locks. All images in the file share this claim.
    _file: File,
    /// The exclusive descriptor of a block device that an image may write.
    _device: Option<Fd>,
}

#[derive(Clone, Copy)]
struct Wish {
    writes: bool,
    /// All images permit other processes to change the file.
    shares: bool,
}

#[derive(PartialEq, Eq)]
enum Place {
    File(u64, u64),
    Other(String),
}

fn place_of(image: &Image, path: &Path) -> Result<Place, ImageError> {
    let Transfers::Queue(file) = image.file().transfers() else {
        return Ok(Place::Other(image.file().identity()));
    };
    let stat = file::stat(file.as_fd().as_raw_fd()).map_err(|errno| failed(path, errno))?;
    Ok(Place::File(stat.dev, stat.ino))
}

/// Claims each file of `images` once; `options` describe the images. Claims no other sources: an
/// NBD server must guard its images against other clients itself.
pub(crate) fn take(images: &mut [Image], options: &[ImageOptions]) -> Result<(), ImageError> {
    let places = images.iter().zip(options);
    let places = places.map(|(image, options)| place_of(image, &options.path));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    for (number, place) in places.iter().enumerate() {
        let same = |other: &usize| places[*other] == *place;
        check_apart((0..number).filter(same).map(|other| &options[other]), &options[number])?;
        let Transfers::Queue(file) = images[number].file().transfers() else { continue };
        let claim = if let Some(first) = (0..number).find(same) {
            images[first].claim.clone()
        } else {
            let mut all = (number..places.len()).filter(same).map(|other| &options[other]);
            let writes = all.clone().any(|options| !options.read_only);
            let wish = Wish { writes, shares: all.all(|options| options.force_share) };
            let start = Instant::now();
            let again = || {
                thread::sleep(PAUSE);
                start.elapsed() < PATIENCE
            };
            let claim = Claim::new(file, wish, again);
            Some(Arc::new(claim.map_err(|errno| failed(&options[number].path, errno))?))
        };
        images[number].claim = claim;
    }
    Ok(())
}

fn check_apart<'a>(
    mut earlier: impl Iterator<Item = &'a ImageOptions>,
    image: &ImageOptions,
) -> Result<(), ImageError> {
    let Some(other) = earlier.find(|other| collide(other, image)) else { return Ok(()) };
    let (path, [one, two]) = (image.path.display(), [&other.name, &image.name]);
    Err(ImageError::new(format!(
        "{path}: {one} and {two} overlap: make both read only, or change offset and length"
    )))
}

/// Images that overlap collide if one may change the file, unless one has `force_share`.
fn collide(one: &ImageOptions, two: &ImageOptions) -> bool {
    let end = |image: &ImageOptions| {
        image.length.map_or(u64::MAX, |length| image.offset.saturating_add(length))
    };
    let shares = |image: &ImageOptions| image.read_only && image.force_share;
    let apart = end(one) <= two.offset || end(two) <= one.offset;
    !(apart || (one.read_only && two.read_only) || shares(one) || shares(two))
}

impl Claim {
    /// If another process uses the file, calls `again`, which waits, and retries the claim if
    /// `again` returns `true`.
    fn new(file: &File, wish: Wish, mut again: impl FnMut() -> bool) -> Result<Claim, Errno> {
        loop {
            match Claim::try_new(file, wish) {
                Err(errno @ (Errno::AGAIN | Errno::ACCES | Errno::BUSY)) => {
                    // Release the locks while waiting, so that other processes can claim the file.
                    unlock_bytes(file.as_fd().as_raw_fd());
                    if !again() {
                        return Err(errno);
                    }
                }
                result => return result,
            }
        }
    }

    fn try_new(file: &File, wish: Wish) -> Result<Claim, Errno> {
        let fd = file.as_fd().as_raw_fd();
        if let Err(errno) = lock_bytes(fd, wish)
            && !(wish.shares && errno != Errno::AGAIN)
        {
            return Err(errno);
        }
        let device = match file::stat(fd)?.is_block_device() && !wish.shares {
            // The kernel refuses a device that is mounted, part of another device, or claimed.
            true => Some(file::reopen(fd, O_RDONLY | O_EXCL)?),
            false => None,
        };
        // If no image may write the device, drop the exclusive descriptor, so that other programs
        // can use the device.
        Ok(Claim { _file: file.clone(), _device: device.filter(|_| wish.writes) })
    }
}

fn lock_bytes(fd: i32, Wish { writes, shares }: Wish) -> Result<(), Errno> {
    let uses = if writes { &[READ, WRITE][..] } else { &[READ] };
    let refuses = if shares { &[][..] } else { &[WRITE, RESIZE] };
    uses.iter().try_for_each(|n| lock::share(fd, USED + n))?;
    refuses.iter().try_for_each(|n| lock::share(fd, REFUSED + n))?;
    let mut opposite = uses.iter().map(|n| REFUSED + n).chain(refuses.iter().map(|n| USED + n));
    opposite.try_for_each(|byte| match lock::is_locked_by_others(fd, byte)? {
        true => Err(Errno::AGAIN),
        false => Ok(()),
    })
}

fn unlock_bytes(fd: i32) {
    let kinds = [READ, WRITE, RESIZE];
    // When the file is closed, the kernel releases the locks that remain.
    let _ = kinds.iter().try_for_each(|n| lock::release(fd, USED + n));
    let _ = kinds.iter().try_for_each(|n| lock::release(fd, REFUSED + n));
}

fn failed(path: &Path, errno: Errno) -> ImageError {
    let path = path.display();
    ImageError::new(match errno {
        Errno::AGAIN | Errno::ACCES => format!(
            "{path}: another process uses the image; stop it, or share it with --read-only \
                 --force-share"
        ),
        Errno::BUSY => format!(
            "{path}: the device is in use; unmount it, or share it with --read-only \
                 --force-share"
        ),
        errno => format!("cannot lock {path}: {errno}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait::{Nowait, OpenOptions};

    fn opened_twice() -> [File; 2] {
        let nowait = Nowait::builder().build().expect("an engine");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let options = OpenOptions::new().read(true).write(true);
        [(); 2].map(|()| options.open(&nowait, file.path()).expect("an open file"))
    }

    const WRITER: Wish = Wish { writes: true, shares: false };

    #[test]
    fn a_claim_waits_for_the_locks_of_an_ended_process() {
        let [ended, file] = opened_twice();
        let claim = Claim::new(&ended, WRITER, || false).expect("no other has it");
        let mut ended = Some((ended, claim));
        let mut tries = 0;
        let claim = Claim::new(&file, WRITER, || {
            tries += 1;
            drop((tries == 3).then(|| ended.take()));
            true
        });
        claim.expect("a claim, once the other is gone");
        assert_eq!(tries, 3);
    }

    #[test]
    fn a_claim_is_refused_while_another_process_keeps_the_file() {
        let [kept, file] = opened_twice();
        let _claim = Claim::new(&kept, WRITER, || false).expect("no other has it");
        let mut left = 3;
        let again = || {
            // While the claim waits for its next try, it holds no locks.
            let mine = |byte| lock::is_locked_by_others(kept.as_fd().as_raw_fd(), byte);
            assert_eq!((mine(USED + WRITE), mine(REFUSED + WRITE)), (Ok(false), Ok(false)));
            left -= 1;
            left > 0
        };
        assert_eq!(Claim::new(&file, WRITER, again).map(drop), Err(Errno::AGAIN));
        assert_eq!(left, 0);
    }

    #[test]
    fn windows_of_a_file_conflict_where_they_overlap_and_one_is_written() {
        let window = |offset, length, read_only, force_share| ImageOptions {
            read_only,
            force_share,
            offset,
            length,
            ..ImageOptions::default()
        };
        let written = |offset, length| window(offset, length, false, false);
        let read = |offset, length| window(offset, length, true, false);
        assert!(!collide(&written(0, Some(4096)), &written(4096, None)), "side by side");
        assert!(collide(&written(0, Some(4097)), &written(4096, None)));
        assert!(collide(&written(0, None), &read(0, None)));
        assert!(!collide(&read(0, None), &read(0, None)));
        assert!(
            !collide(&written(0, None), &window(0, None, true, true)),
            "which it has asked for"
        );
        assert!(collide(&written(u64::MAX - 1, Some(100)), &read(u64::MAX - 1, None)));
    }
}
