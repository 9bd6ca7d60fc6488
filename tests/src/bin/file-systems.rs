//! Programs about requests on file systems that are full, shared, frozen, replaced or made
//! read-only.
//!
//! The cases `rows` and `full` print results, which must be the same under two libraries. The other
//! cases exit 0 if they succeed, else panic with the reason.

use std::ffi::CString;
use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use nowait_tests::request::{Context, Request};
use nowait_tests::{aio, direct};

const BLOCK: usize = 4096;
const WIDE: usize = 64 << 10;
const FILE_BYTES: usize = 256 << 10;

const FIFREEZE: libc::c_ulong = 0xc004_5877;
const FITHAW: libc::c_ulong = 0xc004_5878;
const FICLONE: libc::c_ulong = 0x4004_9409;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["rows", folder] => rows(Path::new(folder)),
        ["full", folder] => full(Path::new(folder)),
        ["quota", folder] => quota(Path::new(folder)),
        ["frozen", folder, mode] => frozen(Path::new(folder), mode_of(mode)),
        ["replaced", folder, device, kind] => replaced(Path::new(folder), device, kind),
        ["read-only", folder] => read_only(Path::new(folder)),
        _ => panic!("unknown case {args:?}"),
    }
}

/// Returns the modes that files of a folder support. Some kernels have no direct I/O on tmpfs.
fn modes_in(folder: &Path) -> &'static [&'static str] {
    if direct::is_known_in(folder) { &["buffered", "direct"] } else { &["buffered"] }
}

fn mode_of(name: &str) -> i32 {
    match name {
        "buffered" => 0,
        "direct" => libc::O_DIRECT,
        other => panic!("unknown mode {other}"),
    }
}

fn open(path: &Path, mode: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(mode);
    options.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn contents(path: &Path) -> String {
    let bytes = std::fs::read(path).expect("a file of the row");
    let runs = bytes.chunk_by(|one, other| one == other);
    let runs: Vec<_> = runs.map(|run| format!("{}*{}", run[0].escape_ascii(), run.len())).collect();
    runs.join("+")
}

fn result(context: &Context, request: Request) -> i64 {
    context.run(vec![request])[0].res
}

fn rows(folder: &Path) {
    for mode in ["buffered", "direct"] {
        for what in ["clone", "hole", "extend", "unwritten"] {
            let context = Context::new(8).expect("io_setup");
            let [path, other] = [folder.join("file"), folder.join("other")];
            std::fs::write(&other, vec![b'o'; FILE_BYTES]).expect("a file");
            let _ = std::fs::remove_file(&path);
            let made = open(&path, 0);
            prepare(&made, &other, what);
            drop(made);
            let file = open(&path, mode_of(mode));
            let at = if what == "extend" { FILE_BYTES as u64 } else { WIDE as u64 };
            let fd = file.as_fd();
            let mut line = format!("{what}, {mode}:");
            for (byte, len, at) in [(b'+', WIDE, at), (b'*', BLOCK, at + BLOCK as u64)] {
                let write = Request::write(fd, &vec![byte; len], at);
                let _ = write!(line, " write {}", result(&context, write));
            }
            let read = context.run(vec![Request::read(fd, WIDE, at)]);
            let bytes = read[0].request.bytes();
            let _ = write!(line, " read {} {}", read[0].res, bytes[BLOCK].escape_ascii());
            let _ = write!(line, " sync {}", result(&context, Request::fsync(fd)));
            println!("{line}, file {}, other {}", contents(&path), contents(&other));
        }
    }
}

/// If the file system cannot share extents, the file of `clone` is a copy.
fn prepare(file: &File, other: &Path, what: &str) {
    match what {
        "clone" => {
            let other = File::open(other).expect("the other file");
            // SAFETY: numbers only.
            if unsafe { libc::ioctl(file.as_raw_fd(), FICLONE, other.as_raw_fd()) } != 0 {
                file.write_all_at(&vec![b'o'; FILE_BYTES], 0).expect("a copy");
            }
        }
        "hole" => file.set_len(FILE_BYTES as u64).expect("a hole"),
        "extend" => file.write_all_at(&vec![b'o'; FILE_BYTES], 0).expect("a file"),
        // SAFETY: numbers only.
        _ => match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, FILE_BYTES as i64) } {
            0 => {}
            _ => file.set_len(FILE_BYTES as u64).expect("a hole"),
        },
    }
}

fn full(folder: &Path) {
    let names = ["allocated", "hole", "empty"];
    let [allocated, hole, empty] = names.map(|name| folder.join(name));
    let modes = modes_in(folder); // while there is room to try
    std::fs::write(&allocated, vec![b'o'; FILE_BYTES]).expect("a file");
    open(&hole, 0).set_len(FILE_BYTES as u64).expect("a hole");
    drop(open(&empty, 0));
    let rest = open(&folder.join("rest"), 0);
    // SAFETY: no memory is involved.
    unsafe { libc::sync() };
    take_all(&rest);
    for mode in modes {
        let context = Context::new(8).expect("io_setup");
        for path in [&allocated, &hole, &empty] {
            let file = open(path, mode_of(mode));
            let fd = file.as_fd();
            let write = result(&context, Request::write(fd, &[b'+'; WIDE / 16], 0));
            let sync = result(&context, Request::fsync(fd));
            println!("full, {mode}, {}: write {write} sync {sync}", path.display());
            println!("  {}", contents(path));
        }
    }
}

fn take_all(file: &File) {
    let (mut end, mut part) = (0i64, 64 << 20);
    while part >= BLOCK as i64 {
        // SAFETY: numbers only.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, end, part) } {
            0 => end += part,
            _ => part /= 2,
        }
    }
}

fn quota(folder: &Path) {
    let modes = ["buffered", "direct"];
    // Made before the quota is reached, because the names need room, too.
    let files = modes.map(|mode| open(&folder.join(mode), mode_of(mode)));
    for (mode, file) in modes.into_iter().zip(files) {
        let context = Context::new(8).expect("io_setup");
        let mut written = 0;
        let refused = loop {
            let write = Request::write(file.as_fd(), &vec![b'+'; WIDE], written as u64);
            match result(&context, write) {
                res if res > 0 => written += res,
                res => break res,
            }
            assert!(written < 64 << 20, "{mode}: no limit");
        };
        assert_eq!(refused, -i64::from(libc::EDQUOT), "{mode}: after {written} bytes");
        let read = context.run(vec![Request::read(file.as_fd(), BLOCK, 0)]);
        assert_eq!(read[0].res, written.min(BLOCK as i64), "{mode}");
    }
}

fn control(folder: &File, request: libc::c_ulong) {
    // SAFETY: the call takes no memory.
    let rc = unsafe { libc::ioctl(folder.as_raw_fd(), request, 0) };
    assert_eq!(rc, 0, "{request:#x}: {}", Error::last_os_error());
}

/// While the file system is frozen, writes stay in flight, io_submit returns, and a read completes.
/// O_APPEND, set before the thaw, does not change the submitted writes. A kernel without
/// RWF_NOAPPEND may append them nevertheless.
fn frozen(folder: &Path, mode: i32) {
    let context = Context::new(16).expect("io_setup");
    let path = folder.join("file");
    let file = open(&path, mode);
    let fd = file.as_fd();
    // By the first write the library finds out which flags the file system refuses.
    assert_eq!(result(&context, Request::write(fd, &vec![b'-'; FILE_BYTES], 0)), FILE_BYTES as i64);
    assert_eq!(result(&context, Request::fsync(fd)), 0);
    let root = File::open(folder).expect("the folder");
    let has_no_append = knows_no_append(&folder.join("tried"));
    for round in 0..4u8 {
        let byte = b'a' + round;
        control(&root, FIFREEZE);
        let writes = (0..4).map(|at| Request::write(fd, &[byte; BLOCK], at * BLOCK as u64));
        let submitted = context.submit(writes.collect());
        let read = Request::read(fd, BLOCK, WIDE as u64);
        let tagged = context.submit_tagged(vec![(100, read)]);
        // No write completes while the file system is frozen; the read waits for none of them.
        let first = context.reap(1, 1, Some(Duration::from_secs(30)));
        let early = context.reap(0, 8, Some(Duration::ZERO));
        set_append(&file, true);
        control(&root, FITHAW);
        assert_eq!((submitted, tagged), (4, 1), "round {round}");
        let first = first.expect("io_getevents");
        assert_eq!(first.first().map(|done| (done.tag, done.res)), Some((100, BLOCK as i64)));
        assert_eq!(early.expect("io_getevents").len(), 0, "round {round}: written while frozen");
        let done = context.reap_all(4);
        assert!(done.iter().all(|done| done.res == BLOCK as i64), "round {round}: {done:?}");
        set_append(&file, false);
        let bytes = std::fs::read(&path).expect("the file");
        let (inside, appended) = bytes.split_at(FILE_BYTES);
        assert!(appended.is_empty() || !has_no_append, "round {round}: appended");
        let is_written = |block: &&[u8]| block.iter().all(|it| *it == byte);
        let blocks = || inside[..4 * BLOCK].chunks(BLOCK).chain(appended.chunks(BLOCK));
        assert_eq!(blocks().filter(is_written).count(), 4, "round {round}: each once, and whole");
        assert!(appended.chunks(BLOCK).all(|block| is_written(&block)), "round {round}");
        file.set_len(FILE_BYTES as u64).expect("its size");
    }
}

fn knows_no_append(path: &Path) -> bool {
    let (file, mut byte) = (open(path, 0), b'-');
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let flags = aio::RWF_NOAPPEND as i32;
    // SAFETY: one live byte, which is only read.
    unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, 0, flags) == 1 }
}

fn set_append(file: &File, set: bool) {
    // SAFETY: numbers only.
    let rc = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL) & !libc::O_APPEND;
        let append = if set { libc::O_APPEND } else { 0 };
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | append)
    };
    assert_eq!(rc, 0);
}

/// Mounts a tmpfs and the file system of a device by turns at one place, and makes requests on each
/// with the same context.
fn replaced(folder: &Path, device: &str, kind: &str) {
    let context = Context::new(16).expect("io_setup");
    let mut numbers = [0; 2];
    for round in 0..8 {
        let (source, kind) = if round % 2 == 0 { ("none", "tmpfs") } else { (device, kind) };
        mount(source, folder, kind);
        for mode in modes_in(folder) {
            let file = open(&folder.join("file"), mode_of(mode));
            numbers[round % 2] = file.metadata().expect("its device").dev();
            let fd = file.as_fd();
            let byte = b'a' + round as u8;
            let write = |at: usize| Request::write(fd, &[byte; BLOCK], (at * BLOCK) as u64);
            let done = context.run((0..8).map(write).collect());
            assert!(done.iter().all(|done| done.res == BLOCK as i64), "round {round}: {done:?}");
            let read = |at: usize| Request::read(fd, BLOCK, (at * BLOCK) as u64);
            let done = context.run((0..8).map(read).collect());
            assert!(done.iter().all(|done| done.request.bytes() == [byte; BLOCK]));
            assert_eq!(result(&context, Request::fsync(fd)), 0);
        }
        let text = CString::new(folder.to_str().expect("a path")).expect("a path");
        // SAFETY: a live string.
        let rc = unsafe { libc::umount2(text.as_ptr(), 0) };
        assert_eq!(rc, 0, "round {round}: {}", Error::last_os_error());
    }
    println!("device numbers {numbers:?}");
}

fn mount(source: &str, folder: &Path, kind: &str) {
    let text = |it: &str| CString::new(it).expect("a string without zeroes");
    let (source, kind) = (text(source), text(kind));
    let folder = text(folder.to_str().expect("a path"));
    // SAFETY: live strings; no data.
    let rc =
        unsafe { libc::mount(source.as_ptr(), folder.as_ptr(), kind.as_ptr(), 0, ptr::null()) };
    assert_eq!(rc, 0, "{}", Error::last_os_error());
}

/// Makes the file system read-only and writable again. A file that is open for reading can still be
/// read. The library must keep no file open for writing: such a file would prevent the change.
fn read_only(folder: &Path) {
    let context = Context::new(16).expect("io_setup");
    let path = folder.join("file");
    std::fs::write(&path, vec![b'o'; FILE_BYTES]).expect("a file");
    let reader = File::open(&path).expect("the file");
    for round in 0..4 {
        let writer = open(&path, 0);
        assert_eq!(
            result(&context, Request::write(writer.as_fd(), &vec![b'+'; WIDE], 0)),
            WIDE as i64
        );
        drop(writer);
        remount(folder, libc::MS_RDONLY);
        let read = context.run(vec![Request::read(reader.as_fd(), WIDE, 0)]);
        assert!(read[0].request.bytes().iter().all(|byte| *byte == b'+'), "round {round}");
        assert_eq!(result(&context, Request::fsync(reader.as_fd())), 0, "round {round}");
        remount(folder, 0);
    }
}

fn remount(folder: &Path, flags: libc::c_ulong) {
    let folder = CString::new(folder.to_str().expect("a path")).expect("a path");
    // SAFETY: live strings; no data.
    let rc = unsafe {
        let none = ptr::null();
        libc::mount(none, folder.as_ptr(), none, flags | libc::MS_REMOUNT, none.cast())
    };
    assert_eq!(rc, 0, "remount {flags:#x}: {}", Error::last_os_error());
}
