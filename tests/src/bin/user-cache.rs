//! Programs about a cache in the process: what it and others see of a file, and when.
//!
//! `user-cache CASE FILE`; exits 0 when the claim holds, else panics with what it saw. Every claim
//! but that about opens holds with the kernel's cache too.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use nowait_tests::passing;
use nowait_tests::request::{Context, Request};

const BLOCK: usize = 4096;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["close", file] => others_see_it_after_a_close(Path::new(file)),
        ["open", file] => an_open_sees_what_others_wrote(Path::new(file)),
        ["plain", file] => plain_calls_are_coherent(Path::new(file)),
        ["descriptors", file] => all_descriptors_are_the_file(Path::new(file)),
        ["direct", file] => a_file_is_cached_beside_direct_writes(Path::new(file)),
        ["mapping", file] => a_mapping_is_coherent(Path::new(file), false),
        ["mapped", file] => a_mapping_is_coherent(Path::new(file), true),
        ["fork", file] => a_child_sees_what_was_written(Path::new(file)),
        ["size", file] => the_size_is_that_of_the_cache(Path::new(file)),
        ["advice", file] => advice_is_for_the_cache_that_has_the_file(Path::new(file)),
        ["opening", file] => a_submission_does_not_wait_for_an_open(Path::new(file)),
        _ => panic!("unknown case {args:?}"),
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(context: &Context, file: &File, bytes: &[u8], offset: usize) {
    let done = context.run(vec![Request::write(file.as_fd(), bytes, offset as u64)]);
    assert_eq!(done[0].res, bytes.len() as i64);
}

fn read(context: &Context, file: &File, len: usize, offset: usize) -> Vec<u8> {
    let done = context.run(vec![Request::read(file.as_fd(), len, offset as u64)]);
    assert!(done[0].res >= 0, "{:?}", done[0]);
    done[0].request.bytes()[..done[0].res as usize].to_vec()
}

/// What another process finds in the file: it has no part in the user-space page cache.
fn seen_by_others(path: &Path) -> Vec<u8> {
    let output = Command::new("cat").arg(path).env_remove("LD_PRELOAD").output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn written_by_others(path: &Path, byte: u8, blocks: usize) {
    let script = format!("head -c {} /dev/zero | tr '\\0' '\\{byte:o}' > \"$0\"", blocks * BLOCK);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(path).env_remove("LD_PRELOAD");
    assert!(shell.status().unwrap().success());
}

fn others_see_it_after_a_close(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    for round in 1..20u8 {
        let file = open(path);
        let bytes = vec![round; BLOCK * 3 + 100 * usize::from(round)];
        let requests = bytes.chunks(BLOCK).enumerate();
        let requests =
            requests.map(|(at, part)| Request::write(file.as_fd(), part, (at * BLOCK) as u64));
        // Not reaped before the close: a submitted write counts.
        let count = context.submit(requests.collect());
        drop(file);
        assert!(seen_by_others(path) == bytes, "round {round}");
        context.reap_all(count as usize);
    }
}

fn an_open_sees_what_others_wrote(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    for round in 1..20u8 {
        written_by_others(path, round, 16 + usize::from(round));
        let file = open(path);
        let bytes = read(&context, &file, BLOCK * 64, 0);
        let expected = vec![round; (16 + usize::from(round)) * BLOCK];
        assert!(bytes == expected, "round {round}: {} bytes", bytes.len());
    }
}

/// Each plain call finds what requests wrote, and requests find what plain calls wrote.
fn plain_calls_are_coherent(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    let mut file = open(path);
    for round in 0..50u8 {
        write(&context, &file, &[round; BLOCK * 4], 0);
        let mut back = [0; BLOCK];
        file.read_exact_at(&mut back, 100).unwrap();
        assert_eq!(back, [round; BLOCK], "pread in round {round}");
        file.write_all_at(&[!round; 100], 50).unwrap();
        assert_eq!(
            read(&context, &file, 200, 0)[50..150],
            [!round; 100],
            "pwrite in round {round}"
        );
        write(&context, &file, &[7; 10], 60);
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&[9; 20]).unwrap();
        file.read_exact(&mut back[..70]).unwrap();
        assert_eq!(back[40..50], [7; 10], "read in round {round}");
        assert_eq!(read(&context, &file, BLOCK, 0)[..20], [9; 20], "write in round {round}");
        file.sync_data().unwrap();
        file.set_len(BLOCK as u64 + 1).unwrap();
        let bytes = read(&context, &file, BLOCK * 4, 0);
        assert_eq!(bytes.len(), BLOCK + 1, "ftruncate in round {round}");
        assert_eq!(std::fs::read(path).unwrap(), bytes, "another open in round {round}");
    }
    write(&context, &file, &[1; BLOCK * 2], 0);
    drop(File::create(path).unwrap());
    assert!(read(&context, &file, BLOCK, 0).is_empty(), "cut off by an open");
}

/// Requests name one descriptor, plain calls others of the same file.
/// The first request that would cache a file comes in one call with a write past every cache.
fn a_file_is_cached_beside_direct_writes(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    for round in 1..50u8 {
        let path = &path.with_extension(round.to_string());
        std::fs::write(path, vec![0; 8 * BLOCK]).unwrap();
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path);
        let (direct, file) = (direct.unwrap(), open(path));
        let mut requests: Vec<_> = (0..4)
            .map(|block| Request::write(direct.as_fd(), &[round; BLOCK], block * BLOCK as u64))
            .collect();
        let buffered = Request::write(file.as_fd(), &[round + 100; BLOCK], 4 * BLOCK as u64);
        requests.push(buffered);
        let done = context.run(requests);
        assert!(done.iter().all(|event| event.res == BLOCK as i64), "{done:?}");
        let mut expected = vec![round; 4 * BLOCK];
        expected.extend([round + 100; BLOCK]);
        assert!(read(&context, &file, 5 * BLOCK, 0) == expected, "round {round}");
        file.sync_data().unwrap();
        assert!(seen_by_others(path)[..5 * BLOCK] == expected, "round {round}: written");
    }
    // Nothing is in flight past the cache any more.
    let file = open(path);
    write(&context, &file, &[1; BLOCK], 0);
    assert!(read(&context, &file, BLOCK, 0) == [1; BLOCK]);
}

fn all_descriptors_are_the_file(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    let before = open(path);
    before.write_all_at(&vec![b'-'; 8 * BLOCK], 0).unwrap();
    let file = open(path);
    // SAFETY: numbers only; the new one is owned here alone.
    let duplicate =
        |command| unsafe { File::from_raw_fd(libc::fcntl(file.as_raw_fd(), command, 200)) };
    let reopened = open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
    let others = [
        ("opened before", before),
        ("dup", file.try_clone().unwrap()),
        ("F_DUPFD", duplicate(libc::F_DUPFD)),
        ("F_DUPFD_CLOEXEC", duplicate(libc::F_DUPFD_CLOEXEC)),
        ("received", received(&file)),
        ("reopened", reopened),
    ];
    for (round, (name, other)) in (1u8..).zip(&others) {
        let (requested, plain) = ([round; BLOCK], [round + 100; BLOCK]);
        write(&context, &file, &requested, 0);
        other.sync_data().unwrap();
        assert!(seen_by_others(path)[..BLOCK] == requested, "{name}: synced, and not there");
        write(&context, &file, &requested, BLOCK);
        let mut found = [0; BLOCK];
        other.read_exact_at(&mut found, BLOCK as u64).unwrap();
        assert!(found == requested, "{name}: a plain read");
        // In the middle of what waits to be written.
        write(&context, &file, &[round + 50; 3 * BLOCK], 2 * BLOCK);
        other.write_all_at(&plain, 3 * BLOCK as u64).unwrap();
        assert!(read(&context, &file, BLOCK, 3 * BLOCK) == plain, "{name}: a plain write");
        file.sync_data().unwrap();
        assert!(seen_by_others(path)[3 * BLOCK..4 * BLOCK] == plain, "{name}: overwritten");
        write(&context, &file, &requested, 6 * BLOCK);
        other.set_len(6 * BLOCK as u64 + 10).unwrap();
        let end = read(&context, &file, BLOCK, 6 * BLOCK);
        assert!(end == requested[..10], "{name}: {} bytes behind the cut", end.len());
        write(&context, &file, &requested, 6 * BLOCK);
        write(&context, &file, &requested, 7 * BLOCK);
    }
    // Closing any of them is a close of the file.
    for (round, (name, other)) in (30u8..).zip(others) {
        write(&context, &file, &[round; BLOCK], 0);
        drop(other);
        assert!(seen_by_others(path)[..BLOCK] == [round; BLOCK], "{name}: closed");
    }
}

/// The same open file by a number that another thread has sent.
fn received(file: &File) -> File {
    let (near, far) = UnixStream::pair().unwrap();
    passing::send(near.as_raw_fd(), file.as_raw_fd());
    // SAFETY: it has just come, and is owned here alone.
    unsafe { File::from_raw_fd(passing::receive(far.as_raw_fd())) }
}

/// Maps a file that a request has named before, or that none has.
fn a_mapping_is_coherent(path: &Path, is_first: bool) {
    let context = Context::new(64).expect("io_setup");
    let file = open(path);
    file.set_len(BLOCK as u64 * 2).expect("ftruncate");
    if is_first {
        // The process has a page cache, with another file.
        let other = open(&path.with_extension("other"));
        write(&context, &other, &[1; BLOCK], 0);
    } else {
        write(&context, &file, &[1; BLOCK * 2], 0);
    }
    // SAFETY: a new mapping, of a file that stays as long as this process.
    let mapped = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = file.as_raw_fd();
        let base = libc::mmap(std::ptr::null_mut(), BLOCK * 2, protection, flags, fd, 0);
        assert_ne!(base, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(base.cast::<u8>(), BLOCK * 2)
    };
    let before = u8::from(!is_first);
    assert!(mapped.iter().all(|byte| *byte == before), "what was written before");
    write(&context, &file, &[2; BLOCK], 0);
    assert!(mapped[..BLOCK].iter().all(|byte| *byte == 2), "what was written after");
    mapped[BLOCK..].fill(3);
    assert_eq!(read(&context, &file, BLOCK, BLOCK), [3; BLOCK], "what the mapping wrote");
}

fn a_child_sees_what_was_written(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    let file = open(path);
    write(&context, &file, &[5; BLOCK * 2], 0);
    // SAFETY: the child only makes system calls, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut bytes = [0; BLOCK * 2];
        let same = file.read_exact_at(&mut bytes, 0).is_ok() && bytes == [5; BLOCK * 2];
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(!same)) };
    }
    let mut status = 0;
    // SAFETY: a live integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child saw something else");
    assert_eq!(read(&context, &file, BLOCK, 0), [5; BLOCK]);
}

fn the_size_is_that_of_the_cache(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    let mut file = open(path);
    for round in 1..20usize {
        write(&context, &file, &[1; 1000], (round - 1) * 1000);
        assert_eq!(file.metadata().unwrap().len(), round as u64 * 1000, "fstat");
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), round as u64 * 1000, "lseek");
    }
}

/// What is not needed any more is read again: the caller counts the pages.
fn advice_is_for_the_cache_that_has_the_file(path: &Path) {
    let context = Context::new(64).expect("io_setup");
    written_by_others(path, 5, 64);
    let file = open(path);
    for _ in 0..2 {
        assert_eq!(read(&context, &file, BLOCK * 64, 0), vec![5; BLOCK * 64]);
        assert_eq!(advise(&file, libc::POSIX_FADV_DONTNEED), 0);
    }
    for advice in [libc::POSIX_FADV_RANDOM, libc::POSIX_FADV_WILLNEED, libc::POSIX_FADV_NOREUSE] {
        assert_eq!(advise(&file, advice), 0);
    }
    assert_eq!(advise(&file, 77), libc::EINVAL);
    assert_eq!(read(&context, &file, BLOCK, 0), [5; BLOCK]);
}

/// A request has its file opened in the cache, which waits in open(2) until a lease is given back.
/// Requests to other files do not wait for that, whether they are cached or not.
fn a_submission_does_not_wait_for_an_open(path: &Path) {
    const F_SETSIG: i32 = 10;
    let context = Context::new(64).expect("io_setup");
    let cached = open(path);
    write(&context, &cached, &[1; BLOCK], 0);
    let path_of = |name| path.with_extension(name);
    drop(open(&path_of("direct")));
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path_of("direct"))
        .unwrap();
    let leased = open(&path_of("leased"));
    // Says what the kernel wants to have back; the other signal would end the process.
    fcntl(&leased, F_SETSIG, libc::SIGURG);
    fcntl(&leased, libc::F_SETLEASE, libc::F_WRLCK);
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            let context = Context::new(8).expect("io_setup");
            read(&context, &leased, BLOCK, 0)
        });
        while fcntl(&leased, libc::F_GETLEASE, 0) == libc::F_WRLCK {
            assert!(!opener.is_finished(), "the file was not opened");
            std::thread::yield_now();
        }
        for _ in 0..10 {
            write(&context, &direct, &[2; BLOCK], 0);
            write(&context, &cached, &[2; BLOCK], 0);
            assert_eq!(read(&context, &cached, BLOCK, 0), [2; BLOCK]);
        }
        assert!(!opener.is_finished(), "requests waited until the other file was open");
        fcntl(&leased, libc::F_SETLEASE, libc::F_UNLCK);
    });
}

fn fcntl(file: &File, command: i32, argument: i32) -> i32 {
    // SAFETY: these commands take no memory.
    let said = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    assert!(said >= 0, "fcntl {command}: {}", std::io::Error::last_os_error());
    said
}

fn advise(file: &File, advice: i32) -> i32 {
    // SAFETY: no memory is involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) }
}
