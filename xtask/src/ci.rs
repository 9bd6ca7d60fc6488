//! The jobs of `cargo x ci`. A developer's machine and a build machine run the same jobs.
//!
//! Each job is one line of [`JOBS`]: its name, its lane in the quick check, and its time limit in
//! minutes. `xtask/ci.sh` has its commands.
//!
//! ```text
//!   main lane   fmt ── tidy ── prose ── crates ── dist (links on one processor)
//!               ── test (waits for disks)
//!   beside it   loom ── simulated ── miri ── clippy ── doc ── random (waits for disks too)
//!               ── examples ── python
//!   then        skips
//! ```
//!
//! Clippy comes late, because cargo makes it wait while the tests are built in the same folder. The
//! lane beside has a lower priority than the main lane, so its time limits are wide.

use std::collections::BTreeSet;
use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use xshell::{Cmd, cmd};

use crate::FEATURES;
use crate::outcome::{Failures, Outcome};
use crate::process;

type Job = (&'static str, Lane, u32);

/// The lane in which `cargo x ci` without names runs a job. If the user names jobs, they run one
/// after the other, in the order of the names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// The jobs run one after another; their output appears as they print it.
    Main,
    /// Jobs beside the main lane. The output of a job appears when the job is over.
    Beside,
    /// Jobs that run after both lanes have ended.
    End,
    /// Jobs that run only if the user names them.
    Named,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Full,
    /// The short form, for jobs that the user names.
    Quick,
    /// The short form, in a run of all jobs except those of [`Lane::Named`].
    OneOfAll,
}

struct Row {
    name: &'static str,
    outcome: Outcome,
    failures: Vec<String>,
    time: Duration,
}

const JOBS: &[Job] = &[
    ("fmt", Lane::Main, 2),
    ("tidy", Lane::Main, 2),
    ("prose", Lane::Main, 2),
    ("crates", Lane::Main, 2),
    ("dist", Lane::Main, 20),
    ("test", Lane::Main, 40),
    ("loom", Lane::Beside, 40),
    ("simulated", Lane::Beside, 40),
    ("miri", Lane::Beside, 40),
    ("clippy", Lane::Beside, 40),
    ("doc", Lane::Beside, 40),
    ("random", Lane::Beside, 40),
    ("examples", Lane::Beside, 40),
    ("python", Lane::Beside, 40),
    ("skips", Lane::End, 1),
    ("pythons", Lane::Named, 90),
    ("asan", Lane::Named, 60),
    ("tsan", Lane::Named, 60),
    ("fuzz", Lane::Named, 60),
    ("futures", Lane::Named, 30),
    ("stores", Lane::Named, 30),
    ("soak", Lane::Named, 180),
];

const SKIPPED: i32 = 77;

pub(crate) fn run(names: &[&str]) -> Result<()> {
    if names == ["--list"] {
        JOBS.iter().for_each(|(name, ..)| println!("{name}"));
        return Ok(());
    }
    let (mode, names) = match names {
        ["--quick", names @ ..] => (Mode::Quick, names),
        names => (Mode::Full, names),
    };
    let find = |name: &&str| {
        let found = JOBS.iter().find(|job| job.0 == *name);
        found.with_context(|| format!("no job `{name}`: see cargo x ci --list"))
    };
    let chosen = names.iter().map(find).collect::<Result<Vec<_>>>()?;
    take_own_mounts()?;
    if !chosen.is_empty() {
        return close(
            &chosen.into_iter().map(|job| run_job(*job, mode)).collect::<Result<Vec<_>>>()?,
        );
    }
    let beside = thread::spawn(|| run_lane(Lane::Beside));
    let mut rows = run_lane(Lane::Main)?;
    rows.extend(beside.join().map_err(|_| anyhow!("the jobs of the lane beside panicked"))??);
    rows.extend(run_lane(Lane::End)?);
    close(&rows)
}

fn run_lane(lane: Lane) -> Result<Vec<Row>> {
    JOBS.iter().filter(|job| job.1 == lane).map(|job| run_job(*job, Mode::OneOfAll)).collect()
}

/// A test that cannot do all its checks here appends a line `skipped: TEST: REASON` to the file
/// that `NOWAIT_SKIPS` names.
fn run_job((name, lane, minutes_max): Job, mode: Mode) -> Result<Row> {
    let (sh, is_beside) = (process::shell()?, lane == Lane::Beside && mode == Mode::OneOfAll);
    let (limit, mut words) = (format!("{minutes_max}m"), Vec::new());
    // On a build machine no person sees that a job hangs, so `timeout` ends it with its children.
    if env::var_os("CI").is_some() {
        words.extend(["timeout", "--kill-after=20", &limit]);
    }
    // Tests of the main lane have deadlines, so the other lane gets a lower priority.
    if is_beside {
        words.extend(["nice", "-n", "10"]);
    }
    words.extend(["bash", "xtask/ci.sh", name]);
    let skips = process::target().join(format!("skips-{name}.txt"));
    sh.remove_path(&skips)?;
    let command = sh
        .cmd(words[0])
        .args(&words[1..])
        .env("QUICK", if mode == Mode::Full { "" } else { "1" })
        .env("ALL", if mode == Mode::OneOfAll { "1" } else { "" })
        // Building the tests may replace the file of this program.
        .env("X", format!("/proc/{}/exe", std::process::id()))
        .env("OWN", process::target().join(name))
        .env("FEATURES", FEATURES)
        .env("NOWAIT_SKIPS", &skips);
    let (start, mut text) = (Instant::now(), String::new());
    let mut show = |line: &str| match is_beside {
        true => text.extend([line, "\n"]),
        false => println!("{line}"),
    };
    show(&format!("\n== {name}"));
    let (mut outcome, failures) = count(command, show);
    print!("{text}");
    // For cargo, a skipped test has passed; this program counts it as skipped.
    let skipped = tests_of(&sh.read_file(&skips).unwrap_or_default());
    outcome.passed = outcome.passed.saturating_sub(skipped);
    outcome.skipped += skipped;
    Ok(Row { name, outcome, failures, time: start.elapsed() })
}

/// A job that fails without a failed test counts as one failed test.
fn count(command: Cmd<'_>, mut show: impl FnMut(&str)) -> (Outcome, Vec<String>) {
    let (mut outcome, mut failures) = (Outcome::default(), Failures::default());
    let result = process::watch(command.into(), |line| {
        outcome.count(line);
        failures.note(line);
        if !is_noise(line) {
            show(line);
        }
    });
    match result {
        Ok(status) if status.success() => {}
        Ok(status) if status.code() == Some(SKIPPED) => outcome.skipped += 1,
        Ok(status) => {
            show(&status.to_string());
            outcome.failed = outcome.failed.max(1);
        }
        Err(error) => {
            show(&format!("{error:#}"));
            outcome.failed += 1;
        }
    }
    (outcome, failures.lines)
}

fn tests_of(skips: &str) -> usize {
    // skipped: TEST: REASON, where TEST may hold `::`
    skips.lines().filter_map(|line| line.split(": ").nth(1)).collect::<BTreeSet<_>>().len()
}

fn is_noise(line: &str) -> bool {
    let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out;";
    line.is_empty() || line == "running 0 tests" || line.starts_with(empty)
}

fn close(rows: &[Row]) -> Result<()> {
    println!("\n{:<8} {:<8} {:>8}", "job", "result", "seconds");
    let mut total = Outcome::default();
    for row in rows {
        println!("{:<8} {:<8} {:>8.1}", row.name, word(row.outcome), row.time.as_secs_f64());
        total.add(row.outcome);
    }
    // Their first lines are thousands of lines above.
    rows.iter().flat_map(|row| &row.failures).for_each(|line| println!("{line}"));
    println!("\n{total}");
    let failed = rows.iter().filter(|row| row.outcome.failed > 0).map(|row| row.name);
    let failed = failed.collect::<Vec<_>>().join(", ");
    ensure!(failed.is_empty(), "failed: {failed}");
    Ok(())
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome { failed: 1.., .. } => "FAILED",
        Outcome { passed: 0, skipped: 1.., .. } => "skipped",
        _ => "ok",
    }
}

/// Starts this program again in a mount namespace of its own, if unshare(1) may make one. A killed
/// run then leaves no mounts. The namespace begins without mounts of earlier runs: mkfs.btrfs(8)
/// fails if there is a FUSE mount whose server has ended.
fn take_own_mounts() -> Result<()> {
    const TAKEN: &str = "NOWAIT_OWN_MOUNTS";
    let prefix = own_mounts()?;
    if prefix.is_empty() || env::var_os(TAKEN).is_some() {
        return Ok(());
    }
    let mut again = Command::new(prefix[0]);
    again.args(&prefix[1..]).arg(env::current_exe()?).args(env::args_os().skip(1));
    bail!("unshare: {}", again.env(TAKEN, "1").exec());
}

/// Returns the words that start a command in a mount namespace of its own, without mounts of
/// earlier runs. Returns none if unshare(1) fails; this user can then mount nothing.
fn own_mounts() -> Result<Vec<&'static str>> {
    const SCRIPT: &str = "findmnt -rno TARGET | grep /nowait- | sort -r | \
        xargs -r -n 1 umount --lazy; exec \"$@\"";
    let sh = process::shell()?;
    Ok(match process::output(cmd!(sh, "unshare --mount true")) {
        Ok(_) => vec!["unshare", "--mount", "sh", "-c", SCRIPT, "sh"],
        Err(_) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_its_commands() {
        let (sh, script) = (process::shell().unwrap(), "xtask/ci.sh");
        let text = sh.read_file(script).unwrap();
        let has = |name: &str| text.contains(&format!("\njob_{name}() {{"));
        assert!(JOBS.iter().all(|(name, ..)| has(name)));
        assert_eq!(text.matches("\njob_").count(), JOBS.len());
    }

    #[test]
    fn what_a_job_builds_alone_has_the_features() {
        let sh = process::shell().unwrap();
        let text = sh.read_file("xtask/ci.sh").unwrap();
        let builds = text.lines().filter_map(|line| line.strip_prefix("    build "));
        for build in builds {
            let words: Vec<&str> = build.split(' ').collect();
            let packages = words.chunks(2).take_while(|words| words[0] == "-p").flatten();
            let tree = cmd!(sh, "cargo tree --depth=0 --features {FEATURES}");
            process::output(tree.args(packages)).unwrap();
        }
    }

    #[test]
    fn a_job_is_judged_by_its_tests_and_its_status() {
        for (script, passed, end) in [
            ("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'", 3, "ok"),
            ("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 1", 3, "FAILED"),
            ("echo 'test result: FAILED. 2 passed; 1 failed'; exit 101", 2, "FAILED"),
            ("echo 'skipped: no tool'; exit 77", 0, "skipped"),
            ("kill $$", 0, "FAILED"),
            ("true", 0, "ok"),
        ] {
            let sh = process::shell().unwrap();
            let (outcome, _) = count(cmd!(sh, "sh -c {script}"), |_| {});
            assert_eq!((outcome.passed, word(outcome)), (passed, end), "{script}");
        }
    }

    #[test]
    fn a_test_that_skips_twice_is_one_test() {
        let skips = "skipped: a::b: no root\nskipped: a::b: no loop\nskipped: c: old kernel\n";
        assert_eq!(tests_of(skips), 2);
    }

    #[test]
    fn a_run_without_tests_fails() {
        let sh = process::shell().unwrap();
        let functions = sh.read_file("xtask/ci.sh").unwrap().replace("\n\"job_$1\"\n", "\n");
        for (passed, is_right) in [(1, true), (12, true), (0, false)] {
            let line = format!("test result: ok. {passed} passed; 0 failed");
            let script = format!("{functions}tests echo '{line}'");
            assert_eq!(process::output(cmd!(sh, "bash -c {script}")).is_ok(), is_right);
        }
    }

    #[test]
    fn mounts_of_a_run_go_with_it() {
        let prefix = own_mounts().unwrap();
        if prefix.is_empty() {
            return; // unshare(1) fails here, so no test mounts anything
        }
        let folder = env::temp_dir().join(format!("nowait-mounts-{}", std::process::id()));
        let sh = process::shell().unwrap();
        sh.create_dir(&folder).unwrap();
        let outer = "mount -t tmpfs outer \"$0\"; exec \"$@\"";
        let inner = "! mountpoint -q \"$0\" && mount -t tmpfs inner \"$0\"";
        let outer = cmd!(sh, "unshare --mount sh -c {outer} {folder} {prefix...}");
        process::output(outer.args(["sh", "-c", inner]).arg(&folder)).unwrap();
        let mounts = sh.read_file("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(folder.to_str().unwrap()));
        sh.remove_path(&folder).unwrap();
    }
}
