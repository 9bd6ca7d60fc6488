//! The figures that the disk limits: there no library is faster than another.
//!
//! The limit is the highest rate that a case has reached, in requests or in bytes. The disk limits
//! a run that is close to it, unless its threads had no processor time left.

use std::collections::BTreeMap;

use crate::measurement::CaseResults;
use crate::metric::Metric;

/// The share of the highest rate from which the disk limits a run.
const AT_LIMIT: f64 = 0.9;
/// The share of the processors from which these limit a run.
const BUSY: f64 = 0.9;

/// The medians of a subject in a case.
#[derive(Debug, Clone, Copy)]
struct Load {
    iops: f64,
    bytes_per_s: f64,
    /// Processors that it used, and that its threads may use.
    used: f64,
    usable: f64,
}

impl Load {
    fn of(case: &CaseResults, subject: &'static str, threads: usize, cores: usize) -> Option<Self> {
        let median = |metric| Some(case.runs.summary(subject, metric)?.median);
        let iops = median(Metric::Iops)?;
        let bytes_per_s = median(Metric::BytesPerS)?;
        let used = median(Metric::CpuUsPerIo)? * iops / 1e6;
        Some(Self { iops, bytes_per_s, used, usable: threads.min(cores) as f64 })
    }

    fn is_limited_by_disk(self, iops_max: f64, bytes_per_s_max: f64) -> bool {
        let is_fast =
            self.iops >= AT_LIMIT * iops_max || self.bytes_per_s >= AT_LIMIT * bytes_per_s_max;
        is_fast && self.used < BUSY * self.usable
    }
}

/// Returns the subjects that the disk limits, by case; `on_disk` are the cases whose requests reach
/// a disk, with the number of their threads.
pub fn limited_by_disk(
    cases: &[CaseResults],
    on_disk: &BTreeMap<&'static str, usize>,
) -> BTreeMap<&'static str, Vec<&'static str>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let loads = cases.iter().flat_map(|case| {
        let threads = on_disk.get(case.case.name).copied();
        let of = move |subject| Some((subject, Load::of(case, subject, threads?, cores)?));
        case.runs.names().filter_map(of).map(|(subject, load)| (case.case.name, subject, load))
    });
    let loads: Vec<_> = loads.collect();
    let most = |rate: fn(&Load) -> f64| loads.iter().map(|it| rate(&it.2)).fold(0.0, f64::max);
    let (iops_max, bytes_per_s_max) = (most(|load| load.iops), most(|load| load.bytes_per_s));
    let mut limited = BTreeMap::<_, Vec<_>>::new();
    for (case, subject, load) in loads {
        if load.is_limited_by_disk(iops_max, bytes_per_s_max) {
            limited.entry(case).or_default().push(subject);
        }
    }
    limited
}

/// Says which figures the disk limits, if it limits some.
pub fn note(limited: &BTreeMap<&'static str, Vec<&'static str>>) -> Option<String> {
    let of = |(case, subjects): (&&str, &Vec<&str>)| format!("{case} ({})", subjects.join(", "));
    let cases: Vec<String> = limited.iter().map(of).collect();
    (!cases.is_empty()).then(|| {
        format!(
            "the disk limits the requests a second of {}; no library adds any",
            cases.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_limits_runs_at_its_highest_rate_with_processor_time_left() {
        let (mb, kib) = (1e6, 4096.0);
        for (iops, block, used, usable, limited) in [
            (75_000.0, kib, 0.4, 1.0, true),
            (68_000.0, kib, 0.4, 1.0, true),
            (60_000.0, kib, 0.4, 1.0, false),
            // The thread has no time left.
            (75_000.0, kib, 0.95, 1.0, false),
            (75_000.0, kib, 0.95, 2.0, true),
            // Few requests, but as many bytes as the disk has.
            (29_000.0, 65_536.0, 0.3, 1.0, true),
        ] {
            let load = Load { iops, bytes_per_s: iops * block, used, usable };
            let is = load.is_limited_by_disk(75_000.0, 1_900.0 * mb);
            assert_eq!(is, limited, "{load:?}");
        }
    }

    #[test]
    fn only_cases_on_a_disk_are_limited_by_it() {
        let sample = crate::testing::sample();
        assert!(limited_by_disk(&sample.cases, &BTreeMap::new()).is_empty());
        assert_eq!(note(&BTreeMap::new()), None);
        let text = note(&[("a", vec!["system", "nowait"])].into()).expect("a note");
        assert!(text.contains("a (system, nowait)"), "{text}");
    }
}
