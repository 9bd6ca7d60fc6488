//! The system calls that the engine needs; the real kernel provides memory.
#![allow(clippy::unnecessary_wraps)] // one type for all calls

mod aio;
mod descriptor;
mod device;
mod event;
mod file;
mod futex;
mod socket;
mod uring;

use crate::{
    schedule::{Cpu, Machine},
    signals::SigInfo,
};
use aio::Contexts;
use descriptor::Descriptors;
use device::Transfers;
use event::Sets;
use file::Files;
use nowait_sys::raw;
use socket::Sockets;
use uring::Rings;

#[derive(Default)]
pub(crate) struct Kernel {
    descriptors: Descriptors,
    files: Files,
    transfers: Transfers,
    contexts: Contexts,
    sets: Sets,
    rings: Rings,
    sockets: Sockets,
}

/// The result of a system call; an error is a positive errno.
type Answer = Result<usize, i32>;

/// # Safety
/// The arguments are valid for the call.
pub(crate) unsafe fn answer(machine: &Machine, id: usize, nr: i64, args: [usize; 6]) -> isize {
    let call = find(nr).filter(|_| !futex::looks_at_memory(nr, args));
    let Some((name, call)) = call else {
        let known = of_memory_or_identity(nr) || nr == libc::SYS_futex;
        assert!(known, "system call {nr} is not simulated");
        // SAFETY: promised by the caller.
        return unsafe { raw::kernel6(nr, args) };
    };
    machine.call(id, name, |cpu| {
        // SAFETY: promised by the caller.
        let answer = unsafe { call(cpu, args) };
        // Addresses and process numbers differ between runs, so the trace omits them.
        let names_process = nr == libc::SYS_rt_sigqueueinfo || nr == libc::SYS_pidfd_open;
        let is_number = (args[0] as isize) < 1 << 20 && !names_process;
        let is_transfer = name.starts_with("pread") || name.starts_with("pwrite");
        cpu.note(|| match is_number {
            true if is_transfer => format!("{name}({}, at {}) = {answer:?}", args[0], args[3]),
            true => format!("{name}({}) = {answer:?}", args[0] as i32),
            false => format!("{name} = {answer:?}"),
        });
        answer.map_or_else(|errno| -(errno as isize), |value| value as isize)
    })
}

type Call = unsafe fn(&mut Cpu<'_>, [usize; 6]) -> Answer;

fn find(nr: i64) -> Option<(&'static str, Call)> {
    if nr == nowait_sys::announce::CACHESTAT {
        return Some(("cachestat", file::cachestat));
    }
    macro_rules! calls {
        ($($number:ident $name:literal => $call:path,)+) => {
            match nr { $(libc::$number => Some(($name, $call as Call)),)+ _ => None }
        };
    }
    calls! {
        SYS_futex "futex" => futex::futex,
        SYS_close "close" => descriptor::close,
        SYS_dup3 "dup3" => descriptor::dup3,
        SYS_close_range "close_range" => descriptor::close_range,
        SYS_unshare "unshare" => descriptor::unshare,
        SYS_fcntl "fcntl" => descriptor::fcntl,
        SYS_socketpair "socketpair" => descriptor::socketpair,
        SYS_sendmsg "sendmsg" => descriptor::sendmsg,
        SYS_recvmsg "recvmsg" => descriptor::recvmsg,
        SYS_recvfrom "recvfrom" => socket::recvfrom,
        SYS_sendto "sendto" => socket::sendto,
        SYS_shutdown "shutdown" => socket::shutdown,
        SYS_ioctl "ioctl" => socket::ioctl,
        SYS_pipe2 "pipe2" => event::pipe2,
        SYS_eventfd2 "eventfd2" => event::eventfd2,
        SYS_ppoll "ppoll" => event::ppoll,
        SYS_epoll_create1 "epoll_create1" => event::epoll_create1,
        SYS_epoll_ctl "epoll_ctl" => event::epoll_ctl,
        SYS_epoll_pwait "epoll_pwait" => event::epoll_pwait,
        SYS_openat "openat" => file::openat,
        SYS_memfd_create "memfd_create" => file::memfd_create,
        SYS_statx "statx" => file::statx,
        SYS_fstat "fstat" => file::fstat,
        SYS_fstatfs "fstatfs" => file::fstatfs,
        SYS_ftruncate "ftruncate" => file::ftruncate,
        SYS_fallocate "fallocate" => file::fallocate,
        SYS_lseek "lseek" => file::lseek,
        SYS_fadvise64 "fadvise64" => file::fadvise,
        SYS_sync_file_range "sync_file_range" => file::sync_file_range,
        SYS_fsync "fsync" => file::fsync,
        SYS_fdatasync "fdatasync" => file::fsync,
        SYS_read "read" => file::read,
        SYS_write "write" => file::write,
        SYS_readv "readv" => file::readv,
        SYS_writev "writev" => file::writev,
        SYS_pread64 "pread64" => file::pread,
        SYS_pwrite64 "pwrite64" => file::pwrite,
        SYS_preadv "preadv" => file::preadv,
        SYS_pwritev "pwritev" => file::pwritev,
        SYS_preadv2 "preadv2" => file::preadv2,
        SYS_pwritev2 "pwritev2" => file::pwritev2,
        SYS_io_setup "io_setup" => aio::setup,
        SYS_io_submit "io_submit" => aio::submit,
        SYS_io_getevents "io_getevents" => aio::getevents,
        SYS_io_cancel "io_cancel" => aio::cancel,
        SYS_io_destroy "io_destroy" => aio::destroy,
        SYS_io_uring_setup "io_uring_setup" => uring::setup,
        SYS_io_uring_enter "io_uring_enter" => uring::enter,
        SYS_io_uring_register "io_uring_register" => uring::register,
        SYS_rt_sigqueueinfo "rt_sigqueueinfo" => sigqueueinfo,
        SYS_pidfd_open "pidfd_open" => descriptor::pidfd_open,
        SYS_pidfd_getfd "pidfd_getfd" => descriptor::pidfd_getfd,
        SYS_ioprio_set "ioprio_set" => no_change,
        SYS_getrusage "getrusage" => getrusage,
    }
}

/// Has no effect: devices serve all requests alike.
unsafe fn no_change(_: &mut Cpu<'_>, _: [usize; 6]) -> Answer {
    Ok(0)
}

/// Fills in one field: how often the thread has slept.
unsafe fn getrusage(cpu: &mut Cpu<'_>, [_, usage, ..]: [usize; 6]) -> Answer {
    // SAFETY: room for one, given by the caller.
    unsafe { (*(usage as *mut libc::rusage)).ru_nvcsw = cpu.sleeps() };
    Ok(0)
}

unsafe fn sigqueueinfo(cpu: &mut Cpu<'_>, [_, _, info, ..]: [usize; 6]) -> Answer {
    // SAFETY: a siginfo_t, as the caller has promised.
    cpu.send_signal(unsafe { (info as *const SigInfo).read() });
    Ok(0)
}

/// Returns `true` for a call that the real kernel answers.
fn of_memory_or_identity(nr: i64) -> bool {
    const CALLS: &[i64] = &[
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_membarrier,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigpending,
        libc::SYS_sched_setattr,
        libc::SYS_sched_getattr,
        libc::SYS_prctl,
        libc::SYS_prlimit64,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_getgroups,
        libc::SYS_setgroups,
        libc::SYS_capget,
        libc::SYS_capset,
        libc::SYS_ioprio_get,
        libc::SYS_tgkill,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_getrandom,
    ];
    CALLS.contains(&nr)
}
