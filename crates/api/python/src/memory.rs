//! The memory of a request: the object that owns it, and the use of the memory at the end of the
//! request.

use crate::error::{Failure, Outcome};
use nowait::{AlignedBuffer, Alignment, IoBuffer, IoBufferMut};
use pyo3::{
    buffer::PyUntypedBuffer,
    exceptions::{PyBufferError, PyMemoryError},
    ffi,
    prelude::*,
    types::PyBytes,
};

pub(crate) enum Memory {
    /// A new `bytes` object that only the request knows. The engine fills it. The program gets it,
    /// or after a short read a copy of the filled part.
    Fresh { bytes: Py<PyBytes>, at: *mut u8, len: usize },
    /// A `bytes` object of the program, which the engine writes to the file.
    Bytes { _keep: Py<PyBytes>, at: *const u8, len: usize },
    /// A buffer of the program: the view prevents a resize meanwhile.
    Given { _keep: PyUntypedBuffer, at: *mut u8, len: usize },
    /// Aligned memory for direct I/O: for a read into a new `bytes` object, or if the program's
    /// memory is not aligned. At the end of a read, its data are copied.
    Aligned { memory: AlignedBuffer, then: Then },
}

pub(crate) enum Then {
    Bytes,
    Copy(PyUntypedBuffer),
    Nothing,
}

// SAFETY: the pointers are to memory of the objects beside them, which stays in place. Any thread
// may hold and drop Python objects through pyo3.
unsafe impl Send for Memory {}

fn aligned(len: usize) -> PyResult<AlignedBuffer> {
    AlignedBuffer::try_zeroed(len).ok_or_else(|| PyMemoryError::new_err(()))
}

impl Memory {
    pub(crate) fn for_read(
        py: Python<'_>,
        len: usize,
        alignment: Option<Alignment>,
    ) -> PyResult<Memory> {
        if alignment.is_some() {
            return Ok(Memory::Aligned { memory: aligned(len)?, then: Then::Bytes });
        }
        let size = ffi::Py_ssize_t::try_from(len).map_err(|_| PyMemoryError::new_err(()))?;
        // SAFETY: a new object of this size, or NULL with an exception set. The bytes are not
        // initialized: nothing reads a byte before the engine has filled it.
        let object = unsafe { ffi::PyBytes_FromStringAndSize(std::ptr::null(), size) };
        // SAFETY: the reference is new, and owned here.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
        // SAFETY: it is a `bytes` object, which owns the memory.
        let at = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast::<u8>();
        // SAFETY: made as one just now.
        let bytes = unsafe { object.cast_into_unchecked::<PyBytes>() }.unbind();
        Ok(Memory::Fresh { bytes, at, len })
    }

    pub(crate) fn for_filling(
        buffer: &Bound<'_, PyAny>,
        alignment: Option<Alignment>,
    ) -> PyResult<Memory> {
        let view = PyUntypedBuffer::get(buffer)?;
        if view.readonly() {
            return Err(PyBufferError::new_err("the buffer to read into is read-only"));
        }
        let (at, len) = whole(&view)?;
        Ok(match is_aligned(at, alignment) {
            true => Memory::Given { _keep: view, at, len },
            false => Memory::Aligned { memory: aligned(len)?, then: Then::Copy(view) },
        })
    }

    pub(crate) fn for_write(
        data: &Bound<'_, PyAny>,
        alignment: Option<Alignment>,
    ) -> PyResult<Memory> {
        if let Ok(bytes) = data.cast_exact::<PyBytes>() {
            let slice = bytes.as_bytes();
            if is_aligned(slice.as_ptr(), alignment) {
                let keep = bytes.clone().unbind();
                return Ok(Memory::Bytes { _keep: keep, at: slice.as_ptr(), len: slice.len() });
            }
        }
        let view = PyUntypedBuffer::get(data)?;
        let (at, len) = whole(&view)?;
        if is_aligned(at, alignment) {
            return Ok(Memory::Given { _keep: view, at, len });
        }
        let mut memory = aligned(len)?;
        // SAFETY: both have `len` bytes, and the new ones do not overlap the program's.
        unsafe { std::ptr::copy_nonoverlapping(at, memory.as_mut_ptr(), len) };
        Ok(Memory::Aligned { memory, then: Then::Nothing })
    }

    /// Returns the bytes if the program passed no memory for them, otherwise `count`.
    pub(crate) fn into_result(self, py: Python<'_>, count: usize) -> Outcome {
        Ok(match self {
            Memory::Fresh { bytes, len, .. } if count == len => bytes.into_any(),
            Memory::Fresh { bytes, .. } => {
                // SAFETY: the engine has filled the first `count` bytes; the object is not shared.
                copied(py, &bytes.bind(py).as_bytes()[..count])?
            }
            Memory::Aligned { memory, then: Then::Copy(view) } => {
                // SAFETY: the view is writable memory of at least as many bytes, which it keeps
                // alive.
                unsafe {
                    let into = view.buf_ptr().cast::<u8>();
                    std::ptr::copy_nonoverlapping(memory.as_ptr(), into, count);
                }
                number(py, count)
            }
            Memory::Aligned { memory, then: Then::Bytes } => copied(py, &memory[..count])?,
            _ => number(py, count),
        })
    }
}

pub(crate) fn copied(py: Python<'_>, bytes: &[u8]) -> Outcome {
    let fill = |new: &mut [u8]| {
        new.copy_from_slice(bytes);
        Ok(())
    };
    let made = PyBytes::new_with(py, bytes.len(), fill);
    made.map(|made| made.into_any().unbind()).map_err(|_| Failure::Memory)
}

pub(crate) fn number(py: Python<'_>, value: usize) -> Py<PyAny> {
    let Ok(number) = value.into_pyobject(py);
    number.into_any().unbind()
}

pub(crate) fn whole(view: &PyUntypedBuffer) -> PyResult<(*mut u8, usize)> {
    if !view.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    Ok((view.buf_ptr().cast(), view.len_bytes()))
}

fn is_aligned(at: *const u8, alignment: Option<Alignment>) -> bool {
    alignment.is_none_or(|alignment| at.addr().is_multiple_of(alignment.memory))
}

// SAFETY: each variant keeps the memory alive and in place until it is dropped. Other code may
// write to the program's buffers meanwhile, as with buffers passed to `os.pwrite`: the engine only
// passes addresses on, and copies by address.
unsafe impl IoBuffer for Memory {
    fn as_ptr(&self) -> *const u8 {
        match self {
            Memory::Bytes { at, .. } => *at,
            Memory::Fresh { at, .. } | Memory::Given { at, .. } => *at,
            Memory::Aligned { memory, .. } => memory.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Memory::Fresh { len, .. } | Memory::Bytes { len, .. } | Memory::Given { len, .. } => {
                *len
            }
            Memory::Aligned { memory, .. } => memory.len(),
        }
    }
}

// SAFETY: as above; a read fills a new object, or a buffer passed to be filled. A read never gets
// `Bytes`.
unsafe impl IoBufferMut for Memory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Memory::Fresh { at, .. } | Memory::Given { at, .. } => *at,
            Memory::Bytes { .. } => unreachable!("only written"),
            Memory::Aligned { memory, .. } => memory.as_mut_ptr(),
        }
    }
}
