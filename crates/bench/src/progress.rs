//! A bar with the time left on stderr when that is a terminal, and silence otherwise.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units;

/// The line before the first run, when no time left is known yet.
const BEFORE: &str = "{wide_msg} {elapsed}";

/// The line from the first run on.
const DURING: &str = "{wide_msg} [{bar:20}] {pos}/{len}, {eta} left";

/// The progress of a measurement, counted in runs.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts a bar over `runs` runs; it draws nothing unless stderr is a terminal.
    pub(crate) fn new(runs: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
        set_template(&bar, BEFORE);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar }
    }

    /// Tells what is being laid out, and how far it is.
    pub(crate) fn laying_out(&self, written_bytes: u64, size_bytes: u64) {
        let (written, size) = (written_bytes as f64, size_bytes as f64);
        let (written, size) = (units::bytes(written), units::bytes(size));
        self.bar.set_message(format!("writing the test file: {written} of {size}"));
    }

    /// Starts the clock of the time left: what came before was no run.
    pub(crate) fn start_runs(&self) {
        set_template(&self.bar, DURING);
        self.bar.reset_eta();
    }

    /// Tells which run starts.
    pub(crate) fn start(&self, case: &str, subject: &str, round: usize) {
        self.bar.set_message(format!("case {case}, round {}: {subject}", round + 1));
    }

    /// Counts a finished run.
    pub(crate) fn finish_run(&self) {
        self.bar.inc(1);
    }
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
