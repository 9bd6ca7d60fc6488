//! The kernel's native asynchronous I/O: its structs and its calls.

use crate::{
    Errno,
    confined::{self, Extra},
    fork::ForkMark,
    inside, sys,
    time::Deadline,
};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};

/// The user's control block, as in `<linux/aio_abi.h>` (little-endian layout).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Iocb {
    /// A value that the event returns.
    pub data: u64,
    /// The kernel stores zero in this field on submission.
    pub key: u32,
    /// `RWF_*` flags of the request.
    pub rw_flags: u32,
    /// One of [`cmd`].
    pub opcode: u16,
    /// I/O priority, with [`FLAG_IOPRIO`].
    pub reqprio: i16,
    /// File descriptor.
    pub fildes: u32,
    /// Buffer address, iovec array address, or poll mask.
    pub buf: u64,
    /// Bytes, or number of segments.
    pub nbytes: u64,
    /// Byte offset in the file.
    pub offset: i64,
    /// Must be zero.
    pub reserved2: u64,
    /// [`FLAG_RESFD`], [`FLAG_IOPRIO`].
    pub flags: u32,
    /// Eventfd to signal, with [`FLAG_RESFD`].
    pub resfd: u32,
}

/// A completion (`<linux/aio_abi.h>`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoEvent {
    /// `data` of the iocb.
    pub data: u64,
    /// Address of the iocb.
    pub obj: u64,
    /// Bytes transferred, poll mask, or negative errno.
    pub res: i64,
    /// Zero.
    pub res2: i64,
}

/// The header of the user-mapped completion ring (`struct aio_ring`, fs/aio.c).
#[repr(C)]
#[derive(Debug)]
pub struct RingHeader {
    /// Index of the context in the kernel's table.
    pub id: u32,
    /// Number of event slots.
    pub nr: u32,
    /// Next event to consume; readers may advance it themselves.
    pub head: u32,
    /// Next slot to fill.
    pub tail: u32,
    /// [`RING_MAGIC`].
    pub magic: u32,
    /// [`RING_COMPAT`].
    pub compat: u32,
    /// Zero.
    pub incompat: u32,
    /// Size of this header in bytes.
    pub header_length: u32,
}

/// Marks a completion ring.
pub const RING_MAGIC: u32 = 0xa10a_10a1;
/// Compatible features of the ring.
pub const RING_COMPAT: u32 = 1;
/// `resfd` is an eventfd.
pub const FLAG_RESFD: u32 = 1;
/// `reqprio` holds an I/O priority.
pub const FLAG_IOPRIO: u32 = 2;

/// Opcodes (`IOCB_CMD_*`).
pub mod cmd {
    /// Read into one buffer.
    pub const PREAD: u16 = 0;
    /// Write from one buffer.
    pub const PWRITE: u16 = 1;
    /// Make data and metadata durable.
    pub const FSYNC: u16 = 2;
    /// Make data durable.
    pub const FDSYNC: u16 = 3;
    /// Wait for readiness, one shot.
    pub const POLL: u16 = 5;
    /// Read into segments.
    pub const PREADV: u16 = 7;
    /// Write from segments.
    pub const PWRITEV: u16 = 8;
}

const _: () = assert!(size_of::<Iocb>() == 64);
const _: () = assert!(core::mem::offset_of!(Iocb, fildes) == 20);
const _: () = assert!(core::mem::offset_of!(Iocb, resfd) == 60);
const _: () = assert!(size_of::<IoEvent>() == 32);
const _: () = assert!(size_of::<RingHeader>() == 32);

/// A context of the kernel, destroyed on drop.
#[derive(Debug)]
pub struct AioContext {
    address: usize,
    /// A forked child has the ring in its memory, but not the context.
    mark: ForkMark,
}

impl AioContext {
    /// Creates a context for `nr` requests in flight.
    ///
    /// # Errors
    /// `EAGAIN`: `aio-max-nr` is used up. `ENOSYS`/`EPERM`: refused by kernel or seccomp.
    /// Source: io_setup(2).
    pub fn new(nr: u32) -> Result<AioContext, Errno> {
        confined::check(Extra::NativeAio)?;
        let mut context = 0usize;
        // SAFETY: `context` is a live local that the call fills.
        unsafe { sys!(libc::SYS_io_setup, nr, core::ptr::from_mut(&mut context)) }?;
        Ok(AioContext { address: context, mark: ForkMark::new() })
    }

    /// Starts the operations in `iocbs`, in order; returns how many were started.
    ///
    /// # Errors
    /// `EAGAIN`: the context is full. Other errors concern the first iocb.
    /// # Safety
    /// The memory the iocbs name must live, unmoved, until their events have been reaped.
    /// Source: io_submit(2).
    pub unsafe fn submit(&self, iocbs: &mut [*mut Iocb]) -> Result<usize, Errno> {
        // SAFETY: pointer and length come from one live slice; the rest is promised above.
        unsafe { sys!(libc::SYS_io_submit, self.address, iocbs.len(), iocbs.as_mut_ptr()) }
    }

    /// Asks the kernel to end a poll in flight. The poll's event then arrives with result 0.
    ///
    /// A thread with another descriptor table may call this function: the kernel finds a context by
    /// its address.
    /// # Errors
    /// `EINVAL`: not in flight, or of a kind that cannot be cancelled.
    /// # Safety
    /// `iocb` must be readable; the kernel compares its address with those of the polls in flight.
    /// Source: io_cancel(2); fs/aio.c (success is EINPROGRESS).
    pub unsafe fn cancel(&self, iocb: *const Iocb) -> Result<(), Errno> {
        let mut event = IoEvent::default();
        let event = core::ptr::from_mut(&mut event);
        // SAFETY: the event is a live local; the iocb's key is read, as promised above.
        match unsafe { sys!(libc::SYS_io_cancel, self.address, iocb, event) } {
            Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes completed events. Waits until there are `min` events, or until the deadline. The call
    /// may return up to a second before the deadline: the caller checks the time again.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran, or has to run, and no event had arrived.
    /// Source: io_getevents(2).
    pub fn events(
        &self,
        min: usize,
        events: &mut [IoEvent],
        deadline: Deadline,
    ) -> Result<usize, Errno> {
        // The call always gets a time limit, so that a deferred signal can end the wait. For more
        // than 292 years (KTIME_SEC_MAX) the kernel starts no timer.
        const ENDLESS: libc::timespec = libc::timespec { tv_sec: 1 << 34, tv_nsec: 0 };
        let mut left = deadline.remaining().unwrap_or(ENDLESS);
        // A deferred signal writes 0 to this word of the time limit; the other word is 0 already.
        let word = if left.tv_sec == 0 { &raw mut left.tv_nsec } else { &raw mut left.tv_sec };
        if left.tv_sec > 0 {
            left.tv_nsec = 0;
        }
        let left = &raw mut left;
        let (len, array) = (events.len(), events.as_mut_ptr());
        let call = || {
            // SAFETY: the events are a live slice, the timespec is a live local.
            unsafe { sys!(libc::SYS_io_getevents, self.address, min, len, array, left) }
        };
        if min == 0 { call() } else { inside::sleep(word.cast(), 0, call) }
    }

    /// Returns `true` if the user-mapped ring has events. Makes no system call.
    pub fn has_events(&self) -> bool {
        let (head, tail) = self.ends();
        head != tail
    }

    /// Takes events out of the user-mapped ring, without a system call. A forked child takes none:
    /// the events belong to its parent.
    ///
    /// # Safety
    /// No other thread may take events of this context meanwhile, by this function or by
    /// [`AioContext::events`].
    pub unsafe fn take(&self, mut each: impl FnMut(IoEvent)) -> usize {
        if !self.mark.is_here() {
            return 0; // the events belong to the parent
        }
        let (mut head, tail) = self.ends();
        let mut count = 0;
        while let Some(event) = self.event(head, tail) {
            each(event);
            count += 1;
            head = self.after(head, 1);
            // SAFETY: as in `ends`; aligned, and the kernel reads it as one word. Only the thread
            // that takes events moves the head.
            let word = unsafe { AtomicU32::from_ptr(&raw mut (*self.header()).head) };
            word.store(head, Release);
        }
        count
    }

    /// Calls `each` with the events in the user-mapped ring, from slot `from` or from the first
    /// event on. Takes no event and makes no system call. Returns the slot of the next event to be
    /// taken. If [`AioContext::head`] returns another slot afterwards, a thread has taken events
    /// meanwhile, and `each` may have missed some.
    pub fn look(&self, from: Option<u32>, mut each: impl FnMut(&IoEvent)) -> u32 {
        let (first, tail) = self.ends();
        let mut head = from.unwrap_or(first);
        while let Some(event) = self.event(head, tail) {
            each(&event);
            head = self.after(head, 1);
        }
        first
    }

    /// Returns the slot of the next event to be taken out of the user-mapped ring.
    pub fn head(&self) -> u32 {
        self.ends().0
    }

    /// Returns the slot of the user-mapped ring that the kernel fills next.
    pub fn tail(&self) -> u32 {
        self.ends().1
    }

    /// Returns the slot that comes `count` slots after `place` in the user-mapped ring.
    pub fn after(&self, place: u32, count: u32) -> u32 {
        // SAFETY: as in `event`.
        let slots = unsafe { (*self.header()).nr };
        // Usually without a division, which would take longer than all else here.
        let next = place + count;
        if next < slots { next } else { next % slots.max(1) }
    }

    /// The kernel keeps the ring mapped at the context's address until io_destroy, which only
    /// `drop` calls.
    fn header(&self) -> *mut RingHeader {
        self.address as *mut RingHeader
    }

    fn ends(&self) -> (u32, u32) {
        let header = self.header();
        // SAFETY: mapped, see `header`, and aligned; the kernel writes them as whole words.
        unsafe {
            let head = AtomicU32::from_ptr(&raw mut (*header).head);
            let tail = AtomicU32::from_ptr(&raw mut (*header).tail);
            (head.load(Acquire), tail.load(Acquire))
        }
    }

    /// Returns the event in slot `index`; `None` if `index` equals `tail`, or is not below the
    /// number of slots.
    fn event(&self, index: u32, tail: u32) -> Option<IoEvent> {
        let header = self.header();
        // SAFETY: mapped, see `header`; the kernel has written these two in io_setup.
        let (slots, length) = unsafe { ((*header).nr, (*header).header_length) };
        (index != tail && index < slots).then(|| {
            // SAFETY: there are `slots` events behind the header; what is before the tail was
            // written before it. Another thread may have taken it, and the kernel write the next
            // one there: words that change under us are words all the same.
            unsafe {
                header
                    .byte_add(length as usize)
                    .cast::<IoEvent>()
                    .add(index as usize)
                    .read_volatile()
            }
        })
    }
}

impl Drop for AioContext {
    /// Waits for the requests in flight.
    fn drop(&mut self) {
        // SAFETY: the context is ours and not used after this.
        let _ = unsafe { sys!(libc::SYS_io_destroy, self.address) };
    }
}
