//! The jobs that run tests with the stable compiler.

use std::env;

use anyhow::{Result, bail};
use xshell::{Cmd, cmd};

use super::{Context, Mode, count, own_target, plain};
use crate::examples::{self, FEATURES};
use crate::interpreter::Interpreter;
use crate::outcome::Outcome;
use crate::{process, tutorials};

/// What a job needs of the workspace, each built by one call of cargo: one of its packages must
/// have the features.
const EXAMPLES: &[&str] = &["-p", "nowait", "--examples"];
const PYTHON: &[&str] =
    &["-p", "nowait-python", "-p", "nowait-tests", "--lib", "--bin", "seccomp-run"];

pub(super) fn all(context: &Context) -> Result<Outcome> {
    let all = cmd!(context.sh, "cargo test --workspace --no-fail-fast --features {FEATURES}");
    let full = [("NOWAIT_FULL", "1"), ("SCALE", "full")];
    let all = if context.is_quick() { all } else { all.envs(full) };
    skipping_tests(of_commit(context, all), "test")
}

/// Random operations on real files, which cargo leaves out of a run of all tests. Of the workspace,
/// so that dependencies have the features with which the other tests have built them.
pub(super) fn random(context: &Context) -> Result<Outcome> {
    let random = cmd!(context.sh, "cargo test --workspace --test random --features {FEATURES}");
    skipping_tests(random, "random")
}

/// Has the simulator do one run that no commit before had, and that can be repeated.
fn of_commit<'a>(context: &Context, command: Cmd<'a>) -> Cmd<'a> {
    command.envs(context.commit().map(|commit| ("SIM_COMMIT", commit)))
}

/// Runs tests that may skip themselves. Such a test ended as "ok" for cargo: here it counts as
/// skipped, not passed.
fn skipping_tests(command: Cmd<'_>, job: &str) -> Result<Outcome> {
    let file = crate::skips::file(job);
    drop(std::fs::remove_file(&file));
    let mut outcome = count(command.env("NOWAIT_SKIPS", file))?;
    let skipped = crate::skips::count(job);
    outcome.passed = outcome.passed.saturating_sub(skipped);
    outcome.skipped += skipped;
    Ok(outcome)
}

pub(super) fn skips(_: &Context) -> Result<Outcome> {
    crate::skips::run().map(|()| Outcome::default())
}

pub(super) fn loom(context: &Context) -> Result<Outcome> {
    let loom = cmd!(context.sh, "cargo test -p nowait-retry -p nowait-block -p nowait-cache --lib")
        .args(["loom_", "--config", "xtask/loom.toml"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", own_target("loom"))
        .env("LOOM_MAX_PREEMPTIONS", if context.is_quick() { "2" } else { "3" });
    count(loom)
}

/// The whole engine on a simulated machine. Of the workspace, so that dependencies have the
/// features with which the other tests have built them.
pub(super) fn simulated(context: &Context) -> Result<Outcome> {
    let test = cmd!(context.sh, "cargo test --workspace --features {FEATURES}");
    let test = test.args(["--test", "simulation", "--test", "machine"]);
    count(of_commit(context, on_the_machine(test)))
}

/// Has a command build for the simulated machine, as its profile says. Clippy is the compiler: to
/// lint apart, cargo would check all crates once more, which takes as long as to build them. It
/// compiles the crates of the workspace only; the others are those of all tests.
fn on_the_machine(command: Cmd<'_>) -> Cmd<'_> {
    command
        .args(["--config", "crates/verify/machine/profile.toml"])
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        // As `cargo clippy -- ARGUMENTS` hands them on to it.
        .env("CLIPPY_ARGS", ["-Dwarnings", "--cfg", "simulated"].join("__CLIPPY_HACKERY__"))
}

/// Random operations on real files, 10,000 seeds on each backend; then as many of the programs on
/// the simulated machine, and all its mistakes that can be found; then many seeds of the simulator,
/// optimised, from one that the commit chooses.
pub(super) fn soak(context: &Context) -> Result<Outcome> {
    let sh = &context.sh;
    let variable = |name, other: &str| env::var(name).unwrap_or_else(|_| other.to_owned());
    let files = cmd!(sh, "cargo test -p nowait --test random");
    let machine = on_the_machine(cmd!(sh, "cargo test -p nowait-machine"));
    let objects = cmd!(sh, "cargo test -p nowait-objects");
    let mut outcome = count(files.env("NOWAIT_SEEDS", variable("NOWAIT_SEEDS", "10000")))?;
    outcome.add(count(machine.envs([("SEEDS", "10000"), ("MISTAKE_SEEDS", "10000")]))?);
    outcome.add(count(objects.env("SEEDS", "200000"))?);
    let seed = env::var("SIM_SEED").ok().or_else(|| context.commit());
    let (seed, seeds) = (seed.unwrap_or_else(|| "0".into()), variable("SOAK_SEEDS", "20000"));
    let simulator = cmd!(sh, "cargo run --release -p nowait-simulator -- --seed {seed}");
    process::run(
        simulator
            .args(["--seeds", &seeds])
            .env_remove("SIM_SEED")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
            .env("CARGO_TARGET_DIR", own_target("soak")),
    )?;
    Ok(outcome)
}

pub(super) fn examples(context: &Context) -> Result<Outcome> {
    build(context, EXAMPLES)?;
    examples::run()?;
    tutorials::run().map(|()| Outcome::default())
}

/// Builds a part of the workspace; with all jobs, all of it, as the tests have built it: alone a
/// part has other features, and its dependencies would be built once more.
fn build(context: &Context, part: &[&str]) -> Result<()> {
    let is_one_of_all = context.mode == Mode::OneOfAll;
    let part = if is_one_of_all { &["--workspace", "--all-targets"] } else { part };
    plain(cmd!(context.sh, "cargo build --features {FEATURES} {part...}")).map(drop)
}

/// The tests of the Python package, in an environment of their own.
pub(super) fn python(context: &Context) -> Result<Outcome> {
    test_python(context, &Interpreter::chosen()?)
}

/// The same with each interpreter that is here, and what came of it.
pub(super) fn pythons(context: &Context) -> Result<Outcome> {
    let (mut total, mut rows) = (Outcome::default(), Vec::new());
    for interpreter in Interpreter::all() {
        println!("\n{interpreter}");
        let outcome = test_python(context, &interpreter).unwrap_or_else(|error| {
            println!("{error:#}");
            Outcome::FAILED
        });
        rows.push(format!("{interpreter}: {outcome}"));
        total.add(outcome);
    }
    if rows.is_empty() {
        bail!("no CPython of those that the package is for");
    }
    rows.iter().for_each(|row| println!("{row}"));
    Ok(total)
}

/// Tests the Python package with an interpreter.
fn test_python(context: &Context, interpreter: &Interpreter) -> Result<Outcome> {
    build(context, PYTHON)?;
    let module = cmd!(context.sh, "cargo build --features {FEATURES} -p nowait-python");
    plain(interpreter.fit(module))?;
    let tests = crate::python::tests(&context.sh, interpreter)?;
    count(if context.is_quick() { tests } else { tests.env("NOWAIT_FULL", "1") })
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn what_a_job_builds_alone_has_the_features() {
        for part in [EXAMPLES, PYTHON] {
            let packages = part.chunks(2).take_while(|words| words[0] == "-p").flatten();
            let sh = process::shell().unwrap();
            let tree = cmd!(sh, "cargo tree --depth=0 --features {FEATURES}");
            process::output(tree.args(packages)).unwrap();
        }
    }
}
