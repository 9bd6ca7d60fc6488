//! An open file that Python and the exit of the process share.

use crate::{
    engine::ProcessEngine,
    error::{Failure, INVAL},
};
use core::mem;
use nowait::File;
use nowait_sys::mutex::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};
use std::sync::OnceLock;

#[derive(Default)]
pub(crate) struct Handle {
    state: Mutex<State>,
    engine: OnceLock<&'static ProcessEngine>,
}

#[derive(Default)]
enum State {
    #[default]
    Unopened,
    Open(File),
    Closed,
}

impl Handle {
    pub(crate) fn open(&self, engine: &'static ProcessEngine, file: File) {
        let _ = self.engine.set(engine);
        *self.state.lock() = State::Open(file);
    }

    /// Takes the file out: Python sees it as closed.
    pub(crate) fn take(&self) -> Option<File> {
        match mem::replace(&mut *self.state.lock(), State::Closed) {
            State::Open(file) => Some(file),
            _ => None,
        }
    }

    /// Raises `ValueError` if the file is closed, or not open yet, and `OSError` if it was opened
    /// before a fork.
    #[inline]
    pub(crate) fn file(&self) -> PyResult<File> {
        match &*self.state.lock() {
            State::Open(file) if self.is_here() => Ok(file.clone()),
            State::Open(file) => {
                let text = "the file was opened before the fork: open it again in the child";
                let (path, errno) = (file.path().to_owned(), INVAL);
                let failure = Failure::System { errno, text: text.to_owned(), path: Some(path) };
                Err(failure.exception())
            }
            State::Closed => Err(PyValueError::new_err("I/O operation on closed file")),
            State::Unopened => Err(PyValueError::new_err("the file is not open yet: await it")),
        }
    }

    pub(crate) fn engine(&self) -> Option<&'static ProcessEngine> {
        self.engine.get().copied()
    }

    pub(crate) fn is_here(&self) -> bool {
        self.engine().is_none_or(ProcessEngine::is_here)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state.lock(), State::Open(_))
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(*self.state.lock(), State::Closed)
    }
}
