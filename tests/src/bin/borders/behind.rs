//! A signal that arrives just before execve(2), after the library has looked for submitted requests
//! for the last time. A seccomp filter raises the signal at the system call.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::SeqCst};

use libc::{sock_filter, sock_fprog};
use nowait_tests::aio;

use crate::rounds::{BLOCKS, in_child, setup};

/// Too many bytes to be written inside io_submit, or during execve(2).
const LEN: usize = 32 << 20;

static CONTEXT: AtomicPtr<libc::c_void> = AtomicPtr::new(null_mut());
static BYTES: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static FD: AtomicI32 = AtomicI32::new(-1);
static ENVIRONMENT: [usize; 1] = [0];

/// Submits a write, and makes the program repeat execve(2) with an environment, which the filter
/// allows.
extern "C" fn submits(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let mut write = aio::Iocb {
        opcode: aio::PWRITE,
        fd: FD.load(SeqCst),
        buffer: BYTES.load(SeqCst) as u64,
        bytes: LEN as u64,
        ..aio::Iocb::default()
    };
    let iocbs = [&raw mut write];
    // SAFETY: the call reads the iocb; the bytes live to the end of the process.
    unsafe { aio::io_submit(CONTEXT.load(SeqCst).cast(), 1, iocbs.as_ptr()) };
    // SAFETY: the kernel's memory, valid while the handler runs.
    let machine = unsafe { &mut (*context).uc_mcontext };
    let environment = ENVIRONMENT.as_ptr() as usize;
    #[cfg(target_arch = "x86_64")]
    {
        machine.gregs[libc::REG_RAX as usize] = libc::SYS_execve;
        machine.gregs[libc::REG_RDX as usize] = environment as i64;
        machine.gregs[libc::REG_RIP as usize] -= 2;
    }
    #[cfg(target_arch = "aarch64")]
    {
        machine.regs[2] = environment as u64;
        machine.pc -= 4;
    }
}

/// Installs a filter that raises SIGSYS for an execve(2) whose environment is null.
fn trap_exec() {
    const NUMBER_AT: u32 = 0;
    const THIRD_AT: u32 = 32;
    let step = |code: u32, k, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    let (load, answer) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_RET);
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut filter = [
        step(load, NUMBER_AT, 0, 0),
        step(equal, libc::SYS_execve as u32, 0, 3),
        step(load, THIRD_AT, 0, 0),
        step(equal, 0, 0, 1),
        step(answer, libc::SECCOMP_RET_TRAP, 0, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers; the filter is a live local that is only read.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

pub(crate) fn a_handler_comes_right_before_exec(folder: &Path) {
    let path = folder.join("file");
    let file = File::create(&path).unwrap();
    let mut bytes = vec![7u8; LEN];
    BYTES.store(bytes.as_mut_ptr(), SeqCst);
    FD.store(file.as_raw_fd(), SeqCst);
    let status = in_child("exec", || {
        CONTEXT.store(setup(BLOCKS as i32).cast(), SeqCst);
        // SAFETY: an all-zero sigaction is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = submits as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: a live sigaction, whose handler makes async-signal-safe calls.
        assert_eq!(unsafe { libc::sigaction(libc::SIGSYS, &raw const action, null_mut()) }, 0);
        trap_exec();
        let program = c"/bin/true".as_ptr();
        let arguments = [program, null()];
        // SAFETY: terminated paths and lists.
        unsafe { libc::execve(program, arguments.as_ptr(), null()) };
    });
    assert_eq!(status, 0, "exec");
    assert_eq!(std::fs::metadata(path).unwrap().len(), LEN as u64, "what the handler submitted");
}
