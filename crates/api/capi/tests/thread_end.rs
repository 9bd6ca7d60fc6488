//! Calls in destructors of thread-specific data, as C programs make them.

use core::{ffi::CStr, ptr::null_mut};
use nowait_block::skip::note_skip_here;
use nowait_capi::*;
use nowait_sys::{
    Errno,
    file::{O_CREAT, O_RDONLY, O_RDWR},
};
use std::{ffi::CString, os::unix::ffi::OsStrExt, thread};

const USER: i32 = 0;
const HOST: i32 = 1;

struct AtEnd {
    engine: *mut Engine,
    file: *mut File,
    results: [i64; 4],
    text: &'static CStr,
}

unsafe extern "C" fn at_end(data: *mut core::ffi::c_void) {
    let mut bytes = [0u8; 16];
    let (buffer, mut missing) = (bytes.as_mut_ptr().cast(), null_mut());
    // SAFETY: the joined thread has lent it, with a live engine and an open file.
    unsafe {
        let data = &mut *data.cast::<AtEnd>();
        data.results = [
            nowait_write(data.file, buffer, 16, 0),
            nowait_read(data.file, buffer, 16, 0),
            nowait_read(data.file, buffer, 16, -1i64 as u64),
            i64::from(nowait_file_open(
                data.engine,
                c"/nowhere/at/all".as_ptr(),
                O_RDONLY,
                0,
                HOST,
                &raw mut missing,
            )),
        ];
        data.text = CStr::from_ptr(nowait_error_text());
        let explained = CStr::from_ptr(nowait_strerror(1));
        assert!(!explained.is_empty());
    }
}

/// The library's own thread-local data may be destroyed before the program's destructors run.
#[test]
fn destructors_of_thread_data_call_as_any_function() {
    for (backend, cache) in [(1, USER), (1, HOST), (2, USER), (2, HOST), (3, USER), (3, HOST)] {
        let size = size_of::<Options>();
        let options =
            Options { size, cache_bytes: 8 << 20, backend, flags: 1, ..Options::default() };
        let (mut engine, mut file) = (null_mut(), null_mut());
        // SAFETY: valid pointers.
        if unsafe { nowait_engine_create(&raw const options, &raw mut engine) } != 0 {
            note_skip_here(&format!("backend {backend} cannot start"));
            continue;
        }
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = CString::new(folder.path().join("file").as_os_str().as_bytes()).unwrap();
        let flags = O_RDWR | O_CREAT;
        // SAFETY: valid pointers.
        let opened =
            unsafe { nowait_file_open(engine, path.as_ptr(), flags, 0o600, cache, &raw mut file) };
        assert_eq!(opened, 0);
        let (results, text) = ([0; 4], c"");
        let mut data = Box::new(AtEnd { engine, file, results, text });
        let (mut key, address) = (0, (&raw mut *data) as usize);
        // SAFETY: a live number.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) }, 0);
        thread::spawn(move || {
            // This call gives the thread thread-local data of the library. SAFETY: valid until the
            // next call.
            assert!(unsafe { CStr::from_ptr(nowait_error_text()) }.is_empty());
            // SAFETY: a key that was made; the data lives until the thread has ended.
            assert_eq!(unsafe { libc::pthread_setspecific(key, address as *const _) }, 0);
        })
        .join()
        .unwrap();
        // SAFETY: no thread uses it any more.
        unsafe { libc::pthread_key_delete(key) };
        let failed = [Errno::INVAL, Errno::NOENT].map(|errno| -i64::from(errno.raw()));
        assert_eq!(data.results, [16, 16, failed[0], failed[1]]);
        assert!(!data.text.is_empty());
        // SAFETY: open, and not used again.
        unsafe {
            nowait_file_close(file);
            nowait_engine_destroy(engine);
        }
    }
}
