//! The log of a job: written at once, or all together when it is over.

use std::cell::RefCell;

/// The output of one job. Two jobs at a time would mix their lines.
pub(crate) enum Log {
    /// Each line when it comes: of the job that a person watches.
    Now,
    /// Kept until [`print`](Log::print): of a job beside it.
    Later(RefCell<String>),
}

impl Log {
    pub(crate) fn later() -> Log {
        Log::Later(RefCell::default())
    }

    pub(crate) fn line(&self, line: &str) {
        match self {
            Log::Now => println!("{line}"),
            Log::Later(text) => text.borrow_mut().extend([line, "\n"]),
        }
    }

    /// Prints what was kept, in one go.
    pub(crate) fn print(self) {
        if let Log::Later(text) = self {
            print!("{}", text.into_inner());
        }
    }
}
