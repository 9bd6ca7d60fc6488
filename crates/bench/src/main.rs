//! `nowait-bench`: the measurements of the `nowait` tool, without the tool.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nowait_bench::{
    AioStressArgs, CachedArgs, CleanerArgs, CompareArgs, DemoArgs, FairnessArgs, MixedArgs,
    POSIX_EXAMPLES, PaperArgs, PrefetchArgs, RandrwArgs, RawioArgs, SubmitArgs, VectorArgs,
    run_aio_stress, run_cached, run_cleaner, run_compare, run_demo, run_fairness, run_mixed,
    run_paper, run_posix, run_prefetch, run_randrw, run_rawio, run_submit, run_vector,
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
    /// Measure one request of many segments against many requests, on a direct file.
    Vector(VectorArgs),
    /// Measure what single requests wait for beside a context with thousands.
    Fairness(FairnessArgs),
    /// Serve sockets, a file and a timer from one context, against epoll with threads.
    Mixed(MixedArgs),
    /// Stream reads and writes of an uncached file through every engine, as aio-stress does.
    AioStress(AioStressArgs),
    /// Measure asynchronous requests against synchronous threads, as rawiobench does.
    Rawio(RawioArgs),
    /// Measure the time inside submit of random reads and writes, by mode of submit.
    Randrw(RandrwArgs),
    /// Measure page cleaners of a database, one with asynchronous I/O against many without.
    Cleaner(CleanerArgs),
    /// Measure prefetchers of a database, one with asynchronous I/O against many without.
    Prefetch(PrefetchArgs),
    /// Repeat the sources' experiments, in virtual time on a model or on a device that exists.
    Paper(PaperArgs),
    /// Compare two saved measurements, figure by figure.
    Compare(CompareArgs),
    /// Show in under 90 seconds what nowait does to a program that nobody changed.
    Demo(DemoArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Submit(args) => run_submit(&args).map(drop),
        Command::Posix(args) => run_posix(&args).map(drop),
        Command::Cached(args) => run_cached(&args).map(drop),
        Command::Vector(args) => run_vector(&args),
        Command::Fairness(args) => run_fairness(&args),
        Command::Mixed(args) => run_mixed(&args),
        Command::AioStress(args) => run_aio_stress(&args).map(drop),
        Command::Rawio(args) => run_rawio(&args).map(drop),
        Command::Randrw(args) => run_randrw(&args).map(drop),
        Command::Cleaner(args) => run_cleaner(&args).map(drop),
        Command::Prefetch(args) => run_prefetch(&args).map(drop),
        Command::Paper(args) => run_paper(&args).map(drop),
        Command::Compare(args) => run_compare(&args),
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
