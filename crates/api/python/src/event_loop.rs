//! Finds the event loop of a thread: a loop of asyncio, or a run of trio, which `nowait/_trio.py`
//! gives the methods of asyncio that are used here.

use pyo3::{
    exceptions::PyRuntimeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyString, PyTuple},
};

pub(crate) struct Running<'py> {
    pub(crate) event_loop: Bound<'py, PyAny>,
    /// `true`: an `await` follows the rules of trio, not those of asyncio.
    pub(crate) is_trio: bool,
}

/// Raises `RuntimeError` if no event loop runs in this thread.
#[inline]
pub(crate) fn running(py: Python<'_>) -> PyResult<Running<'_>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(event_loop) = running_trio(py)? {
        return Ok(Running { event_loop, is_trio: true });
    }
    let function = FUNCTION.get_or_try_init(py, || {
        let asyncio = py.import("asyncio.events")?;
        asyncio.getattr("_get_running_loop").map(Bound::unbind)
    })?;
    let event_loop = function.bind(py).call0()?;
    if event_loop.is_none() {
        return Err(PyRuntimeError::new_err("no running event loop"));
    }
    Ok(Running { event_loop, is_trio: false })
}

/// trio sets a variable of sniffio, even when it is the guest or the host of an asyncio loop. A
/// program without sniffio pays for one look into the dictionary of modules.
fn running_trio(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    static SAYS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    })?;
    if !modules.bind(py).contains(intern!(py, "sniffio"))? {
        return Ok(None);
    }
    let says = SAYS
        .get_or_try_init(py, || py.import("sniffio")?.getattr("thread_local").map(Bound::unbind))?;
    if !says.bind(py).getattr(intern!(py, "name"))?.eq(intern!(py, "trio"))? {
        return Ok(None);
    }
    let function = FUNCTION
        .get_or_try_init(py, || py.import("nowait._trio")?.getattr("running").map(Bound::unbind))?;
    function.bind(py).call0().map(Some)
}

/// `call` names the method of the event loop.
pub(crate) fn call_soon(
    event_loop: &Bound<'_, PyAny>,
    call: &Bound<'_, PyString>,
    operation: &Bound<'_, PyAny>,
    callback: &Py<PyAny>,
    context: Option<&Py<PyAny>>,
) -> PyResult<()> {
    let py = operation.py();
    let options = PyDict::new(py);
    options.set_item("context", context)?;
    let arguments = PyTuple::new(py, [callback.bind(py), operation])?;
    event_loop.call_method(call, arguments, Some(&options)).map(drop)
}

pub(crate) fn copied_context(py: Python<'_>) -> PyResult<Py<PyAny>> {
    py.import("contextvars")?.getattr("copy_context")?.call0().map(Bound::unbind)
}
