//! Replaces the calls between code and the kernel: functions of the C library that std uses, and
//! the system calls of `nowait_sys::raw`.
//!
//! A thread-local value marks the threads of a machine. For other threads, the replacements pass
//! the calls on to the C library or the kernel.

mod sockets;

use crate::cores;
use crate::schedule::{Baton, Cpu, Key, Machine, Slept, World};
use core::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_long, c_uint, c_void},
    ptr::null,
};
use nowait_sys::raw;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

thread_local! {
    /// The machine of this thread, with a reference that `enter` counts. The cell has no
    /// destructor: destructors of other thread-local values still make system calls.
    static MACHINE: Cell<*const Machine> = const { Cell::new(null()) };
    static ID: Cell<usize> = const { Cell::new(0) };
    /// Above 0 in code of the machine itself.
    static OUTSIDE: Cell<u32> = const { Cell::new(0) };
}

/// While a value exists, the system calls of its thread go to the real kernel.
pub(crate) struct Outside;

impl Outside {
    pub(crate) fn enter() -> Outside {
        OUTSIDE.set(OUTSIDE.get() + 1);
        Outside
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        OUTSIDE.set(OUTSIDE.get() - 1);
    }
}

/// `None` outside a machine, and in code of the machine itself.
fn here() -> Option<(&'static Machine, usize)> {
    let machine = MACHINE.get();
    if machine.is_null() || OUTSIDE.get() > 0 {
        return None;
    }
    // SAFETY: `enter` has counted the reference, and the thread's last action `leave` drops it.
    Some((unsafe { &*machine }, ID.get()))
}

/// Waits for the first turn of the calling thread, which then belongs to `machine` until the thread
/// ends.
pub(crate) fn enter(machine: &Arc<Machine>, id: usize, turn: &Baton) {
    turn.take();
    ID.set(id);
    // SAFETY: any value other than null causes a call of `leave`.
    unsafe { libc::pthread_setspecific(key(), core::ptr::dangling()) };
    MACHINE.set(Arc::into_raw(machine.clone()));
}

/// Makes a panic on a machine fail the run, even if code would catch the panic. The panicking
/// thread stops at its next system call.
pub(crate) fn take_panics() {
    static SET: std::sync::Once = std::sync::Once::new();
    SET.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let Some((machine, _)) = here() else { return shown(panic) };
            let _outside = Outside::enter();
            let text = panic.payload_as_str().unwrap_or("no message");
            let place = panic.location().map_or_else(String::new, ToString::to_string);
            machine.fail(format!("panic at {place}: {text}"));
        }));
    });
}

/// The key whose destructor runs after the destructors of thread-local values.
fn key() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a live local; the destructor is for any thread.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) }, 0);
        key
    })
}

unsafe extern "C" fn leave(_: *mut c_void) {
    let machine = MACHINE.replace(null());
    if !machine.is_null() {
        // SAFETY: `enter` has counted the reference.
        unsafe { Arc::from_raw(machine) }.end_thread(ID.get());
    }
}

/// Adds a line to the trace of the calling thread's machine.
pub fn note(text: impl FnOnce() -> String) {
    if let Some((machine, _)) = here() {
        let _outside = Outside::enter();
        machine.lock().note(text);
    }
}

pub(crate) fn with_machine<T>(work: impl FnOnce(&mut World) -> T) -> T {
    let (machine, _) = here().expect("a thread of a simulated machine");
    let _outside = Outside::enter();
    work(&mut machine.lock())
}

/// May let another thread run; called before the engine's code takes a lock.
pub(crate) fn pause() {
    if let Some((machine, id)) = here() {
        machine.pause(id);
    }
}

/// `c/atomics.c` calls this function before each atomic access, once `cores::begin` was called.
/// `code` is the address of the accessing instruction.
#[unsafe(no_mangle)]
extern "C" fn simulated_access(address: usize, writes: bool, code: usize) {
    if let Some((machine, id)) = here() {
        machine.at(id, |cpu| cpu.touch(cores::line(address), writes, code as u64));
    }
}

pub(crate) unsafe fn answer(nr: i64, args: [usize; 6]) -> isize {
    match here() {
        // SAFETY: the caller's promise.
        Some((machine, id)) => unsafe { crate::kernel::answer(machine, id, nr, args) },
        // SAFETY: the caller's promise.
        None => unsafe { raw::kernel6(nr, args) },
    }
}

/// syscall(2), which std's locks use to sleep.
#[unsafe(no_mangle)]
#[allow(clippy::many_single_char_names)] // named as in the manual pages
unsafe extern "C" fn syscall(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's promise; a call does not read arguments that it does not have.
    let ret = unsafe { answer(nr, [a, b, c, d, e, f]) };
    if (-4095..0).contains(&ret) {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = -ret as c_int };
        return -1;
    }
    ret as c_long
}

fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has {name:?}");
    found
}

macro_rules! real {
    ($name:literal as fn($($arg:ty),*)) => {{
        static FOUND: OnceLock<usize> = OnceLock::new();
        let _outside = Outside::enter();
        let found = *FOUND.get_or_init(|| next($name) as usize);
        // SAFETY: the C library's function of this name is of this type.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($arg),*) -> c_int>(found) }
    }};
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

struct Begun {
    machine: Arc<Machine>,
    id: usize,
    turn: Arc<Baton>,
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin(begun: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create`, for this thread alone.
    let begun = unsafe { Box::from_raw(begun.cast::<Begun>()) };
    enter(&begun.machine, begun.id, &begun.turn);
    let (start, argument) = (begun.start, begun.argument);
    drop(begun);
    start(argument)
}

/// Numbers of the threads that can be joined, by their handles of the C library.
static JOINABLE: OnceLock<Mutex<HashMap<usize, usize>>> = OnceLock::new();

fn joinable<T>(with: impl FnOnce(&mut HashMap<usize, usize>) -> T) -> T {
    let _outside = Outside::enter();
    let all = JOINABLE.get_or_init(Mutex::default);
    with(&mut all.lock().unwrap_or_else(PoisonError::into_inner))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let create = real!(
        c"pthread_create"
            as fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void)
    );
    let Some((machine, me)) = here() else {
        // SAFETY: the caller's arguments.
        return unsafe { create(thread, attributes, start, argument) };
    };
    machine.call(me, "pthread_create", |_| ());
    let _outside = Outside::enter();
    // SAFETY: this thread's `enter` has counted it; one more reference for the new thread.
    let shared = unsafe {
        Arc::increment_strong_count(core::ptr::from_ref(machine));
        Arc::from_raw(core::ptr::from_ref(machine))
    };
    let (id, turn) = machine.add_thread("thread".to_owned());
    let begun = Box::new(Begun { machine: shared, id, turn, start, argument });
    // SAFETY: the caller's arguments, and the argument that the new thread takes over.
    let failed = unsafe { create(thread, attributes, begin, Box::into_raw(begun).cast()) };
    assert_eq!(failed, 0, "threads can be had in simulations");
    // SAFETY: it was filled.
    joinable(|all| all.insert(unsafe { *thread } as usize, id));
    failed
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int {
    if let Some((machine, me)) = here() {
        let id = joinable(|all| all.remove(&(thread as usize))).expect("started on the machine");
        let has_ended = |cpu: &mut Cpu<'_>| {
            while !cpu.has_ended(id) {
                if cpu.sleep(Key::End(id), None) == Slept::Interrupted {
                    return false;
                }
            }
            true
        };
        while !machine.call(me, "pthread_join", has_ended) {}
    }
    let join = real!(c"pthread_join" as fn(libc::pthread_t, *mut *mut c_void));
    // SAFETY: the caller's arguments.
    unsafe { join(thread, value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    let Some((machine, me)) = here() else {
        let set = real!(c"pthread_setname_np" as fn(libc::pthread_t, *const c_char));
        // SAFETY: the caller's arguments.
        return unsafe { set(thread, name) };
    };
    // SAFETY: a string, as the C library's function wants it.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    machine.call(me, "pthread_setname_np", |cpu| cpu.name_thread(name));
    0
}

#[allow(clippy::redundant_closure_for_method_calls)] // it has the wrong lifetime
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    match here() {
        Some((machine, me)) => machine.call(me, "sched_yield", |cpu| cpu.yield_now()),
        // SAFETY: no memory is involved.
        None => drop(unsafe { raw::kernel6(libc::SYS_sched_yield, [0; 6]) }),
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if let Some((machine, me)) = here() {
        let now = machine.call(me, "clock_gettime", |cpu| cpu.now);
        let now = libc::timespec {
            tv_sec: (now / 1_000_000_000) as i64,
            tv_nsec: (now % 1_000_000_000) as i64,
        };
        // SAFETY: the caller's.
        unsafe { *time = now };
        return 0;
    }
    // SAFETY: the caller's arguments.
    let ret = unsafe {
        raw::kernel6(libc::SYS_clock_gettime, [clock as usize, time as usize, 0, 0, 0, 0])
    };
    if ret == 0 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
    let Some((machine, me)) = here() else {
        let sleep = real!(c"nanosleep" as fn(*const libc::timespec, *mut libc::timespec));
        // SAFETY: the caller's arguments.
        return unsafe { sleep(time, left) };
    };
    // SAFETY: the caller's.
    let time = unsafe { *time };
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    machine.call(me, "nanosleep", |cpu| {
        let until = cpu.now + ns;
        cpu.sleep_until(until);
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    let Some((machine, me)) = here() else {
        let sleep = real!(
            c"clock_nanosleep"
                as fn(libc::clockid_t, c_int, *const libc::timespec, *mut libc::timespec)
        );
        // SAFETY: the caller's arguments.
        return unsafe { sleep(clock, flags, time, left) };
    };
    // SAFETY: the caller's.
    let time = unsafe { *time };
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    machine.call(me, "clock_nanosleep", |cpu| {
        let from = if flags & libc::TIMER_ABSTIME == 0 { cpu.now } else { 0 };
        cpu.sleep_until(from + ns);
    });
    0
}

/// Makes a system call on the machine; `None`: the thread is on no machine.
fn answered(nr: c_long, args: [usize; 6]) -> Option<c_int> {
    here()?;
    // SAFETY: the arguments of the function of the C library that calls this.
    Some(unsafe { syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]) } as c_int)
}

macro_rules! answered {
    ($($name:ident($($arg:ident: $type:ty),*) = $call:ident($($passed:expr),*);)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let passed = [$($passed as usize),*];
            let mut args = [0; 6];
            args[..passed.len()].copy_from_slice(&passed);
            answered(libc::$call, args).unwrap_or_else(|| {
                static FOUND: OnceLock<usize> = OnceLock::new();
                let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
                let found = *FOUND.get_or_init(|| next(name.expect("one zero")) as usize);
                type Function = unsafe extern "C" fn($($type),*) -> c_int;
                // SAFETY: the C library's function of this name is of this type.
                let function = unsafe { core::mem::transmute::<usize, Function>(found) };
                // SAFETY: the caller's arguments.
                unsafe { function($($arg),*) }
            })
        }
    )+};
}

answered! {
    open64(path: *const c_char, flags: c_int, mode: c_uint)
        = SYS_openat(libc::AT_FDCWD, path, flags, mode);
    close(number: c_int) = SYS_close(number);
    fcntl(number: c_int, command: c_int, argument: usize) = SYS_fcntl(number, command, argument);
    ftruncate64(number: c_int, len: i64) = SYS_ftruncate(number, len);
    fsync(number: c_int) = SYS_fsync(number);
    fdatasync(number: c_int) = SYS_fdatasync(number);
    fstat64(number: c_int, room: *mut libc::stat64) = SYS_fstat(number, room);
    statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, room: *mut libc::statx)
        = SYS_statx(folder, path, flags, mask, room);
}

/// Maps the memory of a ring; the real kernel makes all other mappings.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    place: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    number: c_int,
    offset: i64,
) -> *mut c_void {
    if number >= 0
        && let Some((machine, me)) = here()
    {
        let (number, offset) = (number as usize, offset as usize);
        let ring = machine.call(me, "mmap", |cpu| cpu.map_ring(number, len, offset));
        if let Some(address) = ring {
            return address as *mut c_void;
        }
    }
    let args =
        [place as usize, len, access as usize, flags as usize, number as usize, offset as usize];
    // SAFETY: the caller's arguments.
    let ret = unsafe { raw::kernel6(libc::SYS_mmap, args) };
    if (-4095..0).contains(&ret) { libc::MAP_FAILED } else { ret as *mut c_void }
}

/// On a machine, fills `bytes` with a constant, so that hash tables have a fixed order.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(bytes: *mut c_void, len: usize, flags: c_uint) -> isize {
    if here().is_some() {
        // SAFETY: the caller's.
        unsafe { core::ptr::write_bytes(bytes.cast::<u8>(), 7, len) };
        return len as isize;
    }
    let args = [bytes as usize, len, flags as usize, 0, 0, 0];
    // SAFETY: the caller's arguments.
    unsafe { raw::kernel6(libc::SYS_getrandom, args) }
}
