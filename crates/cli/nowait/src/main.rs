//! The `nowait` command.
//!
//! ```text
//!  args ──► main ─┬─ run        sets the environment and becomes PROGRAM
//!                 │   ├─ libraries   where the shared objects are, and whether they load
//!                 │   └─ elf         whether PROGRAM can be helped
//!                 ├─ enable     a drop-in for a systemd service; container: lines for others
//!                 │   ├─ systemd     unit files, as systemd reads them
//!                 │   └─ program     whether its program can be helped
//!                 ├─ status     units that are enabled, processes that are served
//!                 ├─ doctor     collects what nowait_engine::probe finds; text or JSON
//!                 ├─ serve, top images as block devices, and their status; the crate nowait-server
//!                 ├─ image      images on object stores; the crate nowait-image-store
//!                 ├─ bench      the measurements of the crate nowait-bench
//!                 └─ man, completions
//! ```

mod args;
mod container;
mod doctor;
mod elf;
mod enable;
mod error;
mod image;
mod libraries;
mod program;
mod run;
mod status;
mod systemd;
mod table;
mod transfer;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use error::{Failure, Result};
use nowait_server::printable;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::explain(&error),
    };
    let outcome = match &cli.command {
        Command::Run(args) => Err(run::run(args)),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Enable(args) => match args.container {
            Some(kind) => container::lines(args, kind),
            None => enable::enable(args),
        },
        Command::Disable(args) => enable::disable(args),
        Command::Status(args) => status::status(args),
        Command::Bench(which) => bench(which),
        Command::Serve(args) => served(nowait_server::serve(args)),
        Command::Image(command) => image::image(command),
        Command::Top(args) => served(nowait_server::top(args)),
        Command::Completions { shell } => completions(*shell),
        Command::Man { dir } => man(dir.as_deref()),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn bench(which: &nowait_bench::Bench) -> Result<ExitCode> {
    which
        .run()
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::new(error.to_string()).with_code(error.exit_code()))
}

fn served(outcome: std::result::Result<(), nowait_server::ServeError>) -> Result<ExitCode> {
    outcome.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::new(error.to_string()))
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "nowait", &mut text);
    print(&text)
}

fn man(dir: Option<&Path>) -> Result<ExitCode> {
    let failed = |error: std::io::Error| Failure::new(format!("man page: {error}"));
    let Some(dir) = dir else {
        let mut text = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut text).map_err(failed)?;
        return print(&text);
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes text to standard output, control characters of names as escapes; a reader that has gone
/// away (`| head`) is no failure.
fn print(text: &[u8]) -> Result<ExitCode> {
    write(&printable::printable(&String::from_utf8_lossy(text)))
}

/// Writes JSON to standard output, for programs and for people.
fn print_json(it: &impl Serialize) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(it).map_err(|error| Failure::new(error.to_string()))?;
    write(&(printable::json(&text) + "\n"))
}

fn write(text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
