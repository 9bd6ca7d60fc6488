//! `nowait doctor`: collects the results of the probes. `text` and `answer` render them for people.

mod answer;
mod process;
mod text;

use crate::args::{DoctorArgs, Via};
use crate::libraries;
use crate::program::{self, Help, Program};
use nowait_block::probe::{self, Answer, NowaitSupport, Probe, Refusal, Situation};
use nowait_sys::inspect;
use nowait_terminal::{Failure, Result, print, print_json};
use process::Process;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    version: &'static str,
    host: Host,
    backends: Vec<Backend>,
    auto: Auto,
    path: Option<PathReport>,
    libraries: Vec<Library>,
    /// Variables NOWAIT_* that are set, except NOWAIT_LIBDIR.
    environment: BTreeMap<String, String>,
    program: Option<ProgramReport>,
    /// Reasons why nowait cannot work, or why the path or the program cannot be examined.
    problems: Vec<String>,
    notes: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Host {
    kernel: String,
    gvisor: bool,
    /// `off`, `strict`, `filter` or `unknown`.
    seccomp: &'static str,
    io_uring_disabled: Option<u8>,
    aio_nr: Option<u64>,
    aio_max_nr: Option<u64>,
    memlock_bytes: Limit,
    nofile: Limit,
}

/// A soft and a hard limit; null means unlimited.
#[derive(Debug, Serialize)]
struct Limit {
    soft: Option<u64>,
    hard: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Backend {
    name: &'static str,
    usable: bool,
    refusal: Option<RefusalReport>,
    details: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct RefusalReport {
    call: &'static str,
    errno: i32,
    errno_name: &'static str,
    cause: &'static str,
    reason: String,
    advice: String,
}

#[derive(Debug, Serialize)]
struct Auto {
    backend: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
struct PathReport {
    path: String,
    file_system: String,
    nowait: Matrix,
    o_direct: bool,
    /// The name of the errno with which the probe of direct I/O failed; null if direct I/O works.
    o_direct_error: Option<&'static str>,
    memory_alignment: Option<u32>,
    offset_alignment: Option<u32>,
    /// The reason why writes wait here, and the remedy; null if no reason is known.
    advice: Option<&'static str>,
}

/// The results of reads and writes with RWF_NOWAIT: `yes`, `EAGAIN`, `EOPNOTSUPP`, …
#[derive(Debug, Serialize)]
struct Matrix {
    buffered_read: String,
    buffered_write: String,
    direct_read: String,
    direct_write: String,
}

#[derive(Debug, Serialize)]
struct Library {
    name: &'static str,
    path: Option<String>,
    loads: bool,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct ProgramReport {
    path: String,
    interpreter: Option<String>,
    helps: Help,
    reason: String,
    links_liburing: bool,
    /// The process, if `--program` gave its number.
    process: Option<Process>,
}

const NOTES: &[&str] = &["programs that issue the system calls themselves, inline (some language \
     bindings, static programs), bypass any library; calls through libc's syscall() (nginx, \
     MariaDB) are seen by the preload library only"];

/// The exit code is 1 if the report has problems.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let report = Report::collect(args);
    match &report.program {
        _ if args.json => print_json(&report)?,
        None if args.program.is_some() => return Err(Failure::new(report.problems.join("; "))),
        Some(program) => print(answer::render(&report, program).as_bytes())?,
        None => print(text::render(&report).as_bytes())?,
    };
    Ok(ExitCode::from(u8::from(!report.problems.is_empty())))
}

impl Report {
    fn collect(args: &DoctorArgs) -> Report {
        let probes = [probe::uring(), probe::kaio(), probe::threads()];
        let choice = probe::choose(&probes[..2]);
        let mut problems = Vec::new();
        let path = probe::nowait_support(&args.path)
            .map_err(|errno| problems.push(format!("{}: {errno}", args.path.display())))
            .ok()
            .map(|support| PathReport::new(&args.path, support));
        let program = look_at_program(args)
            .map_err(|problem| problems.insert(0, problem))
            .ok()
            .flatten()
            .map(|(program, process)| ProgramReport::new(&program, process));
        let libraries: Vec<_> = [Via::Preload, Via::Libaio].map(Library::check).into();
        problems.extend(libraries.iter().filter_map(|library| library.error.clone()));
        if let Err(refusal) = &probes[2].usable {
            problems.push(format!("threads: {refusal}"));
        }
        Report {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            host: Host::look(),
            backends: probes.iter().map(Backend::new).collect(),
            auto: Auto { backend: choice.backend, reason: choice.reason },
            path,
            libraries,
            environment: environment(),
            program,
            problems,
            notes: NOTES.to_vec(),
        }
    }
}

/// Without `--program`, inspects the argument `path` if it is an executable file.
fn look_at_program(
    args: &DoctorArgs,
) -> std::result::Result<Option<(Program, Option<Process>)>, String> {
    let Some(name) = &args.program else {
        let path = &args.path;
        return Ok(program::is_executable(path).then(|| (program::look_at(path), None)));
    };
    if let Some(path) = program::find(name.as_os_str()).filter(|path| path.is_file()) {
        return Ok(Some((program::look_at(&path), None)));
    }
    match Process::look(Path::new("/proc"), name.as_os_str()) {
        Some((process, path)) => {
            let seen = program::look_at(&process.executable(Path::new("/proc")));
            Ok(Some((Program { path, ..seen }, Some(process))))
        }
        None => Err(format!("{}: no such program or process", name.display())),
    }
}

fn environment() -> BTreeMap<String, String> {
    let ours = std::env::vars_os().filter(|(name, _)| libraries::is_ours(name));
    let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
    ours.map(|(name, value)| (text(name), text(value))).collect()
}

impl Host {
    fn look() -> Host {
        let seen = Situation::current();
        Host {
            gvisor: seen.is_gvisor(),
            seccomp: match seen.seccomp {
                Some(0) => "off",
                Some(1) => "strict",
                Some(_) => "filter",
                None => "unknown",
            },
            io_uring_disabled: seen.uring_disabled,
            aio_nr: seen.aio_slots.map(|(used, _)| used),
            aio_max_nr: seen.aio_slots.map(|(_, max)| max),
            memlock_bytes: Limit::new(seen.memlock),
            nofile: Limit::new(inspect::nofile_limit()),
            kernel: seen.kernel,
        }
    }
}

impl Limit {
    fn new((soft, hard): (u64, u64)) -> Limit {
        let finite = |value: u64| (value != u64::MAX).then_some(value);
        Limit { soft: finite(soft), hard: finite(hard) }
    }
}

impl Backend {
    fn new(probe: &Probe) -> Backend {
        let describe = |found: &std::result::Result<String, Refusal>| match found {
            Ok(text) => text.clone(),
            Err(refusal) => format!("no: {refusal}"),
        };
        Backend {
            name: probe.backend,
            usable: probe.usable.is_ok(),
            refusal: probe.usable.as_ref().err().map(RefusalReport::new),
            details: probe.details.iter().map(|it| (it.name, describe(&it.found))).collect(),
        }
    }
}

impl RefusalReport {
    fn new(refusal: &Refusal) -> RefusalReport {
        RefusalReport {
            call: refusal.call,
            errno: refusal.errno.raw(),
            errno_name: refusal.errno.name(),
            cause: refusal.cause_name(),
            reason: refusal.to_string(),
            advice: refusal.advice(),
        }
    }
}

impl PathReport {
    fn new(path: &Path, support: NowaitSupport) -> PathReport {
        let (alignment, waits) = (support.direct.ok(), timestamps_wait(&support));
        PathReport {
            path: path.display().to_string(),
            file_system: support.file_system,
            nowait: Matrix {
                buffered_read: answer(&support.buffered_read),
                buffered_write: answer(&support.buffered_write),
                direct_read: answer(&support.direct_read),
                direct_write: answer(&support.direct_write),
            },
            advice: waits.then_some(
                "writes wait for timestamps: use Linux 7.0 or newer, and mount with lazytime",
            ),
            o_direct: support.direct.is_ok(),
            o_direct_error: support.direct.err().map(nowait_sys::Errno::name),
            memory_alignment: alignment.map(|it| it.memory),
            offset_alignment: alignment.map(|it| it.offset),
        }
    }
}

/// XFS updates timestamps in a transaction (xfs_vn_update_time), so the first write in each tick of
/// the clock waits, even if it allocates nothing.
fn timestamps_wait(support: &NowaitSupport) -> bool {
    let waits = |answer: &Answer| matches!(answer, Answer::WouldWait);
    support.file_system == "xfs" && (waits(&support.buffered_write) || waits(&support.direct_write))
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Yes => "yes".to_owned(),
        Answer::WouldWait => "EAGAIN".to_owned(),
        Answer::Unsupported => "EOPNOTSUPP".to_owned(),
        Answer::Refused(refusal) => refusal.to_string(),
        Answer::Untested(errno) => format!("not tried: {}", errno.name()),
    }
}

impl Library {
    fn check(via: Via) -> Library {
        let name = via.file_name();
        let found = libraries::find(via);
        let loads = found.as_ref().map_err(Failure::to_string).and_then(|path| {
            let complain = |failure: Failure| format!("{name} does not load: {failure}");
            libraries::try_load(path).map_err(complain)
        });
        Library {
            name,
            path: found.as_ref().ok().map(|path| path.display().to_string()),
            loads: loads.is_ok(),
            error: loads.err(),
        }
    }
}

impl ProgramReport {
    fn new(program: &Program, process: Option<Process>) -> ProgramReport {
        let (helps, reason) = program.verdict();
        ProgramReport {
            path: program.path.display().to_string(),
            interpreter: program.interpreter.as_ref().map(|it| it.display().to_string()),
            helps,
            reason,
            links_liburing: program.links_liburing(),
            process,
        }
    }
}
