//! The application's control block, which holds the request and its outcome.
//!
//! The private members of glibc's `struct aiocb` hold the state, so that aio_error reads it by one
//! load: an [`Outcome`] covers the error code and the padding behind it.

use crate::notice::SigEvent;
use core::{
    mem::offset_of,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};
use nowait_engine::outcome::Outcome;
use nowait_sys::Errno;

/// `struct aiocb` of glibc (aio.h).
#[repr(C)]
pub struct Aiocb {
    fildes: i32,
    lio_opcode: i32,
    reqprio: i32,
    buf: *mut u8,
    nbytes: usize,
    sigevent: SigEvent,
    next_prio: usize,
    abs_prio: i32,
    policy: i32,
    /// Covers `__error_code` and the padding behind it.
    outcome: Outcome,
    return_value: AtomicI64,
    offset: i64,
    reserved: [u8; 32],
}

// On a little-endian machine the error code is the low half of the word.
const _: () = assert!(cfg!(target_endian = "little"));
const _: () = assert!(size_of::<Aiocb>() == 168);
const _: () = assert!(offset_of!(Aiocb, sigevent) == 32);
const _: () = assert!(offset_of!(Aiocb, outcome) == 112);
const _: () = assert!(offset_of!(Aiocb, return_value) == 120);
const _: () = assert!(offset_of!(Aiocb, offset) == 128);

/// The address of an aiocb, as the application passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(usize);

impl Block {
    /// Names the block at `address`; `None` for a null pointer.
    ///
    /// # Safety
    /// `address` is null or points to an aiocb that stays until its outcome is visible.
    pub unsafe fn at(address: usize) -> Option<Block> {
        (address != 0).then_some(Block(address))
    }

    /// Names a block whose request is in flight.
    ///
    /// # Safety
    /// `address` points to a block whose request is in flight.
    pub unsafe fn in_flight(address: usize) -> Block {
        Block(address)
    }

    /// Returns the address.
    pub fn address(self) -> usize {
        self.0
    }

    fn pointer(self) -> *mut Aiocb {
        self.0 as *mut Aiocb
    }

    /// Returns the descriptor.
    pub fn fd(self) -> i32 {
        // SAFETY: the caller that named the block promises that it exists, and this is plain data.
        unsafe { (*self.pointer()).fildes }
    }

    /// Returns the operation for lio_listio.
    pub fn opcode(self) -> i32 {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).lio_opcode }
    }

    /// Returns the number by which the priority is lowered.
    pub fn lowered_priority(self) -> i32 {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).reqprio }
    }

    /// Returns address and length of the buffer, in bytes.
    pub fn buffer(self) -> (*mut u8, usize) {
        // SAFETY: as in `fd`.
        unsafe { ((*self.pointer()).buf, (*self.pointer()).nbytes) }
    }

    /// Returns the byte offset.
    pub fn offset(self) -> i64 {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).offset }
    }

    /// Returns the notification that the application wants.
    pub fn sigevent(self) -> SigEvent {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).sigevent }
    }

    fn outcome<'a>(self) -> &'a Outcome {
        // SAFETY: as in `fd`; the reference is not used after the outcome was stored.
        unsafe { &(*self.pointer()).outcome }
    }

    /// Marks the block as one whose request is in flight.
    pub fn begin(self) {
        self.set_return_value(0);
        self.outcome().begin();
    }

    /// Stores the outcome, and returns, as a bit mask, the slots of the threads to wake. From here
    /// on the block belongs to the application again.
    #[must_use]
    pub fn finish(self, result: Result<u32, Errno>) -> u32 {
        let (error, value) = match result {
            Ok(bytes) => (0, i64::from(bytes)),
            Err(errno) => (errno.raw(), -1),
        };
        self.set_return_value(value);
        self.outcome().end(error)
    }

    fn set_return_value(self, value: i64) {
        // SAFETY: as in `fd`: the outcome is not visible yet.
        unsafe { (*self.pointer()).return_value.store(value, Relaxed) };
    }

    /// Returns `true` if the block says that its request is in flight.
    pub fn is_in_flight(self) -> bool {
        self.outcome().is_in_flight()
    }

    /// Asks the request to wake the threads in `slot` when the request ends. Returns `false` if the
    /// request has ended already.
    pub fn arm(self, slot: u32) -> bool {
        self.outcome().arm(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_is_where_the_c_library_s_programs_look_for_it() {
        // SAFETY: zeroes are valid for every member.
        let memory: Box<Aiocb> = Box::new(unsafe { core::mem::zeroed() });
        let block = Block(core::ptr::from_ref(&*memory) as usize);
        let int_at = |offset: usize| {
            // SAFETY: both members are plain data in the box.
            unsafe { ((block.0 + offset) as *const i32).read() }
        };
        block.begin();
        assert_eq!(int_at(112), Errno::INPROGRESS.raw());
        assert!(block.arm(3));
        assert_eq!(block.finish(Ok(7)), 1 << 3);
        assert_eq!((int_at(112), int_at(120)), (0, 7));
        block.begin();
        assert_eq!(block.finish(Err(Errno::IO)), 0);
        assert_eq!((int_at(112), int_at(120)), (Errno::IO.raw(), -1));
    }
}
