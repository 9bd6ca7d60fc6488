//! A program that installs a seccomp filter on itself and continues to use AIO: `confines-itself
//! before|after seccomp|prctl all|some FILE`
//!
//! The filter makes the kernel kill the process at system calls that the program itself does not
//! make. `some` are calls such as those that QEMU's `-sandbox` forbids; `all` adds io_uring.

use std::fs::OpenOptions;
use std::io::Error;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libc::{c_long, sock_filter, sock_fprog};
use nowait_tests::request::{Context, Request};

const BLOCK: usize = 4096;
const BEST_EFFORT_7: u16 = 2 << 13 | 7;
const SOME: &[c_long] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_execve,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_setpriority,
    libc::SYS_setuid,
    libc::SYS_setresuid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_close_range,
    libc::SYS_ioprio_set,
];
const RINGS: &[c_long] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [moment, way, what, path] = &args[..] else { panic!("four arguments, not {args:?}") };
    let killing = if what == "all" { [SOME, RINGS].concat() } else { SOME.to_vec() };
    if moment == "before" {
        confine(way, &killing);
    }
    let context = Context::new(64).expect("io_setup");
    use_both_caches(&context, Path::new(path));
    if moment == "after" {
        confine_meanwhile(&context, Path::new(path), || confine(way, &killing));
        use_both_caches(&context, Path::new(path));
        let other = Context::new(64).expect("another io_setup");
        use_both_caches(&other, Path::new(path));
    }
}

/// Submits 32 writes in one call, and 32 reads in another, so that the library may use several
/// threads.
fn use_both_caches(context: &Context, path: &Path) {
    for flags in [0, libc::O_DIRECT] {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.custom_flags(flags).open(path).expect("the file");
        let at = |index: u64| index * BLOCK as u64;
        let bytes = |index: u64| [index as u8 + 1; BLOCK];
        let write = |index| Request::write(file.as_fd(), &bytes(index), at(index));
        let written = context.run((0..32).map(write).collect());
        assert!(written.iter().all(|done| done.res == BLOCK as i64), "writes");
        let write = |index| write(index).priority(BEST_EFFORT_7);
        let written = context.run((0..32).map(write).collect());
        assert!(written.iter().all(|done| done.res == BLOCK as i64), "writes with a priority");
        let synced = context.run(vec![Request::fsync(file.as_fd())]);
        assert_eq!(synced[0].res, 0, "fsync");
        let read = |index| Request::read(file.as_fd(), BLOCK, at(index));
        for (index, done) in context.run((0..32).map(read).collect()).iter().enumerate() {
            assert_eq!(done.res, BLOCK as i64, "read {index}");
            assert_eq!(done.request.bytes(), bytes(index as u64), "read {index}");
        }
    }
}

fn confine_meanwhile(context: &Context, path: &Path, confine: impl FnOnce()) {
    const WRITES: u64 = 60;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(path).expect("the file");
    let write = |index| Request::write(file.as_fd(), &[7; BLOCK], index * BLOCK as u64);
    assert_eq!(context.submit((0..WRITES).map(write).collect()), WRITES as i32);
    confine();
    let written = context.reap_all(WRITES as usize);
    assert!(written.iter().all(|done| done.res == BLOCK as i64), "writes in flight");
}

/// Installs the filter on all threads (`seccomp`), or on this thread and threads that it starts
/// later (`prctl`).
fn confine(way: &str, killing: &[c_long]) {
    let step = |code, operand, jt, jf| sock_filter { code, jt, jf, k: operand };
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let mut filter = vec![step((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0)];
    for call in killing {
        filter.push(step(equal, *call as u32, 0, 1));
        filter.push(step(answer, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    }
    filter.push(step(answer, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // An unprivileged process must set this before it installs a filter. SAFETY: plain numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let (mode, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program and the filter that it names are live, and only read during the call.
    let rc = unsafe {
        match way {
            "seccomp" => libc::syscall(libc::SYS_seccomp, mode, all, &raw const program),
            "prctl" => c_long::from(libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )),
            other => panic!("unknown way {other}"),
        }
    };
    assert_eq!(rc, 0, "{}", Error::last_os_error());
}
