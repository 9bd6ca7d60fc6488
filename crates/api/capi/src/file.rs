//! Open files, and blocking requests.

use crate::{
    Engine,
    guard::{Failure, guarded, making},
};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use nowait::{Advice, CacheMode, Errno, OpenOptions};
use nowait_sys::file::{
    IOV_MAX, IoVec, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DSYNC, O_EXCL, O_NOATIME,
    O_NOCTTY, O_NOFOLLOW, O_RDWR, O_SYNC, O_TRUNC, O_WRONLY,
};
use std::{
    ffi::OsStr,
    io::{IoSlice, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

/// `nowait_file`.
pub struct File(pub(crate) nowait::File);

/// Opens a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_open(
    engine: *mut Engine,
    path: *const c_char,
    flags: c_int,
    permissions: c_uint,
    cache: c_int,
    file: *mut *mut File,
) -> c_int {
    // SAFETY: the caller's pointers, as the header requires.
    unsafe {
        making(file, || {
            let path = Path::new(OsStr::from_bytes(CStr::from_ptr(path).to_bytes()));
            let refused = |because: &str| {
                Failure::new(Errno::INVAL, &format!("open of {}", path.display()), because)
            };
            let options = options(flags).map_err(refused)?.mode(permissions);
            let cache =
                cache_mode(cache).ok_or_else(|| refused("cache is none of NOWAIT_CACHE_*"))?;
            Ok(File(options.cache(cache).open(&(*engine).nowait, path)?))
        })
    }
}

/// Closes a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_close(file: *mut File) -> c_int {
    guarded(|| {
        if !file.is_null() {
            // SAFETY: made by `Box::into_raw`, and the caller gives it up, as promised.
            unsafe { Box::from_raw(file) }.0.close()?;
        }
        Ok(0)
    }) as c_int
}

/// Returns the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_fd(file: *const File) -> c_int {
    // SAFETY: the caller's file.
    unsafe { &*file }.0.as_fd().as_raw_fd()
}

/// Stores the alignment of direct requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_alignment(
    file: *const File,
    memory: *mut usize,
    offset: *mut usize,
) {
    // SAFETY: the caller's file.
    let (for_memory, for_offset) = match unsafe { &*file }.0.alignment() {
        Some(alignment) => (alignment.memory, alignment.offset),
        None => (1, 1),
    };
    // SAFETY: each pointer is null or the caller's memory for the value.
    unsafe {
        if let Some(memory) = memory.as_mut() {
            *memory = for_memory;
        }
        if let Some(offset) = offset.as_mut() {
            *offset = for_offset;
        }
    }
}

/// Stores the size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_size(file: *const File, size: *mut u64) -> c_int {
    // SAFETY: the caller's file, and its memory for the size.
    call(|| unsafe {
        size.write((*file).0.size()?);
        Ok(())
    })
}

/// Cuts the file off, or extends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_truncate(file: *mut File, size: u64) -> c_int {
    // SAFETY: the caller's file.
    call(|| unsafe { &*file }.0.set_len(size))
}

/// Makes data and metadata durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_sync(file: *mut File) -> c_int {
    // SAFETY: the caller's file.
    call(|| unsafe { &*file }.0.sync_all())
}

/// Makes the data durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_datasync(file: *mut File) -> c_int {
    // SAFETY: the caller's file.
    call(|| unsafe { &*file }.0.sync_data())
}

/// Makes a range durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_sync_range(
    file: *mut File,
    offset: u64,
    length: u64,
) -> c_int {
    // SAFETY: the caller's file.
    call(|| unsafe { &*file }.0.sync_range(offset, length))
}

/// Announces how the program will use a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_file_advise(
    file: *mut File,
    offset: u64,
    length: u64,
    advice: c_int,
) -> c_int {
    guarded(|| {
        let advice = match advice {
            0 => Advice::Normal,
            1 => Advice::Random,
            2 => Advice::Sequential,
            3 => Advice::WillNeed,
            4 => Advice::DontNeed,
            _ => {
                return Err(Failure::new(
                    Errno::INVAL,
                    "advise",
                    "advice is none of NOWAIT_ADVICE_*",
                ));
            }
        };
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
        // SAFETY: the caller's file.
        unsafe { &*file }.0.advise(offset..end, advice)?;
        Ok(0)
    }) as c_int
}

/// Reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_read(
    file: *mut File,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller's file and buffer.
    count(|| unsafe { (*file).0.read_at(bytes_mut(buffer, length), offset) })
}

/// Writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_write(
    file: *mut File,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller's file and buffer.
    count(|| unsafe { (*file).0.write_at(bytes(buffer, length), offset) })
}

/// Reads into several buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_readv(
    file: *mut File,
    iov: *const IoVec,
    count: usize,
    offset: u64,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller promises that the file, the array and its buffers are valid.
        unsafe {
            let mut slices = Vec::new();
            for part in vector(iov, count)? {
                slices.push(IoSliceMut::new(bytes_mut(part.base.cast(), part.len)));
            }
            Ok((*file).0.read_vectored_at(&mut slices, offset)? as i64)
        }
    })
}

/// Writes several buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_writev(
    file: *mut File,
    iov: *const IoVec,
    count: usize,
    offset: u64,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller promises that the file, the array and its buffers are valid.
        unsafe {
            let mut slices = Vec::new();
            for part in vector(iov, count)? {
                slices.push(IoSlice::new(bytes(part.base.cast_const().cast(), part.len)));
            }
            Ok((*file).0.write_vectored_at(&slices, offset)? as i64)
        }
    })
}

/// Fills a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_read_exact(
    file: *mut File,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> c_int {
    // SAFETY: the caller's file and buffer.
    call(|| unsafe { (*file).0.read_exact_at(bytes_mut(buffer, length), offset) })
}

/// Writes all of a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_write_all(
    file: *mut File,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> c_int {
    // SAFETY: the caller's file and buffer.
    call(|| unsafe { (*file).0.write_all_at(bytes(buffer, length), offset) })
}

fn call(call: impl FnOnce() -> Result<(), nowait::Error>) -> c_int {
    guarded(|| Ok(call().map(|()| 0)?)) as c_int
}

fn count(call: impl FnOnce() -> Result<usize, nowait::Error>) -> i64 {
    guarded(|| Ok(call()? as i64))
}

/// For 0 bytes the address may be null.
///
/// # Safety
/// `length` bytes at `buffer` are valid, and nothing else uses them until the call returns.
unsafe fn bytes_mut<'a>(buffer: *mut c_void, length: usize) -> &'a mut [u8] {
    if length == 0 {
        return &mut [];
    }
    // SAFETY: promised above. Bytes that C has not initialized are not read here.
    unsafe { core::slice::from_raw_parts_mut(buffer.cast(), length) }
}

/// For 0 bytes the address may be null.
///
/// # Safety
/// `length` bytes at `buffer` are valid and unchanged until the call returns.
unsafe fn bytes<'a>(buffer: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: promised above.
    unsafe { core::slice::from_raw_parts(buffer.cast(), length) }
}

/// # Safety
/// `count` elements at `iov` are valid; for 0 the address does not matter.
pub(crate) unsafe fn vector<'a>(iov: *const IoVec, count: usize) -> Result<&'a [IoVec], Failure> {
    match count {
        0 => Ok(&[]),
        // SAFETY: promised above.
        1..=IOV_MAX => Ok(unsafe { core::slice::from_raw_parts(iov, count) }),
        _ => Err(Failure::new(Errno::INVAL, "vectored request", "at most 1024 buffers")),
    }
}

fn options(flags: c_int) -> Result<OpenOptions, &'static str> {
    /// Flags that this function passes to open(2) unchanged.
    const PASSED: c_int = O_SYNC | O_DSYNC | O_NOFOLLOW | O_NOATIME | O_NOCTTY;
    const KNOWN: c_int = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | PASSED;
    if flags & O_DIRECT != 0 {
        return Err("O_DIRECT is not accepted: set cache to NOWAIT_CACHE_DIRECT");
    }
    if flags & O_APPEND != 0 {
        return Err("O_APPEND is not supported: every request names its offset");
    }
    if flags & !KNOWN != 0 {
        return Err("unknown open flag");
    }
    let (read, write) = match flags & O_ACCMODE {
        O_RDWR => (true, true),
        O_WRONLY => (false, true),
        O_ACCMODE => return Err("neither O_RDONLY, O_WRONLY nor O_RDWR"),
        _ => (true, false),
    };
    let create = flags & O_CREAT != 0;
    if !write && flags & (O_CREAT | O_TRUNC) != 0 {
        return Err("O_CREAT and O_TRUNC need O_WRONLY or O_RDWR");
    }
    let options = OpenOptions::new().read(read).write(write).truncate(flags & O_TRUNC != 0);
    let options = match flags & O_EXCL {
        0 => options.create(create),
        _ => options.create_new(create),
    };
    Ok(options.flags(flags & PASSED))
}

fn cache_mode(number: c_int) -> Option<CacheMode> {
    Some(match number {
        0 => CacheMode::User,
        1 => CacheMode::Host,
        2 => CacheMode::Direct,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_mean_nothing_here_are_refused_with_what_to_do() {
        let refused = |flags| options(flags).err().unwrap_or_default();
        assert!(refused(O_DIRECT).contains("NOWAIT_CACHE_DIRECT"));
        assert!(refused(O_APPEND | O_WRONLY).contains("offset"));
        assert!(refused(O_CREAT).contains("O_RDWR"));
        assert!(refused(O_ACCMODE).contains("O_RDONLY"));
        assert!(refused(1 << 30).contains("unknown open flag"));
        assert_eq!(refused(O_RDWR | O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_SYNC), "");
    }
}
