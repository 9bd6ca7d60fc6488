//! One request at a time, into one buffer that stays in the processor's cache.

use std::os::fd::AsRawFd;

use nowait_sys::Errno;
use nowait_sys::file::{Advice, advise, preadv2, pwritev2, rwf};

use crate::buffers::Buffers;
use crate::slots::Slots;
use crate::{Files, Peer, Request, sync};
use nowait_harness::error::{Failure, Result};

pub(crate) struct PsyncPeer {
    files: Files,
    rw_flags: u32,
    /// Bytes that the peer announces to the kernel ahead of a sequential reader.
    ahead_bytes: u64,
    told: u64,
    slots: Slots,
    wanted: Vec<Request>,
}

/// With `nowait`, the peers first try without waiting (RWF_NOWAIT). If `ahead_bytes` is not zero,
/// the peers let the kernel read so far ahead of a sequential reader, beyond its own window.
pub(crate) fn psync(
    nowait: bool,
    ahead_bytes: u64,
) -> impl Fn(Files, Buffers) -> Result<PsyncPeer> + Sync {
    move |files, buffers| {
        Ok(PsyncPeer {
            files,
            rw_flags: if nowait { rwf::NOWAIT } else { 0 },
            ahead_bytes,
            told: 0,
            wanted: Vec::with_capacity(buffers.depth()),
            slots: Slots::new(buffers),
        })
    }
}

impl PsyncPeer {
    fn read_ahead(&mut self, offset: u64) -> Result<()> {
        while self.ahead_bytes > 0 && self.told < offset + self.ahead_bytes {
            advise(self.files[0].as_raw_fd(), self.told, TOLD_BYTES, Advice::WillNeed)
                .map_err(|errno| Failure::new(format!("posix_fadvise: {errno}")))?;
            self.told += TOLD_BYTES;
        }
        Ok(())
    }
}

/// Bytes that one call announces: the kernel reads no more at a time than its own window.
const TOLD_BYTES: u64 = 128 << 10;

impl Peer for PsyncPeer {
    const ASYNCHRONOUS: bool = false;

    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        self.wanted.extend_from_slice(requests);
        requests.iter().try_for_each(|request| self.read_ahead(request.offset))
    }

    fn reap(&mut self, _min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        for request in self.wanted.drain(..) {
            let slot = self.slots.take(request);
            let slot = slot.ok_or_else(|| Failure::new("the only buffer is in use"))?;
            let memory = [self.slots.memory(slot)];
            let (fd, offset) = (self.files[0].as_raw_fd(), request.offset as i64);
            let call = |flags| {
                // SAFETY: the buffer belongs to this peer and lives through the call.
                unsafe {
                    match request.generation {
                        0 => preadv2(fd, &memory, offset, flags),
                        _ => pwritev2(fd, &memory, offset, flags),
                    }
                }
            };
            let done = match call(self.rw_flags) {
                Err(Errno::AGAIN) => call(0),
                done => done,
            };
            self.slots.end(slot, done, each)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.files)
    }
}
