//! The rows. Most change a descriptor number or its open file, and make requests before and after.

use std::ffi::CString;
use std::io::Error;
use std::os::fd::RawFd;

use nowait_tests::request::Request;

use crate::passing;
use crate::stage::{BLOCK, LARGE, Stage, borrow};

type Row = (String, Box<dyn Fn(&mut Stage<'_>)>);

/// The ways in which a number gets another file. "raw" is a system call instruction of the program,
/// which no preload library sees.
const WAYS: [&str; 6] = ["close", "raw", "fclose", "close_range", "dup2", "dup3"];

pub(crate) fn all() -> Vec<Row> {
    let mut rows = vec![
        row("F_SETFL sets O_APPEND", sets_append),
        row("F_SETFL clears O_APPEND", clears_append),
        row("F_SETFL sets O_DIRECT", |stage| changes_direct(stage, libc::O_DIRECT, 0)),
        row("F_SETFL clears O_DIRECT", |stage| changes_direct(stage, 0, libc::O_DIRECT)),
        row("F_SETFL sets O_NONBLOCK", sets_nonblock),
        row("F_SETFL clears O_NONBLOCK", clears_nonblock),
        row("dup", |stage| duplicated(stage, libc::F_DUPFD)),
        row("F_DUPFD_CLOEXEC", |stage| duplicated(stage, libc::F_DUPFD_CLOEXEC)),
        row("SCM_RIGHTS", received),
        row("reopened by /proc/self/fd", reopened),
        row("O_TMPFILE", unnamed),
        row("unlinked", unlinked),
        row("sealed memfd", sealed),
    ];
    for way in WAYS {
        rows.push(row(&format!("{way}, for another mode"), move |it| another_mode(it, way)));
        rows.push(row(&format!("{way}, to write the same"), move |it| same_to_write(it, way)));
        rows.push(row(&format!("{way}, for another file"), move |it| another_file(it, way)));
        rows.push(row(&format!("{way}, for an append"), move |it| for_append(it, way)));
        rows.push(row(&format!("{way}, for O_DSYNC"), move |it| for_dsync(it, way)));
    }
    for (name, open) in OTHERS {
        rows.push(row(&format!("close, for {name}"), move |it| for_other(it, "close", open)));
        rows.push(row(&format!("raw, for {name}"), move |it| for_other(it, "raw", open)));
        rows.push(row(&format!("a counter's number, for {name}"), move |it| counter(it, open)));
    }
    rows
}

fn row(name: &str, run: impl Fn(&mut Stage<'_>) + 'static) -> Row {
    (name.to_owned(), Box::new(run))
}

fn sets_append(stage: &mut Stage<'_>) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.write_before(fd);
    Stage::set_flags(fd, libc::O_APPEND, 0);
    stage.write(fd, b'+', LARGE, 0);
    stage.write(fd, b'*', BLOCK, 0);
}

fn clears_append(stage: &mut Stage<'_>) {
    let fd = stage.open("a", libc::O_RDWR | libc::O_APPEND);
    stage.write_before(fd);
    Stage::set_flags(fd, 0, libc::O_APPEND);
    stage.write(fd, b'+', LARGE, 0);
    stage.write(fd, b'*', BLOCK, 0);
}

fn changes_direct(stage: &mut Stage<'_>, set: i32, clear: i32) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.read_before(fd);
    stage.write_before(fd);
    Stage::set_flags(fd, set, clear);
    stage.read(fd, 2 * BLOCK, BLOCK as u64);
    stage.read(fd, 100, 10);
    stage.write(fd, b'+', BLOCK, 2 * BLOCK as u64);
    stage.write(fd, b'*', 100, 10);
    stage.write(fd, b'*', LARGE, 0);
    stage.read(fd, LARGE, 0);
}

fn sets_nonblock(stage: &mut Stage<'_>) {
    let [reader, writer] = socket_pair(stage);
    fill(writer, 4 * 3);
    for _ in 0..3 {
        stage.read(reader, 4, 0);
    }
    Stage::set_flags(reader, libc::O_NONBLOCK, 0);
    stage.read(reader, 4, 0);
}

fn clears_nonblock(stage: &mut Stage<'_>) {
    let [reader, writer] = socket_pair(stage);
    Stage::set_flags(reader, libc::O_NONBLOCK, 0);
    stage.read(reader, 4, 0);
    stage.read(reader, 4, 0);
    Stage::set_flags(reader, 0, libc::O_NONBLOCK);
    fill(writer, 4);
    stage.read(reader, 4, 0);
}

fn duplicated(stage: &mut Stage<'_>, command: i32) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.write_before(fd);
    // SAFETY: numbers only.
    let other = stage.keep(unsafe { libc::fcntl(fd, command, 100) });
    stage.write(other, b'+', BLOCK, 0);
    stage.read(fd, BLOCK, 0);
    // SAFETY: a number of this row.
    unsafe { libc::close(fd) };
    stage.read(fd, BLOCK, 0);
    stage.write(other, b'*', BLOCK, BLOCK as u64);
    stage.read(other, BLOCK, BLOCK as u64);
}

fn received(stage: &mut Stage<'_>) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.write_before(fd);
    let [near, far] = socket_pair(stage);
    passing::send(near, fd);
    // SAFETY: a number of this row.
    unsafe { libc::close(fd) };
    let other = stage.keep(passing::receive(far));
    stage.write(other, b'+', BLOCK, 0);
    stage.read(other, 2 * BLOCK, 0);
}

fn reopened(stage: &mut Stage<'_>) {
    let fd = stage.open("a", libc::O_RDONLY);
    stage.read_before(fd);
    let path = CString::new(format!("/proc/self/fd/{fd}")).expect("a path");
    let other = stage.open_at(&path, libc::O_WRONLY);
    stage.write(fd, b'-', BLOCK, 0);
    stage.write(other, b'+', BLOCK, 0);
    stage.read(other, BLOCK, 0);
    stage.read(fd, BLOCK, 0);
}

fn unnamed(stage: &mut Stage<'_>) {
    let Some(fd) = stage.open_unnamed() else { return };
    stage.write(fd, b'+', LARGE, 0);
    stage.read(fd, 2 * BLOCK, (LARGE - BLOCK) as u64);
    stage.note("fsync", Request::fsync(borrow(fd)));
}

fn unlinked(stage: &mut Stage<'_>) {
    let fd = stage.open("c", libc::O_RDWR | libc::O_CREAT);
    stage.write_before(fd);
    let path = stage.path("c");
    // SAFETY: a live string.
    unsafe { libc::unlink(path.as_ptr()) };
    stage.write(fd, b'+', BLOCK, BLOCK as u64);
    stage.read(fd, 3 * BLOCK, 0);
}

fn sealed(stage: &mut Stage<'_>) {
    // SAFETY: a live string.
    let fd = unsafe { libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING) };
    let fd = stage.keep(fd);
    stage.write(fd, b'+', 4 * BLOCK, 0);
    stage.write_before(fd);
    seal(fd, libc::F_SEAL_GROW);
    stage.write(fd, b'*', BLOCK, 4 * BLOCK as u64);
    stage.write(fd, b'*', 2 * BLOCK, 3 * BLOCK as u64);
    stage.write(fd, b'*', BLOCK, 0);
    seal(fd, libc::F_SEAL_WRITE);
    stage.write(fd, b'-', BLOCK, 0);
    stage.read(fd, BLOCK, 0);
}

fn seal(fd: RawFd, seals: i32) {
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }, 0);
}

fn another_mode(stage: &mut Stage<'_>, way: &str) {
    let fd = stage.open("a", libc::O_RDONLY);
    stage.read_before(fd);
    let path = stage.path("b");
    let mode = stage.mode;
    replace(stage, fd, way, move |it| it.open_at(&path, libc::O_WRONLY | mode));
    stage.read(fd, BLOCK, 0);
    stage.write(fd, b'+', BLOCK, 0);
    let fd = stage.open("a", libc::O_WRONLY);
    stage.write_before(fd);
    let path = stage.path("b");
    replace(stage, fd, way, move |it| it.open_at(&path, libc::O_RDONLY | mode));
    stage.write(fd, b'-', BLOCK, 0);
    stage.read(fd, BLOCK, 0);
}

fn same_to_write(stage: &mut Stage<'_>, way: &str) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.read_before(fd);
    replace(stage, fd, way, |it| it.open("a", libc::O_WRONLY));
    stage.read(fd, BLOCK, 0);
    stage.write(fd, b'+', BLOCK, 0);
}

fn another_file(stage: &mut Stage<'_>, way: &str) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.read_before(fd);
    stage.write_before(fd);
    replace(stage, fd, way, |it| it.open("b", libc::O_RDWR));
    stage.read(fd, BLOCK, 0);
    stage.write(fd, b'+', LARGE, BLOCK as u64);
    stage.read(fd, BLOCK, BLOCK as u64);
}

fn for_append(stage: &mut Stage<'_>, way: &str) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.write_before(fd);
    replace(stage, fd, way, |it| it.open("b", libc::O_RDWR | libc::O_APPEND));
    stage.write(fd, b'+', LARGE, 0);
    stage.read(fd, BLOCK, 0);
}

fn for_dsync(stage: &mut Stage<'_>, way: &str) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.write_before(fd);
    replace(stage, fd, way, |it| it.open("b", libc::O_RDWR | libc::O_DSYNC));
    stage.write(fd, b'+', BLOCK, 0);
    stage.read(fd, BLOCK, 0);
}

type Open = fn(&mut Stage<'_>) -> RawFd;

/// Replacements for a descriptor that refer to no regular file open for reads or writes.
const OTHERS: [(&str, Open); 9] = [
    ("nothing", |_| -1),
    ("a folder", |it| it.open_at(&CString::from(c"/"), libc::O_RDONLY | libc::O_DIRECTORY)),
    ("a name (O_PATH)", |it| {
        let path = it.path("b");
        it.open_at(&path, libc::O_PATH)
    }),
    ("a pipe", |it| {
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        fill(ends[1], 4);
        it.keep(ends[1]);
        it.keep(ends[0])
    }),
    ("a socket", |it| {
        let [one, other] = socket_pair(it);
        fill(other, 4);
        one
    }),
    ("an event counter", |it| {
        // SAFETY: numbers only.
        it.keep(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
    }),
    ("a timer", |it| {
        // SAFETY: numbers only.
        it.keep(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK) })
    }),
    ("an epoll set", |it| {
        // SAFETY: numbers only.
        it.keep(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
    }),
    ("/dev/null", |it| it.open_at(&CString::from(c"/dev/null"), libc::O_RDWR)),
];

fn for_other(stage: &mut Stage<'_>, way: &str, open: Open) {
    let fd = stage.open("a", libc::O_RDWR);
    stage.read_before(fd);
    replace(stage, fd, way, open);
    stage.read(fd, BLOCK, 0);
    let fd = stage.open("a", libc::O_RDWR);
    stage.write_before(fd);
    replace(stage, fd, way, open);
    stage.write(fd, b'-', 8, 0);
}

fn counter(stage: &mut Stage<'_>, open: Open) {
    // SAFETY: numbers only.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let fd = stage.keep(fd);
    let file = stage.open("a", libc::O_RDWR);
    let read = || Request::read(borrow(file), BLOCK, 0).eventfd(borrow(fd));
    stage.note("told", read());
    stage.note("told", read());
    replace(stage, fd, "close", open);
    stage.note("told", read());
}

/// Closes `fd` by `way`, and gives its number to the file that `open` opens. If `open` returns -1,
/// the number stays closed.
fn replace(
    stage: &mut Stage<'_>,
    fd: RawFd,
    way: &str,
    open: impl FnOnce(&mut Stage<'_>) -> RawFd,
) {
    let new = open(stage);
    // SAFETY: `fd` is a number of this row, closed here; the others are only duplicated.
    unsafe {
        let rc = match way {
            "close" => libc::close(fd),
            "raw" => raw_close(fd),
            "fclose" => libc::fclose(libc::fdopen(fd, c"r".as_ptr()).or_writable(fd)),
            "close_range" => libc::close_range(fd as u32, fd as u32, 0),
            "dup2" if new >= 0 => libc::dup2(new, fd),
            "dup3" if new >= 0 => libc::dup3(new, fd, libc::O_CLOEXEC),
            other => panic!("unknown way {other}"),
        };
        assert!(rc >= 0, "{way}: {}", Error::last_os_error());
        if new >= 0 && !way.starts_with("dup") {
            // F_DUPFD_CLOEXEC returns the lowest free number from `fd` on, which is `fd` itself.
            assert_eq!(libc::fcntl(new, libc::F_DUPFD_CLOEXEC, fd), fd);
        }
    }
}

trait OrWritable {
    fn or_writable(self, fd: RawFd) -> *mut libc::FILE;
}

impl OrWritable for *mut libc::FILE {
    /// Returns the stream. If it is null, because the file cannot be read, returns a stream for
    /// writing.
    fn or_writable(self, fd: RawFd) -> *mut libc::FILE {
        if !self.is_null() {
            return self;
        }
        // SAFETY: a live string.
        unsafe { libc::fdopen(fd, c"w".as_ptr()) }
    }
}

/// Calls close(2) by the system call instruction itself.
#[cfg(target_arch = "x86_64")]
fn raw_close(fd: RawFd) -> i32 {
    let rc: i64;
    // SAFETY: the system call takes a number, and changes no memory of the program.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_close => rc,
            in("rdi") i64::from(fd),
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    rc as i32
}

#[cfg(target_arch = "aarch64")]
fn raw_close(fd: RawFd) -> i32 {
    let rc: i64;
    // SAFETY: the system call takes a number, and changes no memory of the program.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_close,
            inlateout("x0") i64::from(fd) => rc,
        );
    }
    rc as i32
}

fn socket_pair(stage: &mut Stage<'_>) -> [RawFd; 2] {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    ends.map(|fd| stage.keep(fd))
}

fn fill(fd: RawFd, len: usize) {
    let bytes = vec![b'.'; len];
    // SAFETY: live bytes.
    assert_eq!(unsafe { libc::write(fd, bytes.as_ptr().cast(), len) }, len as isize);
}
