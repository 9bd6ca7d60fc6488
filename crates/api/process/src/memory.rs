//! Checks of the application's pointers, which may be anything.
//!
//! The kernel answers EFAULT for an address that is not there. Asking it each time would cost
//! more than the request, so each thread remembers pages it has found good: a program that
//! unmaps such a page and then passes it gets SIGSEGV instead of EFAULT.

use core::cell::RefCell;
use nowait_sys::{
    Errno,
    memory::{PAGE_SIZE, read_checked, write_checked},
};

const SLOTS: usize = 128;

thread_local! {
    /// Page number and whether it may be written, by the page number's low bits.
    static GOOD: RefCell<[(usize, bool); SLOTS]> = const { RefCell::new([(0, false); SLOTS]) };
}

/// Reads a `T` from `address`.
///
/// # Errors
/// `EFAULT`: not readable memory.
/// # Safety
/// `T` is plain data, valid for any bits.
pub unsafe fn read<T: Copy>(address: usize) -> Result<T, Errno> {
    require(address, size_of::<T>(), false)?;
    // SAFETY: every page of the range was found readable; alignment is not assumed.
    Ok(unsafe { (address as *const T).read_unaligned() })
}

/// Writes `value` to `address`.
///
/// # Errors
/// `EFAULT`: not writable memory.
/// # Safety
/// The application has given the memory at `address` to be overwritten.
pub unsafe fn write<T: Copy>(address: usize, value: T) -> Result<(), Errno> {
    require(address, size_of::<T>(), true)?;
    // SAFETY: every page of the range was found writable; it is the application's to give.
    unsafe { (address as *mut T).write_unaligned(value) };
    Ok(())
}

/// Checks the first and the last byte of memory that will be read or, if `writable`, written here
/// and not by the kernel.
///
/// # Errors
/// `EFAULT`: one of them is not there.
pub fn check(address: usize, len: usize, writable: bool) -> Result<(), Errno> {
    if len == 0 { Ok(()) } else { require(address, len, writable) }
}

fn require(address: usize, len: usize, writable: bool) -> Result<(), Errno> {
    let last = address.checked_add(len - 1).ok_or(Errno::FAULT)?;
    require_page(address, address / PAGE_SIZE, writable)?;
    if last / PAGE_SIZE != address / PAGE_SIZE {
        require_page(last, last / PAGE_SIZE, writable)?;
    }
    Ok(())
}

fn require_page(address: usize, page: usize, writable: bool) -> Result<(), Errno> {
    let slot = page % SLOTS;
    let known = GOOD.with_borrow(|good| good[slot]);
    if known.0 == page && (known.1 || !writable) && page != 0 {
        return Ok(());
    }
    let mut byte = [0u8];
    read_checked(address, &mut byte)?;
    if writable {
        // The byte that is there: nothing changes, unless another thread writes it just now,
        // which no program does to memory it hands to a call.
        write_checked(address, &byte)?;
    }
    GOOD.with_borrow_mut(|good| good[slot] = (page, writable));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_memory_works_and_bad_memory_is_efault() {
        let mut value = 7u64;
        let address = core::ptr::from_mut(&mut value) as usize;
        // SAFETY: the address is that of a live local.
        unsafe {
            assert_eq!(read::<u64>(address), Ok(7));
            write(address, 8u64).unwrap();
            assert_eq!(read::<u64>(0), Err(Errno::FAULT));
            assert_eq!(read::<u64>(usize::MAX), Err(Errno::FAULT));
            assert_eq!(write(8, 1u64), Err(Errno::FAULT));
        }
        assert_eq!(value, 8);
    }

    #[test]
    fn read_only_memory_is_efault_to_write() {
        static CONSTANT: [u64; 4] = [1; 4];
        let address = CONSTANT.as_ptr() as usize;
        // SAFETY: the write must fail before it touches anything.
        unsafe {
            assert_eq!(read::<u64>(address), Ok(1));
            assert_eq!(write(address, 1u64), Err(Errno::FAULT));
        }
    }
}
