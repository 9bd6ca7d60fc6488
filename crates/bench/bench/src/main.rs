//! `nowait-bench`: the measurements of the `nowait` tool, without the tool.

use std::process::ExitCode;

use clap::Parser;
use nowait_bench::Bench;

#[derive(Parser)]
#[command(version, about = "Measure an unmodified fio with and without nowait")]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

fn main() -> ExitCode {
    match Cli::parse().bench.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nowait-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
