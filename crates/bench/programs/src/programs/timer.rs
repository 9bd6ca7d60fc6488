//! The time inside `io_submit` of a program that does not report it. A preloaded library measures
//! this time (`drivers/submit_timer.c`); the loader takes this library before nowait's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::metric::{Metric, Sample};

const SOURCE: &str = include_str!("drivers/submit_timer.c");

const VARIABLE: &str = "BENCH_SUBMIT_TIMES";

const BUCKETS: usize = 1024;

/// The metrics of the time for which a program is held up, and the shares of shorter hold-ups.
pub(crate) const HELD_UP: [(Metric, f64); 4] = [
    (Metric::HeldUpUsP99, 0.99),
    (Metric::HeldUpUsP999, 0.999),
    (Metric::HeldUpUsP9999, 0.9999),
    (Metric::HeldUpUsMax, 1.0),
];

#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) library: PathBuf,
    counters: PathBuf,
}

/// The number of calls in each bucket of durations.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Times(Vec<u64>);

impl Timer {
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        let (source, library) = (folder.join("submit_timer.c"), folder.join("submit_timer.so"));
        fs::write(&source, SOURCE).context(|| format!("write {}", source.display()))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let built = compiler.output().context(|| "cannot start cc".to_owned())?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            return Err(Failure::new(format!("cc: {}", said.trim())));
        }
        Ok(Self { library, counters: folder.join("submit_times") })
    }

    /// Sets all counters to zero. The caller adds the library to `command`.
    pub(crate) fn begin(&self, command: &mut Command) -> Result<()> {
        let what = || format!("write {}", self.counters.display());
        fs::write(&self.counters, vec![0; BUCKETS * 8]).context(what)?;
        command.env(VARIABLE, &self.counters);
        Ok(())
    }

    pub(crate) fn times(&self) -> Result<Times> {
        let bytes =
            fs::read(&self.counters).context(|| "read the times of io_submit".to_owned())?;
        let words = bytes.chunks_exact(8).map(|word| word.try_into().unwrap_or_default());
        Ok(Times(words.map(u64::from_ne_bytes).collect()))
    }
}

impl Times {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().zip(&before.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// Returns an empty sample if there was no call.
    pub(crate) fn submit_sample(&self) -> Sample {
        self.sample([
            (Metric::SubmitUsP50, 0.5),
            (Metric::SubmitUsP99, 0.99),
            (Metric::SubmitUsP999, 0.999),
            (Metric::SubmitUsP9999, 0.9999),
            (Metric::SubmitUsMax, 1.0),
        ])
    }

    pub(crate) fn held_up_sample(&self) -> Sample {
        self.sample(HELD_UP)
    }

    fn sample<const N: usize>(&self, parts: [(Metric, f64); N]) -> Sample {
        let all: u64 = self.0.iter().sum();
        let of = |part: f64| self.at_rank((all as f64 * part).ceil() as u64);
        let figures =
            parts.into_iter().filter_map(|(metric, part)| Some((metric, of(part)? / 1e3)));
        figures.collect()
    }

    /// Returns the end of the bucket of the `rank`th shortest call; `None` if there are fewer
    /// calls.
    fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= rank.max(1)
        });
        bucket.map(end_ns)
    }
}

/// Returns where the next bucket begins, in nanoseconds; for the buckets below 16 the only duration
/// that the bucket counts.
fn end_ns(bucket: usize) -> f64 {
    match (bucket / 16, bucket % 16) {
        (0, ns) => ns as f64,
        (power, part) => (17 + part) as f64 * 2.0_f64.powi(power as i32 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_block::skip::note_skip_here;

    #[test]
    fn buckets_end_where_the_next_ones_begin() {
        assert_eq!((end_ns(3), end_ns(15), end_ns(16), end_ns(31)), (3.0, 15.0, 17.0, 32.0));
        // 1000 ns: exponent 9, part 15 of 16.
        assert_eq!(end_ns((9 - 3) * 16 + 15), 1024.0);
    }

    #[test]
    fn percentiles_are_of_the_calls_between_two_moments() {
        let mut counts = vec![0; BUCKETS];
        counts[10] = 5;
        let before = Times(counts.clone());
        counts[20] = 998;
        counts[(20 - 3) * 16] = 2;
        let sample = Times(counts).since(&before).held_up_sample();
        let longest = 17.0 * 65_536.0 / 1e3;
        let expected = [
            (Metric::HeldUpUsP99, 0.021),
            (Metric::HeldUpUsP999, longest),
            (Metric::HeldUpUsP9999, longest),
            (Metric::HeldUpUsMax, longest),
        ];
        assert_eq!(sample, Sample::from(expected));
        assert!(before.since(&before).submit_sample().is_empty());
    }

    #[test]
    fn the_library_counts_the_calls_of_a_program() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let Ok(timer) = Timer::build(folder.path()) else { return note_skip_here("no cc") };
        let mut fio = Command::new("fio");
        fio.args(["--name=job", "--ioengine=libaio", "--rw=randwrite", "--size=64k"]);
        fio.arg(format!("--directory={}", folder.path().display()));
        fio.env("LD_PRELOAD", &timer.library);
        timer.begin(&mut fio).expect("counters");
        let Ok(output) = fio.output() else { return note_skip_here("no fio") };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let times = timer.times().expect("counted");
        assert_eq!(times.0.iter().sum::<u64>(), 16, "one call a request");
    }
}
