//! Development commands, called as `cargo x COMMAND`. `cargo x help` lists the commands for people.
//!
//! ```text
//!   make test ── cargo x ci, ci.sh ──┬─ tidy                 (tidy.rs, tidy/)
//!                                    ├─ the API in doc       (api.rs)
//!                                    ├─ dist                 (dist.rs, machine.rs, c_api.rs …)
//!                                    ├─ python               (python.rs, interpreter.rs)
//!                                    └─ fmt, test, loom …    (outcome.rs)
//!   make wheel ── cargo x wheel                              (wheels.rs)
//!   make docs ── docs.sh
//!   make install deb rpm tarball oci sbom crates ── packaging/{install,pack,crates}.sh
//! ```

mod api;
mod c_api;
mod ci;
mod debug_file;
mod dist;
mod interpreter;
mod machine;
mod outcome;
mod pattern;
mod places;
mod process;
mod python;
mod rustdoc;
mod symbols;
mod tidy;
mod wheels;

use std::env;
use std::process::ExitCode;

/// With the same features in all builds, cargo compiles each crate of the workspace only once.
const FEATURES: &str = "nowait/futures-io,nowait/tokio";

const HELP: &str = "\
Usage: cargo x COMMAND

  ci [--quick] [JOB...]
                run these jobs, or the quick form of all; `cargo x ci --list` names them
  dist [c-api | drop-ins | demo]
                fill dist/, or only what a C program needs, or the two libraries that programs
                are run with, or what `make demo` needs, and check what was linked
  dist NAME     the same for another machine, into dist/NAME: arm64 or musl
  wheel [TARGET...]
                the Python package as wheels in dist/wheels, for these targets or all
  api           write the list of the Rust API anew: crates/api/nowait/api.txt
  tidy          the rules that no other tool checks
";

fn main() -> ExitCode {
    forget_package();
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["ci", jobs @ ..] => ci::run(jobs),
        ["dist"] => dist::run(machine::OWN),
        ["dist", "c-api"] => c_api::install(machine::OWN),
        ["dist", "drop-ins"] => dist::link_libraries(machine::OWN),
        ["dist", "demo"] => dist::run_for_demo(),
        ["dist", name] => machine::Machine::named(name).and_then(dist::run),
        ["api"] => api::write(),
        ["wheel", targets @ ..] => wheels::run(targets),
        ["tidy"] => tidy::run(),
        // Scripts call the commands from here to `python install`; the help does not list them.
        ["api", "check"] => api::check(),
        ["features"] => {
            println!("{FEATURES}");
            Ok(())
        }
        ["python"] => python::run(false),
        ["python", "all"] => python::run(true),
        ["python", "install", folder] => python::install(folder.as_ref()),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Build scripts read the variables of `cargo run`, and a build must not depend on its caller.
fn forget_package() {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            // SAFETY: no other thread exists yet.
            unsafe { env::remove_var(&name) };
        }
    }
}
