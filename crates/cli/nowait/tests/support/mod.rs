//! A child with a seccomp filter of its own, and a folder with dummy libraries.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

#[allow(dead_code)]
pub(crate) const URING: &[i64] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

#[allow(dead_code)]
pub(crate) const KAIO: &[i64] = &[
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
];

#[allow(dead_code)]
pub(crate) fn nowait<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NOWAIT_") || name == "LD_PRELOAD" {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

pub(crate) fn outcome(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

/// Links both libraries in `dir` to libc, a real library that loads and does nothing of nowait's.
#[allow(dead_code)]
pub(crate) fn libraries(dir: &Path) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("a libc");
    for name in ["libnowait_preload.so", "libaio.so.1"] {
        std::os::unix::fs::symlink(libc, dir.join(name)).expect("a link");
    }
}

#[allow(dead_code)]
pub(crate) fn refuse(command: &mut Command, calls: &[i64], errno: i32) {
    let program = filter(calls, errno);
    // SAFETY: between fork and exec the closure makes two system calls on memory that was prepared
    // before; it neither allocates nor locks.
    unsafe { command.pre_exec(move || install(&program)) };
}

/// The filter ignores the architecture: these tests make no foreign calls.
fn filter(calls: &[i64], errno: i32) -> Vec<sock_filter> {
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![statement(BPF_LD | BPF_W | BPF_ABS, 0)];
    for (index, call) in calls.iter().enumerate() {
        let jt = (calls.len() - index) as u8;
        let code = (BPF_JMP | BPF_JEQ | BPF_K) as u16;
        program.push(sock_filter { code, jt, jf: 0, k: *call as u32 });
    }
    program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW));
    program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32));
    program
}

fn install(program: &[sock_filter]) -> io::Result<()> {
    let program = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the arguments are numbers; the kernel reads no memory of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` and the array to which it points live until the call returns, and the call
    // copies them.
    let rc = unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
