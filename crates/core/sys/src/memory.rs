//! Shared mappings with two views, memory in huge pages, looks at memory that may not be there.

use crate::{
    Errno,
    confined::{self, Extra},
    file::IoVec,
    raw, sys,
};

/// Pages mapped twice: one view for us, one whose address the application owns.
///
/// The application may move or unmap its view (libaio's own tests mremap the ring); ours stays.
#[derive(Debug)]
pub struct TwoViews {
    ours: *mut u8,
    theirs: *mut u8,
    len: usize,
}

// SAFETY: the struct is two addresses and a length; what may be read and written through them
// is the business of the types built on it.
unsafe impl Send for TwoViews {}
// SAFETY: as above.
unsafe impl Sync for TwoViews {}

impl TwoViews {
    /// Maps `len` bytes of zeroes, a multiple of the page size, twice.
    ///
    /// # Errors
    /// `ENOMEM`: no memory, or too many mappings (`vm.max_map_count`).
    /// Source: mmap(2); mremap(2), "If the value of old_size is zero".
    #[cfg(miri)]
    pub fn new(len: usize) -> Result<TwoViews, Errno> {
        // Miri knows no mappings: one zeroed allocation is both views, freed on drop.
        let page = Box::into_raw(vec![0u64; len / 8].into_boxed_slice());
        let ours = page.cast::<u8>();
        Ok(TwoViews { ours, theirs: ours, len })
    }

    /// Maps `len` bytes of zeroes, a multiple of the page size, twice.
    ///
    /// # Errors
    /// `ENOMEM`: no memory, or too many mappings (`vm.max_map_count`).
    /// Source: mmap(2); mremap(2), "If the value of old_size is zero".
    #[cfg(not(miri))]
    pub fn new(len: usize) -> Result<TwoViews, Errno> {
        let ours = map(len, libc::MAP_SHARED)?;
        // SAFETY: `ours` is a shared mapping of `len` bytes, just made; an old size of zero
        // leaves it in place.
        match unsafe { sys!(libc::SYS_mremap, ours, 0, len, libc::MREMAP_MAYMOVE) } {
            Ok(theirs) => Ok(TwoViews { ours: ours as *mut u8, theirs: theirs as *mut u8, len }),
            Err(errno) => {
                unmap(ours, len);
                Err(errno)
            }
        }
    }

    /// Returns our view, valid until drop.
    pub fn ours(&self) -> *mut u8 {
        self.ours
    }

    /// Returns where the application's view was mapped.
    pub fn theirs(&self) -> *mut u8 {
        self.theirs
    }

    /// Unmaps the application's view at `address`, where it may have moved it.
    pub fn unmap_theirs(&self, address: usize) {
        unmap(address, self.len);
    }
}

impl Drop for TwoViews {
    /// Unmaps our view only: where the application's is now, its owner says.
    fn drop(&mut self) {
        #[cfg(miri)]
        // SAFETY: allocated by `new` as so many words; it is not used after the drop.
        drop(unsafe {
            Box::from_raw(core::ptr::slice_from_raw_parts_mut(
                self.ours.cast::<u64>(),
                self.len / 8,
            ))
        });
        unmap(self.ours as usize, self.len);
    }
}

/// Private zeroed memory, aligned to 2 MiB, in huge pages as far as the system has them.
///
/// Pages are taken from the system when they are first touched.
#[derive(Debug)]
pub struct HugeMemory {
    base: *mut u8,
    len: usize,
}

// SAFETY: the struct is an address and a length; the types built on it decide which thread may
// touch which bytes, and when.
unsafe impl Send for HugeMemory {}
// SAFETY: as above.
unsafe impl Sync for HugeMemory {}

impl HugeMemory {
    /// Maps `len` bytes, a multiple of [`HUGE_PAGE_SIZE`] above zero.
    ///
    /// # Errors
    /// `ENOMEM`: no memory, no address space, or too many mappings (`vm.max_map_count`).
    /// Source: mmap(2); madvise(2), MADV_HUGEPAGE.
    #[cfg(not(miri))]
    pub fn new(len: usize) -> Result<HugeMemory, Errno> {
        let mapped = len.checked_add(HUGE_PAGE_SIZE).ok_or(Errno::NOMEM)?;
        let start = map(mapped, libc::MAP_PRIVATE | libc::MAP_NORESERVE)?;
        let base = start.next_multiple_of(HUGE_PAGE_SIZE);
        // What lies before and behind the aligned part goes back.
        if base > start {
            unmap(start, base - start);
        }
        unmap(base + len, start + mapped - (base + len));
        // A hint: kernels without huge pages refuse it, and small pages do as well.
        // SAFETY: the range was just mapped, and the advice does not change its contents.
        let _ = unsafe { sys!(libc::SYS_madvise, base, len, libc::MADV_HUGEPAGE) };
        Ok(HugeMemory { base: base as *mut u8, len })
    }

    /// Allocates `len` bytes: Miri knows no mappings, and no huge pages.
    ///
    /// # Errors
    /// None.
    #[cfg(miri)]
    pub fn new(len: usize) -> Result<HugeMemory, Errno> {
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(HugeMemory::layout(len)) };
        Ok(HugeMemory { base, len })
    }

    #[cfg(miri)]
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, HUGE_PAGE_SIZE).expect("a size that fits")
    }

    /// Returns the first byte, valid until drop.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is no memory; there always is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for HugeMemory {
    fn drop(&mut self) {
        #[cfg(miri)]
        // SAFETY: allocated by `new` with this layout; it is not used after the drop.
        unsafe {
            std::alloc::dealloc(self.base, HugeMemory::layout(self.len));
        }
        unmap(self.base as usize, self.len);
    }
}

/// Makes an empty vector for `count` values, in huge pages if it is that large and the system has
/// them: for tables that are read all over, where each small page would cost a walk of the page
/// tables.
///
/// Source: madvise(2), MADV_HUGEPAGE.
pub fn huge_vec<T>(count: usize) -> Vec<T> {
    let vec = Vec::<T>::with_capacity(count);
    let start = (vec.as_ptr() as usize).next_multiple_of(HUGE_PAGE_SIZE);
    let end = (vec.as_ptr() as usize + count * size_of::<T>()) / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
    if start < end && !cfg!(miri) {
        // A hint: kernels without huge pages refuse it.
        // SAFETY: the range lies in the allocation of `vec`, and the advice does not change what
        // is there.
        let _ = unsafe { sys!(libc::SYS_madvise, start, end - start, libc::MADV_HUGEPAGE) };
    }
    vec
}

/// Asks the processor to bring the cache line of `address` near. Any address is allowed.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes nothing that a program can see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}

/// A sanitizer learns of mappings only by the C library's functions: else it takes what was at an
/// address before for what is there now, and an end and a beginning for a race.
const BY_LIBRARY: bool = option_env!("NOWAIT_SANITIZER").is_some();

/// Maps `len` bytes of zeroes, to be read and written.
pub(crate) fn map(len: usize, flags: i32) -> Result<usize, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_ANONYMOUS;
    if BY_LIBRARY {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, -1, 0) };
        return if start == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(start as usize) };
    }
    // SAFETY: as above.
    unsafe { sys!(libc::SYS_mmap, 0, len, protection, flags, -1isize, 0) }
}

pub(crate) fn unmap(address: usize, len: usize) {
    if cfg!(miri) {
        return;
    }
    if BY_LIBRARY {
        // SAFETY: the range was mapped by one of the types above and is given up by its owner.
        unsafe { libc::munmap(address as *mut libc::c_void, len) };
        return;
    }
    // SAFETY: as above.
    let _ = unsafe { sys!(libc::SYS_munmap, address, len) };
}

/// Copies `len` bytes from `address`, which may be anything.
///
/// # Errors
/// `EFAULT`: not readable memory.
/// Source: process_vm_readv(2) on this very process; where that is forbidden, mincore(2) tells
/// mapped from unmapped.
pub fn read_checked(address: usize, into: &mut [u8]) -> Result<(), Errno> {
    let local = IoVec { base: into.as_mut_ptr(), len: into.len() };
    let remote = IoVec { base: address as *mut u8, len: into.len() };
    match copy_across(&local, &remote) {
        Ok(copied) if copied == into.len() => Ok(()),
        Err(errno) if errno != Errno::FAULT => {
            require_mapped(address, into.len())?;
            // SAFETY: the range is mapped; the destination is a live slice of the same length.
            unsafe {
                core::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len());
            };
            Ok(())
        }
        _ => Err(Errno::FAULT),
    }
}

/// Checks that the byte at `address`, which may be anything, can be read and written; its value
/// stays, unless another thread writes it just now.
///
/// # Errors
/// `EFAULT`: it cannot.
/// Source: process_vm_readv(2) from that byte to itself; where that is forbidden, mincore(2) tells
/// mapped from unmapped, and a mapped byte that may not be touched ends the program by SIGSEGV.
pub fn check_writable(address: usize) -> Result<(), Errno> {
    let byte = IoVec { base: address as *mut u8, len: 1 };
    match copy_across(&byte, &byte) {
        Ok(1) => Ok(()),
        Err(errno) if errno != Errno::FAULT => {
            require_mapped(address, 1)?;
            // SAFETY: the byte is mapped, and the caller's to have written; where its page forbids
            // that, the processor refuses the access, and nothing is changed.
            unsafe { byte.base.write_volatile(byte.base.read_volatile()) };
            Ok(())
        }
        _ => Err(Errno::FAULT),
    }
}

/// Fails with another errno than EFAULT where the call is forbidden: one of the filter's choice.
fn copy_across(local: &IoVec, remote: &IoVec) -> Result<usize, Errno> {
    confined::check(Extra::Memory)?;
    // By the thread's number: by that of the process the kernel finds its main thread, which has no
    // memory any more if it has ended (pthread_exit).
    let thread = crate::thread::thread_id();
    // SAFETY: both segments live until the call ends; the kernel checks what they name.
    unsafe {
        sys!(
            libc::SYS_process_vm_readv,
            thread,
            core::ptr::from_ref(local),
            1,
            core::ptr::from_ref(remote),
            1,
            0
        )
    }
}

fn require_mapped(address: usize, len: usize) -> Result<(), Errno> {
    let start = address & !(PAGE_SIZE - 1);
    let pages = (address - start + len).div_ceil(PAGE_SIZE);
    for page in 0..pages {
        let mut resident = 0u8;
        let args =
            [start + page * PAGE_SIZE, 1, core::ptr::from_mut(&mut resident) as usize, 0, 0, 0];
        // SAFETY: one byte for one page, in a live local.
        raw::check(unsafe { raw::syscall6(libc::SYS_mincore, args) }).map_err(|_| Errno::FAULT)?;
    }
    Ok(())
}

/// The page size of the architectures this supports.
pub const PAGE_SIZE: usize = 4096;

/// The size and alignment of a huge page.
pub const HUGE_PAGE_SIZE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_views_show_the_same_bytes() {
        let views = TwoViews::new(PAGE_SIZE).unwrap();
        // SAFETY: both views are mapped and a page long.
        unsafe { views.ours().write(42) };
        // SAFETY: as above.
        assert_eq!(unsafe { views.theirs().read() }, 42);
        views.unmap_theirs(views.theirs() as usize);
    }

    #[test]
    fn huge_memory_is_aligned_and_zero_to_its_last_byte() {
        let memory = HugeMemory::new(2 * HUGE_PAGE_SIZE).unwrap();
        assert!((memory.base() as usize).is_multiple_of(HUGE_PAGE_SIZE));
        prefetch(memory.base());
        // SAFETY: the last byte of live memory.
        let last = unsafe { memory.base().add(memory.len() - 1) };
        // SAFETY: as above; no other code knows it.
        assert_eq!(unsafe { last.replace(7) }, 0);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_not_a_crash() {
        let mut bytes = [0u8; 8];
        assert_eq!(read_checked(16, &mut bytes), Err(Errno::FAULT));
        assert_eq!(check_writable(16), Err(Errno::FAULT));
        assert_eq!(check_writable(usize::MAX - 64), Err(Errno::FAULT));
        let source = 7u64;
        let address = core::ptr::from_ref(&source) as usize;
        read_checked(address, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 7);
    }

    #[test]
    fn a_byte_that_is_checked_keeps_its_value_and_one_that_is_constant_is_refused() {
        static CONSTANT: u8 = 5;
        let mut value = 7u8;
        let address = core::ptr::from_mut(&mut value) as usize;
        check_writable(address).unwrap();
        assert_eq!(value, 7);
        let constant = core::ptr::from_ref(&CONSTANT) as usize;
        assert_eq!(check_writable(constant), Err(Errno::FAULT));
    }
}
