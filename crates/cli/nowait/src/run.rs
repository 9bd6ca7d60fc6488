//! `nowait run`: sets the environment and executes the program in place of itself.

use crate::args::{Backend, Cache, Options, RunArgs, Submit};
use crate::{libraries, program};
use nowait_block::probe::{self, Probe};
use nowait_sys::broken_pipe;
use nowait_terminal::{Failure, Result, say};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) fn run(args: &RunArgs) -> Failure {
    match prepare(args) {
        Ok(mut command) => not_executed(&args.command[0], &command.exec()),
        Err(failure) => failure,
    }
}

fn prepare(args: &RunArgs) -> Result<Command> {
    let options = &args.options;
    check(options)?;
    let (name, rest) = args.command.split_first().expect("clap requires a PROGRAM");
    let library = libraries::find(options.via)?;
    require(options.backend)?;
    if let Some(warning) = program::find(name).and_then(|path| program::look_at(&path).warning()) {
        say(format_args!("warning: {warning}"));
    }
    let mut command = Command::new(name);
    command.args(rest).envs(variables(options));
    if args.stats {
        let folder = nowait_status::place::own_folder();
        let failed = |error| Failure::new(format!("cannot make the folder for --stats: {error}"));
        command.env("NOWAIT_STATS", folder.map_err(failed)?);
    }
    broken_pipe::pass_on(&mut command);
    let variable = options.via.variable();
    command.env(variable, options.via.value(&library, std::env::var_os(variable)));
    Ok(command)
}

pub(crate) fn check(options: &Options) -> Result<()> {
    if options.submit == Some(Submit::Inline) {
        return Err(Failure::usage(
            "--submit inline: the submit mode inline was removed; without this flag auto is used \
             (it makes the first attempt inside submit where that is faster)",
        ));
    }
    let flag = match (options.cache, &options.cache_size) {
        (Some(Cache::User), _) => "--cache user",
        (_, Some(_)) => "--cache-size",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{flag}: the page cache behind libaio and POSIX AIO was removed; without this flag the \
         kernel's page cache is used (for a cache in user space, use nowait's Rust, C or Python \
         API, or nowait serve)"
    )))
}

/// Without this check, the library would warn and use another backend.
pub(crate) fn require(backend: Option<Backend>) -> Result<()> {
    let probe: fn() -> Probe = match backend {
        Some(Backend::Uring) => probe::uring,
        Some(Backend::Kaio) => probe::kaio,
        Some(Backend::Threads) => probe::threads,
        Some(Backend::Auto) | None => return Ok(()),
    };
    let probe = probe();
    probe.usable.map_err(|refusal| {
        let advice = refusal.advice();
        Failure::new(format!("backend {} is unusable: {refusal}; {advice}", probe.backend))
    })
}

pub(crate) fn variables(args: &Options) -> Vec<(&'static str, OsString)> {
    let mut set: Vec<(&'static str, OsString)> = Vec::new();
    let mut put = |name, value: Option<OsString>| set.extend(value.map(|value| (name, value)));
    put("NOWAIT_BACKEND", args.backend.map(|it| it.name().into()));
    put("NOWAIT_CACHE", args.cache.map(|it| it.name().into()));
    put("NOWAIT_SUBMIT", args.submit.map(|it| it.name().into()));
    put("NOWAIT_WORKERS", args.workers.map(|it| it.to_string().into()));
    put("NOWAIT_LOG", args.log.map(|it| it.name().into()));
    put(
        "NOWAIT_REPORT",
        args.report.as_ref().map(|file| match file {
            None => "1".into(),
            // An absolute path: the program may change its directory, and `1` would be a value.
            Some(file) => std::path::absolute(file).unwrap_or_else(|_| file.clone()).into(),
        }),
    );
    set
}

/// The failure has the exit code that a shell would use.
fn not_executed(name: &OsStr, error: &std::io::Error) -> Failure {
    let there = program::find(name).is_some_and(|path| path.exists());
    let name = name.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound if there => {
            Failure::new(format!("{name}: its interpreter or loader does not exist")).with_code(127)
        }
        ErrorKind::NotFound => Failure::new(format!("{name}: not found")).with_code(127),
        _ => Failure::new(format!("{name}: {error}")).with_code(126),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command as Subcommand};
    use clap::Parser;

    fn parsed(line: &str) -> RunArgs {
        let Subcommand::Run(args) = Cli::parse_from(line.split(' ')).command else {
            panic!("{line}");
        };
        args
    }

    #[test]
    fn only_what_is_said_is_set() {
        assert!(variables(&parsed("nowait run -- true").options).is_empty());
        let args = parsed("nowait run --backend kaio --workers 3 --report -- x -y");
        let expected = ["kaio", "3", "1"];
        let values: Vec<_> = variables(&args.options).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, expected);
        assert_eq!(args.command, ["x", "-y"]);
    }

    #[test]
    fn a_report_file_is_an_absolute_path() {
        let args = parsed("nowait run --report=1 -- x");
        let value = &variables(&args.options)[0].1;
        assert!(value.to_string_lossy().starts_with('/'), "{value:?}");
    }

    #[test]
    fn the_program_s_flags_are_its_own() {
        let args = parsed("nowait run fio --backend x --report");
        assert_eq!(args.command, ["fio", "--backend", "x", "--report"]);
        assert_eq!(args.options.backend, None);
    }
}
