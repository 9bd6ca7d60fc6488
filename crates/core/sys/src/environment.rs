//! The variables `NOWAIT_*` as they were when the library was loaded: a program may change them
//! later.
//!
//! The functions that run at load are in one section (`.text.startup`), so that one page fault maps
//! them: most programs that load the library make no request.

use core::{
    cell::UnsafeCell,
    ffi::{CStr, c_char},
    sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release},
};

const PREFIX: &[u8] = b"NOWAIT_";
/// Bytes for two paths of the greatest length and the other variables.
const ROOM: usize = 12 << 10;
const NOT_KEPT: usize = usize::MAX;

static TEXT: Text = Text(UnsafeCell::new([0; ROOM]));
static LEN: AtomicUsize = AtomicUsize::new(NOT_KEPT);

struct Text(UnsafeCell<[u8; ROOM]>);

// SAFETY: `keep` writes it before it sets `LEN`, on the thread that loads the library, and other
// functions read it after that only.
unsafe impl Sync for Text {}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Copies the variables, if they were not copied yet. Returns `false` if the variables are too
/// long.
///
/// Called when the library is loaded. As for getenv(3), no other thread may change the environment
/// meanwhile.
#[unsafe(link_section = ".text.startup")]
pub fn keep() -> bool {
    if LEN.load(Acquire) != NOT_KEPT {
        return true;
    }
    // SAFETY: a list of strings that ends with null, or null; it does not change meanwhile.
    let mut entry = unsafe { environ };
    let variables = core::iter::from_fn(|| {
        // SAFETY: as above; the entry is not behind the last one, which ends the iteration.
        let variable = unsafe { entry.as_ref() }.filter(|variable| !variable.is_null())?;
        entry = entry.wrapping_add(1);
        // SAFETY: as above.
        Some(unsafe { CStr::from_ptr(*variable) }.to_bytes_with_nul())
    });
    // SAFETY: nothing reads or writes it before `LEN` is set.
    let len = copy(variables, unsafe { &mut *TEXT.0.get() });
    len.iter().for_each(|len| LEN.store(*len, Release));
    len.is_some()
}

#[inline]
fn copy<'a>(variables: impl Iterator<Item = &'a [u8]>, text: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for variable in variables.filter(|variable| variable.starts_with(PREFIX)) {
        text.get_mut(len..len + variable.len())?.copy_from_slice(variable);
        len += variable.len();
    }
    Some(len)
}

/// The variables that were copied when the library was loaded.
#[derive(Clone, Copy, Debug)]
pub struct Variables(&'static [u8]);

/// Returns the variables that [`keep`] has copied; `None` if it has not run, or if they were too
/// long.
pub fn kept() -> Option<Variables> {
    let len = LEN.load(Acquire);
    // SAFETY: it was written before `LEN` was set, and does not change any more.
    (len != NOT_KEPT).then(|| Variables(unsafe { &(&*TEXT.0.get())[..len] }))
}

impl Variables {
    /// Returns the value of a variable.
    pub fn value(self, name: &str) -> Option<&'static [u8]> {
        find(self.0, name)
    }
}

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
    fn variables_are_copied_if_all_of_ours_fit() {
        let variables = [&b"PATH=/bin\0"[..], b"NOWAIT_LOG=off\0", b"NOWAIT_STATS=\0"];
        let copied = |room| {
            let mut text = vec![b'x'; room];
            copy(variables.into_iter(), &mut text).map(|len| text[..len].to_vec())
        };
        assert_eq!(copied(100).unwrap(), b"NOWAIT_LOG=off\0NOWAIT_STATS=\0");
        assert_eq!(copied(29).unwrap().len(), 29);
        assert_eq!(copied(28), None);
    }

    #[test]
    fn what_is_kept_is_what_the_environment_has() {
        assert!(keep() && keep());
        let set = std::env::vars().filter(|(name, _)| name.starts_with("NOWAIT_"));
        let Variables(text) = kept().unwrap();
        let mut count = 0;
        for (name, value) in set {
            assert_eq!(find(text, &name), Some(value.as_bytes()));
            count += 1;
        }
        assert_eq!(text.split(|byte| *byte == 0).count(), count + 1);
        assert_eq!(kept().unwrap().value("NOWAIT_NOTHING"), None);
    }
}
