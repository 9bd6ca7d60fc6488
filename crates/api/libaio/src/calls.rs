//! The calls of libaio, with the errors in the kernel's order.

use crate::decode::{self, DecodedIocb, decode};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nowait_engine::{Context, Submission};
use nowait_process::{
    leaving,
    looks::Looks,
    memory,
    process::{Process, is_empty_ring, with_context},
};
use nowait_sys::{
    Errno,
    aio::{IoEvent, Iocb},
    allocator::reserve,
    confined::{self, Extra},
    fork, inside, seccomp,
    time::{self, Deadline},
};
use std::sync::Arc;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// A signal mask as the system call io_pgetevents(2) takes it: address and size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SigSet {
    mask: usize,
    size: usize,
}

/// The result for a context that the library has not made: the C files then call the kernel
/// (`NOT_OURS` in raw.h).
pub const NOT_OURS: Errno = Errno::new(i32::MAX);

/// io_setup(2). The `nr` requests of a context do not count against `aio-max-nr`, but `nr` cannot
/// be above this limit.
pub fn setup(nr: u32, context_address: usize) -> Result<i64, Errno> {
    // Record the call before the context's memory is allocated.
    confined::is_called(Extra::NativeAio);
    seccomp::look();
    if !fork::is_owner() {
        // The engine's threads would end with a child of vfork, and the library's memory is its
        // parent's.
        return Err(NOT_OURS);
    }
    // SAFETY: a context pointer is plain data.
    let before: usize = unsafe { memory::read(context_address) }?;
    const EVENTS_MAX: u32 = 0x1000_0000 / size_of::<IoEvent>() as u32;
    // The kernel also doubles the number in 32 bits.
    let events = nr.wrapping_mul(2);
    if before != 0 || nr == 0 || events > EVENTS_MAX {
        return Err(Errno::INVAL);
    }
    if events == 0 || !AIO_MAX_NR.allows(nr) {
        return Err(Errno::AGAIN);
    }
    // SAFETY: io_setup(2) writes here. This write checks the address before a context is made.
    unsafe { memory::write(context_address, 0usize) }?;
    if !reserve::is_whole() {
        return Err(Errno::NOMEM);
    }
    let address = Process::current().new_context(nr)?;
    // SAFETY: as above.
    unsafe { memory::write(context_address, address) }?;
    Ok(0)
}

/// A limit of the system, read again from its file if a count exceeds the last known value.
struct Limit {
    /// An atomic, because a child that is forked while a lock is held would find the lock taken for
    /// ever.
    known: AtomicU64,
    file: &'static str,
}

static AIO_MAX_NR: Limit = Limit::of("/proc/sys/fs/aio-max-nr");

impl Limit {
    const fn of(file: &'static str) -> Limit {
        Limit { known: AtomicU64::new(0), file }
    }

    fn allows(&self, count: u32) -> bool {
        const USUAL: u64 = 65_536;
        let count = u64::from(count);
        if count <= self.known.load(Relaxed) {
            return true;
        }
        let text = std::fs::read_to_string(self.file).unwrap_or_default();
        let limit = text.trim().parse().unwrap_or(USUAL);
        self.known.store(limit, Relaxed);
        count <= limit
    }
}

/// io_destroy(2): waits for the requests in flight. Threads that wait for events get EINVAL.
pub fn destroy(context: usize) -> Result<i64, Errno> {
    let process = Process::existing().ok_or(NOT_OURS)?;
    let taken = process.take_context(context).ok_or(NOT_OURS)?;
    taken.destroy()?;
    process.context_ended(&taken, context);
    Ok(0)
}

/// io_submit(2).
pub fn submit(context: usize, nr: i64, iocbs: usize) -> Result<i64, Errno> {
    let submitted = with_context(context, |context| {
        if nr <= 0 {
            return if nr < 0 { Err(Errno::INVAL) } else { Ok(0) };
        }
        let stats = context.io().stats();
        if !stats.enabled() {
            return submit_to(context, nr as usize, iocbs);
        }
        let before = time::now_ns();
        let result = submit_to(context, nr as usize, iocbs);
        stats.submit_took(time::now_ns() - before);
        stats.add(|c| &c.submits, 1);
        stats.add(|c| &c.requests, *result.as_ref().unwrap_or(&0) as u64);
        result
    });
    submitted.unwrap_or(Err(NOT_OURS))
}

fn submit_to(context: &Arc<Context>, nr: usize, iocbs: usize) -> Result<i64, Errno> {
    let capacity = context.io().ring().capacity();
    let granted = leaving::reserve(context, nr.min(capacity)).map_err(|errno| match errno {
        Errno::AGAIN => refusal_of_full(iocbs),
        errno => errno,
    })?;
    let mut submission = Submission::of(context, granted);
    let mut looks = Looks::new(context, granted);
    let mut started = 0;
    let mut refused = None;
    while started < granted {
        let slot = iocbs.wrapping_add(started * size_of::<usize>());
        match start(&mut looks, &mut submission, slot) {
            Ok(()) => started += 1,
            Err(errno) => {
                refused = Some(errno);
                break;
            }
        }
    }
    if granted > started {
        context.io().release(granted - started);
    }
    submission.finish();
    match refused {
        Some(errno) if started == 0 => Err(errno),
        _ => Ok(started as i64),
    }
}

/// Returns the error of io_submit when no slot is free: an error of the first iocb, which the
/// kernel reads before it looks for a slot, or else EAGAIN.
fn refusal_of_full(slot: usize) -> Errno {
    // SAFETY: an address is plain data.
    let iocb = unsafe { memory::read(slot) }.and_then(decode::read);
    iocb.err().unwrap_or(Errno::AGAIN)
}

fn start(looks: &mut Looks<'_>, submission: &mut Submission<'_>, slot: usize) -> Result<(), Errno> {
    // SAFETY: an address is plain data.
    let iocb: usize = unsafe { memory::read(slot) }?;
    if !reserve::is_there() {
        return Err(Errno::AGAIN);
    }
    if looks.counts_by_kernel()
        && let Some(DecodedIocb { mut command, target }) = decode::decode_counted(looks, iocb)
        && target.eventfd.is_some_and(|number| looks.may_count(number))
        && submission.start_counted(&mut command, target)?
    {
        return Ok(());
    }
    let DecodedIocb { command, target } = decode(looks, iocb)?;
    submission.submit(command, target)
}

/// The interface by which the program asks for events. libaio first looks at the ring in the
/// program's memory: if it is empty and the time limit is zero, libaio does not call the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The function of libaio.
    Library,
    /// The system call.
    SystemCall,
}

/// The arguments of io_getevents(2).
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Least number of events to wait for.
    pub min: i64,
    /// Most events to take.
    pub nr: i64,
    /// Address of the array for the events.
    pub events: usize,
    /// Address of the time limit, or 0.
    pub timeout: usize,
}

/// io_getevents(2).
pub fn getevents(caller: Caller, context: usize, wanted: Wanted) -> Result<i64, Errno> {
    events_with_mask(caller, context, wanted, 0)
}

/// io_pgetevents(2), in libaio's form: the mask is a plain `sigset_t *`.
pub fn pgetevents(context: usize, wanted: Wanted, sigmask: usize) -> Result<i64, Errno> {
    events_with_mask(Caller::Library, context, wanted, sigmask)
}

/// io_pgetevents(2) as the system call: the mask comes with its size.
pub fn pgetevents_raw(context: usize, wanted: Wanted, sig: usize) -> Result<i64, Errno> {
    let mut sigmask = 0;
    if sig != 0 {
        // SAFETY: plain data.
        let set: SigSet = unsafe { memory::read(sig) }?;
        if set.mask != 0 && set.size != 8 {
            return Err(Errno::INVAL);
        }
        sigmask = set.mask;
    }
    events_with_mask(Caller::SystemCall, context, wanted, sigmask)
}

fn events_with_mask(
    caller: Caller,
    context: usize,
    wanted: Wanted,
    sigmask: usize,
) -> Result<i64, Errno> {
    let Wanted { min, nr, .. } = wanted;
    let timeout = match wanted.timeout {
        0 => None,
        // SAFETY: plain data.
        address => Some(unsafe { memory::read::<Timespec>(address) }?),
    };
    let at_once = timeout.is_some_and(|t| t.seconds == 0 && t.nanoseconds == 0);
    let looks_first = at_once && caller == Caller::Library;
    let taken = with_context(context, |context| {
        let is_wrong = min < 0 || nr < 0 || min > nr;
        // With valid arguments and without a mask, `take_events` also returns 0 here.
        if looks_first && (is_wrong || sigmask != 0) && is_empty(context) {
            return Ok(0);
        }
        let mask = match sigmask {
            0 => None,
            // SAFETY: a signal set is plain data; the kernel uses its first 8 bytes.
            address => Some(unsafe { memory::read::<u64>(address) }?),
        };
        if is_wrong {
            return Err(Errno::INVAL);
        }
        take_events(context, wanted, deadline(timeout), mask)
    });
    // In a forked child this may be a context of the parent: its ring is still mapped, and libaio
    // looks at the ring without a call to the kernel.
    taken.unwrap_or_else(|| match looks_first && is_empty_ring(context) {
        true => Ok(0),
        false => Err(NOT_OURS),
    })
}

/// Looks for completions before it looks at the ring.
fn is_empty(context: &Context) -> bool {
    context.looked_for_events();
    context.io().poll_pump();
    context.io().ring().unread() == 0
}

fn take_events(
    context: &Context,
    wanted: Wanted,
    deadline: Deadline,
    mask: Option<u64>,
) -> Result<i64, Errno> {
    let sink = |index: usize, event: IoEvent| {
        let address = wanted.events.wrapping_add(index * size_of::<IoEvent>());
        // SAFETY: the application passed the array for the events.
        unsafe { memory::write(address, event) }
    };
    let (min, nr) = (wanted.min as usize, wanted.nr as usize);
    let wait = || context.wait_events(min, nr, deadline, mask, sink).map(|n| n as i64);
    match mask {
        Some(mask) => inside::masked(mask, wait),
        None => wait(),
    }
}

fn deadline(timeout: Option<Timespec>) -> Deadline {
    match timeout {
        None => Deadline::NEVER,
        Some(t) if t.seconds < 0 || t.nanoseconds < 0 => Deadline::NEVER,
        Some(t) if t.seconds == 0 && t.nanoseconds == 0 => Deadline::NOW,
        Some(t) => {
            let seconds = (t.seconds as u64).saturating_mul(1_000_000_000);
            Deadline::after_ns(seconds.saturating_add(t.nanoseconds as u64))
        }
    }
}

/// io_cancel(2): cancels a request in flight of any kind, and returns EINPROGRESS, or EINVAL if no
/// such request is in flight. The request's event arrives through the ring, with ECANCELED (0 for a
/// poll) if the cancellation was in time.
pub fn cancel(context: usize, iocb: usize) -> Result<i64, Errno> {
    // SAFETY: plain data.
    let key: u32 = unsafe { memory::read(iocb + core::mem::offset_of!(Iocb, key)) }?;
    if key != 0 {
        return Err(Errno::INVAL);
    }
    let found = with_context(context, |context| context.cancel(iocb as u64));
    match found {
        Some(Ok(())) => Err(Errno::INPROGRESS),
        Some(Err(_)) => Err(Errno::INVAL),
        None => Err(NOT_OURS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use nowait_sys::{
        aio::{FLAG_RESFD, cmd},
        eventfd::{self, EventFd},
        fd,
    };
    use std::{fs::File, os::fd::AsRawFd};

    #[test]
    fn a_limit_that_was_raised_is_noticed() {
        let path = std::env::temp_dir().join(format!("nowait-limit-{}", std::process::id()));
        let limit = Limit::of(String::leak(path.to_str().unwrap().to_owned()));
        let set = |value: &str| std::fs::write(&path, value).unwrap();
        set("100\n");
        assert!(limit.allows(100) && !limit.allows(101));
        set("101\n");
        assert!(limit.allows(101) && !limit.allows(102));
        std::fs::remove_file(&path).unwrap();
        assert!(!limit.allows(65_537) && limit.allows(65_536), "the kernel's own");
    }

    /// Another thread may close the eventfd's number while io_submit runs. Like the kernel, the
    /// library has referenced the eventfd by then.
    #[test]
    fn a_counter_whose_number_becomes_another_file_is_counted_and_the_file_is_not_written() {
        let path = std::env::temp_dir().join(format!("nowait-resfd-{}", std::process::id()));
        let (source, mut bytes) = (File::open("/proc/self/exe").unwrap(), [0u8; 512]);
        std::os::unix::fs::FileExt::read_exact_at(&source, &mut bytes, 0).unwrap();
        let address = Process::current().new_context(1).unwrap();
        let counter = EventFd::new().unwrap();
        let (number, other) = (counter.raw(), fd::duplicate(counter.raw(), 0).unwrap());
        // SAFETY: an iocb is plain data.
        let empty: Iocb = unsafe { core::mem::zeroed() };
        let mut iocb = Iocb {
            opcode: cmd::PREAD,
            fildes: source.as_raw_fd() as u32,
            buf: bytes.as_mut_ptr() as u64,
            nbytes: bytes.len() as u64,
            flags: FLAG_RESFD,
            resfd: number as u32,
            ..empty
        };
        with_context(address, |context| {
            assert_eq!(leaving::reserve(context, 1), Ok(1));
            let mut looks = Looks::new(context, 1);
            let mut submission = Submission::new(context);
            let found = decode(&mut looks, ptr::from_mut(&mut iocb).addr()).unwrap();
            drop(counter);
            let open = || File::create(&path).unwrap();
            let files: Vec<_> = core::iter::repeat_with(open)
                .scan(false, |is_taken, file| {
                    let goes_on = !*is_taken;
                    *is_taken = file.as_raw_fd() == number;
                    goes_on.then_some(file)
                })
                .collect();
            submission.submit(found.command, found.target).unwrap();
            submission.finish();
            assert_eq!(files[0].metadata().unwrap().len(), 0);
        })
        .unwrap();
        assert_eq!(eventfd::drain(other.raw()), 1);
        std::fs::remove_file(path).unwrap();
    }
}
