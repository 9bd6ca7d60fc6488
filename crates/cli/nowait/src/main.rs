//! The `nowait` command.
//!
//! ```text
//!  args ──► main ─┬─ run        sets the environment and becomes PROGRAM
//!                 │   ├─ libraries   where the shared objects are, and if they load
//!                 │   └─ elf         the headers of PROGRAM
//!                 ├─ enable     a drop-in for a systemd service
//!                 │   ├─ systemd     unit files, as systemd reads them
//!                 │   └─ program     if nowait can help its program
//!                 ├─ status     units with a drop-in, processes with a library
//!                 ├─ top        servers and processes, at an interval
//!                 ├─ doctor     collects what nowait_block::probe finds; text or JSON
//!                 ├─ companion  becomes nowait-serve (serve, image) or nowait-bench (bench)
//!                 └─ man, completions
//! ```

mod args;
mod companion;
mod doctor;
mod elf;
mod enable;
mod libraries;
mod program;
mod run;
mod status;
mod systemd;
mod top;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use companion::Companion;
use nowait_sys::broken_pipe;
use nowait_terminal::{Result, explain, man_page, man_pages};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Runs before Rust's runtime ignores SIGPIPE.
// SAFETY: the C library calls the functions of this section, and this one needs no runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = broken_pipe::note;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(job) = companion::job(&words) {
        return job.run().report();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let outcome = match &cli.command {
        Command::Run(args) => Err(run::run(args)),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Enable(args) => enable::enable(args),
        Command::Disable(args) => enable::disable(args),
        Command::Status(args) => status::status(args),
        Command::Top(args) => top::top(args),
        Command::Completions { shell } => completions(*shell),
        Command::Man { dir } => man(dir.as_deref()),
        Command::Serve | Command::Image | Command::Bench => unreachable!("jobs of companions"),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut described: Vec<_> = companion::ALL.into_iter().flat_map(Companion::commands).collect();
    let command = Cli::command().mut_subcommands(|command| {
        let found = described.iter().position(|it| it.name() == command.get_name());
        found.map_or(command, |at| described.swap_remove(at).command())
    });
    nowait_terminal::completions(command, shell)
}

fn man(dir: Option<&Path>) -> Result<ExitCode> {
    let Some(dir) = dir else { return man_page(Cli::command()) };
    man_pages(Cli::command(), dir, |page| !Companion::has_page(page))?;
    companion::ALL.into_iter().try_fold(ExitCode::SUCCESS, |_, it| it.write_pages(dir))
}
