//! A `libaio.so.1`, loaded and called as a program that is linked with it calls it: the system's,
//! or nowait's in its place.

use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nowait_sys::Errno;
use nowait_sys::aio::{IoEvent, Iocb, cmd};

use super::slots::Slots;
use super::{Buffers, Engine, Peer, Place, Request, require_whole};
use crate::error::{BenchError, Context, Result};

/// `io_context_t`.
type Handle = *mut c_void;

type Setup = unsafe extern "C" fn(c_int, *mut Handle) -> c_int;
type Submit = unsafe extern "C" fn(Handle, c_long, *mut *mut Iocb) -> c_int;
type GetEvents =
    unsafe extern "C" fn(Handle, c_long, c_long, *mut IoEvent, *mut libc::timespec) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;

/// The calls, as `libaio.h` declares them. A negative result is an errno.
#[derive(Clone, Copy)]
struct Calls {
    setup: Setup,
    submit: Submit,
    getevents: GetEvents,
    destroy: Destroy,
}

/// The library and the file.
pub(crate) struct Library {
    calls: Calls,
    file: Arc<File>,
}

/// A context of one thread.
pub(crate) struct LibraryPeer {
    calls: Calls,
    handle: Handle,
    file: Arc<File>,
    slots: Slots,
    block_bytes: usize,
    iocbs: Vec<Iocb>,
    pointers: Vec<*mut Iocb>,
    events: Vec<IoEvent>,
}

impl Library {
    /// Loads `library`, a path or a name that the dynamic linker finds; it stays loaded.
    pub(crate) fn open(place: &Place, library: &Path) -> Result<Self> {
        Ok(Self { calls: Calls::load(library)?, file: Arc::new(super::open(place)?) })
    }
}

impl Calls {
    fn load(library: &Path) -> Result<Self> {
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

impl Engine for Library {
    type Peer = LibraryPeer;

    fn peer(&self, buffers: Buffers) -> Result<LibraryPeer> {
        let (block_bytes, depth) = (buffers.block_bytes, buffers.depth());
        let mut handle: Handle = core::ptr::null_mut();
        // SAFETY: the handle is a live local that is null, as the call wants it.
        let made = unsafe { (self.calls.setup)(depth as c_int, &raw mut handle) };
        checked("io_setup", made)?;
        Ok(LibraryPeer {
            calls: self.calls,
            handle,
            file: self.file.clone(),
            slots: Slots::new(buffers),
            block_bytes,
            iocbs: Vec::with_capacity(depth),
            pointers: Vec::with_capacity(depth),
            events: vec![IoEvent::default(); depth],
        })
    }
}

impl LibraryPeer {
    fn iocb(&mut self, slot: usize, request: &Request) -> Iocb {
        let memory = self.slots.memory(slot);
        Iocb {
            data: slot as u64,
            key: 0,
            rw_flags: 0,
            opcode: if request.generation > 0 { cmd::PWRITE } else { cmd::PREAD },
            reqprio: 0,
            fildes: self.file.as_raw_fd() as u32,
            buf: memory.base as u64,
            nbytes: memory.len as u64,
            offset: request.offset as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        }
    }
}

impl Peer for LibraryPeer {
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
            let (count, first) = (rest.len() as c_long, rest.as_mut_ptr());
            // SAFETY: the iocbs are read during the call only; the memory of a slot stays in place
            // until its event, for which dropping the context waits.
            let started = unsafe { (self.calls.submit)(self.handle, count, first) };
            let started = checked("io_submit", started)?;
            if started == 0 {
                return Err(BenchError::failed("io_submit started nothing"));
            }
            rest = &mut rest[started..];
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let (max, first) = (self.events.len() as c_long, self.events.as_mut_ptr());
        let forever = core::ptr::null_mut();
        let mut at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if min == 0 { &raw mut at_once } else { forever };
        // SAFETY: the events are `max` live elements, and the timeout a live local or none.
        let taken =
            unsafe { (self.calls.getevents)(self.handle, min as c_long, max, first, timeout) };
        let taken = if taken == -libc::EINTR { 0 } else { checked("io_getevents", taken)? };
        for event in &self.events[..taken] {
            let bytes = usize::try_from(event.res).map_err(|_| Errno::new(-event.res as i32));
            require_whole(bytes, self.block_bytes)?;
            self.slots.give_back(event.data as usize, each);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_all().context(|| "fsync".to_owned())
    }
}

impl Drop for LibraryPeer {
    fn drop(&mut self) {
        // SAFETY: made by `setup` and not used after this; it waits for what is under way.
        unsafe { (self.calls.destroy)(self.handle) };
    }
}
