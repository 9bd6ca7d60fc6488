//! The engine closes its descriptor of a file before the event of the last request on the file is
//! visible: a program that sees the event may unmount.

mod common;

use common::*;
use nowait_block::skip::note_skip_here;
use nowait_file::{
    Context, Engine, Kind, Link, Links,
    submit::{EventTarget, Started, Submission},
};
use nowait_sys::{Errno, file::O_DIRECT};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

const BLOCK: usize = 4096;
const POLLIN: u16 = 1;

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

struct Image {
    bytes: PathBuf,
    point: PathBuf,
    _folder: tempfile::TempDir,
}

impl Image {
    fn new() -> Option<Image> {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, point) = (folder.path().join("image"), folder.path().join("point"));
        std::fs::create_dir(&point).unwrap();
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let made = run("mkfs.ext4", &["-q", "-F", "-E", "nodiscard", image.to_str().unwrap()]);
        let new = Image { bytes: image, point, _folder: folder };
        if !made || !new.mount() {
            note_skip_here("no ext4 can be mounted");
            return None;
        }
        std::fs::write(new.point.join("file"), vec![1; 64 * BLOCK]).unwrap();
        assert!(run("mkfifo", &[new.point.join("fifo").to_str().unwrap()]));
        assert!(new.unmount());
        Some(new)
    }

    fn mount(&self) -> bool {
        let (image, point) = (self.bytes.to_str().unwrap(), self.point.to_str().unwrap());
        run("mount", &["-o", "loop", "-t", "ext4", image, point])
    }

    /// Tries for two seconds: with io_uring and native AIO, the kernel may release a file shortly
    /// after the completion.
    fn unmount(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            if run("umount", &[self.point.to_str().unwrap()]) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = run("umount", &["-q", "--lazy", self.point.to_str().unwrap()]);
    }
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

fn unmounts_after(claim: &str, requests: impl Fn(&Arc<Context>, &Path) -> usize) {
    let Some(image) = Image::new() else { return };
    let each = |engine: &Arc<Engine>| {
        for round in 0..5 {
            assert!(image.mount());
            let context = Context::new(engine, 0, 16).unwrap();
            let count = requests(&context, &image.point);
            reap(&context, count);
            assert!(image.unmount(), "{claim}, {:?}, round {round}: busy", engine.backend());
            context.destroy().unwrap();
        }
    };
    on_every_backend(each);
}

#[test]
fn after_reads_writes_and_syncs_on_every_route() {
    unmounts_after("all kinds", |context, point| {
        let plain = open(&point.join("file"), 0);
        let direct = open(&point.join("file"), O_DIRECT);
        let memory = |name: u8| {
            let whole = leaked(2 * BLOCK, name);
            let skip = whole.cast::<u8>().align_offset(BLOCK);
            // SAFETY: a block that is aligned lies within two blocks.
            unsafe { core::ptr::slice_from_raw_parts_mut(whole.cast::<u8>().add(skip), BLOCK) }
        };
        submit(context, 1, command(Kind::Read, &plain, memory(0), 8192)).unwrap();
        submit(context, 2, command(Kind::Write, &plain, memory(2), 0)).unwrap();
        submit(context, 3, command(Kind::Read, &direct, memory(0), 16384)).unwrap();
        submit(context, 4, command(Kind::Write, &direct, memory(4), 65536)).unwrap();
        submit(context, 5, command(Kind::Write, &direct, memory(5), 1 << 20)).unwrap();
        submit(context, 6, command(Kind::Fdatasync, &plain, leaked(0, 0), 0)).unwrap();
        6
    });
}

#[test]
fn after_cancelled_polls_and_reads_of_streams() {
    unmounts_after("streams", |context, point| {
        let fifo = open(&point.join("fifo"), 0);
        submit(context, 1, poll(&fifo, POLLIN)).unwrap();
        for name in 2..5 {
            submit(context, name, command(Kind::Read, &fifo, leaked(8, 0), 0)).unwrap();
        }
        // Cancels the last request of the line first, which has not begun.
        for name in (1..5).rev() {
            context.cancel(name).unwrap();
        }
        4
    });
}

#[test]
fn after_requests_that_must_not_begin_any_more() {
    unmounts_after("links", |context, point| {
        let file = open(&point.join("file"), 0);
        let failed = Link::new(None);
        failed.end(Err(Errno::IO));
        context.io().reserve(3).unwrap();
        let mut submission = Submission::new(context);
        for name in 0..3 {
            let links = Links { after: Some(failed.clone()), end: None };
            let kind = [Kind::Read, Kind::Write, Kind::Fsync][name as usize];
            let memory = leaked(if kind == Kind::Fsync { 0 } else { BLOCK }, 0);
            let target = EventTarget { data: name, obj: name, eventfd: None };
            let command = command(kind, &file, memory, 0);
            assert_eq!(submission.start_linked(None, command, target, links), Ok(Started::Queued));
        }
        submission.finish();
        3
    });
}
