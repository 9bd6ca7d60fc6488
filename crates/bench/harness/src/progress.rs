//! A progress bar with the remaining time on stderr, if stderr is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use crate::units;

const BEFORE: &str = "{wide_msg} {elapsed}";

const DURING: &str = "{wide_msg} [{bar:20}] {pos}/{len}, {eta} left";

/// Clones are the same bar.
#[derive(Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    #[allow(clippy::new_without_default, reason = "a bar appears at once")]
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let bar = bar.with_finish(ProgressFinish::AndClear);
        set_template(&bar, BEFORE);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    pub fn laying_out(&self, written_bytes: u64, size_bytes: u64) {
        let [written, size] = [written_bytes, size_bytes].map(|it| units::bytes(it as f64));
        self.0.set_message(format!("writing the test file: {written} of {size}"));
    }

    /// Shows the remaining time of the next `count` runs; earlier work does not count.
    pub fn start_runs(&self, count: usize) {
        self.0.set_length(count as u64);
        set_template(&self.0, DURING);
        self.0.reset_eta();
    }

    pub fn start(&self, case: &str, subject: &str, round: usize) {
        self.0.set_message(format!("case {case}, round {}: {subject}", round + 1));
    }

    pub fn finish_run(&self) {
        self.0.inc(1);
    }
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}
