//! The measurements as commands.

use clap::Subcommand;

use crate::error::Result;
use crate::fio::{
    DemoArgs, POSIX_EXAMPLES, ParityArgs, SubmitArgs, run_demo, run_parity, run_submit,
};
use crate::paper::{PaperArgs, run_paper};
use crate::python::{PythonArgs, run_python};
use crate::workload::{self, WorkloadArgs, run_workload};
use nowait_harness::compare::{CompareArgs, run_compare};
use nowait_programs::futures::{FuturesArgs, run_futures};
use nowait_programs::kv::{KvArgs, run_kv};
use nowait_programs::programs::{self, run_programs};
use nowait_programs::remote::{RemoteArgs, run_remote};
use nowait_programs::serve::{ServeBenchArgs, run_serve};

/// The measurements, each a command of `nowait bench`.
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
    #[command(after_help = workload::CACHED.examples)]
    Cached(WorkloadArgs),
    /// Measure one request of many segments against many requests, on a direct file.
    #[command(after_help = workload::VECTOR.examples)]
    Vector(WorkloadArgs),
    /// Measure reads as futures of Rust, nowait's against those of other crates.
    Futures(FuturesArgs),
    /// Measure servers on the same image, by NBD and as a file, and check ours against the targets.
    #[command(visible_alias = "loop")]
    Serve(ServeBenchArgs),
    /// Measure images on an object store, with a network of a chosen delay before it.
    Remote(RemoteArgs),
    /// Measure real programs, unmodified, with and without nowait: QEMU and others as installed.
    #[command(after_help = programs::EXAMPLES)]
    Programs(programs::RunArgs),
    /// Measure tiers of KV caches of language models, and NIXL, with and without nowait.
    Kv(KvArgs),
    /// Measure the Python package against other ways to read files in an event loop.
    Python(PythonArgs),
    /// Stream reads and writes of an uncached file through every engine, as aio-stress does.
    #[command(after_help = workload::AIO_STRESS.examples)]
    AioStress(WorkloadArgs),
    /// Measure asynchronous requests against synchronous threads, as rawiobench does.
    #[command(after_help = workload::RAWIO.examples)]
    Rawio(WorkloadArgs),
    /// Measure the time inside submit of random reads and writes, by mode of submit.
    #[command(after_help = workload::RANDRW.examples)]
    Randrw(WorkloadArgs),
    /// Measure what this machine does at best, beside what the kernel and nowait make of it.
    #[command(after_help = workload::LIMITS.examples)]
    Limits(WorkloadArgs),
    /// Measure what becomes of a request as requests, files, contexts and threads grow in number.
    #[command(after_help = workload::GROWTH.examples)]
    Growth(WorkloadArgs),
    /// Repeat the sources' experiments, in virtual time on a model or on a device that exists.
    Paper(PaperArgs),
    /// Compare two saved measurements, figure by figure.
    Compare(CompareArgs),
    /// Carry out one run: a measurement calls itself with this.
    #[command(hide = true)]
    Job {
        /// The work, as JSON
        job: String,
    },
    /// Show in under 90 seconds what nowait does to an unmodified program.
    Demo(DemoArgs),
}

impl Bench {
    /// Carries out the command. Most commands take minutes.
    ///
    /// # Errors
    /// Something is missing, a run failed, a report cannot be written, the user asked to stop, or
    /// `--check` was given and a target is not met.
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Submit(args) => run_submit(args, "submit").map(drop),
            Self::Posix(args) => run_submit(args, "posix").map(drop),
            Self::Parity(args) => run_parity(args).map(drop),
            Self::Cached(args) => run_workload(&workload::CACHED, args).map(drop),
            Self::Vector(args) => run_workload(&workload::VECTOR, args).map(drop),
            Self::Futures(args) => run_futures(args).map(drop),
            Self::Serve(args) => run_serve(args).map(drop),
            Self::Remote(args) => run_remote(args).map(drop),
            Self::Programs(args) => run_programs(args).map(drop),
            Self::Kv(args) => run_kv(args).map(drop),
            Self::Python(args) => run_python(args),
            Self::AioStress(args) => run_workload(&workload::AIO_STRESS, args).map(drop),
            Self::Rawio(args) => run_workload(&workload::RAWIO, args).map(drop),
            Self::Randrw(args) => run_workload(&workload::RANDRW, args).map(drop),
            Self::Limits(args) => run_workload(&workload::LIMITS, args).map(drop),
            Self::Growth(args) => run_workload(&workload::GROWTH, args).map(drop),
            Self::Paper(args) => run_paper(args).map(drop),
            Self::Compare(args) => run_compare(args),
            Self::Job { job } => nowait_peers::run(job),
            Self::Demo(args) => run_demo(args).map(drop),
        }
    }
}
