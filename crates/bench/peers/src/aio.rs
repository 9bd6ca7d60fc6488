//! The kernel's native AIO by its system calls; or a `libaio.so.1`, loaded and called as a program
//! that is linked with it calls it: the system's, or nowait's in its place.

use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nowait_sys::Errno;
use nowait_sys::aio::{AioContext, IoEvent, Iocb, cmd};
use nowait_sys::time::Deadline;

use crate::buffers::Buffers;
use crate::slots::Slots;
use crate::{Files, Peer, Request, sync};
use nowait_harness::error::{BenchError, Result, failed};

/// `io_context_t`.
type Handle = *mut c_void;

type Setup = unsafe extern "C" fn(c_int, *mut Handle) -> c_int;
type Submit = unsafe extern "C" fn(Handle, c_long, *mut *mut Iocb) -> c_int;
type GetEvents =
    unsafe extern "C" fn(Handle, c_long, c_long, *mut IoEvent, *mut libc::timespec) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;

/// The calls, as `libaio.h` declares them. A negative result is an errno.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    setup: Setup,
    submit: Submit,
    getevents: GetEvents,
    destroy: Destroy,
}

/// A context of one thread. It comes first: dropping it waits, and the buffers go after that.
pub(crate) struct AioPeer {
    context: AnyContext,
    files: Files,
    slots: Slots,
    iocbs: Vec<Iocb>,
    pointers: Vec<*mut Iocb>,
    events: Vec<IoEvent>,
}

/// A context of the kernel, or of a library.
enum AnyContext {
    Kernel(AioContext),
    Library(Calls, Handle),
}

impl Calls {
    /// Loads `library`, a path or a name that the dynamic linker finds; it stays loaded.
    pub(crate) fn load(library: &Path) -> Result<Self> {
        let missing = || BenchError::usage(format!("{} cannot be loaded", library.display()));
        let name = CString::new(library.as_os_str().as_bytes()).map_err(|_| missing())?;
        // SAFETY: the name is a string of C. The constructors of a libaio only prepare themselves.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(missing());
        }
        let find = |symbol: &CStr| {
            // SAFETY: the handle is of a loaded library, the name a string of C.
            let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
            if address.is_null() { Err(missing()) } else { Ok(address) }
        };
        let setup = find(c"io_setup")?;
        let submit = find(c"io_submit")?;
        let getevents = find(c"io_getevents")?;
        let destroy = find(c"io_destroy")?;
        // SAFETY: these symbols of a libaio are functions of these types, by its header.
        Ok(unsafe {
            Self {
                setup: core::mem::transmute::<Handle, Setup>(setup),
                submit: core::mem::transmute::<Handle, Submit>(submit),
                getevents: core::mem::transmute::<Handle, GetEvents>(getevents),
                destroy: core::mem::transmute::<Handle, Destroy>(destroy),
            }
        })
    }
}

/// Returns a count, or the error that a negative one is.
fn checked(what: &str, result: c_int) -> Result<usize> {
    usize::try_from(result)
        .map_err(|_| BenchError::failed(format!("{what}: {}", Errno::new(-result))))
}

impl AnyContext {
    fn new(calls: Option<Calls>, depth: usize) -> Result<Self> {
        let Some(calls) = calls else {
            return AioContext::new(depth as u32).map(Self::Kernel).map_err(failed("io_setup"));
        };
        let mut handle: Handle = core::ptr::null_mut();
        // SAFETY: the handle is a live local that is null, as the call wants it.
        let made = unsafe { (calls.setup)(depth as c_int, &raw mut handle) };
        checked("io_setup", made).map(|_| Self::Library(calls, handle))
    }

    /// Starts requests; returns how many.
    ///
    /// # Safety
    /// The memory of the requests stays in place until their events, for which dropping the context
    /// waits. The iocbs are read during the call only.
    unsafe fn submit(&self, iocbs: &mut [*mut Iocb]) -> Result<usize> {
        match self {
            // SAFETY: the promise of the caller.
            Self::Kernel(context) => unsafe { context.submit(iocbs) }.map_err(failed("io_submit")),
            Self::Library(calls, handle) => {
                let (count, first) = (iocbs.len() as c_long, iocbs.as_mut_ptr());
                // SAFETY: the promise of the caller.
                let started = unsafe { (calls.submit)(*handle, count, first) };
                checked("io_submit", started)
            }
        }
    }

    /// Takes events, at least `min`; returns how many.
    fn events(&self, min: usize, events: &mut [IoEvent]) -> Result<usize> {
        match self {
            Self::Kernel(context) => {
                context.events(min, events, Deadline::NEVER).map_err(failed("io_getevents"))
            }
            Self::Library(calls, handle) => {
                let (max, first) = (events.len() as c_long, events.as_mut_ptr());
                let mut at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let forever = core::ptr::null_mut();
                let timeout = if min == 0 { &raw mut at_once } else { forever };
                // SAFETY: the events are `max` live elements, and the timeout a live local or none.
                let taken =
                    unsafe { (calls.getevents)(*handle, min as c_long, max, first, timeout) };
                if taken == -libc::EINTR { Ok(0) } else { checked("io_getevents", taken) }
            }
        }
    }
}

impl Drop for AnyContext {
    fn drop(&mut self) {
        if let Self::Library(calls, handle) = self {
            // SAFETY: made by `setup` and not used after this; it waits for what is in flight.
            unsafe { (calls.destroy)(*handle) };
        }
    }
}

impl AioPeer {
    /// Makes a context of a library, or of the kernel, for one file or several.
    pub(crate) fn new(calls: Option<Calls>, files: Files, buffers: Buffers) -> Result<Self> {
        let depth = buffers.depth();
        Ok(Self {
            context: AnyContext::new(calls, depth)?,
            files,
            slots: Slots::new(buffers),
            iocbs: Vec::with_capacity(depth),
            pointers: Vec::with_capacity(depth),
            events: vec![IoEvent::default(); depth],
        })
    }

    fn iocb(&mut self, slot: usize, request: &Request) -> Iocb {
        let memory = self.slots.memory(slot);
        Iocb {
            data: slot as u64,
            key: 0,
            rw_flags: 0,
            opcode: if request.generation > 0 { cmd::PWRITE } else { cmd::PREAD },
            reqprio: 0,
            fildes: self.files[request.file as usize].as_raw_fd() as u32,
            buf: memory.base as u64,
            nbytes: memory.len as u64,
            offset: request.offset as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        }
    }
}

impl Peer for AioPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        self.iocbs.clear();
        for request in requests {
            let Some(slot) = self.slots.take(*request) else { break };
            let iocb = self.iocb(slot, request);
            self.iocbs.push(iocb);
        }
        self.pointers.clear();
        self.pointers.extend(self.iocbs.iter_mut().map(core::ptr::from_mut));
        let mut rest = self.pointers.as_mut_slice();
        while !rest.is_empty() {
            // SAFETY: the memory of a slot stays in place until its event.
            let started = unsafe { self.context.submit(rest) }?;
            if started == 0 {
                return Err(BenchError::failed("io_submit started nothing"));
            }
            rest = &mut rest[started..];
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let taken = self.context.events(min, &mut self.events)?;
        for event in &self.events[..taken] {
            let bytes = usize::try_from(event.res).map_err(|_| Errno::new(-event.res as i32));
            self.slots.end(event.data as usize, bytes, each)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.files)
    }
}
