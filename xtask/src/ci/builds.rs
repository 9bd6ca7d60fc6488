//! The jobs that build and look: no tests are counted.

use anyhow::Result;
use xshell::cmd;

use super::{Context, own_target, plain, skip};
use crate::examples::FEATURES;
use crate::outcome::Outcome;
use crate::{api, machine, process};

pub(super) fn fmt(context: &Context) -> Result<Outcome> {
    plain(cmd!(context.sh, "cargo fmt --all --check"))
}

pub(super) fn tidy(_: &Context) -> Result<Outcome> {
    crate::tidy::run().map(|()| Outcome::default())
}

pub(super) fn crates(_: &Context) -> Result<Outcome> {
    crate::crates::check().map(|()| Outcome::default())
}

pub(super) fn dist(_: &Context) -> Result<Outcome> {
    crate::dist::run(machine::OWN).map(|()| Outcome::default())
}

pub(super) fn clippy(context: &Context) -> Result<Outcome> {
    let clippy = cmd!(context.sh, "cargo clippy --workspace --all-targets --features {FEATURES}");
    plain(clippy.args(["--", "-D", "warnings"]))
}

/// Not the programs: the tool's name is that of the facade, and its files would collide. With the
/// examples, because then dependencies have the features with which clippy has checked them.
/// What the pages show of the API is compared with its list.
pub(super) fn doc(context: &Context) -> Result<Outcome> {
    let doc = cmd!(context.sh, "cargo doc --workspace --no-deps --lib --examples");
    plain(doc.args(["--features", FEATURES]).env("RUSTDOCFLAGS", "-D warnings"))?;
    api::check().map(|()| Outcome::default())
}

/// The runtimes of other crates.
pub(super) fn futures(context: &Context) -> Result<Outcome> {
    peer(context, "futures", &["futures", "--size", "64M"], "--program")
}

/// SlateDB, and a plain client of object stores.
pub(super) fn stores(context: &Context) -> Result<Outcome> {
    const STORE: &str = ".stamps/stores/versitygw";
    const CASES: &str = "flush,flush-16,flush-64,read,read-16,sequential,killed";
    if !context.sh.path_exists(STORE) {
        return Ok(skip(&format!("{STORE} is not there: setup builds it with go")));
    }
    let words = ["remote", "--size", "16M", "--delay", "1", "--store", STORE, "--case", CASES];
    peer(context, "stores", &words, "--peers")
}

/// Lints and builds a program with other crates, which nothing else builds, and runs it once by
/// `nowait bench`, whose `option` names it. Its folder in that of the benchmarks is called `name`.
fn peer(context: &Context, name: &str, words: &[&str], option: &str) -> Result<Outcome> {
    let (sh, target) = (&context.sh, own_target(name));
    let manifest = format!("crates/bench/bench/{name}/Cargo.toml");
    for what in ["clippy", "build"] {
        let command = cmd!(sh, "cargo {what} --release --locked --manifest-path {manifest}");
        process::run(command.env("CARGO_TARGET_DIR", &target))?;
    }
    let program = target.join(format!("release/nowait-bench-{name}"));
    // The tool serves and edits the images of stores.
    plain(cmd!(sh, "dist/bin/nowait bench {words...} --quick --rounds 1 {option} {program}"))
}
