//! The ways to read and write a file, one in each file, all driven by the same loop.
//!
//! ```text
//! native   our page cache: a queue of the native API
//! lower    our page cache: a submission, and pages that are lent
//! psync    pread, pwrite, preadv2
//! ring     io_uring             segments the same, requests of several segments, without the loop
//! aio      the kernel's native AIO by its system calls, or a libaio.so.1
//! posix    the C library's POSIX AIO
//! pool     threads that read and write for the caller
//! memory   a mapping of the file; memory that holds a copy of it
//! null     nothing, so that what the harness costs can be seen
//!
//! registry all of them by name, for the command line
//! buffers  what all of them read into and write from
//! ```

pub(crate) mod aio;
pub(crate) mod buffers;
pub(crate) mod lower;
pub(crate) mod memory;
pub(crate) mod native;
pub(crate) mod null;
pub(crate) mod pool;
pub(crate) mod posix;
pub(crate) mod psync;
pub(crate) mod registry;
pub(crate) mod ring;
pub(crate) mod segments;
mod slots;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait::{BackendChoice, SubmitMode};

pub(crate) use buffers::{Arena, Buffers};

use crate::error::{BenchError, Context, Result};

/// The files that a peer opens, and their flags.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) write: bool,
    /// `O_DIRECT`, where the peer has a choice.
    pub(crate) direct: bool,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    /// Bytes of the file that are worked on.
    pub(crate) set_bytes: u64,
    /// Size of our page cache.
    pub(crate) pool_bytes: u64,
    /// The choice for nowait's engine.
    pub(crate) backend: BackendChoice,
    /// The choice for nowait's engine.
    pub(crate) submit: SubmitMode,
}

/// One read or write of a whole block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) offset: u64,
    /// The generation that a write stamps into its buffer; reads have 0.
    pub(crate) generation: u32,
    /// The caller's own: when it began, or what it is for.
    pub(crate) tag: u64,
    /// Which file, where a peer has several.
    pub(crate) file: u32,
}

/// The part of an engine that a process sets up once.
pub(crate) trait Engine: Sync {
    type Peer: Peer;

    /// Makes what one thread works with: for a request in flight in each of the buffers.
    fn peer(&self, buffers: Buffers) -> Result<Self::Peer>;

    /// Returns `true` if the pages lie in a cache of this process, which must be filled through it.
    fn has_own_cache(&self) -> bool {
        false
    }

    /// Returns `true` if bytes are really moved, and can be checked.
    fn moves_data(&self) -> bool {
        true
    }

    /// Fills such a cache with the first `bytes` of another file, in blocks and in no order, for as
    /// long as the engine lives.
    fn fill(&self, _other: &Path, _bytes: u64, _block_bytes: usize) -> Result<()> {
        Ok(())
    }
}

/// The part of an engine that one thread uses.
pub(crate) trait Peer {
    /// Submit itself only starts requests, so that its time says something.
    const ASYNCHRONOUS: bool = true;

    /// Starts requests, at most as many as fit beside those in flight.
    fn submit(&mut self, requests: &[Request]) -> Result<()>;

    /// Waits until `min` requests are over; hands over each one that is, with its bytes.
    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()>;

    /// Makes durable what was written, if anything can be.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An engine that is an open file, and what makes a peer for it.
pub(crate) struct OnFile<F> {
    file: Arc<File>,
    make: F,
}

impl<P: Peer, F: Fn(Arc<File>, Buffers) -> Result<P> + Sync> OnFile<F> {
    /// Opens the file.
    pub(crate) fn open(place: &Place, make: F) -> Result<Self> {
        Ok(Self { file: Arc::new(open(place)?), make })
    }
}

impl<P: Peer, F: Fn(Arc<File>, Buffers) -> Result<P> + Sync> Engine for OnFile<F> {
    type Peer = P;

    fn peer(&self, buffers: Buffers) -> Result<P> {
        (self.make)(self.file.clone(), buffers)
    }
}

fn sync(file: &File) -> Result<()> {
    file.sync_all().context(|| "fsync".to_owned())
}

/// Opens the file of a run for a peer.
fn open(place: &Place) -> Result<File> {
    let direct = if place.direct { libc::O_DIRECT } else { 0 };
    let sync = if place.sync { libc::O_DSYNC } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(place.write).custom_flags(direct | sync);
    let opened = options.open(&place.path);
    if let Err(error) = &opened
        && direct != 0
        && error.raw_os_error() == Some(libc::EINVAL)
    {
        let path = place.path.display();
        return Err(BenchError::usage(format!("{path} cannot be opened with O_DIRECT")));
    }
    opened.context(|| format!("open {}", place.path.display()))
}
