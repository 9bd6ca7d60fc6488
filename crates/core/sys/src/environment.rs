//! The library's own variables as they were when it was loaded: a program may change them later.
//!
//! Most programs that are loaded with the library make no request. They pay for a look at the
//! environment, and for nothing that reads it. What runs then lies together (`.text.startup`): the
//! kernel maps 64 KiB of a library at a time.

use core::{
    cell::UnsafeCell,
    ffi::{CStr, c_char},
    sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release},
};

/// Of every variable of ours.
const PREFIX: &[u8] = b"NOWAIT_";

/// The variables, each with a zero behind it. Pages of it that have none take no memory.
static KEPT: Variables =
    Variables { text: UnsafeCell::new([0; ROOM]), len: AtomicUsize::new(NOT_KEPT) };
/// Two paths of the longest kind, and all else.
const ROOM: usize = 12 << 10;
const NOT_KEPT: usize = usize::MAX;

struct Variables {
    text: UnsafeCell<[u8; ROOM]>,
    len: AtomicUsize,
}

// SAFETY: the text is written before its length is, by the one thread that loads the library, and
// not changed after that.
unsafe impl Sync for Variables {}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Keeps the variables, when the library is loaded; the first time only. `false`: there is no room
/// for them.
#[unsafe(link_section = ".text.startup")]
pub fn keep() -> bool {
    if KEPT.len.load(Acquire) != NOT_KEPT {
        return true;
    }
    let mut len = 0;
    // SAFETY: as for getenv(3): no other thread changes the environment while a library is loaded.
    let mut entry = unsafe { environ };
    // SAFETY: a list of strings, whose last is null; the list itself may be null.
    while let Some(variable) = unsafe { entry.as_ref() }.filter(|variable| !variable.is_null()) {
        // SAFETY: as above.
        let variable = unsafe { CStr::from_ptr(*variable) }.to_bytes_with_nul();
        entry = entry.wrapping_add(1);
        if !variable.starts_with(PREFIX) {
            continue;
        }
        if len + variable.len() > ROOM {
            return false;
        }
        let start = KEPT.text.get().cast::<u8>().wrapping_add(len);
        // SAFETY: there is room; nothing reads it yet.
        unsafe { start.copy_from_nonoverlapping(variable.as_ptr(), variable.len()) };
        len += variable.len();
    }
    KEPT.len.store(len, Release);
    true
}

/// Returns what was kept; `None`: nothing was.
fn kept() -> Option<&'static [u8]> {
    let len = KEPT.len.load(Acquire);
    // SAFETY: written before the length was.
    (len != NOT_KEPT).then(|| unsafe { core::slice::from_raw_parts(KEPT.text.get().cast(), len) })
}

/// Returns the value of a variable that was kept.
///
/// # Errors
/// None were kept: the environment of now says it.
pub fn kept_value(name: &str) -> Result<Option<&'static [u8]>, NotKept> {
    kept().map(|text| find(text, name)).ok_or(NotKept)
}

/// The variables were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKept;

#[unsafe(link_section = ".text.startup")]
fn find<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut variables = text.split(|byte| *byte == 0);
    variables.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let text = b"NOWAIT_CACHE_SIZE=16M\0NOWAIT_CACHE=user\0NOWAIT_REPORT=\0";
        let find = |name| find(text, name);
        assert_eq!(find("NOWAIT_CACHE"), Some(&b"user"[..]));
        assert_eq!(find("NOWAIT_CACHE_SIZE"), Some(&b"16M"[..]));
        assert_eq!(find("NOWAIT_REPORT"), Some(&b""[..]));
        assert_eq!(find("NOWAIT_"), None);
        assert_eq!(find("CACHE"), None);
    }

    #[test]
    fn what_is_kept_is_what_the_environment_has() {
        assert!(keep() && keep());
        let set = std::env::vars().filter(|(name, _)| name.starts_with("NOWAIT_"));
        let text = kept().unwrap();
        let mut count = 0;
        for (name, value) in set {
            assert_eq!(find(text, &name), Some(value.as_bytes()));
            count += 1;
        }
        assert_eq!(text.split(|byte| *byte == 0).count(), count + 1);
        assert_eq!(kept_value("NOWAIT_NOTHING"), Ok(None));
    }
}
