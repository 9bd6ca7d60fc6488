//! Cases about the calls: bad contexts, bad arrays, full rings, timeouts, cancellation.

use std::ffi::c_int;
use std::fs::File;
use std::io::Write;
use std::ptr;

use nowait_tests::aio::{self, ContextPointer, Event, Iocb};

use crate::world::{self, Owned, World, name};

pub(crate) fn print_all(world: &World) {
    setup();
    submit(world);
    full(world);
    getevents(world);
    cancel(world);
    destroy();
    errno_is_left_alone();
}

fn print(case: &str, result: c_int) {
    println!("{case}: {}", name(result.into()));
}

/// Returns mapped memory that is not a context. The library may read this memory.
fn stranger() -> ContextPointer {
    world::memory(libc::PROT_READ | libc::PROT_WRITE) as ContextPointer
}

fn setup() {
    for depth in [0, -1, i32::MIN, i32::MIN + 1, 1 << 30, i32::MAX] {
        let mut pointer = ptr::null_mut();
        // SAFETY: a live null pointer.
        print(&format!("setup of {depth}"), unsafe { aio::io_setup(depth, &raw mut pointer) });
        println!("setup of {depth} leaves NULL: {}", pointer.is_null());
    }
    let mut preset = ptr::dangling_mut();
    // SAFETY: a live pointer; its value must be refused, not followed.
    print("setup over a context", unsafe { aio::io_setup(1, &raw mut preset) });
    for (depth, address) in [(1, 0usize), (1, 4096), (0, 4096)] {
        // SAFETY: an address that the library must refuse without accessing it.
        let result = unsafe { aio::io_setup(depth, address as *mut ContextPointer) };
        print(&format!("setup of {depth} at address {address}"), result);
    }
    for depth in [0, -5] {
        let mut pointer = ptr::dangling_mut();
        // SAFETY: a live pointer.
        let result = unsafe { aio::io_queue_init(depth, &raw mut pointer) };
        print(&format!("queue_init of {depth}"), result);
    }
    let mut preset = ptr::dangling_mut();
    // SAFETY: a live pointer, which io_queue_init clears first.
    print("queue_init over a context", unsafe { aio::io_queue_init(1, &raw mut preset) });
    drop(Owned(preset));
}

fn submit(world: &World) {
    let context = Owned::new(8);
    let mut good = world.iocb(aio::PREAD, &world.both);
    let mut bad = Iocb { fd: -1, ..good };
    let mut nowhere = Iocb { buffer: 4096, ..good };
    let (good, bad, nowhere) = (&raw mut good, &raw mut bad, &raw mut nowhere);
    let run = |case: &str, context: ContextPointer, nr: i64, array: *const *mut Iocb| {
        // SAFETY: live iocbs with live buffers, or addresses that have to be refused.
        print(&format!("submit {case}"), unsafe { aio::io_submit(context, nr, array) });
    };
    run("none", context.0, 0, ptr::null());
    run("-1", context.0, -1, [good].as_ptr());
    run("an array at NULL", context.0, 1, ptr::null());
    run("an array at -1", context.0, 1, usize::MAX as *const *mut Iocb);
    run("a NULL iocb", context.0, 1, [ptr::null_mut()].as_ptr());
    run("an unmapped iocb", context.0, 1, [4096 as *mut Iocb].as_ptr());
    run("an iocb in read-only memory", context.0, 1, {
        [world::memory(libc::PROT_READ) as *mut Iocb].as_ptr()
    });
    run("good, bad", context.0, 2, [good, bad].as_ptr());
    run("bad, good", context.0, 2, [bad, good].as_ptr());
    run("good, a bad buffer, good", context.0, 3, [good, nowhere, good].as_ptr());
    run("good, NULL", context.0, 2, [good, ptr::null_mut()].as_ptr());
    run("the same twice", context.0, 2, [good, good].as_ptr());
    run("to no context", ptr::null_mut(), 1, [good].as_ptr());
    run("none to no context", ptr::null_mut(), 0, ptr::null());
    run("to a stranger", stranger(), 1, [good].as_ptr());
    let events = std::iter::from_fn(|| context.reap()).take(7).count();
    println!("submit gave events: {events}");
}

/// io_submit refuses more requests than the context has slots. A completed event keeps its slot
/// until it is reaped.
fn full(world: &World) {
    let context = Owned::new(1);
    let mut iocbs = vec![world.iocb(aio::PREAD, &world.both); 4000];
    let first = context.submit(&mut iocbs);
    let (some, all) = (first >= 1, first == 4000);
    println!("full: accepts some {some}, all {all}");
    let second = context.submit(&mut iocbs[..1]);
    print("full: one more", second);
    let good = iocbs[0];
    let mut bad = [
        ("without a file", Iocb { fd: -1, ..good }),
        ("with the reserved field", Iocb { reserved: 1, ..good }),
        ("with a negative length", Iocb { bytes: u64::MAX, ..good }),
        ("of no operation", Iocb { opcode: 77, ..good }),
    ];
    for (case, iocb) in &mut bad {
        print(&format!("full: one {case}"), context.submit(std::slice::from_mut(iocb)));
    }
    for (case, address) in [("NULL", 0usize), ("unmapped", 4096)] {
        let array = [address as *mut Iocb];
        // SAFETY: an iocb that the library has to refuse.
        print(&format!("full: {case}"), unsafe { aio::io_submit(context.0, 1, array.as_ptr()) });
        let array = address as *const *mut Iocb;
        // SAFETY: an array that the library has to refuse.
        print(&format!("full: array {case}"), unsafe { aio::io_submit(context.0, 1, array) });
    }
    println!("full: an event {}", context.reap().is_some());
}

fn getevents(world: &World) {
    const ZERO: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    const SHORT: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let context = Owned::new(8);
    let mut room = [Event::default(); 8];
    let events = room.as_mut_ptr();
    let run = |case: &str, context, min, nr, events, limit: &libc::timespec| {
        // SAFETY: room for eight, or an address that has to be refused; a live timeout.
        let result = unsafe { aio::io_getevents(context, min, nr, events, limit) };
        print(&format!("getevents {case}"), result);
    };
    run("0 of 0", context.0, 0, 0, events, &SHORT);
    run("0 of 0, NULL", context.0, 0, 0, ptr::null_mut(), &SHORT);
    run("1 of 8 at once, none there", context.0, 1, 8, events, &ZERO);
    run("1 of 8 shortly, none there", context.0, 1, 8, events, &SHORT);
    run("0 of 8, none there", context.0, 0, 8, events, &SHORT);
    run("2 of 1", context.0, 2, 1, events, &SHORT);
    run("-1 of 1", context.0, -1, 1, events, &SHORT);
    run("0 of -1", context.0, 0, -1, events, &SHORT);
    run("2 of 1 at once: looks at nothing", context.0, 2, 1, events, &ZERO);
    run("of no context", ptr::null_mut(), 1, 1, events, &SHORT);
    run("of no context at once", ptr::null_mut(), 0, 1, events, &ZERO);
    run("of a stranger", stranger(), 1, 1, events, &SHORT);
    let bad_limit = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000_000 };
    run("with a timeout of 2e9 ns, none there", context.0, 0, 1, events, &bad_limit);
    let mut iocbs = [world.iocb(aio::PREAD, &world.both); 3];
    print("getevents: submit 3", context.submit(&mut iocbs));
    let long = libc::timespec { tv_sec: 2, tv_nsec: 0 };
    run("2 of 2", context.0, 2, 2, events, &long);
    run("to a bad address", context.0, 1, 1, 4096 as *mut Event, &long);
    run("1 of 8, kept after the bad address", context.0, 1, 8, events, &long);
    run("1 of 8, none left", context.0, 1, 8, events, &SHORT);
}

fn cancel(world: &World) {
    let context = Owned::new(8);
    let untouched = Event { data: 5, iocb: 6, res: 7, res2: 8 };
    let mut event = untouched;
    let mut finished = world.iocb(aio::PREAD, &world.both);
    let mut run = |case: &str, context: ContextPointer, iocb: *mut Iocb| {
        // SAFETY: a live iocb or an address that has to be refused; a live event.
        let result = unsafe { aio::io_cancel(context, iocb, &raw mut event) };
        print(&format!("cancel {case}"), result);
        println!("cancel {case} leaves the event: {}", event == untouched);
    };
    print("cancel: submit a read", context.submit(std::slice::from_mut(&mut finished)));
    println!("cancel: read done {}", context.reap().is_some());
    run("a finished one", context.0, &raw mut finished);
    run("NULL", context.0, ptr::null_mut());
    run("an unmapped one", context.0, 4096 as *mut Iocb);
    run("of no context", ptr::null_mut(), &raw mut finished);
    run("of a stranger", stranger(), &raw mut finished);
    let (silent, _writer) = std::io::pipe().expect("a pipe");
    let silent = File::from(std::os::fd::OwnedFd::from(silent));
    for (case, events) in [("a poll", libc::POLLIN as u64), ("a poll for nothing", 0)] {
        let mut iocb = World::poll(&silent, events);
        print(&format!("cancel: submit {case}"), context.submit(std::slice::from_mut(&mut iocb)));
        iocb.key = 1;
        run(&format!("{case} with a key"), context.0, &raw mut iocb);
        iocb.key = 0;
        run(case, context.0, &raw mut iocb);
        println!("cancel {case} ends with {:?}", context.reap().map(|event| event.res));
        run(&format!("{case} again"), context.0, &raw mut iocb);
    }
}

fn destroy() {
    let mut pointer = ptr::null_mut();
    // SAFETY: a live null pointer, then its context, then the destroyed one, foreign memory, null.
    unsafe {
        print("destroy: setup", aio::io_setup(4, &raw mut pointer));
        print("destroy", aio::io_destroy(pointer));
        print("destroy again", aio::io_destroy(pointer));
        print("destroy a stranger", aio::io_destroy(stranger()));
        print("destroy none", aio::io_destroy(ptr::null_mut()));
    }
}

/// libaio returns errors and does not change `errno`.
fn errno_is_left_alone() {
    // SAFETY: this thread's errno; a destroy that fails.
    let left = unsafe {
        *libc::__errno_location() = 4711;
        aio::io_destroy(ptr::null_mut());
        *libc::__errno_location()
    };
    println!("errno after a failure: {left}");
    std::io::stdout().flush().expect("stdout");
}
