//! A bar with the time left on stderr when that is a terminal, and silence otherwise.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::pace::Pace;
use crate::units;

/// The line before the first run, when no time left is known yet.
const BEFORE: &str = "{wide_msg} {elapsed}";

/// The line from the first run on.
const DURING: &str = "{wide_msg} [{bar:20}] {prefix}";

/// The progress of a measurement, counted in runs.
pub struct Progress {
    bar: ProgressBar,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    pace: Pace,
    /// The current run: case, subject, its beginning.
    run: Option<(String, String, Instant)>,
}

impl Progress {
    /// Starts a bar; it draws nothing unless stderr is a terminal.
    #[allow(clippy::new_without_default, reason = "a bar appears at once")]
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        set_template(&bar, BEFORE);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, state: RefCell::default() }
    }

    /// Adds `count` runs of a subject in a case, each planned to take so many seconds.
    pub fn expect(&self, case: &str, subject: &str, count: usize, planned_s: f64) {
        self.state.borrow_mut().pace.expect(case, subject, count, planned_s);
    }

    /// Tells what is being laid out, and how far it is.
    pub fn laying_out(&self, written_bytes: u64, size_bytes: u64) {
        let (written, size) = (written_bytes as f64, size_bytes as f64);
        let (written, size) = (units::bytes(written), units::bytes(size));
        self.bar.set_message(format!("writing the test file: {written} of {size}"));
    }

    /// Shows the time left from now on: what came before was no run.
    pub fn start_runs(&self) {
        set_template(&self.bar, DURING);
        self.show();
    }

    /// Tells which run starts.
    pub fn start(&self, case: &str, subject: &str, round: usize) {
        self.bar.set_message(format!("case {case}, round {}: {subject}", round + 1));
        let run = Some((case.to_owned(), subject.to_owned(), Instant::now()));
        self.state.borrow_mut().run = run;
    }

    /// Counts the run that was started last.
    pub fn finish_run(&self) {
        let State { pace, run } = &mut *self.state.borrow_mut();
        if let Some((case, subject, start)) = run.take() {
            pace.end(&case, &subject, start.elapsed().as_secs_f64());
        }
        self.show_pace(pace);
    }

    fn show(&self) {
        self.show_pace(&self.state.borrow().pace);
    }

    fn show_pace(&self, pace: &Pace) {
        let (ended, all) = pace.runs();
        self.bar.set_length(all as u64);
        self.bar.set_position(ended as u64);
        self.bar.set_prefix(format!("{ended}/{all}, {} left", time(pace.left_s())));
    }
}

/// Prints a time as people wait for it, such as `5 min 12 s`.
fn time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_as_they_end() {
        let progress = Progress::new();
        progress.expect("a", "x", 2, 60.0);
        progress.start_runs();
        assert_eq!(progress.bar.prefix(), "0/2, 2 min 00 s left");
        for round in 0..2 {
            progress.start("a", "x", round);
            progress.finish_run();
        }
        assert_eq!(progress.bar.prefix(), "2/2, 0 s left");
        assert_eq!((progress.bar.position(), progress.bar.length()), (2, Some(2)));
    }
}
