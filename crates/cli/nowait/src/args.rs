//! The command line.

mod enable;
mod image;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use enable::{ContainerKind, DisableArgs, EnableArgs, Services, StatusArgs};
pub(crate) use image::{ImageArgs, ImageCommand, KeyFile, TransferArgs};

/// Asynchronous file I/O whose submit never waits, for unmodified programs.
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
    /// Put a systemd service under nowait, by a drop-in; or print the lines for a container.
    #[command(after_help = enable::ENABLE_EXAMPLES)]
    Enable(EnableArgs),
    /// Take a systemd service from nowait: removes what `nowait enable` wrote.
    #[command(after_help = enable::DISABLE_EXAMPLES)]
    Disable(DisableArgs),
    /// List the services that are enabled, and the processes that nowait serves.
    #[command(after_help = enable::STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Measure an unmodified fio with and without nowait, interleaved.
    #[command(subcommand, after_help = BENCH_EXAMPLES)]
    Bench(nowait_bench::Bench),
    /// Serve images as block devices, by NBD, FUSE, vhost-user and ublk, without double caching.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<nowait_server::ServeArgs>),
    /// Make, list, check and remove images on object stores.
    #[command(subcommand, after_help = image::IMAGE_EXAMPLES)]
    Image(ImageCommand),
    /// Show the activity of image servers and of programs under `nowait run`.
    #[command(after_help = TOP_EXAMPLES)]
    Top(nowait_server::TopArgs),
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

const SERVE_EXAMPLES: &str = "\
SIGTERM or SIGINT: answers what is in flight, makes it durable, and ends. SIGHUP: takes the sizes
of the files as they are now, and reads certificate, key and authority again.

Examples:
  nowait serve disk.img --nbd unix:/run/disk.sock
  nowait serve disk.img --fuse /run/disk             then: losetup -f --direct-io=on /run/disk
  nowait serve disk.img --ublk 0                     then: mkfs.ext4 /dev/ublkb0
  nowait serve vm=/images/vm.raw data=/dev/vg/data --nbd unix:/run/nbd.sock
  nowait serve vm=disk.img,offset=1M,length=20G iso=cd.iso,read-only --nbd unix:/run/nbd.sock
  nowait serve disk.img --nbd unix:/run/disk.sock --exit-with-last-client --pid-file /run/disk.pid
  nbdinfo nbd+unix:///vm?socket=/run/nbd.sock
A disk of a virtual machine, by NBD, and by vhost-user, where the server shares its memory:
  qemu-system-x86_64 … -drive file=nbd+unix:///vm?socket=/run/nbd.sock,format=raw,if=virtio
  nowait serve vm=/images/vm.raw --vhost-user vm=/run/vm.sock
  qemu-system-x86_64 … -m 4G -object memory-backend-memfd,id=mem,size=4G,share=on \\
      -machine q35,memory-backend=mem -chardev socket,id=vm,path=/run/vm.sock,reconnect=1 \\
      -device vhost-user-blk-pci,chardev=vm,num-queues=4
In a container without root:
  nbdcopy disk.raw nbd+unix:///vm?socket=/run/nbd.sock
  qemu-img convert -O qcow2 nbd+unix:///vm?socket=/run/nbd.sock backup.qcow2
A remote disk, over TLS, for who has a certificate for the name vm7:
  nowait serve vm=/images/vm.raw --nbd tcp:0.0.0.0:10809 --allow tls:vm7 \\
      --tls-cert server-cert.pem --tls-key server-key.pem --tls-client-ca ca-cert.pem
  nbdinfo nbds://server.example/vm?tls-certificates=/etc/pki/nbd";

const TOP_EXAMPLES: &str = "\
Examples:
  nowait top                             all servers of this user, once a second
  nowait top --json | jq '.[].exports'   their counters, once";

const BENCH_EXAMPLES: &str = "\
Examples:
  nowait bench demo                      one table in under 90 seconds
  nowait bench submit --quick --case a   one case, short
  nowait bench posix --quick             POSIX AIO against the C library's
  nowait bench cached --quick            our own page cache, every case
  nowait bench vector                    one request of many segments against many
  nowait bench fairness                  single requests beside thousands
  nowait bench mixed                     sockets, a file and a timer on one thread
  nowait bench serve --quick             servers of images, every case
  nowait bench programs --quick          real programs as installed, with and without
  nowait bench aio-stress --quick        every engine on an uncached file
  nowait bench rawio --quick             asynchronous requests against 160 threads
  nowait bench paper                     the sources' tables, simulated
  nowait bench paper --device /var/tmp   … on this disk, with all peers
  nowait bench compare a.json b.json     two saved measurements";

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

/// What the libraries read from the environment, as flags.
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
    /// Tell whether nowait can help this program (a path, or a name found by PATH).
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
            /// Returns the value of the environment variable.
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
        /// A page cache in the process, which was removed.
        #[value(hide = true)]
        User = "user"
    }
);
choice!(
    /// NOWAIT_SUBMIT.
    Submit {
        /// In the caller while that is short.
        Auto = "auto",
        /// Always in the caller, which was removed.
        #[value(hide = true)]
        Inline = "inline",
        /// On another thread.
        Offload = "offload"
    }
);
choice!(
    /// NOWAIT_LOG.
    Level {
        /// Nothing.
        Off = "off",
        /// What went wrong.
        Error = "error",
        /// Also what is worse than it could be.
        Warn = "warn",
        /// Also what was chosen.
        Info = "info",
        /// Also every context.
        Debug = "debug"
    }
);
/// Which library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// By LD_PRELOAD: libaio, and close() watched.
    Preload,
    /// By LD_LIBRARY_PATH: libaio only.
    Libaio,
}

/// Prints help and version as asked, and an error in one line; returns the exit code.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr()
        || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    crate::error::say(one_line(&error.render().to_string()));
    ExitCode::from(2)
}

/// Joins the lines of clap's first paragraph; the usage that follows is what --help prints.
fn one_line(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let line = words.join(" ");
    format!("{} (see --help)", line.strip_prefix("error: ").unwrap_or(&line))
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

    #[test]
    fn an_error_of_several_lines_becomes_one() {
        let error = Cli::try_parse_from(["nowait", "run", "--backend", "x", "--", "a"]);
        let line = one_line(&error.unwrap_err().render().to_string());
        assert!(line.starts_with("invalid value 'x' for '--backend"), "{line}");
        assert!(!line.contains('\n') && line.contains("uring"), "{line}");
    }
}
