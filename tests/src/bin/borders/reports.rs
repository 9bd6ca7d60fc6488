//! The end of a process whose report goes to a FIFO. The process cannot end before the test opens
//! the FIFO.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::SeqCst};

use nowait_tests::aio;

use crate::handlers::install;
use crate::rounds::{BLOCKS, setup};

static CONTEXT: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
static FD: AtomicI32 = AtomicI32::new(-1);
static BYTES: [u8; 4] = *b"some";

extern "C" fn submits(_signal: i32) {
    let mut write = aio::Iocb {
        opcode: aio::PWRITE,
        fd: FD.load(SeqCst),
        buffer: BYTES.as_ptr() as u64,
        bytes: BYTES.len() as u64,
        ..aio::Iocb::default()
    };
    let iocbs = [&raw mut write];
    // SAFETY: the call reads the iocb; the bytes are a static that is never written.
    unsafe { aio::io_submit(CONTEXT.load(SeqCst).cast(), 1, iocbs.as_ptr()) };
}

/// Calls `_exit`, in two threads if `both`. Without `both`, the test sends SIGUSR1 during `_exit`;
/// the handler of SIGUSR1 would submit again.
pub(crate) fn the_process_ends(folder: &Path, both: bool) {
    let file = File::create(folder.join("file")).unwrap();
    FD.store(file.as_raw_fd(), SeqCst);
    CONTEXT.store(setup(BLOCKS as i32).cast(), SeqCst);
    install(libc::SIGUSR1, submits, 0);
    submits(0);
    File::create(folder.join("leaves")).unwrap();
    std::thread::scope(|scope| {
        if both {
            scope.spawn(|| {
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            });
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    });
}
