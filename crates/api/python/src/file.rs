//! Open files, and the requests on them.

use crate::{
    engine::ProcessEngine,
    error::{Failure, Outcome},
    handle::Handle,
    lent::{self, LentPart},
    memory::{Memory, number},
    operation::Operation,
    process::PythonProcess,
    requests::{Action, Destination},
    submit::{ask, call, submit, submit_many},
};
use nowait::{Advice, CacheMode, OpenOptions};
use nowait_sys::file::O_APPEND;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};
use std::{os::fd::AsFd, os::fd::AsRawFd, path::PathBuf, sync::Arc};

/// A file with positional requests, opened by `open_at`.
#[pyclass(module = "nowait._nowait", subclass, frozen)]
pub struct RawFile(Arc<Handle>);

#[pymethods]
impl RawFile {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyAny>, _options: Option<&Bound<'_, PyDict>>) -> RawFile {
        RawFile(Arc::default())
    }

    /// Opens the file; the operation's result is this object. `how` has the letters of `open`'s
    /// mode, and `s` to make each write durable before it ends.
    fn open_at(
        slf: Py<RawFile>,
        py: Python<'_>,
        path: PathBuf,
        how: &str,
        cache: Option<&str>,
        permissions: u32,
    ) -> PyResult<Py<Operation>> {
        let process = PythonProcess::get()?;
        let options = options(how, cache_mode(cache, &process.engine)?).mode(permissions);
        let (nowait, shared) = (process.engine.nowait.clone(), slf.get().0.clone());
        ask(py, move || {
            let opened = options.open(&nowait, &path);
            // If the operation was cancelled, the reaper does not call this closure. Dropping the
            // closure then closes the file.
            move |_: Python<'_>| -> Outcome {
                let file = opened.map_err(|error| Failure::of_path(&error, path))?;
                process.opened(&shared);
                shared.open(&process.engine, file);
                Ok(slf.into_any())
            }
        })
    }

    /// Reads `length` bytes at `offset`; fewer at the end of the file, or before bytes that cannot
    /// be read.
    fn read_at(&self, py: Python<'_>, length: usize, offset: u64) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        submit(py, &file, Action::Read(Destination::New(length), offset))
    }

    /// Reads at `offset` into the whole of `buffer`. The operation's result is the number of bytes.
    fn readinto_at(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        let memory = Memory::for_filling(buffer, file.alignment())?;
        let read = Action::Read(Destination::Given(memory), offset);
        submit(buffer.py(), &file, read)
    }

    /// Writes all of `data` at `offset`. The operation's result is the number of bytes.
    fn write_at(&self, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        let memory = Memory::for_write(data, file.alignment())?;
        submit(data.py(), &file, Action::Write(memory, offset))
    }

    /// Writes all of `data` at `offset`, and blocks until the write has ended. Streams write data
    /// in this way if no task can await the write any more.
    fn write_now(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<()> {
        let file = self.0.file()?;
        let written = py.detach(|| file.write_all_at(data, offset));
        written.map_err(|error| Failure::from(error).exception())
    }

    /// Reads many ranges, offset and length each, in one submission. The operation's result is a
    /// list with the `bytes` of each range.
    fn read_many(&self, ranges: &Bound<'_, PyAny>) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        let mut reads = Vec::with_capacity(ranges.len().unwrap_or(0));
        for range in ranges.try_iter()? {
            let (offset, length): (u64, usize) = range?.extract()?;
            reads.push((length, offset));
        }
        submit_many(ranges.py(), &file, reads)
    }

    /// Lends `length` bytes at `offset`, fewer at the end of the file, if nowait caches them:
    /// returns objects for `memoryview`, in order. `None`: some bytes are not cached, or a write is
    /// changing them.
    fn lend_at(&self, length: usize, offset: u64) -> PyResult<Option<Vec<LentPart>>> {
        let file = self.0.file()?;
        let lent = file.lend(offset, length).map_err(|error| Failure::from(error).exception())?;
        Ok(lent.zip(self.0.engine()).map(|(lent, engine)| lent::parts(lent, engine)))
    }

    /// Makes data and metadata durable.
    fn sync(&self, py: Python<'_>) -> PyResult<Py<Operation>> {
        submit(py, &self.0.file()?, Action::SyncAll)
    }

    /// Makes the data durable, and the metadata needed to read them.
    fn datasync(&self, py: Python<'_>) -> PyResult<Py<Operation>> {
        submit(py, &self.0.file()?, Action::SyncData)
    }

    /// Makes `length` bytes from `offset` on durable; with `length` 0 everything from `offset` on.
    #[pyo3(signature = (offset, length = 0))]
    fn sync_range(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<Py<Operation>> {
        submit(py, &self.0.file()?, Action::SyncRange(offset, length))
    }

    /// Announces how the program will use a part of the file; with `length` 0 everything from
    /// `offset` on. The advice changes no result.
    #[pyo3(signature = (advice, offset = 0, length = 0))]
    fn advise(
        &self,
        py: Python<'_>,
        advice: &str,
        offset: u64,
        length: u64,
    ) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        let advice = match advice {
            "normal" => Advice::Normal,
            "random" => Advice::Random,
            "sequential" => Advice::Sequential,
            "willneed" => Advice::WillNeed,
            "dontneed" => Advice::DontNeed,
            _ => return Err(PyValueError::new_err(format!("unknown advice {advice:?}"))),
        };
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
        call(py, move || {
            let advised = file.advise(offset..end, advice);
            move |py: Python<'_>| -> Outcome { Ok(advised.map(|()| py.None())?) }
        })
    }

    fn size(&self, py: Python<'_>) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        call(py, move || {
            let size = file.size();
            move |py: Python<'_>| -> Outcome { Ok(number(py, size? as usize)) }
        })
    }

    /// Cuts the file off at `size` bytes, or extends it with zeroes. The operation's result is the
    /// size.
    fn resize(&self, py: Python<'_>, size: u64) -> PyResult<Py<Operation>> {
        let file = self.0.file()?;
        call(py, move || {
            let cut = file.set_len(size);
            move |py: Python<'_>| -> Outcome { Ok(cut.map(|()| number(py, size as usize))?) }
        })
    }

    /// Closes the file. The last close of a file in the mode `user` first writes its data. A second
    /// close of this object does nothing.
    fn close_at(&self, py: Python<'_>) -> PyResult<Py<Operation>> {
        let Some(file) = self.0.take() else { return Operation::over(py, Ok(py.None())) };
        if !self.0.is_here() {
            drop(file); // closes the descriptor only
            return Operation::over(py, Ok(py.None()));
        }
        call(py, move || {
            let closed = file.close();
            |py: Python<'_>| -> Outcome { Ok(closed.map(|()| py.None())?) }
        })
    }

    /// Closes the file on a helper thread; the exit of the process waits for that. In a forked
    /// child, closes the parent's file on the calling thread.
    fn abandon(&self) {
        let Some(file) = self.0.take() else { return };
        match self.0.engine() {
            Some(engine) if engine.is_here() => engine.run_aside(move || drop(file)),
            _ => drop(file),
        }
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.0.file()?.as_fd().as_raw_fd())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Returns two numbers for direct requests. Offset and length must be multiples of the first.
    /// Buffers whose address is no multiple of the second are copied. `None`: the file is not in
    /// the mode `direct`.
    #[getter]
    fn alignment(&self) -> PyResult<Option<(usize, usize)>> {
        let alignment = self.0.file()?.alignment();
        Ok(alignment.map(|alignment| (alignment.offset, alignment.memory)))
    }
}

impl Drop for RawFile {
    /// Closes the file as `abandon` does, because closing may block.
    fn drop(&mut self) {
        self.abandon();
    }
}

fn cache_mode(name: Option<&str>, engine: &ProcessEngine) -> PyResult<CacheMode> {
    Ok(match name.unwrap_or(engine.default_cache()) {
        "host" => CacheMode::Host,
        "user" => CacheMode::User,
        "direct" => CacheMode::Direct,
        other => {
            let text = format!("cache is \"host\", \"user\" or \"direct\", not {other:?}");
            return Err(PyValueError::new_err(text));
        }
    })
}

fn options(how: &str, cache: CacheMode) -> OpenOptions {
    let has = |letter: char| how.contains(letter);
    OpenOptions::new()
        .read(has('r') || has('+'))
        .write(!has('r') || has('+'))
        .create(has('w') || has('a'))
        .create_new(has('x'))
        .truncate(has('w'))
        .flags(if has('a') { O_APPEND } else { 0 })
        .sync(has('s'))
        .cache(cache)
}
