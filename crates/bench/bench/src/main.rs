//! `nowait-bench`, the program that `nowait bench` starts.

use clap::{CommandFactory, Parser, Subcommand};
use nowait_bench::Bench;
use nowait_terminal::{Description, explain, man_pages};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The command line of `nowait`, of which this program carries out the command `bench`.
#[derive(Debug, Parser)]
#[command(name = "nowait", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure programs, servers and page caches with and without nowait, by turns.
    #[command(subcommand, after_help = SHORT, after_long_help = EXAMPLES)]
    Bench(Box<Bench>),
    /// Describe the command for completions, as JSON.
    #[command(hide = true)]
    Describe,
    /// Write the manual pages of the command into a directory.
    #[command(hide = true)]
    Man { dir: PathBuf },
}

const SHORT: &str = "\
Examples:
  nowait bench demo                      one table in under 90 seconds
  nowait bench submit --quick --case a   one case, short
  nowait bench compare a.json b.json     two saved measurements";

const EXAMPLES: &str = "\
Examples:
  nowait bench demo                      one table in under 90 seconds
  nowait bench submit --quick --case a   one case, short
  nowait bench posix --quick             POSIX AIO against the C library's
  nowait bench cached --quick            our own page cache, every case
  nowait bench vector                    one request of many segments against many
  nowait bench serve --quick             servers of images, every case
  nowait bench programs --quick          real programs as installed, with and without
  nowait bench kv --quick                KV caches of language models, vLLM's and NIXL's
  nowait bench aio-stress --quick        every engine on an uncached file
  nowait bench rawio --quick             asynchronous requests against 160 threads
  nowait bench paper                     the sources' tables, simulated
  nowait bench paper --device /var/tmp   … on this disk, with all peers
  nowait bench compare a.json b.json     two saved measurements";

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(line(std::env::args_os().skip(1).collect())) {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let outcome = match &cli.command {
        Command::Bench(which) => which.run().map(|()| ExitCode::SUCCESS),
        Command::Describe => Description::print_below(Cli::command()),
        Command::Man { dir } => man_pages(Cli::command(), dir, |page| page != "nowait"),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn line(words: Vec<OsString>) -> Vec<OsString> {
    let is_bench = !words.first().is_some_and(|word| word == "describe" || word == "man");
    let command = is_bench.then_some("bench");
    ["nowait"].into_iter().chain(command).map(OsString::from).chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn its_arguments_are_those_of_nowait_bench() {
        let line = |words: &[&str]| super::line(words.iter().map(OsString::from).collect());
        assert_eq!(line(&["submit", "--quick"]), ["nowait", "bench", "submit", "--quick"]);
        assert_eq!(line(&[]), ["nowait", "bench"]);
        assert_eq!(line(&["man", "/pages"]), ["nowait", "man", "/pages"]);
    }
}
