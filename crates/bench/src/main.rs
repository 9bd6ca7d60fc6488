//! `nowait-bench`: the measurements of the `nowait` tool, without the tool.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nowait_bench::{
    CachedArgs, DemoArgs, PaperArgs, SubmitArgs, run_cached, run_demo, run_paper, run_submit,
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
    /// Measure our own page cache against every peer, and check it against the targets.
    Cached(CachedArgs),
    /// Repeat the sources' experiments in virtual time, on a model of a device.
    Paper(PaperArgs),
    /// Show in under 90 seconds what nowait does to a program that nobody changed.
    Demo(DemoArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Submit(args) => run_submit(&args).map(drop),
        Command::Cached(args) => run_cached(&args).map(drop),
        Command::Paper(args) => run_paper(&args).map(drop),
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
