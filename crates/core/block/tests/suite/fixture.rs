//! A backend under test, and helpers for the claims.

use core::any::Any;
use nowait_block::{
    Bio, BioOp, BlockBackend, Completion, Segments, VirtualClock, skip::print_skip,
};
use nowait_sys::{
    Errno,
    file::IoVec,
    time::{Deadline, now_ns},
};
use std::sync::Arc;

pub(crate) const FILE_BYTES: usize = 64 << 10;

/// The features that a backend lacks, each with the reason; `None`: the backend has the feature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lacks {
    pub(crate) descriptors: Option<&'static str>,
    pub(crate) polls: Option<&'static str>,
    pub(crate) growth: Option<&'static str>,
    pub(crate) threads: Option<&'static str>,
}

pub(crate) struct Fixture {
    /// The first field, so that it is dropped before its file.
    pub(crate) backend: Box<dyn BlockBackend>,
    pub(crate) fd: i32,
    pub(crate) direct_fd: Option<i32>,
    /// The clock of the backend's deadlines; `None`: CLOCK_MONOTONIC.
    pub(crate) clock: Option<Arc<VirtualClock>>,
    pub(crate) lacks: Lacks,
    pub(crate) _keep: Box<dyn Any>,
}

impl Fixture {
    /// Returns `true` if `lack` is `None`. Otherwise prints a skip that `NOWAIT_SKIPS` does not
    /// count: the backend lacks the feature on every machine.
    pub(super) fn can(&self, claim: &str, lack: Option<&str>) -> bool {
        if let Some(why) = lack {
            print_skip(&format!("{} {claim}", self.backend.name()), why);
        }
        lack.is_none()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.as_ref().map_or_else(now_ns, |clock| clock.now_ns())
    }

    pub(super) fn start(&self, bio: Bio) {
        assert!(self.backend.queue(bio).is_ok(), "there is room");
        self.backend.commit();
    }

    pub(super) fn run(&self, bio: Bio) -> Result<u32, Errno> {
        let token = bio.token;
        self.start(bio);
        let done = self.reap(1);
        assert_eq!((done.len(), done[0].token), (1, token));
        done[0].result
    }

    pub(super) fn reap(&self, count: usize) -> Vec<Completion> {
        let done = self.reap_at_least(count);
        assert_eq!(done.len(), count);
        done
    }

    pub(super) fn reap_at_least(&self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while done.len() < count {
            let missing = count - done.len();
            self.wait(&mut done, missing, Deadline::NEVER);
        }
        done
    }

    /// Calls `reap`, and calls it again if a signal, a debugger or a freezer interrupts the call.
    pub(super) fn wait(&self, done: &mut Vec<Completion>, min: usize, deadline: Deadline) {
        loop {
            match self.backend.reap(done, min, deadline) {
                Ok(()) => return,
                Err(Errno::INTR) => {}
                Err(errno) => panic!("reap: {errno}"),
            }
        }
    }

    pub(super) fn read(&self, into: &mut [u8], offset: i64, token: u64) -> Bio {
        bio(BioOp::Read, self.fd, one(into), offset, token)
    }

    pub(super) fn write(&self, from: &mut [u8], offset: i64, token: u64) -> Bio {
        bio(BioOp::Write, self.fd, one(from), offset, token)
    }
}

/// The function ends the other threads of a scope: otherwise the scope would wait for them for
/// ever.
pub(super) struct OnDrop<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

pub(super) fn bio(op: BioOp, fd: i32, segments: Segments, offset: i64, token: u64) -> Bio {
    // SAFETY: the claims keep their buffers until they have reaped, or pass addresses that only the
    // kernel uses.
    unsafe { Bio::new(op, fd, segments, offset, token) }
}

pub(super) fn one(bytes: &mut [u8]) -> Segments {
    Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() })
}

pub(super) fn many(mut bytes: &mut [u8], lengths: &[usize]) -> Segments {
    let mut segments = Vec::new();
    for len in lengths {
        let (segment, rest) = bytes.split_at_mut(*len);
        segments.push(IoVec { base: segment.as_mut_ptr(), len: *len });
        bytes = rest;
    }
    Segments::Many(segments.into())
}

pub(super) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + seed * 31) as u8).collect()
}
