//! Development commands, called as `cargo x COMMAND`; the Makefile names them all.
//!
//! ```text
//!   make test ── cargo x ci ──┬─ fmt, clippy, tidy, doc     (tidy.rs, tidy/)
//!                             ├─ crates, the API            (crates.rs, api.rs)
//!                             ├─ dist                       (dist.rs, machine.rs, c_api.rs …)
//!                             ├─ test, skips                (outcome.rs, skips.rs)
//!                             ├─ examples                   (examples.rs, tutorials.rs)
//!                             ├─ python                     (python.rs, interpreter.rs)
//!                             └─ loom, simulated, miri      (ci/)
//!   make wheel ── cargo x wheel                               (wheels.rs)
//!   make docs ── cargo x docs                                (docs.rs)
//!   make install ── cargo x install                          (install.rs)
//!   make deb rpm tarball oci sbom ── cargo x package KIND         (package.rs, packaging/)
//!   make crates ── cargo x package crates                        (crates.rs)
//! ```

mod api;
mod c_api;
mod ci;
mod crates;
mod debug_file;
mod dist;
mod docs;
mod examples;
mod install;
mod interpreter;
mod machine;
mod outcome;
mod package;
mod pattern;
mod places;
mod process;
mod python;
mod skips;
mod symbols;
mod tidy;
mod tool;
mod tutorials;
mod wheels;

use std::env;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo x COMMAND

  ci [--quick] [JOB...]
                run these jobs, or the quick form of all; `cargo x ci --list` names them
  dist [c-api | drop-ins | demo]
                fill dist/, or only what a C program needs, or the two libraries that programs
                are run with, or what `make demo` needs, and check what was linked
  dist NAME     the same for another machine, into dist/NAME: arm64 or musl
  install [--destdir=DIR] [--prefix=DIR] [--libdir=DIR]
                install what dist/ holds; below /usr/local, if no prefix is given
  uninstall     remove what `install` with the same options has installed
  package KIND  pack what dist/ holds into dist/packages: deb, rpm, tarball, oci or sbom;
                crates: those that are published, each built from its package
  wheel [TARGET...]
                the Python package as wheels in dist/wheels, for these targets or all
  docs          the documentation as a book, with rustdoc beside, in dist/docs
  api           write the list of the Rust API anew: crates/api/nowait/api.txt
  tidy          the rules that no other tool checks
  skips         fail when more tests were skipped than tests/skips.allowed permits
";

fn main() -> ExitCode {
    forget_package();
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["ci", jobs @ ..] => ci::run(jobs),
        ["job", mode, name] => ci::job(mode, name),
        ["dist"] => dist::run(machine::OWN),
        ["dist", "c-api"] => c_api::install(machine::OWN),
        ["dist", "drop-ins"] => dist::link_libraries(machine::OWN),
        ["dist", "demo"] => dist::run_for_demo(),
        ["dist", name] => machine::Machine::named(name).and_then(dist::run),
        ["docs"] => docs::run(),
        ["install", options @ ..] => install::run(options),
        ["package", "crates"] => crates::run(),
        ["package", kind] => package::run(kind),
        ["uninstall", options @ ..] => install::remove(options),
        ["api"] => api::write(),
        ["wheel", targets @ ..] => wheels::run(targets),
        ["tidy"] => tidy::run(),
        ["skips"] => skips::run(),
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

/// Removes the variables that `cargo run` set for this program: build scripts read them, and a
/// build below must not depend on its caller.
fn forget_package() {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            // SAFETY: no other thread exists yet.
            unsafe { env::remove_var(&name) };
        }
    }
}
