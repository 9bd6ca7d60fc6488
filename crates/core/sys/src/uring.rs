//! One io_uring: set up, filled, entered, reaped.

use crate::{
    Errno,
    confined::{self, Extra},
    fd,
    file::IoVec,
    inside, sys,
    time::Deadline,
};
use io_uring::IoUring;
use std::os::fd::AsRawFd;

pub use io_uring::{opcode, squeue::Entry, types};

/// A completion of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The value that was given with the submission.
    pub user_data: u64,
    /// Bytes or value, or negative errno.
    pub result: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

/// An io_uring instance with its queues mapped.
pub struct Ring {
    inner: IoUring,
}

/// The threads that may enter a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// Any thread enters the ring. The kernel interrupts the submitting thread, wherever it is, to
    /// process completions.
    Any,
    /// Any thread enters the ring, mostly the one that also takes the completions. The kernel does
    /// not interrupt the submitting thread. The kernel processes completions at that thread's next
    /// system call, or at the tick of its processor, which not all processors have
    /// (IORING_SETUP_COOP_TASKRUN; nohz_full). Another thread that takes completions has to wait
    /// for that call or tick.
    InTurn,
    /// Only the thread that created the ring enters it. The kernel processes completions when that
    /// thread enters.
    Single,
}

/// The most kernel threads (io-wq) that wait for files on behalf of a ring, each for one request.
const BLOCKED_MAX: u32 = 128;

impl Ring {
    /// Creates a ring with room for `entries` submissions and four times as many completions. If
    /// the kernel does not know the flags that `issuer` needs, the ring is as for [`Issuer::Any`].
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM`: refused by kernel, sysctl or seccomp. `ENOMEM`: RLIMIT_MEMLOCK.
    /// Source: io_uring_setup(2).
    pub fn new(entries: u32, issuer: Issuer) -> Result<Ring, Errno> {
        confined::check(Extra::Rings)?;
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(entries * 4);
        match issuer {
            Issuer::Any => &mut builder,
            Issuer::InTurn => builder.setup_coop_taskrun().setup_taskrun_flag(),
            Issuer::Single => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag()
            }
        };
        match builder.build(entries) {
            Ok(inner) => {
                // With few processors the kernel's default is smaller: a file system that hangs
                // would occupy all of these threads. Before Linux 5.15 there is no such call.
                let _ = inner.submitter().register_iowq_max_workers(&mut [BLOCKED_MAX, 0]);
                Ok(Ring { inner })
            }
            Err(error) => match Errno::from(error) {
                // Kernels before 6.1 do not know the flags of a single issuer; kernels before 5.19
                // know none of the flags.
                Errno::INVAL if issuer != Issuer::Any => Ring::new(entries, Issuer::Any),
                errno => Err(errno),
            },
        }
    }

    /// Moves the descriptor to a high number, see [`fd::Fd::moved_high`].
    #[must_use]
    pub fn moved_high(self) -> Ring {
        let low = fd::Fd::from_raw(self.inner.as_raw_fd());
        let duplicate = fd::duplicate_high(low.raw());
        let _ = low.into_raw(); // still owned by `inner`
        let params = self.inner.params().clone();
        // SAFETY: `high` is a descriptor of the very ring that `params` describes.
        let second = |high: &fd::Fd| unsafe { IoUring::from_fd(high.raw(), params) }.ok();
        if let Ok(high) = duplicate
            && let Some(inner) = second(&high)
        {
            let _ = high.into_raw(); // owned by the new `inner`
            return Ring { inner };
        }
        fd::is_ours(self.inner.as_raw_fd());
        self
    }

    /// Returns the number of completions that the completion queue holds. The kernel keeps further
    /// completions until a thread calls [`Ring::enter`] with `submit` = 0 or `min` > 0.
    pub fn completions_max(&self) -> usize {
        self.inner.params().cq_entries() as usize
    }

    /// Returns the descriptor, which the ring still owns.
    pub fn raw_fd(&self) -> i32 {
        self.inner.as_raw_fd()
    }

    /// Puts an entry into the submission queue. Returns `false` if the queue is full.
    ///
    /// # Safety
    /// The caller holds the lock that guards the submission queue, and the memory the entry
    /// names lives until its completion.
    pub unsafe fn push(&self, entry: &Entry) -> bool {
        // SAFETY: exclusive access and the memory's life are promised above.
        unsafe { self.inner.submission_shared().push(entry).is_ok() }
    }

    /// Returns the number of entries that wait to be submitted.
    ///
    /// # Safety
    /// The caller holds the lock that guards the submission queue.
    pub unsafe fn pending(&self) -> usize {
        // SAFETY: exclusive access is promised above.
        unsafe { self.inner.submission_shared().len() }
    }

    /// Takes a completion without a system call.
    ///
    /// # Safety
    /// The caller holds the lock that guards the completion queue.
    pub unsafe fn pop(&self) -> Option<Completion> {
        // SAFETY: exclusive access is promised above.
        let entry = unsafe { self.inner.completion_shared().next() }?;
        Some(Completion {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        })
    }

    /// Returns `true` if the completion queue is not empty. Makes no system call.
    ///
    /// # Safety
    /// The caller holds the lock that guards the completion queue.
    pub unsafe fn has_completions(&self) -> bool {
        // SAFETY: exclusive access is promised above.
        !unsafe { self.inner.completion_shared().is_empty() }
    }

    /// Returns `true` if the kernel holds completions back until the issuer enters; always `false`
    /// with [`Issuer::Any`]. Makes no system call.
    ///
    /// # Safety
    /// The caller holds the lock that guards the submission queue.
    pub unsafe fn holds_back(&self) -> bool {
        // SAFETY: exclusive access is promised above.
        unsafe { self.inner.submission_shared().taskrun() }
    }

    /// Hands `submit` entries to the kernel and waits for `min` completions (0: none) or the
    /// deadline.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran, or has to run. `ETIME`: the deadline passed.
    /// `EBUSY`/`EAGAIN`: the kernel is short of resources; nothing was submitted. Source:
    /// io_uring_enter(2).
    pub fn enter(&self, submit: u32, min: u32, deadline: Deadline) -> Result<usize, Errno> {
        enter(self.inner.as_raw_fd(), submit, min, deadline)
    }

    /// Registers buffers, by their index in the list, and a file, as number 0.
    ///
    /// # Errors
    /// `ENOMEM`: RLIMIT_MEMLOCK. `EOPNOTSUPP`: the file cannot be registered.
    /// # Safety
    /// The memory stays mapped, in place, for the life of the ring.
    /// Source: io_uring_register(2), IORING_REGISTER_BUFFERS, IORING_REGISTER_FILES.
    pub unsafe fn register(&self, buffers: &[IoVec], file: i32) -> Result<(), Errno> {
        let raw: Vec<libc::iovec> = buffers
            .iter()
            .map(|part| libc::iovec { iov_base: part.base.cast(), iov_len: part.len })
            .collect();
        let submitter = self.inner.submitter();
        // SAFETY: the caller's promise.
        unsafe { submitter.register_buffers(&raw) }.map_err(Errno::from)?;
        submitter.register_files(&[file]).map_err(Errno::from)
    }

    /// Returns `true` if the kernel knows `opcode` (a `CODE` of [`opcode`]). Source:
    /// io_uring_register(2), IORING_REGISTER_PROBE.
    pub fn supports(&self, opcode: u8) -> bool {
        let mut probe = io_uring::Probe::new();
        self.inner.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode)
    }
}

pub(crate) fn enter(fd: i32, submit: u32, min: u32, deadline: Deadline) -> Result<usize, Errno> {
    /// `struct io_uring_getevents_arg`.
    #[repr(C)]
    struct Argument {
        sigmask: u64,
        sigmask_size: u32,
        pad: u32,
        timespec: u64,
    }
    const GETEVENTS: u32 = 1;
    const EXT_ARG: u32 = 8;
    if min == 0 && submit > 0 {
        // SAFETY: no memory is involved beyond the mapped queues.
        return unsafe { sys!(libc::SYS_io_uring_enter, fd, submit, 0, 0, 0, 0) };
    }
    let left = deadline.remaining().map(|t| [t.tv_sec, t.tv_nsec]);
    let mut argument = Argument {
        sigmask: 0,
        sigmask_size: 8,
        pad: 0,
        timespec: left.as_ref().map_or(0, |left| left.as_ptr() as u64),
    };
    let (flags, size) = (GETEVENTS | EXT_ARG, size_of::<Argument>());
    let argument = &raw mut argument;
    // SAFETY: a field of a live local; nothing is read.
    let timespec = unsafe { &raw mut (*argument).timespec };
    let call = move || {
        // SAFETY: the argument and the timespec it points to are live locals.
        unsafe { sys!(libc::SYS_io_uring_enter, fd, submit, min, flags, argument, size) }
    };
    if min == 0 {
        return call();
    }
    static NO_TIME: [i64; 2] = [0, 0];
    inside::sleep(timespec, NO_TIME.as_ptr() as u64, call)
}
