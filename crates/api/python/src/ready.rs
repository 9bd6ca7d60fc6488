//! The awaitable for a line that was read ahead: an object that ends the `await` at once.
//!
//! The object has a C type, because the work for each line must be short: a method of a class of
//! pyo3 would take as long as all other work for the line. CPython 3.11 calls `am_send`, which
//! needs no exception. Later versions call the iterator, which ends with an exception for each
//! line. The object reuses its exception if nothing else refers to it.

use core::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::AcqRel},
};
use pyo3::{ffi, intern, prelude::*, sync::PyOnceLock};

#[repr(C)]
struct Object {
    head: ffi::PyObject,
    /// A `bytes` or a `str`. Null: no line is set yet, or the line was awaited already.
    line: AtomicPtr<ffi::PyObject>,
    /// The `StopIteration` of the last line, or null.
    stop: AtomicPtr<ffi::PyObject>,
}

/// An object that returns its line when awaited. [`Ready::with`] reuses the object for the next
/// line if the program has dropped it by then.
pub(crate) struct Ready(Py<PyAny>);

impl Ready {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Ready> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let class = CLASS.get_or_try_init(py, || make_class(py))?;
        // SAFETY: a type made for objects of this size. Their memory begins as zeroes, that is,
        // with null pointers. The function returns a new reference, or NULL with an exception set.
        let object = unsafe {
            let object = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
            Bound::from_owned_ptr_or_err(py, object)
        };
        Ok(Ready(object?.unbind()))
    }

    pub(crate) fn with(&mut self, py: Python<'_>, line: Py<PyAny>) -> PyResult<Py<PyAny>> {
        // SAFETY: a live object.
        if unsafe { ffi::Py_REFCNT(self.0.as_ptr()) } != 1 {
            *self = Ready::new(py)?;
        }
        // SAFETY: only `new` makes these objects, with this memory.
        let object = unsafe { &*self.0.as_ptr().cast::<Object>() };
        let old = object.line.swap(line.into_ptr(), AcqRel);
        // SAFETY: the object owned this reference; it may be null.
        drop(unsafe { Bound::from_owned_ptr_or_opt(py, old) });
        Ok(self.0.clone_ref(py))
    }
}

fn make_class(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let slot = |slot: c_int, function: *mut c_void| ffi::PyType_Slot { slot, pfunc: function };
    let mut slots = [
        slot(ffi::Py_am_await, itself as *mut c_void),
        slot(ffi::Py_am_send, send as *mut c_void),
        slot(ffi::Py_tp_iter, itself as *mut c_void),
        slot(ffi::Py_tp_iternext, next as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"nowait._nowait.Ready".as_ptr(),
        basicsize: size_of::<Object>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: a zero ends the slots, and each function has its slot's type; the name lives as long
    // as the program. The function returns a new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }
        .map(Bound::unbind)
}

/// Takes the line out of an object; returns a reference that the caller owns, or null with an
/// exception set.
///
/// # Safety
/// [`Ready::new`] has made the object, and the caller holds the interpreter.
unsafe fn take(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see above.
    let line = unsafe { &*object.cast::<Object>() }.line.swap(ptr::null_mut(), AcqRel);
    if line.is_null() {
        let text = c"the line was awaited already";
        // SAFETY: the caller holds the interpreter.
        unsafe { ffi::PyErr_SetString(ffi::PyExc_RuntimeError, text.as_ptr()) };
    }
    line
}

/// `am_await` and `tp_iter`.
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython passes a live object of this type.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// `am_send`.
unsafe extern "C" fn send(
    object: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: CPython passes a live object of this type, and a place for the result, whose
    // reference it takes over.
    unsafe { *result = take(object) };
    // SAFETY: as above.
    match unsafe { *result }.is_null() {
        true => ffi::PySendResult::PYGEN_ERROR,
        false => ffi::PySendResult::PYGEN_RETURN,
    }
}

/// `tp_iternext`: the line is the value of a `StopIteration`.
// CPython 3.11 does not have the function that replaces the deprecated `PyErr_Restore`.
#[allow(deprecated)]
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython passes a live object of this type, and holds the interpreter. References: the
    // one to the line is dropped, the one to the exception stays with the object, and a second one
    // goes with its type to `PyErr_Restore`.
    unsafe {
        let line = take(object);
        if line.is_null() {
            return ptr::null_mut();
        }
        let kept = &(*object.cast::<Object>()).stop;
        let stop = exception(kept.swap(ptr::null_mut(), AcqRel));
        let name = intern!(Python::assume_attached(), "value");
        if !stop.is_null() && ffi::PyObject_SetAttr(stop, name.as_ptr(), line) == 0 {
            ffi::Py_INCREF(ffi::PyExc_StopIteration);
            ffi::Py_INCREF(stop);
            ffi::PyErr_Restore(ffi::PyExc_StopIteration, stop, ptr::null_mut());
        }
        ffi::Py_DECREF(line);
        ffi::Py_XDECREF(kept.swap(stop, AcqRel));
    }
    ptr::null_mut()
}

/// Returns a `StopIteration` to which nothing else refers, or null with an exception set. Reuses
/// `known`, which may be null, if possible. Takes over the caller's reference to `known`.
///
/// # Safety
/// The caller holds the interpreter.
unsafe fn exception(known: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object or null, and a type.
    unsafe {
        if !known.is_null() && ffi::Py_REFCNT(known) == 1 {
            return known;
        }
        ffi::Py_XDECREF(known);
        ffi::PyObject_CallNoArgs(ffi::PyExc_StopIteration)
    }
}

/// `tp_dealloc`.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: CPython passes an object of this type that has no references. It holds references to
    // its line, its exception and, as every object of a type made at run time, to its type.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let memory = &*object.cast::<Object>();
        ffi::Py_XDECREF(memory.line.swap(ptr::null_mut(), AcqRel));
        ffi::Py_XDECREF(memory.stop.swap(ptr::null_mut(), AcqRel));
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}
