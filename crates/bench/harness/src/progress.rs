//! A bar with the time left on stderr when that is a terminal, and silence otherwise.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units;

/// The line before the first run, when no time left is known yet.
const BEFORE: &str = "{wide_msg} {elapsed}";

/// The line from the first run on. The bar counts planned milliseconds, which it scales by those
/// that have passed.
const DURING: &str = "{wide_msg} [{bar:20}] {prefix}, {eta} left";

/// The progress of a measurement; clones are the same bar.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    runs: Rc<RefCell<Expected>>,
}

#[derive(Default)]
struct Expected {
    /// The planned time of a run, by case.
    planned_ms: HashMap<String, u64>,
    current_ms: u64,
    ended: usize,
    all: usize,
}

impl Progress {
    /// Starts a bar; it draws nothing unless stderr is a terminal.
    #[allow(clippy::new_without_default, reason = "a bar appears at once")]
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        set_template(&bar, BEFORE);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, runs: Rc::default() }
    }

    /// Adds `count` runs of a case, each planned to take so many seconds.
    pub fn expect(&self, case: &str, count: usize, planned_s: f64) {
        let (runs, planned_ms) = (&mut *self.runs.borrow_mut(), (planned_s * 1e3) as u64);
        runs.planned_ms.insert(case.to_owned(), planned_ms);
        runs.all += count;
        self.bar.inc_length(planned_ms * count as u64);
    }

    /// Shows how much of the test file has been written.
    pub fn laying_out(&self, written_bytes: u64, size_bytes: u64) {
        let [written, size] = [written_bytes, size_bytes].map(|it| units::bytes(it as f64));
        self.bar.set_message(format!("writing the test file: {written} of {size}"));
    }

    /// Shows the time left from now on: what came before was no run.
    pub fn start_runs(&self) {
        set_template(&self.bar, DURING);
        self.bar.reset_eta();
        self.show();
    }

    /// Tells which run starts.
    pub fn start(&self, case: &str, subject: &str, round: usize) {
        self.bar.set_message(format!("case {case}, round {}: {subject}", round + 1));
        let runs = &mut *self.runs.borrow_mut();
        runs.current_ms = runs.planned_ms.get(case).copied().unwrap_or_default();
    }

    /// Counts the run that was started last.
    pub fn finish_run(&self) {
        let planned_ms = self.runs.borrow().current_ms;
        self.runs.borrow_mut().ended += 1;
        self.bar.inc(planned_ms);
        self.show();
    }

    fn show(&self) {
        let runs = self.runs.borrow();
        self.bar.set_prefix(format!("{}/{}", runs.ended, runs.all));
    }
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if Rc::strong_count(&self.runs) == 1 {
            self.bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_as_they_end() {
        let progress = Progress::new();
        progress.expect("a", 2, 60.0);
        progress.start_runs();
        assert_eq!(progress.bar.prefix(), "0/2");
        for round in 0..2 {
            progress.start("a", "x", round);
            progress.finish_run();
        }
        assert_eq!(progress.bar.prefix(), "2/2");
        assert_eq!((progress.bar.position(), progress.bar.length()), (120_000, Some(120_000)));
    }
}
