//! The jobs of a check, the same at home as on a build machine.
//!
//! Each job is one line of [`JOBS`]: its name, the lane in which the quick check has it, how long
//! it may take, and the function that does it. It runs in a process of its own, whose output the
//! lane beside keeps until the job is over.
//!
//! ```text
//!   main lane   fmt ── tidy ── crates ── dist (links on one processor) ── test (waits for disks)
//!   beside it   loom ── simulated ── miri ── clippy ── doc ── random (waits for disks too)
//!               ── examples ── python
//!   then        skips
//! ```
//!
//! Clippy comes late because cargo lets it wait as long as the tests are built in the same folder.
//! The lane beside gives way to the other: its limits are wide.

mod builds;
mod mounts;
mod nightly;
mod tests;

use std::env;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::outcome::{Failures, Outcome};
use crate::process;

struct Job {
    name: &'static str,
    lane: Lane,
    minutes_max: u32,
    run: fn(&Context) -> Result<Outcome>,
}

/// Where `cargo x ci` without names runs a job. Named jobs run one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// In order, what a person watches.
    Main,
    /// At the same time, what needs nothing of the main lane.
    Beside,
    /// When both have ended.
    End,
    /// Only by name.
    Named,
}

/// How much a job does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Full,
    /// The short form: fewer interleavings, smaller files.
    Quick,
    /// The short form, as one of all jobs: what the tests are made of is built, or will be.
    OneOfAll,
}

/// Each mode as the process of a job is told.
const MODES: &[(&str, Mode)] =
    &[("full", Mode::Full), ("quick", Mode::Quick), ("one-of-all", Mode::OneOfAll)];

/// What the function of a job gets.
struct Context {
    sh: Shell,
    mode: Mode,
}

/// A line of the closing table, and what it adds to the closing line.
struct Row {
    name: &'static str,
    outcome: Outcome,
    time: Duration,
}

const JOBS: &[Job] = &[
    Job { name: "fmt", lane: Lane::Main, minutes_max: 2, run: builds::fmt },
    Job { name: "tidy", lane: Lane::Main, minutes_max: 2, run: builds::tidy },
    Job { name: "crates", lane: Lane::Main, minutes_max: 2, run: builds::crates },
    Job { name: "dist", lane: Lane::Main, minutes_max: 20, run: builds::dist },
    Job { name: "test", lane: Lane::Main, minutes_max: 40, run: tests::all },
    Job { name: "loom", lane: Lane::Beside, minutes_max: 40, run: tests::loom },
    Job { name: "simulated", lane: Lane::Beside, minutes_max: 40, run: tests::simulated },
    Job { name: "miri", lane: Lane::Beside, minutes_max: 40, run: nightly::miri },
    Job { name: "clippy", lane: Lane::Beside, minutes_max: 40, run: builds::clippy },
    Job { name: "doc", lane: Lane::Beside, minutes_max: 40, run: builds::doc },
    Job { name: "random", lane: Lane::Beside, minutes_max: 40, run: tests::random },
    Job { name: "examples", lane: Lane::Beside, minutes_max: 40, run: tests::examples },
    Job { name: "python", lane: Lane::Beside, minutes_max: 40, run: tests::python },
    Job { name: "skips", lane: Lane::End, minutes_max: 1, run: tests::skips },
    Job { name: "pythons", lane: Lane::Named, minutes_max: 90, run: tests::pythons },
    Job { name: "asan", lane: Lane::Named, minutes_max: 60, run: nightly::asan },
    Job { name: "tsan", lane: Lane::Named, minutes_max: 60, run: nightly::tsan },
    Job { name: "fuzz", lane: Lane::Named, minutes_max: 60, run: nightly::fuzz },
    Job { name: "futures", lane: Lane::Named, minutes_max: 30, run: builds::futures },
    Job { name: "stores", lane: Lane::Named, minutes_max: 30, run: builds::stores },
    Job { name: "soak", lane: Lane::Named, minutes_max: 180, run: tests::soak },
];

/// Runs the named jobs in full, or in their quick form after `--quick`; without a name, the quick
/// form of all that have one.
pub(crate) fn run(names: &[&str]) -> Result<()> {
    if names == ["--list"] {
        JOBS.iter().for_each(|job| println!("{}", job.name));
        return Ok(());
    }
    let (mode, names) = match names {
        ["--quick", names @ ..] => (Mode::Quick, names),
        names => (Mode::Full, names),
    };
    let chosen = names.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?;
    mounts::take_own()?;
    if !chosen.is_empty() {
        return close(&chosen.iter().map(|job| job.row(mode)).collect::<Result<Vec<_>>>()?);
    }
    let beside = thread::spawn(|| run_lane(Lane::Beside));
    let mut rows = run_lane(Lane::Main)?;
    rows.extend(beside.join().map_err(|_| anyhow!("the jobs of the lane beside panicked"))??);
    rows.extend(run_lane(Lane::End)?);
    close(&rows)
}

fn run_lane(lane: Lane) -> Result<Vec<Row>> {
    jobs_of(lane).map(|job| job.row(Mode::OneOfAll)).collect()
}

fn jobs_of(lane: Lane) -> impl Iterator<Item = &'static Job> {
    JOBS.iter().filter(move |job| job.lane == lane)
}

fn find(name: &str) -> Result<&'static Job> {
    let found = JOBS.iter().find(|job| job.name == name);
    found.with_context(|| format!("no job `{name}`: see cargo x ci --list"))
}

/// With which words the process of a job says at its end how it ended.
const ENDED: &str = "the job ended: ";

/// Does one job, as the process of its own: `cargo x job MODE NAME`.
pub(crate) fn job(mode: &str, name: &str) -> Result<()> {
    let named = MODES.iter().find(|(word, _)| *word == mode);
    let (_, mode) = *named.with_context(|| format!("no mode `{mode}`"))?;
    let context = Context { sh: process::shell()?, mode };
    let outcome = (find(name)?.run)(&context).unwrap_or_else(|error| {
        println!("{error:#}");
        Outcome::FAILED
    });
    println!("{ENDED}{outcome}");
    Ok(())
}

impl Job {
    /// Runs the process of this job.
    fn row(&self, mode: Mode) -> Result<Row> {
        let sh = process::shell()?;
        let (word, _) = MODES.iter().find(|(_, it)| *it == mode).expect("all have a word");
        // The path of this program may be that of a new one, once the tests are built.
        let program = format!("/proc/{}/exe", std::process::id());
        let mut words = Vec::new();
        // On a build machine a hanging job is not noticed: it is ended with all its children.
        let limit = format!("{}m", self.minutes_max);
        if env::var_os("CI").is_some() {
            words.extend(["timeout", "--kill-after=20", &limit]);
        }
        // The tests of the main lane have deadlines; the other lane has none.
        let is_beside = self.lane == Lane::Beside && mode == Mode::OneOfAll;
        if is_beside {
            words.extend(["nice", "-n", "10"]);
        }
        words.extend([&program, "job", word, self.name]);
        Ok(self.watch(sh.cmd(words[0]).args(&words[1..]), is_beside))
    }

    /// Runs a command and shows its output, `late` when it is over; its last words are the outcome.
    fn watch(&self, command: Cmd<'_>, late: bool) -> Row {
        let (start, mut outcome, mut text) = (Instant::now(), None, String::new());
        let mut show = |line: &str| match late {
            true => text.extend([line, "\n"]),
            false => println!("{line}"),
        };
        show(&format!("\n== {}", self.name));
        let ended = process::stream(command, |line| match line.strip_prefix(ENDED) {
            Some(numbers) => outcome = Some(Outcome::read(numbers)),
            None => show(line),
        });
        if let Err(error) = ended {
            show(&format!("{error:#}"));
        }
        print!("{text}");
        let outcome = outcome.unwrap_or(Outcome::FAILED);
        Row { name: self.name, outcome, time: start.elapsed() }
    }
}

impl Row {
    fn word(&self) -> &'static str {
        match self.outcome {
            Outcome { failed: 1.., .. } => "FAILED",
            Outcome { passed: 0, skipped: 1.., .. } => "skipped",
            _ => "ok",
        }
    }
}

/// Prints one line per job, then the closing line alone.
fn close(rows: &[Row]) -> Result<()> {
    println!("\n{:<8} {:<8} {:>8}", "job", "result", "seconds");
    let mut total = Outcome::default();
    for row in rows {
        println!("{:<8} {:<8} {:>8.1}", row.name, row.word(), row.time.as_secs_f64());
        total.add(row.outcome);
    }
    println!("\n{total}");
    let failed = rows.iter().filter(|row| row.outcome.failed > 0).map(|row| row.name);
    let failed = failed.collect::<Vec<_>>().join(", ");
    ensure!(failed.is_empty(), "failed: {failed}");
    Ok(())
}

/// Returns the outcome of a job that cannot run here.
fn skip(why: &str) -> Outcome {
    println!("skipped: {why}");
    Outcome { skipped: 1, ..Outcome::default() }
}

/// Runs a command that has no tests to count.
fn plain(command: Cmd<'_>) -> Result<Outcome> {
    process::run(command)?;
    Ok(Outcome::default())
}

/// Runs tests and counts them; a run that ended badly without a failed test counts as one.
fn count(command: Cmd<'_>) -> Result<Outcome> {
    let (mut outcome, mut failures) = (Outcome::default(), Failures::default());
    let result = process::stream(command, |line| {
        outcome.count(line);
        failures.note(line);
        if !is_noise(line) {
            println!("{line}");
        }
    });
    // Again at the end: they may be thousands of lines above.
    failures.lines.iter().for_each(|line| println!("{line}"));
    match result {
        Err(error) => {
            println!("{error:#}");
            outcome.failed = outcome.failed.max(1);
        }
        Ok(()) if outcome.passed == 0 => bail!("no test ran"),
        Ok(()) => {}
    }
    Ok(outcome)
}

/// Tells the lines of a test program without tests.
fn is_noise(line: &str) -> bool {
    let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out;";
    line.is_empty() || line == "running 0 tests" || line.starts_with(empty)
}

/// Returns a folder for builds with other flags, which would else undo those of every day.
fn own_target(name: &str) -> PathBuf {
    process::target().join(name)
}

impl Context {
    fn is_quick(&self) -> bool {
        self.mode != Mode::Full
    }

    /// Returns the hash of the commit that is checked out.
    fn commit(&self) -> Option<String> {
        let hash = process::output(cmd!(self.sh, "git rev-parse HEAD")).ok()?;
        Some(hash.trim().to_owned())
    }
}

#[cfg(test)]
mod checks {
    use super::*;

    fn shell(script: &str) -> (Shell, &str) {
        (process::shell().unwrap(), script)
    }

    #[test]
    fn the_quick_check_has_the_quick_jobs_and_names_choose_others() {
        let names = |lane| jobs_of(lane).map(|job| job.name).collect::<Vec<_>>();
        assert_eq!(
            names(Lane::Beside),
            ["loom", "simulated", "miri", "clippy", "doc", "random", "examples", "python"]
        );
        assert!(!names(Lane::Main).contains(&"asan"));
        assert!(find("tsan").is_ok() && find("nothing").is_err());
    }

    #[test]
    fn a_job_is_judged_by_its_last_words() {
        for (script, word) in [
            ("echo the job ended: 3 passed, 0 failed, 1 skipped", "ok"),
            ("echo the job ended: 3 passed, 1 failed, 0 skipped", "FAILED"),
            ("echo the job ended: 0 passed, 0 failed, 1 skipped", "skipped"),
            ("echo the job ended: 0 passed, 0 failed, 0 skipped", "ok"),
            ("echo 'test result: ok. 3 passed'; kill $$", "FAILED"),
        ] {
            let (sh, script) = shell(script);
            assert_eq!(JOBS[0].watch(cmd!(sh, "sh -c {script}"), true).word(), word, "{script}");
        }
    }

    #[test]
    fn a_crashed_test_program_counts_as_failed_and_a_run_without_tests_fails() {
        let (sh, script) = shell("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 1");
        let outcome = count(cmd!(sh, "sh -c {script}")).unwrap();
        assert_eq!(outcome, Outcome { passed: 3, failed: 1, skipped: 0 });
        assert!(count(cmd!(sh, "echo 'test result: ok. 0 passed; 0 failed'")).is_err());
    }
}
