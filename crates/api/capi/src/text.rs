//! Copies texts to memory of the caller, as snprintf(3) does.

use core::ffi::c_char;

/// Writes as much of `text` as fits, and a zero byte behind it. Returns the whole length of `text`.
///
/// # Safety
/// `to` is valid for writing `size` bytes; with `size` 0 it may be null.
pub(crate) unsafe fn copy_out(text: &str, to: *mut c_char, size: usize) -> i64 {
    if size > 0 {
        let count = text.len().min(size - 1);
        // SAFETY: `count` bytes and the zero are at most `size`, and the caller promises `size`
        // bytes.
        unsafe {
            to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count);
            to.add(count).write(0);
        }
    }
    text.len() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_off_and_its_whole_length_returned() {
        let mut memory = [1 as c_char; 6];
        // SAFETY: fewer bytes than the array has, and none.
        unsafe {
            assert_eq!(copy_out("hello world", memory.as_mut_ptr(), 5), 11);
            assert_eq!(copy_out("hello", core::ptr::null_mut(), 0), 5);
        }
        assert_eq!(memory.map(|c| c as u8), *b"hell\0\x01");
    }
}
