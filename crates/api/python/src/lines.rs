//! Data read ahead of a stream, and its lines for `async for`. The work for each line of a file is
//! here; the other parts of streams are Python, which calls `RawFile` for its requests.

use crate::{memory::copied, ready::Ready};
use pyo3::{
    PyTraverseError, PyVisit, exceptions, ffi,
    prelude::*,
    types::{PyBytes, PyString},
};

/// Bytes or text read ahead, taken from the front: by count, or a line at a time.
#[pyclass(module = "nowait._nowait")]
pub struct Lines {
    /// A `bytes` or a `str`, of which a part may be taken.
    data: Py<PyAny>,
    at: isize,
    len: isize,
    is_text: bool,
    ending: Ending,
    /// Position of the next carriage return, if known. Kept, so that [`Lines::end_of_line`] does
    /// not search for it again for each line.
    next_return: Option<isize>,
    ready: Ready,
}

#[derive(Clone, Copy)]
enum Ending {
    Char(u8),
    Both,
    /// A carriage return, a line feed, or both.
    Any,
}

impl Lines {
    #[inline]
    fn end_of_line(&mut self, py: Python<'_>) -> Option<isize> {
        match self.ending {
            Ending::Char(ending) => self.find(py, ending, self.at, self.len).map(|at| at + 1),
            Ending::Both => {
                let mut from = self.at;
                loop {
                    from = self.find(py, b'\r', from, self.len)? + 1;
                    if self.is_line_feed(py, from) {
                        return Some(from + 1);
                    }
                }
            }
            Ending::Any => {
                let known = self.next_return.filter(|at| *at >= self.at);
                let found = || self.find(py, b'\r', self.at, self.len).unwrap_or(self.len);
                let next_return = known.unwrap_or_else(found);
                self.next_return = Some(next_return);
                if let Some(at) = self.find(py, b'\n', self.at, next_return) {
                    return Some(at + 1);
                }
                let after = next_return + 1;
                let both = self.is_line_feed(py, after);
                (next_return < self.len).then_some(after + isize::from(both))
            }
        }
    }

    fn find(&self, py: Python<'_>, what: u8, from: isize, to: isize) -> Option<isize> {
        if let Some(bytes) = self.bytes(py) {
            let found = memchr::memchr(what, &bytes[from as usize..to as usize]);
            return found.map(|at| from + at as isize);
        }
        let text = self.data.as_ptr();
        // SAFETY: it is a live `str`; the range is inside it.
        let at = unsafe { ffi::PyUnicode_FindChar(text, what.into(), from, to, 1) };
        (at >= 0).then_some(at)
    }

    fn is_line_feed(&self, py: Python<'_>, at: isize) -> bool {
        at < self.len && self.find(py, b'\n', at, at + 1).is_some()
    }

    fn bytes<'a>(&'a self, py: Python<'a>) -> Option<&'a [u8]> {
        // SAFETY: `new` and `fill` accept either `str` or exact `bytes`.
        let bytes = || unsafe { self.data.bind(py).cast_unchecked::<PyBytes>() };
        (!self.is_text).then(|| bytes().as_bytes())
    }

    #[inline]
    fn take_to(&mut self, py: Python<'_>, end: isize) -> PyResult<Py<PyAny>> {
        let from = std::mem::replace(&mut self.at, end);
        if from == 0 && end == self.len {
            return Ok(self.data.clone_ref(py));
        }
        if let Some(bytes) = self.bytes(py) {
            let taken = copied(py, &bytes[from as usize..end as usize]);
            return taken.map_err(|failure| failure.exception());
        }
        // SAFETY: it is a live `str`; the function returns a new reference, or NULL with an
        // exception set.
        unsafe {
            let part = ffi::PyUnicode_Substring(self.data.as_ptr(), from, end);
            Bound::from_owned_ptr_or_err(py, part).map(Bound::unbind)
        }
    }

    /// `None`: no line is complete.
    #[inline]
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(end) = self.end_of_line(py) else { return Ok(None) };
        let line = self.take_to(py, end)?;
        self.ready.with(py, line).map(Some)
    }

    fn set(&mut self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let fits = match self.is_text {
            true => data.cast_exact::<PyString>().is_ok(),
            false => data.cast_exact::<PyBytes>().is_ok(),
        };
        if !fits {
            return Err(exceptions::PyTypeError::new_err(
                "expected the same type as the lines: bytes or str",
            ));
        }
        (self.at, self.len, self.next_return) = (0, data.len()? as isize, None);
        self.data = data.clone().unbind();
        Ok(())
    }
}

#[pymethods]
impl Lines {
    /// Makes lines of bytes or of text, as `empty` is. `ending` ends lines: "\n", "\r", "\r\n", or
    /// "" for each of them.
    #[new]
    fn new(empty: &Bound<'_, PyAny>, ending: &str) -> PyResult<Lines> {
        let ending = match ending {
            "\n" => Ending::Char(b'\n'),
            "\r" => Ending::Char(b'\r'),
            "\r\n" => Ending::Both,
            "" => Ending::Any,
            _ => return Err(exceptions::PyValueError::new_err("not a line ending")),
        };
        let is_text = empty.is_exact_instance_of::<PyString>();
        let (data, ready) = (empty.clone().unbind(), Ready::new(empty.py())?);
        let mut lines = Lines { data, at: 0, len: 0, is_text, ending, next_return: None, ready };
        lines.set(empty)?;
        Ok(lines)
    }

    fn fill(&mut self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = data.py();
        if self.at == self.len {
            return self.set(data);
        }
        let rest = self.take_to(py, self.len)?;
        self.set(&rest.bind(py).add(data)?)
    }

    /// Takes `count` bytes or characters, or all if there are fewer; a negative count: all.
    fn take(&mut self, py: Python<'_>, count: isize) -> PyResult<Py<PyAny>> {
        let rest = self.len - self.at;
        let count = if (0..rest).contains(&count) { count } else { rest };
        self.take_to(py, self.at + count)
    }

    /// Takes a line, or the first `limit` bytes or characters of it. `None`: the line is not
    /// complete yet. A negative limit: no limit.
    #[pyo3(signature = (limit = -1))]
    fn line(&mut self, py: Python<'_>, limit: isize) -> PyResult<Option<Py<PyAny>>> {
        let whole = self.end_of_line(py);
        let limited = (0..=self.len - self.at).contains(&limit).then(|| self.at + limit);
        let end = match (whole, limited) {
            (Some(whole), Some(limited)) => Some(whole.min(limited)),
            (whole, limited) => whole.or(limited),
        };
        end.map(|end| self.take_to(py, end)).transpose()
    }

    /// Returns everything, and takes nothing.
    fn peek(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let at = self.at;
        let rest = self.take_to(py, self.len);
        self.at = at;
        rest
    }

    fn clear(&mut self, py: Python<'_>) -> PyResult<()> {
        let empty = match self.is_text {
            true => PyString::new(py, "").into_any(),
            false => PyBytes::new(py, b"").into_any(),
        };
        self.set(&empty)
    }

    fn __len__(&self) -> usize {
        (self.len - self.at) as usize
    }

    /// Returns the amount taken since the last fill.
    #[getter]
    fn taken(&self) -> isize {
        self.at
    }
}

/// The lines of a stream for `async for`. Awaiting a line that was read ahead takes no coroutine
/// and no event loop; `more`, a coroutine function, returns the other lines.
#[pyclass(module = "nowait._nowait", frozen)]
pub struct LineIterator {
    lines: Py<Lines>,
    more: Py<PyAny>,
}

#[pymethods]
impl LineIterator {
    #[new]
    fn new(lines: Py<Lines>, more: Py<PyAny>) -> LineIterator {
        LineIterator { lines, more }
    }

    /// For the garbage collector: `more` holds the file, which may hold this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.lines)?;
        visit.call(&self.more)
    }

    fn __aiter__(slf: Py<LineIterator>) -> Py<LineIterator> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.lines.try_borrow_mut(py)?.next(py)? {
            Some(ready) => Ok(ready),
            None => self.more.call0(py),
        }
    }
}
