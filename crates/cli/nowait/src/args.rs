//! The command line.

mod enable;

use crate::top::TopArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use enable::{DisableArgs, EnableArgs, Services, StatusArgs};

/// Asynchronous file I/O whose submit does not wait for data, for unmodified programs.
#[derive(Debug, Parser)]
#[command(name = "nowait", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nowait doctor                        what works here, and what to change
  nowait run -- fio job.fio            fio's libaio engine, served by nowait
  nowait run --report -- mariadbd      … with a report at its end
  nowait enable mariadb                the service, from its next start on";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program with its asynchronous I/O served by nowait.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Try each backend, and tell which work here, why others do not, and what to change.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Put a systemd service under nowait, by a drop-in.
    #[command(after_help = enable::ENABLE_SHORT, after_long_help = enable::ENABLE_EXAMPLES)]
    Enable(EnableArgs),
    /// Take a systemd service from nowait: removes what `nowait enable` wrote.
    #[command(after_help = enable::DISABLE_EXAMPLES)]
    Disable(DisableArgs),
    /// List the services that are enabled, and the processes that nowait serves.
    #[command(after_help = enable::STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Measure programs, servers and page caches with and without nowait, by turns.
    Bench,
    /// Serve images as block devices, by NBD, FUSE, vhost-user and ublk, without double caching.
    Serve,
    /// Make, list, check and remove images on object stores.
    Image,
    /// Show the activity of image servers and of programs under `nowait run`.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Print the completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them into a directory.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Where to write them; made if missing.
        dir: Option<PathBuf>,
    },
}

const TOP_EXAMPLES: &str = "\
Examples:
  nowait top                             all servers of this user, once a second
  nowait top --json | jq '.[].exports'   their counters, once";

const RUN_EXAMPLES: &str = "\
The exit code is that of PROGRAM; 126: cannot be executed; 127: not found; 1: nowait failed;
2: wrong usage.

Examples:
  nowait run -- fio --name=r --ioengine=libaio --rw=randread --size=1g
  nowait run --backend threads --report=/tmp/report.json -- qemu-system-x86_64 …
  nowait run --stats -- mariadbd         … and elsewhere: nowait top
  nowait run --via libaio -- mariadbd --innodb-linux-aio=aio";

const DOCTOR_EXAMPLES: &str = "\
Exit code 0: nowait can be used here (a backend may still be refused); 1: something keeps it
from working at all; 2: wrong usage.

Examples:
  nowait doctor
  nowait doctor /var/lib/mysql           the file system the database is on
  nowait doctor --program qemu-img       can nowait help this program?
  nowait doctor --json | jq .backends";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  nowait completions bash > /etc/bash_completion.d/nowait
  nowait completions zsh > ~/.zfunc/_nowait";

const MAN_EXAMPLES: &str = "\
Examples:
  nowait man | man -l -
  nowait man /usr/local/share/man/man1";

/// Flags for the settings that the libraries read from the environment, and `--via`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Backend for the requests that would wait [default: auto, the best that works].
    #[arg(long, value_enum)]
    pub(crate) backend: Option<Backend>,
    /// The page cache that serves buffered files: the kernel's, the only one.
    #[arg(long, value_enum, hide = true)]
    pub(crate) cache: Option<Cache>,
    /// Where the first attempt at a request is made [default: auto].
    #[arg(long, value_enum)]
    pub(crate) submit: Option<Submit>,
    /// Most worker threads, for requests that no other backend can carry.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: Option<u32>,
    /// The size of the removed page cache: answered as `--cache user` is.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub(crate) cache_size: Option<OsString>,
    /// Level of the library's messages on standard error [default: warn].
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
    /// Report at exit, to FILE (one JSON object a line) or to standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[allow(clippy::option_option)]
    pub(crate) report: Option<Option<PathBuf>>,
    /// Which library serves the program.
    #[arg(long, value_enum, default_value = "preload")]
    pub(crate) via: Via,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Let `nowait top` and `nowait status` show what the program does while it runs.
    #[arg(long)]
    pub(crate) stats: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_names = ["PROGRAM", "ARGS"], value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A file or directory whose file system to try; an executable is also inspected.
    #[arg(default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Tell whether nowait can help this program: a path, a name found by PATH, or the number of
    /// a process.
    #[arg(long, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandName)]
    pub(crate) program: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub(crate) enum $name { $($(#[$item_doc])* $item),* }
        impl $name {
            /// Returns the value that the environment variable has for this choice.
            pub(crate) fn name(self) -> &'static str {
                match self { $($name::$item => $text),* }
            }
        }
    };
}

choice!(
    /// NOWAIT_BACKEND.
    Backend {
        /// The best that works.
        Auto = "auto",
        /// The io_uring interface.
        Uring = "uring",
        /// The kernel's native AIO, and threads for what would block in it.
        Kaio = "kaio",
        /// Threads only.
        Threads = "threads"
    }
);
choice!(
    /// NOWAIT_CACHE.
    Cache {
        /// The kernel's page cache.
        Host = "host",
        /// A page cache in the process; it was removed.
        #[value(hide = true)]
        User = "user"
    }
);
choice!(
    /// NOWAIT_SUBMIT.
    Submit {
        /// In the caller where that is faster.
        Auto = "auto",
        /// Always in the caller; this mode was removed.
        #[value(hide = true)]
        Inline = "inline",
        /// On another thread.
        Offload = "offload"
    }
);
choice!(
    /// NOWAIT_LOG.
    Level {
        /// No messages.
        Off = "off",
        /// Failures.
        Error = "error",
        /// Also settings and features that do not work here.
        Warn = "warn",
        /// Also the chosen backend.
        Info = "info",
        /// Also every context.
        Debug = "debug"
    }
);
/// The library that serves the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// By LD_PRELOAD: libaio, POSIX AIO, and close() watched.
    Preload,
    /// By LD_LIBRARY_PATH: libaio only.
    Libaio,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_on_the_command_line_are_those_of_the_environment() {
        for backend in Backend::value_variants() {
            assert_eq!(backend.to_possible_value().unwrap().get_name(), backend.name());
        }
        for submit in Submit::value_variants() {
            assert_eq!(submit.to_possible_value().unwrap().get_name(), submit.name());
        }
    }
}
