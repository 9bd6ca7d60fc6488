//! The jobs that need the nightly compiler: Miri, the sanitizers, fuzzing.

use std::env;

use anyhow::{Context as _, Result};
use xshell::{Cmd, cmd};

use super::{Context, count, own_target, plain, skip};
use crate::examples::FEATURES;
use crate::outcome::Outcome;
use crate::process;

impl Context {
    fn nightly(&self, args: &str) -> Cmd<'_> {
        cmd!(self.sh, "rustup run nightly cargo").args(args.split_whitespace())
    }

    /// Returns why a component of the nightly toolchain cannot be used.
    fn nightly_lacks(&self, component: &str) -> Option<String> {
        let list = cmd!(self.sh, "rustup component list --toolchain nightly --installed");
        match process::output(list) {
            Err(_) => Some(String::from("no nightly toolchain")),
            Ok(list) if list.lines().any(|line| line.starts_with(component)) => None,
            Ok(_) => Some(format!("the nightly toolchain has no component {component}")),
        }
    }

    /// Returns the target that the compiler builds for by default.
    fn host(&self) -> Result<String> {
        let version = process::output(cmd!(self.sh, "rustc -vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        host.map(str::to_owned).context("rustc -vV names no host")
    }
}

/// Files and the time are the real ones, addresses pass through system calls as numbers, and no
/// transfer is cut short by chance.
const MIRI_FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-permissive-provenance \
    -Zmiri-no-short-fd-operations";

/// Runs under Miri: package and tests, the filters of the quick form, and those of the full one.
/// Of the cache without those of safe code, which take millions of steps; quick, where frames
/// change hands. Then whole requests of futures on the workers' backend; quick, those whose buffers
/// have two owners for a while.
const MIRI: &[(&str, &str, &str)] = &[
    ("nowait-retry --lib", "", ""),
    (
        "nowait-cache --lib",
        "buddy frames page_wait lend mapping::tests::trunc threads",
        "--skip policy --skip readahead",
    ),
    ("nowait --lib", "operation reactor", "operation reactor"),
    ("nowait --test stream_vectors", "dropped cancelled", ""),
];

pub(super) fn miri(context: &Context) -> Result<Outcome> {
    if let Some(why) = context.nightly_lacks("miri") {
        return Ok(skip(&why));
    }
    let mut outcome = Outcome::default();
    for (of, quick, full) in MIRI {
        let filter = if context.is_quick() { quick } else { full };
        let test = context.nightly(&format!("miri test -p {of} -- {filter}"));
        let test = test.env("CARGO_TARGET_DIR", own_target("miri")).env("MIRIFLAGS", MIRI_FLAGS);
        let cases = if context.is_quick() { "4" } else { "32" };
        outcome.add(count(test.env("PROPTEST_CASES", cases))?);
    }
    Ok(outcome)
}

pub(super) fn asan(context: &Context) -> Result<Outcome> {
    sanitize(context, "address")
}

pub(super) fn tsan(context: &Context) -> Result<Outcome> {
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

fn sanitize(context: &Context, sanitizer: &str) -> Result<Outcome> {
    if let Some(why) = context.nightly_lacks("rust-src") {
        return Ok(skip(&why));
    }
    let (sh, host, target) = (&context.sh, context.host()?, own_target(sanitizer));
    // The standard library is built with the sanitizer too, else its atomics look like races.
    let mut test = context
        .nightly(&format!("test -Zbuild-std --target {host} --no-fail-fast --lib"))
        .args(["--features", FEATURES])
        .args(SANITIZED.split(' ').flat_map(|package| ["-p", package]))
        .args(SANITIZED_TESTS.split(' ').flat_map(|test| ["--test", test]));
    if env::var_os("NOWAIT_SEEDS").is_none() {
        test = test.env("NOWAIT_SEEDS", "4");
    }
    // A thread of the engine has descriptors of its own, and no standard error among them: what it
    // wrote to number 2 would be lost, or go into another file.
    let reports = target.join("reports");
    sh.remove_path(&reports)?;
    sh.create_dir(&reports)?;
    let options = format!("halt_on_error=1:log_path={}/report", reports.display());
    let suppressions = process::root().join("xtask/thread.suppressions");
    let outcome = count(
        test.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
            .env("NOWAIT_SANITIZER", sanitizer)
            .env("CARGO_TARGET_DIR", target)
            .env("ASAN_OPTIONS", &options)
            .env("TSAN_OPTIONS", format!("{options}:suppressions={}", suppressions.display())),
    );
    for report in sh.read_dir(&reports)? {
        let text = sh.read_binary_file(&report)?;
        println!("{}:\n{}", report.display(), String::from_utf8_lossy(&text));
    }
    outcome
}

/// Flags that cargo-fuzz sets: edges counted, compared values seen, memory checked.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Fuzzes each target for `FUZZ_SECONDS` from its corpus, which keeps what is new.
pub(super) fn fuzz(context: &Context) -> Result<Outcome> {
    if let Some(why) = context.nightly_lacks("rust-std") {
        return Ok(skip(&why));
    }
    let seconds = env::var("FUZZ_SECONDS").unwrap_or_else(|_| String::from("60"));
    let host = context.host()?;
    for target in ["nbd_handshake", "nbd_requests", "vhost_queue", "log_object", "log_store"] {
        let build = format!("run --release --manifest-path fuzz/Cargo.toml --target {host}");
        let run = format!("--bin {target} -- fuzz/corpus/{target} -max_total_time={seconds}");
        let fuzz = context.nightly(&format!("{build} {run} -max_len=70000 -rss_limit_mb=2048"));
        plain(fuzz.env("RUSTFLAGS", FUZZ_FLAGS).env("CARGO_TARGET_DIR", own_target("fuzz")))?;
    }
    Ok(Outcome::default())
}
