//! Wraps another backend: chosen bios fail or transfer fewer bytes.

use crate::{
    BlockBackend, Completion, Limits,
    bio::{Bio, BioOp, Segments},
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Release},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, file::IoVec, time::Deadline};

/// The bios that a fault hits. Bios have numbers from 0, in the order in which `queue` accepts
/// them.
pub enum When {
    /// The bio with this number.
    Nth(u64),
    /// Every n-th bio: 0, n, 2n, …; none for n = 0.
    EveryNth(u64),
    /// Bios with this operation.
    Op(BioOp),
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bio completes with this errno, and the wrapped backend never sees the bio.
    Fail(Errno),
    /// The read or write transfers at most this many bytes.
    Short(usize),
}

/// Injects faults by rules; the first rule that fits a bio decides.
pub struct Error<B> {
    inner: B,
    rules: Vec<(When, Fault)>,
    own: Mutex<Own>,
    /// `wake` sets this flag, and the `reap` that returns early for it clears it. `commit` wakes
    /// the wrapped backend without this flag, for completions in `own`.
    is_woken: AtomicBool,
}

#[derive(Default)]
struct Own {
    accepted: u64,
    fired: u64,
    queued: Vec<Completion>,
    ready: Vec<Completion>,
}

impl<B: BlockBackend> Error<B> {
    /// Wraps `inner`; `rules` choose the bios that a fault hits.
    pub fn new(inner: B, rules: Vec<(When, Fault)>) -> Error<B> {
        Error { inner, rules, own: Mutex::default(), is_woken: AtomicBool::default() }
    }

    /// Returns the wrapped backend.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns how many bios a fault has hit.
    pub fn fired(&self) -> u64 {
        self.own.lock().fired
    }

    fn fault_of(&self, bio: &Bio, count: u64) -> Option<Fault> {
        let rule = self.rules.iter().find(|(when, _)| match when {
            When::Nth(n) => count == *n,
            When::EveryNth(n) => count.is_multiple_of(*n) && *n > 0,
            When::Op(op) => bio.op == *op,
        });
        rule.map(|(_, fault)| *fault)
    }
}

impl<B: BlockBackend> BlockBackend for Error<B> {
    fn name(&self) -> &'static str {
        "error"
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queue(&self, mut bio: Bio) -> Result<(), Bio> {
        let mut own = self.own.lock();
        if own.in_flight() + self.inner.in_flight() >= self.limits().depth {
            return Err(bio);
        }
        let fault = self.fault_of(&bio, own.accepted);
        match fault {
            Some(Fault::Fail(errno)) => {
                own.queued.push(Completion { token: bio.token, result: Err(errno) });
            }
            Some(Fault::Short(bytes)) => {
                let whole = core::mem::replace(&mut bio.segments, Segments::NONE);
                bio.segments = first(&whole, bytes);
                self.inner.queue(bio).map_err(|bio| Bio { segments: whole, ..bio })?;
            }
            None => self.inner.queue(bio)?,
        }
        own.accepted += 1;
        own.fired += u64::from(fault.is_some());
        Ok(())
    }

    fn commit(&self) {
        self.inner.commit();
        let mut own = self.own.lock();
        if !own.queued.is_empty() {
            let queued = core::mem::take(&mut own.queued);
            own.ready.extend(queued);
            drop(own);
            self.inner.wake();
        }
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        loop {
            done.append(&mut self.own.lock().ready);
            self.inner.reap(done, 0, Deadline::NOW)?;
            let is_enough = done.len() - before >= min || deadline.has_passed();
            if is_enough || self.is_woken.swap(false, AcqRel) {
                return Ok(());
            }
            match self.inner.reap(done, 1, deadline) {
                Err(_) if done.len() > before => return Ok(()),
                result => result?,
            }
        }
    }

    fn wake(&self) {
        self.is_woken.store(true, Release);
        self.inner.wake();
    }

    fn cancel(&self, token: u64) {
        self.inner.cancel(token);
    }

    fn in_flight(&self) -> usize {
        self.own.lock().in_flight() + self.inner.in_flight()
    }
}

impl Own {
    fn in_flight(&self) -> usize {
        self.queued.len() + self.ready.len()
    }
}

fn first(segments: &Segments, mut bytes: usize) -> Segments {
    let mut kept = Vec::new();
    for segment in segments.as_slice() {
        let len = segment.len.min(bytes);
        kept.push(IoVec { base: segment.base, len });
        bytes -= len;
    }
    match kept.as_slice() {
        [one] => Segments::One(*one),
        _ => Segments::Many(kept.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{mem::Mem, null::Null};

    fn bio(op: BioOp, offset: i64, bytes: &mut [u8], token: u64) -> Bio {
        let one = Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() });
        // SAFETY: the tests keep the bytes until they have reaped.
        unsafe { Bio::new(op, -1, one, offset, token) }
    }

    fn run(backend: &dyn BlockBackend, bios: Vec<Bio>) -> Vec<Completion> {
        let count = bios.len();
        for bio in bios {
            assert!(backend.queue(bio).is_ok());
        }
        backend.commit();
        let mut done = Vec::new();
        backend.reap(&mut done, count, Deadline::NEVER).unwrap();
        done.sort_by_key(|completion| completion.token);
        done
    }

    fn failed(done: &[Completion]) -> Vec<u64> {
        done.iter().filter(|one| one.result == Err(Errno::IO)).map(|one| one.token).collect()
    }

    #[test]
    fn rules_hit_the_bios_they_name() {
        let cases = [
            (When::Nth(3), vec![3]),
            (When::EveryNth(4), vec![0, 4]),
            (When::EveryNth(0), vec![]),
            (When::Op(BioOp::Write), vec![1, 3, 5]),
        ];
        for (when, expected) in cases {
            let error = Error::new(Null::new(8), vec![(when, Fault::Fail(Errno::IO))]);
            let op = |token| if token % 2 == 0 { BioOp::Read } else { BioOp::Write };
            let bios = (0..6u64).map(|t| bio(op(t), t as i64 * 1000, &mut [], t)).collect();
            assert_eq!(failed(&run(&error, bios)), expected);
            assert_eq!(error.fired(), expected.len() as u64);
        }
    }

    #[test]
    fn short_write_leaves_the_rest_alone() {
        let rules = vec![(When::Op(BioOp::Write), Fault::Short(3))];
        let error = Error::new(Mem::new(8, 8, 1), rules);
        let mut bytes = [9u8; 8];
        let done = run(&error, vec![bio(BioOp::Write, 0, &mut bytes, 1)]);
        assert_eq!(done[0].result, Ok(3));
        assert_eq!(error.inner().contents(), [9, 9, 9, 0, 0, 0, 0, 0]);
    }
}
