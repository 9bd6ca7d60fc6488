//! Programs about the lifetime of descriptors and open files, and about the order of requests.
//!
//! `fd-lifetime CASE ARGS...` exits 0 if the case succeeds, else panics with the reason.

use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nowait_tests::blocks;
use nowait_tests::request::{Context, Request};

const BLOCK: usize = 4096;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["reuse", folder, way, rounds] => reuse(Path::new(folder), way, rounds.parse().unwrap()),
        ["posix-lock", file] => posix_lock_survives(Path::new(file)),
        ["probe-lock", file] => println!("{}", lock_holder(&open(Path::new(file)))),
        ["flock", file] => flock_goes_with_the_descriptor(Path::new(file)),
        ["overlap", file] => overlaps_take_effect_in_order(Path::new(file)),
        ["fsync", file, image] => fsync_covers_earlier_writes(Path::new(file), Path::new(image)),
        ["close-all", file] => closing_everything_leaves_aio_alone(Path::new(file)),
        ["closefrom", file] => closefrom_closes_everything(Path::new(file)),
        ["event-counter", file] => a_closed_event_counter_is_gone(Path::new(file)),
        ["turns", one, other] => two_files_are_written_in_turn([one, other].map(Path::new)),
        ["long-reads", one, other] => long_direct_reads([one, other].map(Path::new)),
        ["context-in-child"] => a_child_makes_a_context(),
        ["umount", folder, device] => umount_is_not_busy(folder, device),
        _ => panic!("unknown case {args:?}"),
    }
}

/// Forks, and makes a context only in the child, like a server that uses AIO only in its workers.
fn a_child_makes_a_context() {
    // SAFETY: the child has one thread, makes only calls that the parent could, and leaves by
    // _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let made = std::panic::catch_unwind(|| Context::new(1).expect("io_setup")).is_ok();
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!made)) };
    }
    let mut status = 0;
    // SAFETY: our child, a live integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could not make a context");
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn reuse(folder: &Path, way: &str, rounds: usize) {
    let (mine_path, other_path) = (folder.join("mine"), folder.join("other"));
    let other = open(&other_path);
    other.write_all_at(&vec![b'O'; BLOCK * 16], 0).unwrap();
    open(&mine_path).write_all_at(&vec![b'M'; BLOCK * 16], 0).unwrap();
    let context = Context::new(64).expect("io_setup");
    for round in 0..rounds {
        let mine = open(&mine_path);
        if round % 16 == 0 {
            drop_pages(&mine); // so that the reads have to wait for the device
        }
        let fill = b'a' + (round % 26) as u8;
        let slot = (round % 16 * BLOCK) as u64;
        let next = ((round + 1) % 16 * BLOCK) as u64;
        let fd = mine.as_fd();
        let mut requests = vec![
            Request::write(fd, &[fill; BLOCK], slot),
            Request::read(fd, BLOCK, next),
            Request::read(fd, BLOCK, slot),
        ];
        if round % 256 == 255 {
            requests.push(Request::fsync(fd));
        }
        let count = requests.len();
        assert_eq!(context.submit(requests), count as i32, "round {round}");
        let replaced = replace(mine.into_raw_fd(), way, &other_path, &other);
        // From now on the number names the other file, also while the first requests are in flight.
        // SAFETY: `replace` returned it, and it is open until the end of the round.
        let later = Request::read(unsafe { BorrowedFd::borrow_raw(replaced) }, BLOCK, slot);
        assert_eq!(context.submit_tagged(vec![(count as u64, later)]), 1, "round {round}");
        let done = context.reap_all(count + 1);
        assert_eq!(done[count].request.bytes(), [b'O'; BLOCK], "round {round} read the old file");
        let results: Vec<i64> = done.iter().map(|done| done.res).collect();
        assert!(results.starts_with(&[BLOCK as i64; 3]), "round {round}: {results:?}");
        assert!(!done[1].request.bytes().contains(&b'O'), "round {round} read the other file");
        assert_eq!(done[2].request.bytes(), [fill; BLOCK], "round {round} read its own write");
        // SAFETY: `replace` returned it, and it has no other owner.
        unsafe { libc::close(replaced) };
    }
    check_reused(rounds, &other_path, &mine_path);
}

/// Checks that the other file is unchanged, and that each slot of the first file holds the bytes of
/// the last round that wrote this slot.
fn check_reused(rounds: usize, other: &Path, mine: &Path) {
    assert!(std::fs::read(other).unwrap().iter().all(|byte| *byte == b'O'), "touched");
    let bytes = std::fs::read(mine).unwrap();
    for slot in 0..16 {
        let last = (0..rounds).rev().find(|round| round % 16 == slot);
        let fill = last.map_or(b'M', |round| b'a' + (round % 26) as u8);
        assert!(bytes[slot * BLOCK..][..BLOCK].iter().all(|byte| *byte == fill), "slot {slot}");
    }
}

fn replace(fd: RawFd, way: &str, other_path: &Path, other: &File) -> RawFd {
    let from = other.as_raw_fd();
    // SAFETY: `fd` is owned by this function; the others are only duplicated onto it.
    let rc = unsafe {
        match way {
            "close" => libc::close(fd),
            "close_range" => libc::close_range(fd as u32, fd as u32, 0),
            // The C library closes by an internal call, which no preload library sees.
            "fclose" => libc::fclose(libc::fdopen(fd, c"r+".as_ptr())),
            "dup2" => libc::dup2(from, fd),
            "dup3" => libc::dup3(from, fd, libc::O_CLOEXEC),
            other => panic!("unknown way {other}"),
        }
    };
    assert!(rc >= 0, "{way}: {}", Error::last_os_error());
    if way.starts_with("dup") {
        return fd;
    }
    let reopened = open(other_path).into_raw_fd();
    assert_eq!(reopened, fd, "the lowest free number is the one just closed");
    reopened
}

fn drop_pages(file: &File) {
    file.sync_data().unwrap();
    // SAFETY: plain numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Like a daemon, raises the limit of descriptors after the first context, closes all descriptors
/// from 3 on except its file, and uses their numbers again. The context must still work.
fn closing_everything_leaves_aio_alone(path: &Path) {
    const LOW: u64 = 256;
    let hard = limit_descriptors(|hard| hard.min(LOW));
    let file = open(path);
    file.write_all_at(&[b'd'; BLOCK], 0).unwrap();
    let context = Context::new(8).expect("io_setup");
    let round = |file: &File| {
        drop_pages(file);
        let done = context.run(vec![Request::read(file.as_fd(), BLOCK, 0)]);
        assert_eq!((done[0].res, done[0].request.bytes()), (BLOCK as i64, &[b'd'; BLOCK][..]));
    };
    round(&file);
    let raised = limit_descriptors(|hard| hard);
    assert_eq!(raised, hard);
    let (kept, first) = (file.as_raw_fd(), 3);
    for fd in (first..hard.min(1 << 16) as RawFd).filter(|fd| *fd != kept) {
        // SAFETY: this program has only the standard streams and the file open.
        unsafe { libc::close(fd) };
    }
    round(&file);
    round(&file);
    let mine: Vec<File> = (0..LOW).map(|_| open(path)).collect();
    round(&mine[0]);
    drop(context);
    assert!(mine.iter().all(|file| file.metadata().is_ok()), "io_destroy has closed a file");
}

/// After the program has closed an eventfd that its requests named, an epoll set gets no more
/// events of this eventfd.
fn closefrom_closes_everything(path: &Path) {
    // SAFETY: a terminated name of a function of this type; glibc has it since 2.34.
    let closefrom = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"closefrom".as_ptr());
        std::mem::transmute::<*mut libc::c_void, Option<extern "C" fn(i32)>>(found)
    };
    let Some(closefrom) = closefrom else { return };
    let file = open(path);
    file.write_all_at(&[b'f'; BLOCK], 0).unwrap();
    let close_all = |first: RawFd| {
        // More than the library reads of /proc/self/fd at once.
        let files: Vec<RawFd> = (0..500).map(|_| open(path).into_raw_fd()).collect();
        assert_eq!(files[0], first, "the lowest number");
        closefrom(first);
        for fd in files {
            // SAFETY: plain numbers.
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1, "{fd} is open");
        }
    };
    let first = file.as_raw_fd() + 1;
    close_all(first);
    let context = Context::new(8).expect("io_setup");
    for _ in 0..2 {
        close_all(first);
        drop_pages(&file);
        let done = context.run(vec![Request::read(file.as_fd(), BLOCK, 0)]);
        assert_eq!((done[0].res, done[0].request.bytes()), (BLOCK as i64, &[b'f'; BLOCK][..]));
    }
}

fn a_closed_event_counter_is_gone(path: &Path) {
    open(path).write_all_at(&[b'c'; BLOCK], 0).unwrap();
    let mut options = OpenOptions::new();
    let direct = options.read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    // SAFETY: plain numbers; the new descriptors are owned here alone.
    let (counter, epoll) = unsafe {
        (
            OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)),
            OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)),
        )
    };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
    let (epoll, number) = (epoll.as_raw_fd(), counter.as_raw_fd());
    // SAFETY: live descriptors, a live event.
    let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, &raw mut event) };
    assert_eq!(added, 0);
    let ready = || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 0) }
    };
    let context = Context::new(8).expect("io_setup");
    let read = || Request::read(direct.as_fd(), BLOCK, 0).eventfd(counter.as_fd());
    for _ in 0..8 {
        assert_eq!(context.submit(vec![read()]), 1);
        assert_eq!(context.reap_all(1).len(), 1);
        assert_eq!(ready(), 1);
    }
    drop(counter);
    // A thread of the engine may close the library's copy of the eventfd a little later.
    let deadline = Instant::now() + Duration::from_secs(5);
    while ready() > 0 {
        assert!(Instant::now() < deadline, "something holds the counter open");
        std::thread::yield_now();
    }
}

fn limit_descriptors(soft: impl FnOnce(u64) -> u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live limit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = soft(limit.rlim_max);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    limit.rlim_max
}

/// A write lock of this process survives reads, writes and an fsync of its file, and io_destroy.
fn posix_lock_survives(path: &Path) {
    let file = open(path);
    file.write_all_at(&vec![1; BLOCK * 64], 0).unwrap();
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: a live flock.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) }, 0);
    let held = format!("{}", std::process::id());
    assert_eq!(probe(path), held, "before any request");
    for depth in [1, 64] {
        let context = Context::new(depth).expect("io_setup");
        drop_pages(&file);
        let read = |at: i32| Request::read(file.as_fd(), BLOCK, at as u64 * BLOCK as u64);
        context.run((0..depth).map(read).collect());
        assert_eq!(probe(path), held, "after {depth} uncached reads");
        let write = |at: i32| Request::write(file.as_fd(), &[2; BLOCK], at as u64 * BLOCK as u64);
        context.run((0..depth).map(write).collect());
        context.run(vec![Request::fsync(file.as_fd())]);
        assert_eq!(probe(path), held, "after {depth} writes and an fsync");
        let wrong = Request::read(file.as_fd(), BLOCK, 0).eventfd(file.as_fd());
        assert_eq!(context.submit(vec![wrong]), -libc::EINVAL);
        assert_eq!(probe(path), held, "after a request that names the file as its eventfd");
        drop(context);
        assert_eq!(probe(path), held, "after io_destroy");
    }
    drop(file);
    assert_eq!(probe(path), "0", "closing the file releases the lock");
}

fn probe(path: &Path) -> String {
    let me = std::env::current_exe().unwrap();
    let output = Command::new(me).arg("probe-lock").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the number of the process that holds a lock on the file; 0 if no other process does.
fn lock_holder(file: &File) -> i32 {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: a live flock.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) }, 0);
    if lock.l_type == libc::F_UNLCK as i16 { 0 } else { lock.l_pid }
}

fn whole_file(kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 }
}

/// After the program has closed its descriptor, the library must not keep the open file and its
/// flock(2) alive.
fn flock_goes_with_the_descriptor(path: &Path) {
    let context = Context::new(8).expect("io_setup");
    let second = open(path);
    for round in 0..200 {
        let first = open(path);
        // SAFETY: plain numbers.
        let locked = unsafe { libc::flock(first.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        assert_eq!(locked, 0, "round {round}: the lock of the round before is still held");
        let fd = first.as_fd();
        context.run(vec![Request::write(fd, &[3; BLOCK], 0), Request::read(fd, BLOCK, 0)]);
        drop(first);
        // SAFETY: plain numbers.
        let locked = unsafe { libc::flock(second.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        assert_eq!(locked, 0, "round {round}: {}", Error::last_os_error());
        // SAFETY: plain numbers.
        unsafe { libc::flock(second.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn overlaps_take_effect_in_order(path: &Path) {
    const WIDE: usize = 64 << 10;
    let file = open(path);
    file.write_all_at(&vec![0; WIDE * 2], 0).unwrap();
    let context = Context::new(64).expect("io_setup");
    for round in 0..60u8 {
        drop_pages(&file);
        let fd = file.as_fd();
        let mut requests = Vec::new();
        for number in 0..16u8 {
            // Each write begins 100 bytes after the previous write, and overlaps it. All writes but
            // the first begin and end within a page.
            let at = u64::from(number) * 100;
            requests.push(Request::write(fd, &vec![round ^ number; WIDE], at));
            requests.push(Request::read(fd, WIDE, at));
        }
        let done = context.run(requests);
        for (number, pair) in (0..16u8).zip(done.chunks(2)) {
            let seen = pair[1].request.bytes();
            let wrong = seen.iter().position(|byte| *byte != round ^ number);
            assert_eq!(wrong, None, "round {round}: the read after write {number}");
        }
        let last = &std::fs::read(path).unwrap()[1500..][..WIDE];
        assert!(last.iter().all(|byte| *byte == round ^ 15), "round {round}: the last write");
    }
}

/// Writes to two files by turns, like a database with a data file and a log.
fn two_files_are_written_in_turn(paths: [&Path; 2]) {
    let files = paths.map(open);
    let context = Context::new(32).expect("io_setup");
    let write =
        |turn: usize| Request::write(files[turn % 2].as_fd(), &[1; BLOCK], (turn * BLOCK) as u64);
    for done in context.run((0..32).map(write).collect()) {
        assert_eq!(done.res, BLOCK as i64);
    }
}

/// Reads 16 KiB at a time with `O_DIRECT`, like a database, and continues after dup2(2) has given
/// the descriptor's number to another file.
fn long_direct_reads(paths: [&Path; 2]) {
    const LONG: usize = 16 << 10;
    const BLOCKS: u64 = 32;
    let [one, other] = paths.map(|path| {
        let fill = if path == paths[0] { b'1' } else { b'2' };
        std::fs::write(path, vec![fill; LONG * BLOCKS as usize]).unwrap();
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
    });
    let context = Context::new(8).expect("io_setup");
    let read_all = |fd: BorrowedFd<'_>, fill: u8| {
        for block in 0..BLOCKS {
            let read = Request::read(fd, LONG, block * LONG as u64);
            let done = context.run(vec![read]).remove(0);
            assert_eq!((done.res, done.request.bytes()), (LONG as i64, &[fill; LONG][..]));
        }
    };
    read_all(one.as_fd(), b'1');
    let replaced = replace(one.into_raw_fd(), "dup2", paths[1], &other);
    // SAFETY: `replace` returned it, and it is open until the end of the process.
    read_all(unsafe { BorrowedFd::borrow_raw(replaced) }, b'2');
}

/// When an fsync has completed, the bytes of the writes submitted before it are on the device.
fn fsync_covers_earlier_writes(path: &Path, image: &Path) {
    const WIDE: usize = 64 << 10;
    let (file, image) = (open(path), File::open(image).unwrap());
    let context = Context::new(64).expect("io_setup");
    for round in 1..=20u8 {
        let fd = file.as_fd();
        let write = |at: usize| Request::write(fd, &vec![round; WIDE], (at * WIDE) as u64);
        let mut requests: Vec<Request> = (0..16).map(write).collect();
        requests.push(Request::fsync(fd));
        assert_eq!(context.submit(requests), 17);
        let mut left = 17;
        let mut synced = false;
        while !synced {
            let done = context.reap(1, 17, None).unwrap();
            assert!(done.iter().all(|done| done.res >= 0), "round {round}: {done:?}");
            left -= done.len();
            synced = done.iter().any(|done| done.tag == 16);
        }
        let below = blocks::read_below(&file, &image, (16 * WIDE) as u64)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(below.iter().all(|byte| *byte == round), "round {round}: old bytes below");
        context.reap_all(left);
    }
}

/// When the program has reaped all requests and closed its file, it can unmount the file system at
/// once.
fn umount_is_not_busy(folder: &str, device: &str) {
    let context = Context::new(32).expect("io_setup");
    for round in 0..20 {
        let path = Path::new(folder).join("file");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
            .unwrap();
        let fd = file.as_fd();
        let write = |at: u64| Request::write(fd, &[7; BLOCK], at * BLOCK as u64);
        context.run((0..16).map(write).collect());
        drop_pages(&file);
        let read = |at: u64| Request::read(fd, BLOCK, at * BLOCK as u64);
        context.run((0..16).map(read).collect());
        drop(file);
        std::fs::remove_file(&path).unwrap();
        remount(folder, device).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    std::io::stdout().write_all(b"never busy\n").unwrap();
}

fn remount(folder: &str, device: &str) -> Result<(), Error> {
    let text = |it: &str| std::ffi::CString::new(it).unwrap();
    let (folder, device, kind) = (text(folder), text(device), text("ext4"));
    let check = |rc| if rc == 0 { Ok(()) } else { Err(Error::last_os_error()) };
    // SAFETY: a live string.
    check(unsafe { libc::umount2(folder.as_ptr(), 0) })?;
    // SAFETY: live strings; ext4 takes no data.
    check(unsafe {
        libc::mount(device.as_ptr(), folder.as_ptr(), kind.as_ptr(), 0, std::ptr::null())
    })
}
