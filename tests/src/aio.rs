//! libaio as a program sees it: the calls and structures of libaio.h.
//!
//! The test programs link against the system's library, so that they are ordinary, unmodified
//! users of `libaio.so.1`.

use std::ffi::{c_int, c_long, c_void};

/// `io_context_t`.
pub type ContextPointer = *mut c_void;

/// `struct iocb` of linux/aio_abi.h (little-endian order of `aio_key` and `aio_rw_flags`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Iocb {
    /// The value that the event returns.
    pub data: u64,
    /// The field that the kernel sets at the submission.
    pub key: u32,
    /// `RWF_*`.
    pub rw_flags: u32,
    /// `IOCB_CMD_*`.
    pub opcode: i16,
    /// The priority, if the iocb has [`FLAG_IOPRIO`].
    pub reqprio: i16,
    /// The file descriptor.
    pub fd: i32,
    /// Address of the buffer or vector, or the poll mask.
    pub buffer: u64,
    /// Number of bytes, or of the vector's segments.
    pub bytes: u64,
    /// Offset in the file.
    pub offset: i64,
    /// Must be 0.
    pub reserved: u64,
    /// `IOCB_FLAG_*`.
    pub flags: u32,
    /// The eventfd, if the iocb has [`FLAG_RESFD`].
    pub eventfd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// The value `data` of the iocb.
    pub data: u64,
    /// Address of the iocb.
    pub iocb: u64,
    /// Number of bytes, poll mask, or negative errno.
    pub res: i64,
    /// The second result: 0.
    pub res2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32);

/// `IOCB_CMD_PREAD`.
pub const PREAD: i16 = 0;
/// `IOCB_CMD_PWRITE`.
pub const PWRITE: i16 = 1;
/// `IOCB_CMD_FSYNC`.
pub const FSYNC: i16 = 2;
/// `IOCB_CMD_FDSYNC`.
pub const FDSYNC: i16 = 3;
/// `IOCB_CMD_POLL`.
pub const POLL: i16 = 5;
/// `IOCB_CMD_PREADV`.
pub const PREADV: i16 = 7;
/// `IOCB_CMD_PWRITEV`.
pub const PWRITEV: i16 = 8;
/// `IOCB_FLAG_RESFD`.
pub const FLAG_RESFD: u32 = 1;
/// `IOCB_FLAG_IOPRIO`.
pub const FLAG_IOPRIO: u32 = 2;
/// `RWF_NOWAIT`.
pub const RWF_NOWAIT: u32 = 0x8;
/// `RWF_APPEND`.
pub const RWF_APPEND: u32 = 0x10;
/// `RWF_NOAPPEND`.
pub const RWF_NOAPPEND: u32 = 0x20;

#[link(name = "aio")]
unsafe extern "C" {
    /// libaio's `io_setup`.
    pub fn io_setup(max: c_int, context: *mut ContextPointer) -> c_int;
    /// libaio's `io_destroy`.
    pub fn io_destroy(context: ContextPointer) -> c_int;
    /// libaio's `io_submit`.
    pub fn io_submit(context: ContextPointer, nr: c_long, iocbs: *const *mut Iocb) -> c_int;
    /// libaio's `io_cancel`.
    pub fn io_cancel(context: ContextPointer, iocb: *mut Iocb, event: *mut Event) -> c_int;
    /// libaio's `io_getevents`.
    pub fn io_getevents(
        context: ContextPointer,
        min: c_long,
        nr: c_long,
        events: *mut Event,
        timeout: *const libc::timespec,
    ) -> c_int;
    /// libaio's `io_pgetevents`.
    pub fn io_pgetevents(
        context: ContextPointer,
        min: c_long,
        nr: c_long,
        events: *mut Event,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int;
    /// libaio's `io_queue_init`.
    pub fn io_queue_init(max: c_int, context: *mut ContextPointer) -> c_int;
}
