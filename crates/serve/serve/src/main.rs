//! `nowait-serve`, the program behind `nowait serve` and `nowait image`.
//!
//! ```text
//!  args ──► main ─┬─ serve   images as block devices; the crate nowait-server
//!                 ├─ image   images on object stores; the crate nowait-image-store
//!                 │   └─ transfer   import and export
//!                 └─ describe, man: for `nowait completions` and `nowait man`
//! ```

mod args;
mod image;
mod transfer;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use nowait_terminal::{Description, Failure, Result, explain, man_pages};
use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Help and error messages show the command as a command of `nowait`.
    let words = [OsString::from("nowait")].into_iter().chain(env::args_os().skip(1));
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let outcome = match &cli.command {
        Command::Serve(args) => serve(args),
        Command::Image(command) => image::image(command),
        Command::Describe => Description::print_below(Cli::command()),
        Command::Man { dir } => man_pages(Cli::command(), dir, |page| page != "nowait"),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn serve(args: &nowait_server::ServeArgs) -> Result<ExitCode> {
    let served = nowait_server::serve(args);
    served.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::new(error.to_string()))
}
