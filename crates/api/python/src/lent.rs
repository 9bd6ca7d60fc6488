//! Cached pages that Python sees in place: no copy, read-only.

use crate::engine::ProcessEngine;
use core::{
    ffi::c_int,
    mem::ManuallyDrop,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use nowait::Lent;
use pyo3::{ffi, prelude::*};
use std::sync::Arc;

/// Pages that were lent together. They go back when no view of them is left.
struct Loan {
    lent: ManuallyDrop<Lent>,
    engine: &'static ProcessEngine,
}

impl Drop for Loan {
    fn drop(&mut self) {
        // A forked child has a copy of the cache, which another thread may have held locked.
        if self.engine.is_here() {
            // SAFETY: not used again, and dropped here only.
            unsafe { ManuallyDrop::drop(&mut self.lent) };
        }
    }
}

/// A part of them that is one piece of memory: for `memoryview`.
#[pyclass(module = "nowait._nowait", frozen)]
pub struct LentPart {
    loan: Arc<Loan>,
    index: usize,
    /// Views of it that were not given up.
    views: AtomicUsize,
}

/// Makes the parts of what was lent.
pub(crate) fn parts(lent: Lent, engine: &'static ProcessEngine) -> Vec<LentPart> {
    let count = lent.chunks().len();
    let loan = Arc::new(Loan { lent: ManuallyDrop::new(lent), engine });
    let part = |index| LentPart { loan: loan.clone(), index, views: AtomicUsize::new(0) };
    (0..count).map(part).collect()
}

#[pymethods]
impl LentPart {
    /// The view holds this object, and with it the pages.
    ///
    /// # Safety
    /// CPython gives a view to be filled.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, LentPart>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let part = slf.get();
        let bytes = part.loan.lent.chunks().nth(part.index).unwrap_or_default();
        let (at, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the view is the caller's, and takes a reference to the object, which keeps the
        // memory at its place. It is told to be read-only, so nothing writes by the pointer.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at, len, 1, flags) } {
            0 => {
                part.views.fetch_add(1, Relaxed);
                Ok(())
            }
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    /// A view is given up.
    ///
    /// # Safety
    /// None is needed: the view is not looked at.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Relaxed);
    }

    /// Whether there are views of it.
    #[getter]
    fn is_viewed(&self) -> bool {
        self.views.load(Relaxed) > 0
    }
}
