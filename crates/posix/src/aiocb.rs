//! The application's block: what it asks for, and the word by which everybody knows its state.
//!
//! The private members of glibc's `struct aiocb` hold the state, so that aio_error is one load. The
//! error code and the padding behind it are one word here, changed in one step:
//!
//! ```text
//!  63          32 31           0
//! ┌──────────────┬──────────────┐
//! │ waiter slots │  error code  │   EINPROGRESS, then the outcome, for good
//! └──────────────┴──────────────┘
//! ```
//!
//! The step from EINPROGRESS to the outcome is the last access to the block, and brings back who
//! sleeps for it: the application may free the block as soon as it sees the outcome.

use crate::notice::SigEvent;
use core::{
    mem::offset_of,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed},
};
use nowait_sys::Errno;

/// `struct aiocb` of glibc (aio.h), which is `struct aiocb64` too.
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
    /// `__error_code` and the padding behind it.
    state: AtomicU64,
    return_value: AtomicI64,
    offset: i64,
    reserved: [u8; 32],
}

// The error code is the low half of the word.
const _: () = assert!(cfg!(target_endian = "little"));
const _: () = assert!(size_of::<Aiocb>() == 168);
const _: () = assert!(offset_of!(Aiocb, sigevent) == 32);
const _: () = assert!(offset_of!(Aiocb, state) == 112);
const _: () = assert!(offset_of!(Aiocb, return_value) == 120);
const _: () = assert!(offset_of!(Aiocb, offset) == 128);

const SLOTS_SHIFT: u32 = 32;

/// An aiocb by its address, as the application gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(usize);

impl Block {
    /// Names the block at `address`; `None` for a null pointer.
    ///
    /// # Safety
    /// An aiocb is there, and stays until its outcome is visible.
    pub unsafe fn at(address: usize) -> Option<Block> {
        (address != 0).then_some(Block(address))
    }

    /// Names a block of which a request is under way.
    ///
    /// # Safety
    /// `address` is that of such a block.
    pub unsafe fn under_way(address: usize) -> Block {
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
        // SAFETY: the block is there (promised by who named it), and this is plain data.
        unsafe { (*self.pointer()).fildes }
    }

    /// Returns the operation for lio_listio.
    pub fn opcode(self) -> i32 {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).lio_opcode }
    }

    /// Returns by how much the priority is lowered.
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

    /// Returns how the application wants to hear of the end.
    pub fn sigevent(self) -> SigEvent {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).sigevent }
    }

    fn state<'a>(self) -> &'a AtomicU64 {
        // SAFETY: as in `fd`; nobody uses the reference after the outcome was stored.
        unsafe { &(*self.pointer()).state }
    }

    /// Marks the block as one whose request is under way.
    pub fn begin(self) {
        // SAFETY: as in `fd`.
        unsafe { (*self.pointer()).return_value.store(0, Relaxed) };
        self.state().store(Errno::INPROGRESS.raw() as u64, Relaxed);
    }

    /// Stores the outcome, and returns the slots of who sleeps for it (a bit for each). The block
    /// is the application's again.
    #[must_use]
    pub fn finish(self, result: Result<u32, Errno>) -> u32 {
        let (error, value) = match result {
            Ok(bytes) => (0, i64::from(bytes)),
            Err(errno) => (errno.raw(), -1),
        };
        // SAFETY: as in `fd`: the outcome is not visible yet.
        unsafe { (*self.pointer()).return_value.store(value, Relaxed) };
        // Release: who sees the outcome sees the value and the data. Acquire: the slots are those
        // of waiters that will look at their word.
        (self.state().swap(error as u64, AcqRel) >> SLOTS_SHIFT) as u32
    }

    /// Tells whether a request is under way.
    pub fn is_under_way(self) -> bool {
        self.state().load(Acquire) as u32 as i32 == Errno::INPROGRESS.raw()
    }

    /// Asks for the waiter in `slot` to be woken at the end; false: it is over already.
    pub fn arm(self, slot: u32) -> bool {
        let bit = 1 << (SLOTS_SHIFT + slot);
        let mut state = self.state().load(Acquire);
        // Never written once the outcome is there: the memory may be something else by then.
        while state as u32 as i32 == Errno::INPROGRESS.raw() {
            if state & bit != 0 {
                return true;
            }
            match self.state().compare_exchange_weak(state, state | bit, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }
}

#[cfg(test)]
impl Aiocb {
    /// Makes one with nothing in it.
    pub(crate) fn empty() -> Box<Aiocb> {
        // SAFETY: zeroes are valid for every member.
        Box::new(unsafe { core::mem::zeroed() })
    }

    pub(crate) fn block(&self) -> Block {
        Block(core::ptr::from_ref(self) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_names_those_who_wait_and_later_ones_see_the_outcome() {
        let memory = Aiocb::empty();
        let block = memory.block();
        assert!(!block.arm(1), "nothing is under way");
        block.begin();
        assert!(block.is_under_way() && block.arm(0) && block.arm(31) && block.arm(31));
        assert_eq!(block.finish(Ok(7)), 1 << 31 | 1);
        assert!(!block.is_under_way() && !block.arm(2));
        assert_eq!(memory.state.load(Relaxed), 0, "no trace of the waiters");
        assert_eq!(memory.return_value.load(Relaxed), 7);
        block.begin();
        assert_eq!(block.finish(Err(Errno::IO)), 0);
        assert_eq!(memory.state.load(Relaxed), Errno::IO.raw() as u64);
        assert_eq!(memory.return_value.load(Relaxed), -1);
    }
}
