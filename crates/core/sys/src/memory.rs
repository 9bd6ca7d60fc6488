//! Shared mappings with two views, memory in huge pages, and checks of memory that may not be
//! mapped.

use crate::{
    Errno,
    confined::{self, Extra},
    sys,
};

/// Pages mapped twice: one view for the library, and one whose address the application owns.
///
/// The application may move or unmap its view (libaio's own tests mremap the ring); the library's
/// view stays.
#[derive(Debug)]
pub struct TwoViews {
    ours: *mut u8,
    theirs: *mut u8,
    len: usize,
}

// SAFETY: the struct is two addresses and a length; the types built on it decide what is read and
// written through them.
unsafe impl Send for TwoViews {}
// SAFETY: as above.
unsafe impl Sync for TwoViews {}

impl TwoViews {
    /// Allocates `len` bytes of zeroes as both views: Miri has no mappings.
    #[cfg(miri)]
    pub fn new(len: usize) -> Result<TwoViews, Errno> {
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

    /// Returns the library's view, valid until drop.
    pub fn ours(&self) -> *mut u8 {
        self.ours
    }

    /// Returns the address at which the application's view was mapped.
    pub fn theirs(&self) -> *mut u8 {
        self.theirs
    }

    /// Unmaps the application's view, which the application may have moved to `address`.
    pub fn unmap_theirs(&self, address: usize) {
        unmap(address, self.len);
    }
}

impl Drop for TwoViews {
    /// Unmaps the library's view only: only the application knows the address of its own view.
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

/// Private zeroed memory, aligned to 2 MiB, in huge pages as far as the system provides them.
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
        if base > start {
            unmap(start, base - start);
        }
        unmap(base + len, start + mapped - (base + len));
        // A hint: kernels without huge pages refuse it, and small pages work as well. SAFETY: the
        // range was just mapped, and the advice does not change its contents.
        let _ = unsafe { sys!(libc::SYS_madvise, base, len, libc::MADV_HUGEPAGE) };
        Ok(HugeMemory { base: base as *mut u8, len })
    }

    /// Allocates `len` bytes: Miri has neither mappings nor huge pages.
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

    /// Returns `false`: the memory is never empty.
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

/// Makes an empty vector for `count` values, in huge pages if it is large enough and the system has
/// them: in tables with random access each small page would cost a walk of the page tables. Source:
/// madvise(2), MADV_HUGEPAGE.
pub fn huge_vec<T>(count: usize) -> Vec<T> {
    let vec = Vec::<T>::with_capacity(count);
    let start = (vec.as_ptr() as usize).next_multiple_of(HUGE_PAGE_SIZE);
    let end = (vec.as_ptr() as usize + count * size_of::<T>()) / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
    if start < end && !cfg!(miri) {
        // A hint: kernels without huge pages refuse it. SAFETY: the range lies in the allocation of
        // `vec`, and the advice does not change its contents.
        let _ = unsafe { sys!(libc::SYS_madvise, start, end - start, libc::MADV_HUGEPAGE) };
    }
    vec
}

/// Prefetches the cache line of `address`, on x86-64 only. Any address is allowed.
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

/// `true` in sanitizer builds, which map memory by the C library's functions. A sanitizer does not
/// see other mappings: it would confuse old and new memory at an address, and report unmapping and
/// mapping as a race.
pub(crate) const BY_LIBRARY: bool = option_env!("NOWAIT_SANITIZER").is_some();

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

/// Maps `len` private bytes of zeroes at `address`, or elsewhere if that range is in use.
pub(crate) fn map_near(address: usize, len: usize) -> Result<usize, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping disturbs nothing; the address is a hint.
    unsafe { sys!(libc::SYS_mmap, address, len, protection, flags, -1isize, 0) }
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

/// Compares a word: as used here, the operation wakes and moves no thread.
pub(crate) const COMPARE: i32 = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;

/// Writes a word atomically: as used here, the operation changes no bit.
pub(crate) const TOUCH: i32 = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;

/// Returns `true` if the word at `address`, which may be any number, holds `value`. Returns `false`
/// if the word cannot be read or checked, or is not aligned. The kernel does the check, so the
/// memory may be unmapped meanwhile.
pub fn holds(address: usize, value: u32) -> bool {
    address == word_of(address) && compare(address, value).is_ok()
}

/// Checks that the byte at `address`, which may be any number, can be read.
///
/// # Errors
/// `EFAULT`: the byte cannot be read.
pub fn check_readable(address: usize) -> Result<(), Errno> {
    is_there(compare(word_of(address), 0))
}

/// Checks that the byte at `address`, which may be any number, can be written. The check does not
/// change the byte and undoes no write of another thread.
///
/// # Errors
/// `EFAULT`: the byte cannot be written.
/// Source: madvise(2), MADV_POPULATE_WRITE (Linux 5.14), for pages that another thread or process
/// provides (userfaultfd(2)): futex(2) does not wait for these.
pub fn check_writable(address: usize) -> Result<(), Errno> {
    is_there(touch(word_of(address))).or_else(|errno| {
        populate(address & !(PAGE_SIZE - 1)).map_err(|_| errno)?;
        is_there(touch(word_of(address)))
    })
}

fn populate(page: usize) -> Result<usize, Errno> {
    confined::check(Extra::Populate)?;
    // SAFETY: the call populates only what the program has mapped there, and changes nothing.
    unsafe { sys!(libc::SYS_madvise, page, PAGE_SIZE, libc::MADV_POPULATE_WRITE) }
}

fn compare(address: usize, value: u32) -> Result<usize, Errno> {
    confined::check(Extra::Memory)?;
    let own = 0u32;
    let own = core::ptr::from_ref(&own);
    // SAFETY: the kernel only reads the word, by its own rules, and wakes and moves no thread.
    unsafe { sys!(libc::SYS_futex, address, COMPARE, 0, 0, own, value) }
}

/// Makes the kernel write the word at `address` without changing a bit. If the word holds -2048, a
/// thread that sleeps on it may get a spurious wake-up, as futex(2) allows. `EFAULT`: the word
/// cannot be written, or the write would have to wait. Source: futex(2), FUTEX_WAKE_OP.
fn touch(address: usize) -> Result<usize, Errno> {
    confined::check(Extra::Memory)?;
    let no_bit = libc::FUTEX_OP(libc::FUTEX_OP_OR, 0, libc::FUTEX_OP_CMP_EQ, -2048);
    let own = 0u32;
    let own = core::ptr::from_ref(&own);
    // SAFETY: the kernel changes no bit of the word, by its own rules; no thread sleeps on this
    // function's own word.
    unsafe { sys!(libc::SYS_futex, own, TOUCH, 0, 0, address, no_bit) }
}

fn word_of(address: usize) -> usize {
    address & !(align_of::<u32>() - 1)
}

/// If a seccomp filter forbids the check, the memory counts as mapped: if the memory is not mapped,
/// an access ends the program by SIGSEGV.
fn is_there(looked: Result<usize, Errno>) -> Result<(), Errno> {
    match looked {
        Err(Errno::FAULT) => Err(Errno::FAULT),
        _ => Ok(()),
    }
}

/// The page size of the supported architectures.
pub const PAGE_SIZE: usize = 4096;

/// The size and alignment of a huge page.
pub const HUGE_PAGE_SIZE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fd;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

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

    fn pages(protections: &[i32]) -> usize {
        let start = map(protections.len() * PAGE_SIZE, libc::MAP_PRIVATE).unwrap();
        for (index, protection) in protections.iter().enumerate() {
            let page = (start + index * PAGE_SIZE) as *mut libc::c_void;
            // SAFETY: a page of the mapping above.
            assert_eq!(unsafe { libc::mprotect(page, PAGE_SIZE, *protection) }, 0);
        }
        start
    }

    #[test]
    fn memory_is_there_as_its_protection_says() {
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let start = pages(&[write, read, libc::PROT_NONE]);
        let fault = Err(Errno::FAULT);
        let wanted = [(Ok(()), Ok(())), (Ok(()), fault), (fault, fault)];
        for (page, wanted) in wanted.into_iter().enumerate() {
            for byte in [0, 1, 2, 3, PAGE_SIZE - 1] {
                let address = start + page * PAGE_SIZE + byte;
                let found = (check_readable(address), check_writable(address));
                assert_eq!(found, wanted, "page {page}, byte {byte}");
            }
        }
        unmap(start, 3 * PAGE_SIZE);
        for address in [0, 16, usize::MAX - 64, usize::MAX] {
            assert_eq!(check_readable(address), fault, "{address:#x}");
            assert_eq!(check_writable(address), fault, "{address:#x}");
        }
    }

    #[test]
    fn memory_behind_the_end_of_its_file_is_not_there() {
        // SAFETY: the name is a string.
        let file = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
        let file = Fd::from_raw(file);
        crate::file::set_len(file.raw(), PAGE_SIZE as u64).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (len, any) = (2 * PAGE_SIZE, core::ptr::null_mut());
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start =
            unsafe { libc::mmap(any, len, protection, libc::MAP_SHARED, file.raw(), 0) } as usize;
        assert_eq!((check_readable(start), check_writable(start)), (Ok(()), Ok(())));
        let behind = start + PAGE_SIZE;
        let fault = Err(Errno::FAULT);
        assert_eq!((check_readable(behind), check_writable(behind)), (fault, fault));
        unmap(start, len);
    }

    /// Source: ioctl_userfaultfd(2), linux/userfaultfd.h.
    fn page_by_hand() -> Option<(usize, Fd)> {
        const API: (libc::Ioctl, u64) = (0xc018_aa3f_u32 as libc::Ioctl, 0xaa);
        const REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
        let page = map(PAGE_SIZE, libc::MAP_PRIVATE).unwrap();
        // SAFETY: only flags.
        let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let faults = Fd::from_raw(i32::try_from(faults).ok().filter(|fd| *fd >= 0)?);
        let mut api = [API.1, 0, 0];
        let mut register = [page as u64, PAGE_SIZE as u64, 1, 0];
        // SAFETY: the structures that these requests read and write.
        let made = unsafe {
            libc::ioctl(faults.raw(), API.0, api.as_mut_ptr()) == 0
                && libc::ioctl(faults.raw(), REGISTER, register.as_mut_ptr()) == 0
        };
        made.then_some((page, faults))
    }

    #[test]
    fn memory_that_another_thread_brings_is_waited_for() {
        const ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;
        let Some((page, faults)) = page_by_hand() else {
            println!("skipped: userfaultfd: {}", std::io::Error::last_os_error());
            return;
        };
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut message, mut zeroes) = ([0u64; 4], [page as u64, PAGE_SIZE as u64, 0, 0]);
                // SAFETY: room for one message, and the structure of the request.
                unsafe {
                    assert_eq!(libc::read(faults.raw(), message.as_mut_ptr().cast(), 32), 32);
                    assert_eq!(libc::ioctl(faults.raw(), ZEROPAGE, zeroes.as_mut_ptr()), 0);
                }
            });
            let found = check_writable(page);
            // Ends the other thread if the check did not ask for the page. SAFETY: the page of this
            // test.
            unsafe { (page as *mut u8).write_volatile(0) };
            found
        });
        assert_eq!(found, Ok(()));
        unmap(page, PAGE_SIZE);
    }

    #[test]
    fn a_byte_that_is_checked_keeps_its_value() {
        let mut words = [u32::MAX, 0, 1, 0x8000_0000];
        let address = words.as_mut_ptr() as usize;
        (address..address + size_of_val(&words)).for_each(|byte| check_writable(byte).unwrap());
        assert_eq!(words, [u32::MAX, 0, 1, 0x8000_0000]);
        assert!(holds(address, u32::MAX) && holds(address + 4, 0) && holds(address + 8, 1));
        assert!(!holds(address, 0) && !holds(address + 1, 0) && !holds(16, 0) && !holds(0, 0));
    }

    #[test]
    fn a_check_loses_no_change_of_other_threads() {
        const CHECKS: u32 = 20_000;
        let (word, checks) = (AtomicU32::new(0), AtomicU32::new(0));
        let address = word.as_ptr() as usize;
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| {
                while checks.fetch_add(1, SeqCst) < CHECKS {
                    check_writable(address).unwrap();
                }
            });
            // Load and store are two instructions, so that the test finds a check that writes back
            // an older value.
            let mut lost = 0;
            while checks.load(SeqCst) < CHECKS {
                let before = word.load(SeqCst);
                word.store(before + 1, SeqCst);
                lost += u32::from(word.load(SeqCst) != before + 1);
            }
            lost
        });
        assert_eq!(lost, 0, "after {} changes", word.into_inner());
    }
}
