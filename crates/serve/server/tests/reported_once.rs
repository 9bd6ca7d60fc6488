//! If the kernel could not write data of an open file, only one flush or durable write of this file
//! returns an error. With `--cache host` the server fails all flushes and durable writes that the
//! loss concerns.
//!
//! The workers' durable writes and flushes go to a model of the kernel's page cache (errseq,
//! mm/filemap.c) instead of the kernel.

#[path = "support/carried.rs"]
mod carried;

use carried::Carried;
use nowait::{Errno, Nowait};
use nowait_block::{Bio, BioOp, backends::threads::Carry};
use nowait_device::{
    BlockingTasks, Cache, Disk, Image, ImageOptions, KnownFailures, Mailbox, Medium, RequestEnd,
    Tag,
};
use nowait_file::parts::Parts;
use nowait_sys::{
    epoll::{self, Epoll},
    file::rwf,
    time::Deadline,
};
use std::{
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
};
use tempfile::TempDir;

/// A test fails if it waits longer for its requests.
const HANG_NS: u64 = 60_000_000_000;
const LOST: Result<(), Errno> = Err(Errno::IO);

#[derive(Default)]
struct PageCache {
    /// The kernel could not write data, and no call has reported that.
    has_lost: AtomicBool,
    /// Calls wait while this is `true`.
    are_held: AtomicBool,
    inside: AtomicU32,
}

impl PageCache {
    /// Carries out a flush or durable write: takes the report of a loss, and then waits while calls
    /// are held.
    fn sync(&self) -> Result<usize, Errno> {
        let has_lost = self.has_lost.swap(false, SeqCst);
        self.inside.fetch_add(1, SeqCst);
        while self.are_held.load(SeqCst) {
            thread::yield_now();
        }
        if has_lost { Err(Errno::IO) } else { Ok(0) }
    }
}

fn carry(kernel: Arc<PageCache>) -> Carry {
    Arc::new(move |bio: &Bio| match bio.op {
        BioOp::Write if bio.rw_flags & rwf::DSYNC != 0 => kernel.sync().map(|_| bio.segments.len()),
        BioOp::Write => Ok(bio.segments.len()),
        BioOp::Fdatasync => kernel.sync(),
        _ => Err(Errno::NOSYS),
    })
}

struct Rig {
    disk: Disk,
    epoll: Epoll,
    image: Arc<Image>,
    kernel: Arc<PageCache>,
    _folder: TempDir,
}

impl Rig {
    fn new() -> Rig {
        let kernel = Arc::<PageCache>::default();
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let backends = Box::new(Carried(carry(kernel.clone())));
        let parts = Parts::of_backends(backends, "it is simulated".to_owned());
        let nowait = Nowait::builder().build_of(parts).unwrap();
        let options = ImageOptions { path, cache: Cache::Host, ..ImageOptions::default() };
        let image = Arc::new(Image::open(&nowait, &options).unwrap());
        let (mailbox, epoll) = (Mailbox::new().unwrap(), Epoll::new().unwrap());
        epoll.add(mailbox.raw(), epoll::IN, 0).unwrap();
        let disk = Disk::new(&nowait, &BlockingTasks::new(2), mailbox, 64 << 20).unwrap();
        for fd in disk.descriptors().unwrap() {
            epoll.add(fd.as_raw_fd(), epoll::IN, 0).unwrap();
        }
        Rig { disk, epoll, image, kernel, _folder: folder }
    }

    fn begin_flush(&mut self, slot: u32, told: &KnownFailures) {
        self.disk.flush(&self.image, told, Tag { owner: 1, slot, part: 0 });
        self.disk.start();
    }

    fn begin_durable_write(&mut self, slot: u32) {
        let chunk = self.disk.pool().take(4096);
        self.disk.write(&self.image, chunk, 0, true, Tag { owner: 1, slot, part: 0 });
        self.disk.start();
    }

    fn wait_for_calls(&self, count: u32) {
        while self.kernel.inside.load(SeqCst) < count {
            thread::yield_now();
        }
    }

    fn ends(&mut self, count: usize) -> Vec<(u32, Result<(), Errno>)> {
        let (mut ready, limit) = (Vec::with_capacity(4), Deadline::after_ns(HANG_NS));
        let mut ends = Vec::new();
        while ends.len() < count {
            assert!(!limit.has_passed(), "nothing ends any more");
            let (epoll, ready) = (&self.epoll, &mut ready);
            self.disk.sleep(|| epoll.wait(ready, limit)).unwrap();
            while let Some(RequestEnd { tag, result, chunk, .. }) = self.disk.pop() {
                chunk.into_iter().for_each(|chunk| self.disk.pool().give_back(chunk));
                ends.push((tag.slot, result));
            }
            self.disk.start();
        }
        ends.sort_by_key(|end| end.0);
        ends
    }

    fn flush(&mut self, told: &KnownFailures) -> Result<(), Errno> {
        self.begin_flush(0, told);
        self.ends(1)[0].1
    }
}

#[test]
fn a_flush_fails_after_a_durable_write_has_taken_the_report_of_its_loss() {
    let mut rig = Rig::new();
    let told = rig.image.join();
    rig.kernel.has_lost.store(true, SeqCst);
    rig.begin_durable_write(1);
    assert_eq!(rig.ends(1), [(1, LOST)]);
    assert_eq!(rig.flush(&told), LOST, "earlier writes may be lost");
    assert_eq!(rig.flush(&told), Ok(()));
}

#[test]
fn a_durable_write_fails_if_a_flush_beside_it_has_taken_the_report_of_its_loss() {
    let mut rig = Rig::new();
    let told = rig.image.join();
    rig.kernel.are_held.store(true, SeqCst);
    rig.kernel.has_lost.store(true, SeqCst);
    rig.begin_flush(1, &told);
    rig.wait_for_calls(1);
    rig.begin_durable_write(2);
    rig.wait_for_calls(2);
    rig.kernel.are_held.store(false, SeqCst);
    assert_eq!(rig.ends(2), [(1, LOST), (2, LOST)]);
}

#[test]
fn the_flush_of_another_client_has_taken_the_report() {
    let mut rig = Rig::new();
    let (one, other) = (rig.image.join(), rig.image.join());
    rig.kernel.has_lost.store(true, SeqCst);
    assert_eq!(rig.flush(&one), LOST);
    assert_eq!(rig.flush(&other), LOST, "it has not been told");
    assert_eq!(rig.flush(&one), Ok(()));
    assert_eq!(rig.flush(&other), Ok(()));
}
