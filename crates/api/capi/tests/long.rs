//! A blocking transfer is short if its buffers are longer than 2 GiB.

use core::ptr::null_mut;
use nowait_capi::*;
use nowait_sys::file::{IoVec, O_RDONLY};
use std::{ffi::CString, os::unix::ffi::OsStrExt};

const USER: i32 = 0;
const MIB: usize = 1 << 20;

/// The file is sparse, and all buffers are one, so the test needs little memory.
#[test]
fn a_blocking_read_longer_than_requests_may_be_is_short() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("file");
    std::fs::File::create(&path).unwrap().set_len(5 << 30).unwrap();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let size = size_of::<Options>();
    let options = Options { size, cache_bytes: 8 << 20, ..Options::default() };
    let (mut engine, mut file) = (null_mut(), null_mut());
    let mut buffer = vec![1u8; 4 * MIB];
    let iov = [(); 1024].map(|()| IoVec { base: buffer.as_mut_ptr(), len: 4 * MIB });
    // SAFETY: valid pointers; ours, and not used again.
    unsafe {
        assert_eq!(nowait_engine_create(&raw const options, &raw mut engine), 0);
        let opened = nowait_file_open(engine, path.as_ptr(), O_RDONLY, 0, USER, &raw mut file);
        assert_eq!(opened, 0);
        assert_eq!(nowait_readv(file, iov.as_ptr(), iov.len(), 0), 0x7fff_f000);
        nowait_file_close(file);
        nowait_engine_destroy(engine);
    }
    assert!(buffer.iter().all(|byte| *byte == 0));
}
