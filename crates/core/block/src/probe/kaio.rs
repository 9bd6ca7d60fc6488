//! Is the kernel's native AIO usable?

use super::{Detail, Probe, Refusal, STACK_BYTES, check_read, test_file};
use nowait_sys::aio::{AioContext, IoEvent, Iocb, cmd};
use nowait_sys::confined::Extra;
use nowait_sys::time::Deadline;
use nowait_sys::{Errno, own_thread, thread};

const PATIENCE_NS: u64 = 1_000_000_000;
const TOKEN: u64 = 0x6e6f_7761_6974;

/// Sets up a context, and reads a file through it.
pub fn kaio() -> Probe {
    match attempt() {
        Ok(details) => Probe { backend: "kaio", usable: Ok(()), details },
        Err(refusal) => Probe::refused("kaio", refusal),
    }
}

fn attempt() -> Result<Vec<Detail>, Refusal> {
    Refusal::unless_confined("io_setup", Extra::NativeAio)?;
    let file = test_file()?;
    let mut buffer = [0u8; 16];
    let mut read = read_of(file.raw(), &mut buffer);
    // The context is declared after `read` and `buffer`, so an error return drops the context
    // before them: io_destroy waits for the request in flight.
    let context = AioContext::new(1).map_err(|errno| Refusal::diagnose("io_setup", errno))?;
    // SAFETY: the iocb and its buffer outlive the request: either `reap` returns its event, or the
    // context, whose drop waits for the request, is dropped before the iocb and the buffer.
    let started = unsafe { context.submit(&mut [&raw mut read]) };
    if started.map_err(|errno| Refusal::diagnose("io_submit", errno))? != 1 {
        return Err(Refusal::diagnose("io_submit", Errno::AGAIN));
    }
    let event = reap(&context).map_err(|errno| Refusal::diagnose("io_getevents", errno))?;
    if event.data != TOKEN {
        return Err(Refusal::diagnose("io_getevents", Errno::IO));
    }
    destroy(context);
    check_read("io_submit", event.res)?;
    Ok(Vec::new())
}

/// Destroys an idle context on another thread, without waiting for it: even for an idle context
/// io_destroy takes 30 ms, for two RCU grace periods.
fn destroy(context: AioContext) {
    let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
    // If no thread can be started, `start` drops the closure here, and with it the context.
    let _ = own_thread::start("nowait-probe", STACK_BYTES, move || drop(context));
    thread::swap_signal_mask(mask);
}

fn read_of(fd: i32, buffer: &mut [u8; 16]) -> Iocb {
    Iocb {
        data: TOKEN,
        key: 0,
        rw_flags: 0,
        opcode: cmd::PREAD,
        reqprio: 0,
        fildes: fd as u32,
        buf: buffer.as_mut_ptr() as u64,
        nbytes: buffer.len() as u64,
        offset: 0,
        reserved2: 0,
        flags: 0,
        resfd: 0,
    }
}

fn reap(context: &AioContext) -> Result<IoEvent, Errno> {
    let deadline = Deadline::after_ns(PATIENCE_NS);
    let mut events = [IoEvent::default()];
    loop {
        match context.events(1, &mut events, deadline) {
            Ok(1) => return Ok(events[0]),
            Ok(_) if deadline.has_passed() => return Err(Errno::TIMEDOUT),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
