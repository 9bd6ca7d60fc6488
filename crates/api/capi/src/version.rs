//! The version of the library, which is the package's.

use core::ffi::{CStr, c_char};

const TEXT: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };

/// Returns major << 16 | minor << 8 | patch.
#[unsafe(no_mangle)]
pub extern "C" fn nowait_version() -> u32 {
    const NUMBER: u32 = number(env!("CARGO_PKG_VERSION"));
    NUMBER
}

/// Returns the version as text.
#[unsafe(no_mangle)]
pub extern "C" fn nowait_version_text() -> *const c_char {
    TEXT.as_ptr()
}

const fn number(text: &str) -> u32 {
    let (bytes, mut index) = (text.as_bytes(), 0);
    let (mut parts, mut part) = ([0u32; 3], 0);
    while index < bytes.len() && part < 3 {
        match bytes[index] {
            b'.' => part += 1,
            digit => parts[part] = parts[part] * 10 + (digit - b'0') as u32,
        }
        index += 1;
    }
    parts[0] << 16 | parts[1] << 8 | parts[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_orders_versions() {
        assert_eq!(number("1.2.30"), 0x01_021e);
        assert!(number("0.10.0") > number("0.9.9"));
    }
}
