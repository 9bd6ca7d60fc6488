//! `nowait-bench`: the measurements of the `nowait` tool, without the tool.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nowait_bench::{
    CachedArgs, DemoArgs, POSIX_EXAMPLES, SubmitArgs, run_cached, run_demo, run_posix, run_submit,
};

#[derive(Parser)]
#[command(version, about = "Measure an unmodified fio with and without nowait")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the time inside `io_submit`, case by case, and check it against the targets.
    Submit(SubmitArgs),
    /// Measure POSIX AIO under fio's posixaio engine, and check it against the targets.
    #[command(after_help = POSIX_EXAMPLES)]
    Posix(SubmitArgs),
    /// Measure our own page cache against every peer, and check it against the targets.
    Cached(CachedArgs),
    /// Show in under 90 seconds what nowait does to a program that nobody changed.
    Demo(DemoArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Submit(args) => run_submit(&args).map(drop),
        Command::Posix(args) => run_posix(&args).map(drop),
        Command::Cached(args) => run_cached(&args).map(drop),
        Command::Demo(args) => run_demo(&args).map(drop),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nowait-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
