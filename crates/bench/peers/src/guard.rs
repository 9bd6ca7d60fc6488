//! nowait's page cache without a copy: pages are lent, and read in place.

use std::path::Path;

use nowait::{CacheMode, File, SubmitMode};

use crate::buffers::Buffers;
use crate::job::Job;
use crate::native::{Native, NativePeer, explain};
use crate::{Engine, Peer, Request};
use nowait_harness::error::{Failure, Result};

/// The peer borrows blocks up to this size from the page cache. It reads larger blocks into
/// buffers, for example to fill the cache before the run.
const LENT_BYTES_MAX: usize = 4096;

pub(crate) struct Guard(Native);

pub(crate) enum GuardPeer {
    Lends { file: File, len: usize, wanted: Vec<Request> },
    Reads(Box<NativePeer>),
}

impl Guard {
    pub(crate) fn open(job: &Job) -> Result<Self> {
        Native::open(job, CacheMode::User, SubmitMode::Auto).map(Self)
    }
}

impl Engine for Guard {
    type Peer = GuardPeer;

    fn peer(&self, buffers: Buffers) -> Result<GuardPeer> {
        let (len, wanted) = (buffers.block_bytes, Vec::with_capacity(buffers.depth()));
        if len > LENT_BYTES_MAX {
            return self.0.peer(buffers).map(Box::new).map(GuardPeer::Reads);
        }
        Ok(GuardPeer::Lends { file: self.0.file().clone(), len, wanted })
    }

    fn has_own_cache(&self) -> bool {
        true
    }

    fn fill(&self, other: &Path, bytes: u64, block_bytes: usize) -> Result<()> {
        self.0.fill(other, bytes, block_bytes)
    }
}

impl Peer for GuardPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        match self {
            Self::Reads(peer) => return peer.submit(requests),
            Self::Lends { wanted, .. } => wanted.extend_from_slice(requests),
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let (file, len, wanted) = match self {
            Self::Reads(peer) => return peer.reap(min, each),
            Self::Lends { file, len, wanted } => (file, *len, wanted),
        };
        let ranges: Vec<(u64, usize)> = wanted.iter().map(|it| (it.offset, len)).collect();
        let mut whole = true;
        let lent = file.lend_each(&ranges, |index, lent| match lent {
            Some(lent) if lent.len() == len => {
                lent.chunks().for_each(|bytes| each(wanted[index], bytes));
            }
            _ => whole = false,
        });
        lent.map_err(explain)?;
        wanted.clear();
        if whole { Ok(()) } else { Err(Failure::new("a page was not in the cache")) }
    }
}
