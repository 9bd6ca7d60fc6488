//! Threads made by pthread_create(3) itself.
//!
//! std's threads call malloc as they begin, for their thread-local destructors. glibc ends the
//! process if that fails. glibc also reserves 64 MiB of addresses for the arena of a thread that
//! calls malloc, which a program under RLIMIT_AS would lack. A thread that [`start`] makes calls
//! malloc only if its body does.

use crate::{Errno, futex, memory, thread, time::Deadline};
use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

/// The bytes of the stack of a thread that runs no function of the program.
pub const STACK_BYTES: usize = 256 << 10;

/// A handle of a thread, for [`OwnHandle::join`]. Dropping the handle detaches the thread.
#[derive(Debug)]
pub struct OwnHandle(libc::pthread_t);

// SAFETY: a name of a thread, a pointer in musl, which any thread may join or detach.
unsafe impl Send for OwnHandle {}
// SAFETY: as above; a shared reference only compares it.
unsafe impl Sync for OwnHandle {}

impl OwnHandle {
    /// Waits until the thread has ended.
    pub fn join(self) {
        // SAFETY: a thread that was neither joined nor detached.
        unsafe { libc::pthread_join(self.0, null_mut()) };
        core::mem::forget(self);
    }

    /// Returns `true` if this is the handle of the calling thread.
    pub fn is_this(&self) -> bool {
        // SAFETY: no memory is involved.
        self.0 == unsafe { libc::pthread_self() }
    }
}

impl Drop for OwnHandle {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// Starts a thread with a stack of `stack_bytes`. A panic of `body` ends only the thread.
///
/// # Errors
/// `EAGAIN`: no more threads are allowed, or there is no memory for one. Source: pthread_create(3).
pub fn start(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<OwnHandle, Errno> {
    let mut short = [0u8; NAME_MAX];
    let len = name.len().min(NAME_MAX - 1);
    short[..len].copy_from_slice(&name.as_bytes()[..len]);
    let body: Body = Box::new(move || {
        // SAFETY: the calling thread; a string that ends with a zero.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), short.as_ptr().cast()) };
        body();
    });
    let body = Box::into_raw(Box::new(body));
    created(stack_bytes, body).map(OwnHandle).map_err(|_| {
        // SAFETY: no thread owns it, because none has begun.
        drop(unsafe { Box::from_raw(body) });
        Errno::AGAIN
    })
}

/// TASK_COMM_LEN.
const NAME_MAX: usize = 16;

fn created(stack_bytes: usize, body: *mut Body) -> Result<libc::pthread_t, i32> {
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    if cfg!(miri) {
        // Miri supports no thread attributes. SAFETY: a live local, initialized before it is read;
        // `body` is the new thread's.
        return unsafe {
            match libc::pthread_create(thread.as_mut_ptr(), core::ptr::null(), run, body.cast()) {
                0 => Ok(thread.assume_init()),
                errno => Err(errno),
            }
        };
    }
    // SAFETY: live locals, initialized before they are read; `body` is the new thread's.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return Err(libc::ENOMEM);
        }
        let stack_bytes = stack_bytes.next_multiple_of(4096) + thread_locals_bytes();
        // Two threads that check and then start one thread each would both count the same memory.
        let _turn = Turn::take();
        if would_abort(stack_bytes) {
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            return Err(libc::EAGAIN);
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
        let made = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, body.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if made == 0 { Ok(thread.assume_init()) } else { Err(made) }
    }
}

/// The id of the process in which a thread is being started; 0: none is. A forked child may find
/// its parent's id in this word, and ignores it.
static STARTING: AtomicU32 = AtomicU32::new(0);

struct Turn;

impl Turn {
    /// Sleeping lets a thread of lower priority run.
    fn take() -> Turn {
        // Longer than pthread_create(3) takes. After that time threads share the turn, so no thread
        // sleeps for ever.
        const LONGEST_NS: u64 = 1_000_000_000;
        let deadline = Deadline::after_ns(LONGEST_NS);
        let process = thread::process_id() as u32;
        loop {
            let before = STARTING.load(Relaxed);
            let is_free = before != process;
            if is_free && STARTING.compare_exchange(before, process, Acquire, Relaxed).is_ok() {
                return Turn;
            }
            if !is_free && futex::wait(&STARTING, process, deadline) == Err(Errno::TIMEDOUT) {
                return Turn;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        STARTING.store(0, Release);
        futex::wake(&STARTING, 1);
    }
}

/// Returns `true` if glibc would end the process: besides the stack, glibc allocates memory for
/// thread-local data, and handles ENOMEM only. If all memory is locked (mlockall(2)) and no more
/// may be locked, mmap returns EAGAIN, and so does calloc in a thread that never called malloc
/// (nptl/allocatestack.c, malloc/arena.c of glibc 2.36).
fn would_abort(stack_bytes: usize) -> bool {
    // The stack, the guard page and the memory that calloc maps.
    let bytes = stack_bytes + 3 * 4096;
    match memory::map(bytes, libc::MAP_PRIVATE | libc::MAP_NORESERVE) {
        Ok(start) => {
            memory::unmap(start, bytes);
            false
        }
        Err(errno) => errno == Errno::AGAIN,
    }
}

/// Returns the bytes that glibc takes from a stack for thread-local memory; in a large program they
/// may be many.
fn thread_locals_bytes() -> usize {
    #[cfg(all(target_env = "gnu", not(miri)))]
    {
        type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
        // SAFETY: a string; the function has this type since glibc 2.15.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        if !found.is_null() {
            // SAFETY: as above; the function does not read the attributes.
            let least =
                unsafe { core::mem::transmute::<*mut c_void, MinStack>(found)(core::ptr::null()) };
            return least.saturating_sub(libc::PTHREAD_STACK_MIN).next_multiple_of(4096);
        }
    }
    0
}

extern "C" fn run(body: *mut c_void) -> *mut c_void {
    // SAFETY: `start` has made the body and given it to this thread.
    let body = unsafe { Box::from_raw(body.cast::<Body>()) };
    let _ = catch_unwind(AssertUnwindSafe(body));
    null_mut()
}

/// Leaves stacks for up to `count` threads in glibc's cache of stacks of ended threads. A thread
/// that starts on such a stack needs no malloc for its thread-local memory.
pub fn leave_stacks(count: usize) {
    if !cfg!(target_env = "gnu") {
        return;
    }
    let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let waiting = || {
        let gate = gate.clone();
        start("nowait-stack", STACK_BYTES, move || drop(gate.lock())).ok()
    };
    // All threads live at the same time, so that each has its own stack.
    let threads: Vec<_> = (0..count).map_while(|_| waiting()).collect();
    drop(closed);
    threads.into_iter().for_each(OwnHandle::join);
    thread::swap_signal_mask(mask);
}

/// Runs `work` on a thread of its own, and waits for it.
///
/// # Errors
/// As for [`start`]. `EIO`: `work` panicked.
pub fn aside<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Errno> {
    let done = Arc::new(Mutex::new(None));
    let place = done.clone();
    let keeps = move || *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(work());
    start(name, stack_bytes, keeps)?.join();
    let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    done.ok_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: usize = 64 << 10;

    #[test]
    fn one_thread_at_a_time_has_the_turn_and_a_parent_keeps_it_from_none() {
        let holders = AtomicU32::new(0);
        // The child's copy of the state in which its parent forked.
        STARTING.store(thread::process_id() as u32 + 1, Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 2 } else { 1000 } {
                        let _turn = Turn::take();
                        assert_eq!(holders.fetch_add(1, Relaxed), 0);
                        assert_eq!(holders.fetch_sub(1, Relaxed), 1);
                    }
                });
            }
        });
    }

    #[test]
    fn a_thread_runs_its_body_by_its_name_and_a_panic_stays_in_it() {
        let name = || {
            let mut name = [0u8; NAME_MAX];
            let at = name.as_mut_ptr().cast();
            // SAFETY: a live local of that size.
            unsafe { libc::pthread_getname_np(libc::pthread_self(), at, NAME_MAX) };
            name
        };
        let found = aside("nowait-test-with-a-long-name", STACK, name).unwrap();
        assert_eq!(&found, b"nowait-test-wit\0");
        assert_eq!(aside("nowait-test", STACK, || panic!("injected")), Err::<(), _>(Errno::IO));
        let handle = start("nowait-test", STACK, || ()).unwrap();
        assert!(!handle.is_this());
        handle.join();
    }
}
