//! Cached pages lent to Python: in place, without a copy, read-only.

use crate::engine::ProcessEngine;
use core::{
    ffi::c_int,
    mem::ManuallyDrop,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use nowait::Lent;
use pyo3::{ffi, prelude::*};
use std::sync::Arc;

/// Pages that were lent together. The drop of their last [`LentPart`] returns the pages to the
/// cache. A view keeps its part alive.
struct Loan {
    lent: ManuallyDrop<Lent>,
    engine: &'static ProcessEngine,
}

impl Drop for Loan {
    fn drop(&mut self) {
        // A forked child has a copy of the cache, whose locks another thread may have held.
        if self.engine.is_here() {
            // SAFETY: dropped only here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.lent) };
        }
    }
}

/// A contiguous part of the pages, for `memoryview`.
#[pyclass(module = "nowait._nowait", frozen)]
pub struct LentPart {
    loan: Arc<Loan>,
    index: usize,
    views: AtomicUsize,
}

pub(crate) fn parts(lent: Lent, engine: &'static ProcessEngine) -> Vec<LentPart> {
    let count = lent.chunks().len();
    let loan = Arc::new(Loan { lent: ManuallyDrop::new(lent), engine });
    let part = |index| LentPart { loan: loan.clone(), index, views: AtomicUsize::new(0) };
    (0..count).map(part).collect()
}

#[pymethods]
impl LentPart {
    /// Fills a view, which then references this object and with it the pages.
    ///
    /// # Safety
    /// CPython passes a view to be filled.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, LentPart>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let part = slf.get();
        let bytes = part.loan.lent.chunks().nth(part.index).unwrap_or_default();
        let (at, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the view belongs to the caller, and takes a reference to the object, which keeps
        // the memory in place. The view is read-only, so nothing writes through the pointer.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at, len, 1, flags) } {
            0 => {
                part.views.fetch_add(1, Relaxed);
                Ok(())
            }
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    /// Counts a released view.
    ///
    /// # Safety
    /// No requirement: the view is not accessed.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Relaxed);
    }

    /// Returns `True` if views of this part exist.
    #[getter]
    fn is_viewed(&self) -> bool {
        self.views.load(Relaxed) > 0
    }
}
