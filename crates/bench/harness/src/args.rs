//! The options that most measurements share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cache;
use crate::case::Case;
use crate::error::{Failure, Result};
use crate::report::{ReportArgs, distinct};
use crate::units::{self, parse_duration, parse_size};

/// The default folder of the test files. It is on a disk nearly everywhere, unlike /tmp.
pub const FOLDER: &str = "/var/tmp";

/// The options of a measurement of cases.
#[derive(Debug, Clone, Default, Args)]
pub struct MeasureArgs {
    /// Cases by name or first letter, `*` for any text (default: all)
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Engines to run, such as nowait,io_uring (default: those of each case)
    #[arg(long = "engine", value_name = "NAME,…", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Runs of each engine in each case; below 5 no verdict [default: 5 or 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,

    /// Time of one run [default: below]
    #[arg(long, visible_alias = "seconds", value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,

    /// Size of what is worked on [default: below]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,

    /// Shorter runs, mostly on less
    #[arg(long)]
    pub quick: bool,

    /// Stop after this time, and report what was measured until then
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub budget: Option<Duration>,

    /// Keep what was laid out for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Fail unless every target is met beyond the noise
    #[arg(long)]
    pub check: bool,

    /// Print the cases and their targets, and run nothing
    #[arg(long)]
    pub list: bool,

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,
}

pub struct Defaults {
    pub rounds: u16,
    /// The time of a run in full, and with `--quick`.
    pub runtime_ms: [u64; 2],
    pub size_bytes: [u64; 2],
    pub least_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub rounds: usize,
    pub runtime: Duration,
    pub size_bytes: u64,
}

/// The folder of the test files, and the handling of the page cache.
#[derive(Debug, Clone, Args)]
pub struct DiskArgs {
    /// Folder of the test files; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Drop only the pages of the test file before a run, not the caches of the whole machine
    #[arg(long)]
    pub keep_caches: bool,
}

/// Without `dist`, looks in the parent of this program's folder, then in `./dist`. In each folder,
/// prefers `lib/nowait/NAME`, the place in installed packages, to `lib/NAME`.
pub fn found_in_dist(dist: Option<&Path>, file: &str) -> Result<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).and_then(Path::parent);
    let folders: Vec<&Path> = match dist {
        Some(dist) => vec![dist],
        None => beside.into_iter().chain([Path::new("dist")]).collect(),
    };
    let candidates = folders.iter().map(|folder| folder.join(file));
    let installed = file.replacen("lib/", "lib/nowait/", 1);
    let places = folders.iter().flat_map(|folder| [folder.join(&installed), folder.join(file)]);
    places.into_iter().find_map(|path| path.canonicalize().ok()).ok_or_else(|| {
        let tried: Vec<String> = candidates.map(|path| path.display().to_string()).collect();
        Failure::new(format!("no {}; run `make dist` or pass --dist", tried.join(" and ")))
    })
}

impl MeasureArgs {
    pub fn extent(&self, or: &Defaults) -> Result<Extent> {
        let index = usize::from(self.quick);
        Ok(Extent {
            rounds: usize::from(self.rounds.unwrap_or(or.rounds)),
            runtime: self.runtime.unwrap_or(Duration::from_millis(or.runtime_ms[index])),
            size_bytes: at_least(self.size.unwrap_or(or.size_bytes[index]), or.least_bytes)?,
        })
    }

    pub fn select<J>(&self, mut cases: Vec<Case<J>>) -> Result<Vec<Case<J>>> {
        let known: Vec<&str> = cases.iter().map(|case| case.name).collect();
        for asked in &self.cases {
            if !cases.iter().any(|case| case.answers_to(asked)) {
                return Err(unknown("case", asked, &known));
            }
        }
        let asked = |case: &Case<J>| {
            self.cases.is_empty() || self.cases.iter().any(|asked| case.answers_to(asked))
        };
        cases.retain(|case| asked(case) && !case.subjects.is_empty());
        if cases.is_empty() {
            return Err(Failure::usage("none of these engines can do these cases; see --list"));
        }
        Ok(cases)
    }

    pub fn select_subjects<J>(&self, mut cases: Vec<Case<J>>) -> Result<Vec<Case<J>>> {
        let subjects = cases.iter().flat_map(|case| &case.subjects);
        let known = distinct(subjects.map(|subject| subject.name));
        if let Some(asked) = self.engines.iter().find(|asked| !known.contains(&asked.as_str())) {
            return Err(unknown("engine", asked, &known));
        }
        let asked =
            |name: &str| self.engines.is_empty() || self.engines.iter().any(|it| it == name);
        for case in &mut cases {
            case.subjects.retain(|subject| asked(subject.name));
        }
        self.select(cases)
    }
}

impl DiskArgs {
    pub fn drops_caches(&self) -> bool {
        !self.keep_caches && cache::can_drop()
    }
}

/// Refuses a size that is too small, because a measurement would silently use more.
pub fn at_least(size_bytes: u64, least_bytes: u64) -> Result<u64> {
    if size_bytes >= least_bytes {
        return Ok(size_bytes);
    }
    let [size, least] = [size_bytes, least_bytes].map(|bytes| units::bytes(bytes as f64));
    Err(Failure::usage(format!("--size is {size}; it must be at least {least}")))
}

pub fn unknown(what: &str, asked: &str, known: &[&str]) -> Failure {
    Failure::usage(format!("no {what} '{asked}'; there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_library_of_a_package_is_taken_before_one_of_that_name_beside() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("lib/nowait")).expect("a folder");
        std::fs::write(root.join("lib/libaio.so.1"), "").expect("a file");
        let found = || found_in_dist(Some(&root), "lib/libaio.so.1").expect("it is there");
        assert_eq!(found(), root.join("lib/libaio.so.1"));
        std::fs::write(root.join("lib/nowait/libaio.so.1"), "").expect("a file");
        assert_eq!(found(), root.join("lib/nowait/libaio.so.1"));
    }

    #[test]
    fn a_missing_library_is_told_with_its_place() {
        let file = "lib/libnowait_preload.so";
        let error = found_in_dist(Some(Path::new("/nonexistent")), file).expect_err("not there");
        assert!(error.to_string().contains("/nonexistent/lib/libnowait_preload.so"), "{error}");
    }
}
