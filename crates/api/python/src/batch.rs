//! The results of several requests that share one operation.

use crate::error::{Failure, Outcome};
use pyo3::{prelude::*, types::PyList};

pub(crate) struct Results {
    values: Vec<Option<Py<PyAny>>>,
    left: usize,
    failure: Option<Failure>,
}

impl Results {
    pub(crate) fn of(count: usize) -> Results {
        Results { values: (0..count).map(|_| None).collect(), left: count, failure: None }
    }

    pub(crate) fn take(&mut self, index: usize, outcome: Outcome) {
        self.left -= 1;
        match outcome {
            Ok(value) => self.values[index] = Some(value),
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn outcome(self, py: Python<'_>) -> Outcome {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let values: Vec<_> = self.values.into_iter().flatten().collect();
        match PyList::new(py, values) {
            Ok(list) => Ok(list.into_any().unbind()),
            Err(_) => Err(Failure::Runtime("no memory for the list of results")),
        }
    }
}
