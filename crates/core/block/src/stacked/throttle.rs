//! Fewer bios, or fewer bytes, in flight at a time than the backend below would take.

use crate::{BlockBackend, Completion, Limits, bio::Bio};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};

/// Gives back what would exceed a depth or a number of bytes in flight.
///
/// A bio that is larger than the byte limit passes when it is alone.
pub struct Throttle<B> {
    inner: B,
    depth_max: usize,
    bytes_max: usize,
    in_flight: Mutex<InFlight>,
}

#[derive(Default)]
struct InFlight {
    /// Token and bytes.
    bios: Vec<(u64, usize)>,
    bytes: usize,
}

impl<B: BlockBackend> Throttle<B> {
    /// Lets at most `depth_max` bios (at least 1) and `bytes_max` bytes be in flight.
    pub fn new(inner: B, depth_max: usize, bytes_max: usize) -> Throttle<B> {
        let depth_max = depth_max.clamp(1, inner.limits().depth);
        Throttle { inner, depth_max, bytes_max, in_flight: Mutex::default() }
    }

    /// Returns the backend below.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns how many bytes are in flight.
    pub fn bytes_in_flight(&self) -> usize {
        self.in_flight.lock().bytes
    }
}

impl<B: BlockBackend> BlockBackend for Throttle<B> {
    fn name(&self) -> &'static str {
        "throttle"
    }

    fn limits(&self) -> Limits {
        Limits { depth: self.depth_max, ..self.inner.limits() }
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        // Held across the inner call: another thread might commit and reap the bio at once.
        let mut in_flight = self.in_flight.lock();
        let (token, bytes) = (bio.token, bio.segments.len());
        let too_many = in_flight.bios.len() >= self.depth_max;
        let too_much = in_flight.bytes.saturating_add(bytes) > self.bytes_max;
        if too_many || (too_much && !in_flight.bios.is_empty()) {
            return Err(bio);
        }
        self.inner.queue(bio)?;
        in_flight.bios.push((token, bytes));
        in_flight.bytes += bytes;
        Ok(())
    }

    fn commit(&self) {
        self.inner.commit();
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        let result = self.inner.reap(done, min, deadline);
        let mut in_flight = self.in_flight.lock();
        for completion in &done[before..] {
            in_flight.complete(completion.token);
        }
        result
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn cancel(&self, token: u64) {
        self.inner.cancel(token);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

impl InFlight {
    fn complete(&mut self, token: u64) {
        if let Some(index) = self.bios.iter().position(|(flying, _)| *flying == token) {
            self.bytes -= self.bios.swap_remove(index).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BioOp, Segments, backends::null::Null};
    use nowait_sys::file::IoVec;

    fn read(len: usize, token: u64) -> Bio {
        let one = Segments::One(IoVec { base: core::ptr::dangling_mut(), len });
        // SAFETY: the backend below never touches memory.
        unsafe { Bio::new(BioOp::Read, -1, one, 0, token) }
    }

    #[test]
    fn bytes_in_flight_are_bounded() {
        let throttle = Throttle::new(Null::new(8), 8, 100);
        assert!(throttle.queue(read(60, 1)).is_ok());
        assert!(throttle.queue(read(60, 2)).is_err());
        assert!(throttle.queue(read(40, 3)).is_ok());
        throttle.commit();
        throttle.reap(&mut Vec::new(), 2, Deadline::NEVER).unwrap();
        assert_eq!(throttle.bytes_in_flight(), 0);
        assert!(throttle.queue(read(60, 2)).is_ok());
    }

    #[test]
    fn large_bio_passes_alone() {
        let throttle = Throttle::new(Null::new(8), 8, 100);
        assert!(throttle.queue(read(1000, 1)).is_ok());
        assert!(throttle.queue(read(1, 2)).is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let throttle = Throttle::new(Null::new(8), 2, usize::MAX);
        assert_eq!(throttle.limits().depth, 2);
        assert!(throttle.queue(read(1, 1)).is_ok() && throttle.queue(read(1, 2)).is_ok());
        assert!(throttle.queue(read(1, 3)).is_err());
    }
}
