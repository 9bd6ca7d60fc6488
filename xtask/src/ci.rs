//! The jobs of a check, the same at home as on a build machine.
//!
//! Each job is one line of [`JOBS`]: its name, the lane in which the quick check has it, how long
//! it may take, and the function that does it.
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

mod peers;
mod pythons;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::log::Log;
use crate::outcome::{Failures, Outcome};
use crate::process::{self, Result};
use crate::{api, crates, dist, examples, machine, skips, tidy, tutorials};

struct Job {
    name: &'static str,
    lane: Lane,
    minutes_max: u32,
    run: fn(&Context) -> Result<End>,
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

/// How a job ended when nothing failed.
enum End {
    Passed,
    Tests(Outcome),
    /// It cannot run here, and why.
    Skipped(String),
}

/// What the jobs share.
struct Context {
    /// Run the short form: fewer interleavings, smaller files.
    quick: bool,
    /// One of all jobs: what the tests are made of is built, or will be.
    is_one_of_all: bool,
    minutes_max: u32,
    log: Log,
}

/// A line of the closing table, and what it adds to the closing line.
struct Row {
    name: &'static str,
    word: &'static str,
    time: Duration,
    outcome: Outcome,
}

const JOBS: &[Job] = &[
    Job { name: "fmt", lane: Lane::Main, minutes_max: 2, run: fmt },
    Job { name: "tidy", lane: Lane::Main, minutes_max: 2, run: tidy_job },
    Job { name: "crates", lane: Lane::Main, minutes_max: 2, run: crates_job },
    Job { name: "dist", lane: Lane::Main, minutes_max: 20, run: dist_job },
    Job { name: "test", lane: Lane::Main, minutes_max: 40, run: test },
    Job { name: "loom", lane: Lane::Beside, minutes_max: 40, run: loom },
    Job { name: "simulated", lane: Lane::Beside, minutes_max: 40, run: simulated },
    Job { name: "miri", lane: Lane::Beside, minutes_max: 40, run: miri },
    Job { name: "clippy", lane: Lane::Beside, minutes_max: 40, run: clippy },
    Job { name: "doc", lane: Lane::Beside, minutes_max: 40, run: doc },
    Job { name: "random", lane: Lane::Beside, minutes_max: 40, run: random },
    Job { name: "examples", lane: Lane::Beside, minutes_max: 40, run: examples_job },
    Job { name: "python", lane: Lane::Beside, minutes_max: 40, run: pythons::python_job },
    Job { name: "skips", lane: Lane::End, minutes_max: 1, run: skips_job },
    Job { name: "pythons", lane: Lane::Named, minutes_max: 90, run: pythons::pythons },
    Job { name: "asan", lane: Lane::Named, minutes_max: 60, run: asan },
    Job { name: "tsan", lane: Lane::Named, minutes_max: 60, run: tsan },
    Job { name: "fuzz", lane: Lane::Named, minutes_max: 60, run: fuzz },
    Job { name: "futures", lane: Lane::Named, minutes_max: 30, run: peers::futures },
    Job { name: "stores", lane: Lane::Named, minutes_max: 30, run: peers::stores },
    Job { name: "soak", lane: Lane::Named, minutes_max: 180, run: soak },
];

/// What a job needs of the workspace, each built by one call of cargo: one of its packages must
/// have the features.
const EXAMPLES: &[&str] = &["-p", "nowait", "--examples"];
const PYTHON: &[&str] =
    &["-p", "nowait-python", "-p", "nowait-tests", "--lib", "--bin", "seccomp-run"];

/// Runs the named jobs in full, or in their quick form after `--quick`; without a name, the quick
/// form of all that have one.
///
/// # Errors
/// A job failed, or there is none of that name.
pub(crate) fn run(names: &[&str]) -> Result {
    if names == ["--list"] {
        for job in JOBS {
            println!("{}", job.name);
        }
        return Ok(());
    }
    let chosen = choose(names.strip_prefix(&["--quick"]).unwrap_or(names))?;
    take_own_mounts()?;
    let rows = if chosen.is_empty() {
        let beside = thread::spawn(|| run_all(Lane::Beside, Log::later));
        let mut rows = run_all(Lane::Main, || Log::Now);
        rows.extend(beside.join().map_err(|_| "the jobs of the lane beside panicked")?);
        rows.extend(run_all(Lane::End, || Log::Now));
        rows
    } else {
        run_jobs(&chosen, names[0] == "--quick", false, || Log::Now)
    };
    close(&rows)
}

/// Runs the jobs of a lane in their quick form.
fn run_all(lane: Lane, log: fn() -> Log) -> Vec<Row> {
    run_jobs(&jobs_of(lane), true, true, log)
}

fn jobs_of(lane: Lane) -> Vec<&'static Job> {
    JOBS.iter().filter(|job| job.lane == lane).collect()
}

/// Runs jobs one after the other.
fn run_jobs(jobs: &[&Job], quick: bool, is_one_of_all: bool, log: fn() -> Log) -> Vec<Row> {
    let mut rows = Vec::new();
    for job in jobs {
        let log = log();
        let context = Context { quick, is_one_of_all, minutes_max: job.minutes_max, log };
        context.log.line(&format!("\n== {}", job.name));
        let start = Instant::now();
        let (word, outcome) = judge(job, &context.log, (job.run)(&context));
        context.log.print();
        rows.push(Row { name: job.name, word, time: start.elapsed(), outcome });
    }
    rows
}

fn choose(names: &[&str]) -> Result<Vec<&'static Job>> {
    let find = |name: &&str| {
        let found = JOBS.iter().find(|job| job.name == *name);
        found.ok_or_else(|| format!("no job `{name}`: see cargo x ci --list"))
    };
    names.iter().map(find).collect()
}

/// Turns the end of a job into a word for the table, and what it adds to the closing line.
fn judge(job: &Job, log: &Log, end: Result<End>) -> (&'static str, Outcome) {
    match end {
        Ok(End::Passed) => ("ok", Outcome::default()),
        Ok(End::Tests(outcome)) if outcome.failed > 0 => ("FAILED", outcome),
        Ok(End::Tests(outcome)) => ("ok", outcome),
        Ok(End::Skipped(why)) => {
            log.line(&format!("skipped: {}: {why}", job.name));
            ("skipped", Outcome { skipped: 1, ..Outcome::default() })
        }
        Err(message) => {
            log.line(&message);
            ("FAILED", Outcome { failed: 1, ..Outcome::default() })
        }
    }
}

/// Prints one line per job, then the closing line alone.
fn close(rows: &[Row]) -> Result {
    println!("\n{:<8} {:<8} {:>8}", "job", "result", "seconds");
    let mut total = Outcome::default();
    for row in rows {
        println!("{:<8} {:<8} {:>8.1}", row.name, row.word, row.time.as_secs_f64());
        total.add(row.outcome);
    }
    println!("\n{total}");
    let failed: Vec<&str> =
        rows.iter().filter(|row| row.word == "FAILED").map(|row| row.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn fmt(context: &Context) -> Result<End> {
    context.plain(context.cargo(&["fmt", "--all", "--check"]))
}

fn tidy_job(_: &Context) -> Result<End> {
    tidy::run().map(|()| End::Passed)
}

fn crates_job(_: &Context) -> Result<End> {
    crates::check().map(|()| End::Passed)
}

fn dist_job(_: &Context) -> Result<End> {
    dist::run(machine::OWN).map(|()| End::Passed)
}

fn clippy(context: &Context) -> Result<End> {
    let args = ["clippy", "--workspace", "--all-targets", "--features", examples::FEATURES];
    context.plain(context.cargo(&[&args[..], &["--", "-D", "warnings"]].concat()))
}

/// Not the programs: the tool's name is that of the facade, and its files would collide. With the
/// examples, because then dependencies have the features with which clippy has checked them.
/// What the pages show of the API is compared with its list.
fn doc(context: &Context) -> Result<End> {
    let what = ["--no-deps", "--lib", "--examples", "--features", examples::FEATURES];
    let args = [&["doc", "--workspace"], &what[..]].concat();
    let mut command = context.cargo(&args);
    command.env("RUSTDOCFLAGS", "-D warnings");
    context.plain(command)?;
    api::check(&context.log).map(|()| End::Passed)
}

fn test(context: &Context) -> Result<End> {
    let args = ["test", "--workspace", "--no-fail-fast", "--features", examples::FEATURES];
    let mut command = context.cargo(&args);
    if !context.quick {
        command.env("NOWAIT_FULL", "1").env("SCALE", "full");
    }
    // One run of the simulator that no commit before had, and that can be repeated.
    if let Some(commit) = commit() {
        command.env("SIM_COMMIT", commit);
    }
    context.skipping_tests(command, "test")
}

/// Random operations on real files, which cargo leaves out of a run of all tests. Of the workspace,
/// so that dependencies have the features with which the other tests have built them.
fn random(context: &Context) -> Result<End> {
    let args = ["test", "--workspace", "--test", "random", "--features", examples::FEATURES];
    context.skipping_tests(context.cargo(&args), "random")
}

fn examples_job(context: &Context) -> Result<End> {
    context.build(EXAMPLES)?;
    let line = |line: &str| context.log.line(line);
    examples::run(line)?;
    tutorials::run(line).map(|()| End::Passed)
}

fn skips_job(_: &Context) -> Result<End> {
    skips::run().map(|()| End::Passed)
}

fn loom(context: &Context) -> Result<End> {
    let packages = ["-p", "nowait-retry", "-p", "nowait-block", "-p", "nowait-cache"];
    let args = [&["test"], &packages[..], &["--lib", "loom_"]].concat();
    let mut command = context.cargo(&args);
    command
        .args(["--config", "xtask/loom.toml"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", own_target("loom"))
        .env("LOOM_MAX_PREEMPTIONS", if context.quick { "2" } else { "3" });
    context.tests(command)
}

/// The whole engine on a simulated machine. Of the workspace, so that dependencies have the
/// features with which the other tests have built them.
fn simulated(context: &Context) -> Result<End> {
    let tests = ["--test", "simulation", "--test", "machine"];
    let args = [&["test", "--workspace", "--features", examples::FEATURES], &tests[..]].concat();
    let mut test = on_the_machine(context.cargo(&args));
    if let Some(commit) = commit() {
        test.env("SIM_COMMIT", commit);
    }
    context.tests(test)
}

/// Has a command build for the simulated machine, as its profile says. Clippy is the compiler: to
/// lint apart, cargo would check all crates once more, which takes as long as to build them. It
/// compiles the crates of the workspace only; the others are those of all tests.
fn on_the_machine(mut command: Command) -> Command {
    command
        .args(["--config", "crates/verify/machine/profile.toml"])
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        // As `cargo clippy -- ARGUMENTS` hands them on to it.
        .env("CLIPPY_ARGS", ["-Dwarnings", "--cfg", "simulated"].join("__CLIPPY_HACKERY__"));
    command
}

fn miri(context: &Context) -> Result<End> {
    if let Some(why) = nightly_lacks("miri") {
        return Ok(End::Skipped(why));
    }
    let run = |of: &[&str], filter: &[&str]| {
        let args = [&["miri", "test"], of, &["--"], filter].concat();
        let mut command = context.nightly(&args);
        command
            .env("CARGO_TARGET_DIR", own_target("miri"))
            .env("MIRIFLAGS", MIRI_FLAGS)
            .env("PROPTEST_CASES", if context.quick { "4" } else { "32" });
        count(command, &context.log)
    };
    // Without those of safe code, which take millions of steps; quick, where frames change hands.
    let cache: &[&str] = match context.quick {
        true => &["buddy", "frames", "page_wait", "lend", "mapping::tests::trunc", "threads"],
        false => &["--skip", "policy", "--skip", "readahead"],
    };
    // Whole requests of futures on the workers' backend; quick, those whose buffers have two
    // owners for a while.
    let vectors: &[&str] = if context.quick { &["dropped", "cancelled"] } else { &[] };
    let mut outcome = run(&["-p", "nowait-retry", "--lib"], &[])?;
    outcome.add(run(&["-p", "nowait-cache", "--lib"], cache)?);
    outcome.add(run(&["-p", "nowait", "--lib"], &["operation", "reactor"])?);
    outcome.add(run(&["-p", "nowait", "--test", "stream_vectors"], vectors)?);
    Ok(End::Tests(outcome))
}

/// Files and the time are the real ones, addresses pass through system calls as numbers, and no
/// transfer is cut short by chance.
const MIRI_FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-permissive-provenance \
    -Zmiri-no-short-fd-operations";

fn asan(context: &Context) -> Result<End> {
    sanitize(context, "address")
}

fn tsan(context: &Context) -> Result<End> {
    sanitize(context, "thread")
}

/// What runs under the sanitizers: all that shares memory with the kernel or between threads. Not
/// the preload library: its names are those that a sanitizer's runtime takes the place of.
const SANITIZED: &str = "nowait-retry nowait-block nowait-cache nowait-file nowait-engine \
    nowait-process nowait-posix nowait";

/// Besides the tests inside the crates: those on the real backends.
const SANITIZED_TESTS: &str = "conformance threads interrupt system storm cancel engine in_memory \
    streams user async_file stream_vectors cursor control event_loop queue vectored file advice \
    random";

fn sanitize(context: &Context, sanitizer: &str) -> Result<End> {
    if let Some(why) = nightly_lacks("rust-src") {
        return Ok(End::Skipped(why));
    }
    let host = host()?;
    // The standard library is built with the sanitizer too, else its atomics look like races.
    let mut args = vec!["test", "-Zbuild-std", "--target", &host, "--no-fail-fast", "--lib"];
    args.extend(["--features", examples::FEATURES]);
    SANITIZED.split(' ').for_each(|package| args.extend(["-p", package]));
    SANITIZED_TESTS.split(' ').for_each(|test| args.extend(["--test", test]));
    let mut command = context.nightly(&args);
    if env::var_os("NOWAIT_SEEDS").is_none() {
        command.env("NOWAIT_SEEDS", "4");
    }
    // A thread of the engine has descriptors of its own, and no standard error among them: what it
    // wrote to number 2 would be lost, or go into another file.
    let reports = own_target(sanitizer).join("reports");
    drop(fs::remove_dir_all(&reports));
    fs::create_dir_all(&reports).map_err(|error| format!("{}: {error}", reports.display()))?;
    let options = format!("halt_on_error=1:log_path={}/report", reports.display());
    let suppressions = process::root().join("xtask/thread.suppressions");
    command
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .env("NOWAIT_SANITIZER", sanitizer)
        .env("CARGO_TARGET_DIR", own_target(sanitizer))
        .env("ASAN_OPTIONS", &options)
        .env("TSAN_OPTIONS", format!("{options}:suppressions={}", suppressions.display()));
    let outcome = context.tests(command);
    show_files(&reports, &context.log);
    outcome
}

/// Shows whatever the files in a folder say.
fn show_files(folder: &Path, log: &Log) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Ok(text) = fs::read(entry.path()) {
            let text = String::from_utf8_lossy(&text);
            log.line(&format!("{}:\n{text}", entry.path().display()));
        }
    }
}

/// Random operations on real files, 10,000 seeds on each backend; then as many of the programs on
/// the simulated machine, and all its mistakes that can be found; then many seeds of the simulator,
/// optimised, from one that the commit chooses.
fn soak(context: &Context) -> Result<End> {
    let mut files = context.cargo(&["test", "-p", "nowait", "--test", "random"]);
    if env::var_os("NOWAIT_SEEDS").is_none() {
        files.env("NOWAIT_SEEDS", "10000");
    }
    context.tests(files)?;
    let mut machine = on_the_machine(context.cargo(&["test", "-p", "nowait-machine"]));
    machine.env("SEEDS", "10000").env("MISTAKE_SEEDS", "10000");
    context.tests(machine)?;
    let mut objects = context.cargo(&["test", "-p", "nowait-objects"]);
    objects.env("SEEDS", "200000");
    context.tests(objects)?;
    let seed = env::var("SIM_SEED").ok().or_else(commit).unwrap_or_else(|| String::from("0"));
    let seeds = env::var("SOAK_SEEDS").unwrap_or_else(|_| String::from("20000"));
    let mut command = context.cargo(&["run", "--release", "-p", "nowait-simulator", "--"]);
    command
        .args(["--seed", &seed, "--seeds", &seeds])
        .env_remove("SIM_SEED")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_TARGET_DIR", own_target("soak"));
    context.plain(command)
}

/// Fuzzes each target for `FUZZ_SECONDS` from its corpus, which keeps what is new.
fn fuzz(context: &Context) -> Result<End> {
    if let Some(why) = nightly_lacks("rust-std") {
        return Ok(End::Skipped(why));
    }
    // What cargo-fuzz sets: edges counted, compared values seen, memory checked.
    const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
        -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
    let seconds = env::var("FUZZ_SECONDS").unwrap_or_else(|_| String::from("60"));
    let host = host()?;
    for target in ["nbd_handshake", "nbd_requests", "vhost_queue", "log_object", "log_store"] {
        let (bin, time) = (["--bin", target], format!("-max_total_time={seconds}"));
        let args = ["run", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &host];
        let corpus = format!("fuzz/corpus/{target}");
        let run = ["--", &corpus, &time, "-max_len=70000", "-rss_limit_mb=2048"];
        let mut command = context.nightly(&[&args[..], &bin, &run].concat());
        command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", own_target("fuzz"));
        context.plain(command)?;
    }
    Ok(End::Passed)
}

/// Returns the hash of the commit that is checked out.
fn commit() -> Option<String> {
    let hash = process::output(process::command("git", &["rev-parse", "HEAD"])).ok()?;
    Some(hash.trim().to_owned())
}

impl Context {
    fn cargo(&self, args: &[&str]) -> Command {
        self.limited("cargo", &[], args)
    }

    fn nightly(&self, args: &[&str]) -> Command {
        self.limited("rustup", &["run", "nightly", "cargo"], args)
    }

    /// Builds a part of the workspace; with all jobs, all of it, as the tests have built it: alone
    /// a part has other features, and its dependencies would be built once more.
    fn build(&self, part: &[&str]) -> Result {
        let part = if self.is_one_of_all { &["--workspace", "--all-targets"] } else { part };
        let args = [&["build", "--features", examples::FEATURES], part].concat();
        self.plain(self.cargo(&args)).map(drop)
    }

    /// Runs a command that has no tests to count.
    fn plain(&self, command: Command) -> Result<End> {
        process::stream(command, |line| self.log.line(line))?;
        Ok(End::Passed)
    }

    fn tests(&self, command: Command) -> Result<End> {
        count(command, &self.log).map(End::Tests)
    }

    /// Runs tests that may skip themselves. Such a test ended as "ok" for cargo: here it counts as
    /// skipped, not passed.
    fn skipping_tests(&self, mut command: Command, job: &str) -> Result<End> {
        drop(fs::remove_file(skips::file(job)));
        command.env("NOWAIT_SKIPS", skips::file(job));
        let mut outcome = count(command, &self.log)?;
        let skipped = skips::count(job);
        outcome.passed = outcome.passed.saturating_sub(skipped);
        outcome.skipped += skipped;
        Ok(End::Tests(outcome))
    }

    /// On a build machine a hanging job is not noticed: it is ended with all its children.
    fn limited(&self, program: &str, first: &[&str], args: &[&str]) -> Command {
        let limit = format!("{}m", self.minutes_max);
        let mut words = Vec::new();
        if env::var_os("CI").is_some() {
            words.extend(["timeout", "--kill-after=20", &limit]);
        }
        // The tests of the main lane have deadlines; the other lane has none.
        if matches!(self.log, Log::Later(_)) {
            words.extend(["nice", "-n", "10"]);
        }
        words.push(program);
        words.extend(first.iter().chain(args));
        process::command(words[0], &words[1..])
    }
}

/// Has this program begin again with mounts of its own, if it may, and returns where it has. They
/// go with its last process, so a run that is killed leaves none. What such a run has left before
/// is not among them: where a server of FUSE is gone, mkfs.btrfs(8) gives up.
fn take_own_mounts() -> Result {
    const TAKEN: &str = "NOWAIT_OWN_MOUNTS";
    let prefix = own_mounts();
    if prefix.is_empty() || env::var_os(TAKEN).is_some() {
        return Ok(());
    }
    let program = env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut again = Command::new(prefix[0]);
    again.args(&prefix[1..]).arg(program).args(env::args_os().skip(1)).env(TAKEN, "1");
    Err(format!("unshare: {}", again.exec()))
}

/// Returns what a command is prefixed with to see mounts of its own; nothing where that is not
/// allowed, or not needed, because only root mounts.
fn own_mounts() -> Vec<&'static str> {
    const SCRIPT: &str = "findmnt -rno TARGET | grep /nowait- | sort -r | \
        xargs -r -n 1 umount --lazy; exec \"$@\"";
    match process::output(process::command("unshare", &["--mount", "true"])) {
        Ok(_) => vec!["unshare", "--mount", "sh", "-c", SCRIPT, "sh"],
        Err(_) => Vec::new(),
    }
}

/// Returns a folder for builds with other flags, which would else undo those of every day.
fn own_target(name: &str) -> PathBuf {
    process::target().join(name)
}

/// Returns the target that the compiler builds for by default.
fn host() -> Result<String> {
    let version = process::output(process::command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| String::from("rustc -vV names no host"))
}

/// Returns why a component of the nightly toolchain cannot be used.
fn nightly_lacks(component: &str) -> Option<String> {
    let args = ["component", "list", "--toolchain", "nightly", "--installed"];
    let installed = process::output(process::command("rustup", &args));
    match installed {
        Err(_) => Some(String::from("no nightly toolchain")),
        Ok(list) if list.lines().any(|line| line.starts_with(component)) => None,
        Ok(_) => Some(format!("the nightly toolchain has no component {component}")),
    }
}

/// Tells the lines of a test program without tests.
fn is_noise(line: &str) -> bool {
    let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out;";
    line.is_empty() || line == "running 0 tests" || line.starts_with(empty)
}

/// Runs tests and counts them; a run that ended badly without a failed test counts as one.
fn count(command: Command, log: &Log) -> Result<Outcome> {
    let (mut outcome, mut failures) = (Outcome::default(), Failures::default());
    let result = process::stream(command, |line| {
        outcome.count(line);
        failures.note(line);
        if !is_noise(line) {
            log.line(line);
        }
    });
    // Again at the end: they may be thousands of lines above.
    for line in &failures.lines {
        log.line(line);
    }
    if let Err(message) = result {
        log.line(&message);
        outcome.failed = outcome.failed.max(1);
    } else if outcome.passed == 0 {
        return Err(String::from("no test ran"));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        process::command("sh", &["-c", script])
    }

    #[test]
    fn the_quick_check_has_the_quick_jobs_and_names_choose_others() {
        let names = |jobs: Vec<&Job>| jobs.iter().map(|job| job.name).collect::<Vec<_>>();
        assert_eq!(
            names(jobs_of(Lane::Beside)),
            ["loom", "simulated", "miri", "clippy", "doc", "random", "examples", "python"]
        );
        assert!(!names(jobs_of(Lane::Main)).contains(&"asan"));
        assert_eq!(names(choose(&["tsan", "fmt"]).unwrap()), ["tsan", "fmt"]);
        assert!(choose(&["nothing"]).is_err());
    }

    #[test]
    fn what_a_job_builds_alone_has_the_features() {
        for part in [EXAMPLES, PYTHON] {
            let packages = part.chunks(2).take_while(|words| words[0] == "-p").flatten();
            let args = ["tree", "--depth=0", "--features", examples::FEATURES];
            let args: Vec<&str> = args.iter().chain(packages).copied().collect();
            process::output(process::command("cargo", &args)).unwrap();
        }
    }

    #[test]
    fn a_lane_beside_prints_nothing_until_a_job_is_over() {
        let log = Log::later();
        count(shell("echo 'test result: ok. 1 passed; 0 failed'"), &log).unwrap();
        let Log::Later(text) = log else { panic!("it printed") };
        assert_eq!(text.into_inner(), "test result: ok. 1 passed; 0 failed\n");
    }

    #[test]
    fn a_crashed_test_program_counts_as_failed() {
        let script = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 1";
        let outcome = count(shell(script), &Log::Now).unwrap();
        assert_eq!(outcome, Outcome { passed: 3, failed: 1, skipped: 0 });
        assert_eq!(judge(&JOBS[0], &Log::Now, Ok(End::Tests(outcome))).0, "FAILED");
    }

    #[test]
    fn mounts_of_a_run_go_with_it() {
        let prefix = own_mounts();
        if prefix.is_empty() {
            return; // it may not, and then nothing is mounted
        }
        let folder = env::temp_dir().join(format!("nowait-mounts-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let outer = "mount -t tmpfs outer \"$0\"; exec \"$@\"";
        let inner = "! mountpoint -q \"$0\" && mount -t tmpfs inner \"$0\"";
        let folder_name = folder.to_str().unwrap();
        let mut words = vec!["unshare", "--mount", "sh", "-c", outer, folder_name];
        words.extend(prefix);
        words.extend(["sh", "-c", inner, folder_name]);
        process::output(process::command(words[0], &words[1..])).unwrap();
        assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(folder_name));
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_run_without_tests_fails() {
        assert!(count(shell("echo 'test result: ok. 0 passed; 0 failed'"), &Log::Now).is_err());
    }

    #[test]
    fn a_job_that_cannot_run_is_skipped_not_passed() {
        let (word, outcome) = judge(&JOBS[0], &Log::Now, Ok(End::Skipped(String::from("no tool"))));
        assert_eq!((word, outcome.skipped, outcome.passed), ("skipped", 1, 0));
    }
}
