//! Knowing, without a system call, that this is a forked child.

use crate::{
    Errno,
    memory::{self, PAGE_SIZE},
    sys, thread,
};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A mark of the process that made it: a forked child does not find it.
///
/// The mark is a page that the kernel gives a child empty. A child of vfork(2), or of clone(2) with
/// CLONE_VM, shares the memory and finds it; until it calls exec or ends, it is a guest in its
/// parent.
#[derive(Debug)]
pub struct ForkMark {
    /// `None`: the kernel cannot do it (before 4.14), so the process is asked for by its number.
    page: Option<&'static AtomicU8>,
    process: i32,
}

impl ForkMark {
    /// Marks this process.
    #[must_use]
    pub fn new() -> ForkMark {
        let page = marked_page().ok();
        ForkMark { page, process: thread::process_id() }
    }

    /// Tells whether this is the process that made the mark.
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.page {
            Some(mark) => mark.load(Relaxed) != 0,
            None => self.process == thread::process_id(),
        }
    }
}

impl Default for ForkMark {
    fn default() -> ForkMark {
        ForkMark::new()
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // Mapped by `marked_page`, and not known elsewhere.
            memory::unmap(core::ptr::from_ref(page) as usize, PAGE_SIZE);
        }
    }
}

/// Maps a page that says 1 here and 0 in a forked child.
///
/// Source: madvise(2), MADV_WIPEONFORK.
fn marked_page() -> Result<&'static AtomicU8, Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS); // it knows no such page, and no fork
    }
    let page = memory::map(PAGE_SIZE, libc::MAP_PRIVATE)?;
    // SAFETY: the page was just mapped and holds nothing.
    let wiped = unsafe { sys!(libc::SYS_madvise, page, PAGE_SIZE, libc::MADV_WIPEONFORK) };
    if let Err(errno) = wiped {
        memory::unmap(page, PAGE_SIZE);
        return Err(errno);
    }
    // SAFETY: a page of ours, zeroed, which lives until the mark is dropped; the reference does
    // not outlive it, being private to it.
    let mark = unsafe { &*(page as *const AtomicU8) };
    mark.store(1, Relaxed);
    Ok(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no fork")]
    fn a_forked_child_does_not_find_the_mark() {
        let mark = ForkMark::new();
        assert!(mark.is_here());
        // SAFETY: the child only loads a byte and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(mark.is_here());
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child found the mark");
    }
}
