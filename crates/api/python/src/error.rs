//! Converts errors of the engine to Python exceptions.

use nowait::Error;
use pyo3::{exceptions, prelude::*};
use std::path::PathBuf;

/// Each raise makes a new exception, because an exception holds the frames that it went through.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    System { errno: i32, text: String, path: Option<PathBuf> },
    Runtime(&'static str),
    Memory,
}

impl Failure {
    pub(crate) fn of_path(error: &Error, path: PathBuf) -> Failure {
        let text = error.reason().map(str::to_owned);
        let text = text.unwrap_or_else(|| strerror(error.errno().raw()));
        Failure::System { errno: error.errno().raw(), text, path: Some(path) }
    }

    pub(crate) fn of_io(error: &std::io::Error, path: PathBuf) -> Failure {
        if error.kind() == std::io::ErrorKind::OutOfMemory {
            return Failure::Memory;
        }
        // An error without a number: a path with a zero byte.
        let errno = error.raw_os_error().unwrap_or(INVAL);
        Failure::System { errno, text: strerror(errno), path: Some(path) }
    }

    pub(crate) fn exception(&self) -> PyErr {
        match self {
            Failure::System { errno, text, path: Some(path) } => exceptions::PyOSError::new_err((
                *errno,
                text.clone(),
                path.clone().into_os_string(),
            )),
            Failure::System { errno, text, path: None } => {
                exceptions::PyOSError::new_err((*errno, text.clone()))
            }
            Failure::Runtime(text) => exceptions::PyRuntimeError::new_err(*text),
            Failure::Memory => exceptions::PyMemoryError::new_err(()),
        }
    }
}

pub(crate) type Outcome = Result<Py<PyAny>, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::System { errno: error.errno().raw(), text: error.to_string(), path: None }
    }
}

pub(crate) fn cancelled(py: Python<'_>, message: Option<Py<PyAny>>) -> PyErr {
    raise(py, "CancelledError", message)
}

pub(crate) fn not_over(py: Python<'_>) -> PyErr {
    raise(py, "InvalidStateError", None)
}

fn raise(py: Python<'_>, name: &str, message: Option<Py<PyAny>>) -> PyErr {
    let made = py.import("asyncio.exceptions").and_then(|module| {
        let class = module.getattr(name)?;
        match message {
            Some(message) => class.call1((message,)),
            None => class.call0(),
        }
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

fn strerror(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    // The standard library adds the number.
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

pub(crate) const INVAL: i32 = 22;
