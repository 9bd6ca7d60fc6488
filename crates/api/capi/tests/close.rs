//! `nowait_file_close` returns write-back errors.
//!
//! This is a test binary of its own: it sets RLIMIT_FSIZE, which applies to the whole process.

use core::{ffi::CStr, ptr::null_mut};
use nowait_block::skip::note_skip_here;
use nowait_capi::*;
use nowait_sys::file::{O_CREAT, O_RDWR};
use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path};

const USER: i32 = 0;
const LARGEST: usize = 1 << 20;

unsafe fn close_after(engine: *mut Engine, path: &Path, len: usize) -> i32 {
    let (path, mut file) = (CString::new(path.as_os_str().as_bytes()).unwrap(), null_mut());
    let flags = O_RDWR | O_CREAT;
    let bytes = vec![7u8; len];
    // SAFETY: valid pointers, and a live engine.
    unsafe {
        let opened = nowait_file_open(engine, path.as_ptr(), flags, 0o600, USER, &raw mut file);
        assert_eq!(opened, 0);
        assert_eq!(nowait_write(file, bytes.as_ptr().cast(), len, 0), len as i64, "in the cache");
        nowait_file_close(file)
    }
}

#[test]
fn close_tells_what_could_not_be_written_and_nothing_of_other_files() {
    let most = LARGEST as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: numbers, and a live struct.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    for backend in [1, 2, 3] {
        let size = size_of::<Options>();
        let options =
            Options { size, cache_bytes: 8 << 20, backend, flags: 1, ..Options::default() };
        let mut engine = null_mut();
        // SAFETY: valid pointers.
        if unsafe { nowait_engine_create(&raw const options, &raw mut engine) } != 0 {
            note_skip_here(&format!("backend {backend} cannot start"));
            continue;
        }
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let [large, small] = ["large", "small"].map(|name| folder.path().join(name));
        // SAFETY: a live engine.
        unsafe {
            assert_eq!(close_after(engine, &large, 2 * LARGEST), -libc::EFBIG);
            let text = CStr::from_ptr(nowait_error_text()).to_str().unwrap();
            assert!(text.starts_with("close of ") && text.contains("large"), "{text}");
            assert_eq!(close_after(engine, &small, LARGEST), 0);
            assert_eq!(nowait_file_close(null_mut()), 0);
            nowait_engine_destroy(engine);
        }
        assert_eq!(std::fs::metadata(&small).unwrap().len(), LARGEST as u64);
        assert!(std::fs::metadata(&large).unwrap().len() <= LARGEST as u64);
    }
}
