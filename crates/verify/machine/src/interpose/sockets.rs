//! The functions by which std moves bytes of files and sockets. Outside a machine, each makes its
//! system call in the real kernel.

use super::syscall;
use core::ffi::{c_int, c_ulong, c_void};

macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $call:ident;)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            let passed = [$($arg as usize),*];
            let mut args = [0; 6];
            args[..passed.len()].copy_from_slice(&passed);
            let [a, b, c, d, e, f] = args;
            // SAFETY: promised by the caller.
            unsafe { syscall(libc::$call, a, b, c, d, e, f) as $result }
        }
    )+};
}

calls! {
    socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int
        = SYS_socketpair;
    shutdown(number: c_int, how: c_int) -> c_int = SYS_shutdown;
    ioctl(number: c_int, request: c_ulong, argument: usize) -> c_int = SYS_ioctl;
    read(number: c_int, bytes: *mut c_void, len: usize) -> isize = SYS_read;
    write(number: c_int, bytes: *const c_void, len: usize) -> isize = SYS_write;
    readv(number: c_int, parts: *const libc::iovec, count: c_int) -> isize = SYS_readv;
    writev(number: c_int, parts: *const libc::iovec, count: c_int) -> isize = SYS_writev;
    recv(number: c_int, bytes: *mut c_void, len: usize, flags: c_int) -> isize = SYS_recvfrom;
    send(number: c_int, bytes: *const c_void, len: usize, flags: c_int) -> isize = SYS_sendto;
    sendmsg(number: c_int, message: *const libc::msghdr, flags: c_int) -> isize = SYS_sendmsg;
}
