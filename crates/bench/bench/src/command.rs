//! The measurements by name.

use clap::Subcommand;

use crate::error::Result;
use crate::fio::{
    DemoArgs, POSIX_EXAMPLES, ParityArgs, SubmitArgs, run_demo, run_parity, run_submit,
};
use crate::paper::{PaperArgs, run_paper};
use crate::python::{PythonArgs, run_python};
use crate::vector::{VectorArgs, run_vector};
use crate::workload::{
    AioStressArgs, CachedArgs, CleanerArgs, GrowthArgs, LimitsArgs, PrefetchArgs, RandrwArgs,
    RawioArgs, run_aio_stress, run_cached, run_cleaner, run_growth, run_limits, run_prefetch,
    run_randrw, run_rawio,
};
use nowait_harness::compare::{CompareArgs, run_compare};
use nowait_programs::fairness::{FairnessArgs, run_fairness};
use nowait_programs::futures::{FuturesArgs, run_futures};
use nowait_programs::mixed::{MixedArgs, run_mixed};
use nowait_programs::programs::{ProgramsArgs, run_programs};
use nowait_programs::remote::{RemoteArgs, run_remote};
use nowait_programs::serve::{ServeBenchArgs, run_serve};

/// The subjects of measurements.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure the time inside io_submit, case by case, and check it against the targets.
    Submit(SubmitArgs),
    /// Measure POSIX AIO under fio's posixaio engine, and check it against the targets.
    #[command(after_help = POSIX_EXAMPLES)]
    Posix(SubmitArgs),
    /// Measure every kind of work of an unmodified libaio program with and without nowait.
    Parity(ParityArgs),
    /// Measure our own page cache against every peer, and check it against the targets.
    Cached(CachedArgs),
    /// Measure one request of many segments against many requests, on a direct file.
    Vector(VectorArgs),
    /// Measure what single requests wait for beside a context with thousands.
    Fairness(FairnessArgs),
    /// Measure reads as futures of Rust, nowait's against those of other crates.
    Futures(FuturesArgs),
    /// Serve sockets, a file and a timer from one context, against epoll with threads.
    Mixed(MixedArgs),
    /// Measure servers on the same image, by NBD and as a file, and check ours against the targets.
    #[command(visible_alias = "loop")]
    Serve(ServeBenchArgs),
    /// Measure images on an object store, with a network of a chosen delay before it.
    Remote(RemoteArgs),
    /// Measure real programs, unmodified, with and without nowait: QEMU and others as installed.
    Programs(ProgramsArgs),
    /// Measure the Python package against other ways to read files in an event loop.
    Python(PythonArgs),
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
    /// Measure what this machine does at best, beside what the kernel and nowait make of it.
    Limits(LimitsArgs),
    /// Measure what becomes of a request as requests, files, contexts and threads grow in number.
    Growth(GrowthArgs),
    /// Repeat the sources' experiments, in virtual time on a model or on a device that exists.
    Paper(PaperArgs),
    /// Compare two saved measurements, figure by figure.
    Compare(CompareArgs),
    /// Show in under 90 seconds what nowait does to an unmodified program.
    Demo(DemoArgs),
}

impl Bench {
    /// Measures, prints the figures, and writes the reports asked for; takes minutes.
    ///
    /// # Errors
    /// Something is missing, a run failed, a report cannot be written, the user asked to stop, or
    /// `--check` was given and a target is not met.
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Submit(args) => run_submit(args, "submit").map(drop),
            Self::Posix(args) => run_submit(args, "posix").map(drop),
            Self::Parity(args) => run_parity(args).map(drop),
            Self::Cached(args) => run_cached(args).map(drop),
            Self::Vector(args) => run_vector(args).map(drop),
            Self::Fairness(args) => run_fairness(args).map(drop),
            Self::Futures(args) => run_futures(args).map(drop),
            Self::Mixed(args) => run_mixed(args).map(drop),
            Self::Serve(args) => run_serve(args).map(drop),
            Self::Remote(args) => run_remote(args).map(drop),
            Self::Programs(args) => run_programs(args).map(drop),
            Self::Python(args) => run_python(args),
            Self::AioStress(args) => run_aio_stress(args).map(drop),
            Self::Rawio(args) => run_rawio(args).map(drop),
            Self::Randrw(args) => run_randrw(args).map(drop),
            Self::Cleaner(args) => run_cleaner(args).map(drop),
            Self::Prefetch(args) => run_prefetch(args).map(drop),
            Self::Limits(args) => run_limits(args).map(drop),
            Self::Growth(args) => run_growth(args).map(drop),
            Self::Paper(args) => run_paper(args).map(drop),
            Self::Compare(args) => run_compare(args),
            Self::Demo(args) => run_demo(args).map(drop),
        }
    }
}
