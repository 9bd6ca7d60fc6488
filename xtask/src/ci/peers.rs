//! The programs with other crates, which nothing else builds: each is linted, built, and run once.

use super::{Context, End, own_target};
use crate::process::{self, Result};

/// A program: its folder in that of the benchmarks is called so, and so is the job.
struct Peer {
    name: &'static str,
    /// What of `nowait bench` runs it.
    words: &'static [&'static str],
    /// The option for the program.
    option: &'static str,
}

/// The runtimes of other crates.
pub(super) fn futures(context: &Context) -> Result<End> {
    let words = &["futures", "--size", "64M"];
    Peer { name: "futures", words, option: "--program" }.check(context)
}

/// SlateDB, and a plain client of object stores.
pub(super) fn stores(context: &Context) -> Result<End> {
    const STORE: &str = ".stamps/stores/versitygw";
    if !process::root().join(STORE).exists() {
        return Ok(End::Skipped(format!("{STORE} is not there: setup builds it with go")));
    }
    const CASES: &str = "flush,flush-16,flush-64,read,read-16,sequential,killed";
    let words = &["remote", "--size", "16M", "--delay", "1", "--store", STORE, "--case", CASES];
    Peer { name: "stores", words, option: "--peers" }.check(context)
}

impl Peer {
    fn check(&self, context: &Context) -> Result<End> {
        let manifest = format!("crates/bench/bench/{}/Cargo.toml", self.name);
        let target = own_target(self.name);
        for what in [&["clippy", "--release"][..], &["build", "--release"]] {
            let mut command =
                context.cargo(&[what, &["--locked", "--manifest-path", &manifest]].concat());
            command.env("CARGO_TARGET_DIR", &target);
            context.plain(command)?;
        }
        let program = target.join(format!("release/nowait-bench-{}", self.name));
        let program = program.display().to_string();
        // The tool serves and edits the images of stores.
        let tool = process::root().join("dist/bin/nowait").display().to_string();
        let mut bench = process::command(&tool, &["bench"]);
        bench.args(self.words).args(["--quick", "--rounds", "1", self.option, &program]);
        context.plain(bench)
    }
}
