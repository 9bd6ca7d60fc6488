//! Finds out, without a system call, whether this process is a forked child, in a copy of its
//! parent's memory.
//!
//! A process has a number in a page that the kernel empties in a child (MADV_WIPEONFORK), however
//! the child was made: fork(2), `_Fork`, clone(2) and clone3(2) past the C library. Handlers of
//! pthread_atfork(3) run only in children that fork(3) has made.
//!
//! A child of vfork(2), or of clone(2) with CLONE_VM, shares its parent's memory and so the number.
//! A child that shares memory is called a guest, and its parent the owner of the memory.

use crate::{
    Errno,
    memory::{self, PAGE_SIZE},
    sys, thread,
};
use core::{
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// The number of a process.
#[derive(Clone, Copy, Debug)]
pub struct ForkMark {
    page: &'static Page,
    number: u32,
}

#[derive(Debug)]
struct Page {
    /// The number of the process; 0: no thread has asked for one in this process yet.
    number: AtomicU32,
    owner: AtomicI32,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// The substitute page where the kernel cannot empty one (before Linux 4.14, and in some
/// sandboxes).
static UNWIPED: Page = Page { number: AtomicU32::new(0), owner: AtomicI32::new(0) };
/// The highest number given in this process or in an ancestor.
static LAST: AtomicU32 = AtomicU32::new(0);

impl ForkMark {
    /// Marks this process.
    #[must_use]
    pub fn new() -> ForkMark {
        let page = page();
        if page.number.load(Acquire) == 0 {
            page.owner.store(thread::process_id(), Relaxed);
            // No process has the same number as an ancestor: each attempt takes a new one.
            let next = LAST.fetch_add(1, AcqRel) + 1;
            let _ = page.number.compare_exchange(0, next, AcqRel, Acquire);
        }
        ForkMark { page, number: page.number.load(Acquire) }
    }

    /// Returns the number, which is not 0.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Returns `true` in the process that made the mark, and in its guests, which share its memory.
    #[inline]
    pub fn is_here(self) -> bool {
        self.page.number.load(Relaxed) == self.number
    }
}

impl Default for ForkMark {
    fn default() -> ForkMark {
        ForkMark::new()
    }
}

/// Returns the process id of the owner of the memory.
#[unsafe(link_section = ".text.startup")]
pub fn owner() -> i32 {
    ForkMark::new().page.owner.load(Relaxed)
}

/// Returns `true` if the calling process owns the memory, `false` for a guest.
pub fn is_owner() -> bool {
    // A simulated machine has no guests.
    cfg!(simulated) || owner() == thread::process_id()
}

fn page() -> &'static Page {
    // SAFETY: null, or a page that stays for ever.
    unsafe { PAGE.load(Acquire).as_ref() }.unwrap_or_else(make)
}

#[cold]
#[unsafe(link_section = ".text.startup")]
fn make() -> &'static Page {
    let wiped = wiped_page();
    let made = wiped.as_ref().map_or(ptr::from_ref(&UNWIPED), |page| *page as *const Page);
    match PAGE.compare_exchange(ptr::null_mut(), made.cast_mut(), AcqRel, Acquire) {
        Ok(_) if wiped.is_err() && !cfg!(any(miri, simulated)) => {
            thread::at_fork(wipe);
        }
        Ok(_) => {}
        // Another thread installed its page first.
        Err(_) => wiped.iter().for_each(|page| memory::unmap(*page, PAGE_SIZE)),
    }
    // SAFETY: a static, or a page that is never unmapped once it is known here.
    unsafe { &*PAGE.load(Acquire) }
}

/// Resets the substitute page in a forked child, because the kernel does not empty it.
extern "C" fn wipe() {
    UNWIPED.number.store(0, Release);
}

/// Maps a page that a child finds empty. Source: madvise(2), MADV_WIPEONFORK.
fn wiped_page() -> Result<usize, Errno> {
    if cfg!(any(miri, simulated)) {
        return Err(Errno::NOSYS); // Miri and simulations have neither such a page nor fork
    }
    let page = memory::map(PAGE_SIZE, libc::MAP_PRIVATE)?;
    // SAFETY: the page was just mapped and holds nothing.
    let wiped = unsafe { sys!(libc::SYS_madvise, page, PAGE_SIZE, libc::MADV_WIPEONFORK) };
    wiped.inspect_err(|_| memory::unmap(page, PAGE_SIZE))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The handlers of fork do not run in the child.
    fn in_child(flags: i32, checks: impl FnOnce() -> i32) -> i32 {
        let flags = flags | libc::SIGCHLD;
        // SAFETY: as fork(2), or vfork(2): the child runs `checks` and leaves by `_exit`.
        let child = unsafe { sys!(libc::SYS_clone, flags, 0, 0, 0, 0) }.unwrap() as i32;
        if child == 0 {
            let code = checks();
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    #[test]
    #[cfg_attr(miri, ignore = "no fork")]
    fn a_child_that_no_handler_saw_does_not_find_the_mark_and_makes_its_own() {
        let mark = ForkMark::new();
        assert!(mark.is_here() && is_owner());
        let status = in_child(0, || {
            let found = mark.is_here();
            let own = ForkMark::new();
            let is_its_own =
                own.is_here() && own.number != mark.number && is_owner() && !mark.is_here();
            let grandchild = in_child(0, || i32::from(own.is_here() || mark.is_here()));
            i32::from(found || !is_its_own || grandchild != 0)
        });
        assert_eq!(status, 0, "the child found the mark");
        assert!(mark.is_here() && ForkMark::new().number == mark.number);
    }
}
