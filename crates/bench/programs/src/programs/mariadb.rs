//! MariaDB under sysbench's transactions, its tables larger than its buffer pool.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Mode;
use super::run::{Run, Tools, plain, text};
use super::sysbench;
use super::timer::Timer;
use nowait_harness::cache;
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::launch;
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::server::Server;
use nowait_harness::usage;

/// At its end the server writes its buffer pool to disk.
const PATIENCE: Duration = Duration::from_mins(5);
/// Time by which sysbench may exceed the time of a run before it counts as hung.
const GRACE: Duration = Duration::from_mins(2);
const LOAD: Duration = Duration::from_hours(1);

/// Number of tables; `ROW_BYTES` is about the size of a row with its index.
const TABLES: u64 = 8;
const ROW_BYTES: u64 = 240;
/// Size of the tables divided by the size of the buffer pool.
const TABLES_PER_POOL: u64 = 16;
const POOL_BYTES_MIN: u64 = 8 << 20;

/// Makes the tables unless they exist, in the folder that is kept with `--keep`.
pub(crate) fn prepare(tools: &Tools, size_bytes: u64) -> Result<()> {
    let folder = Data::new(tools, size_bytes);
    if folder.is_loaded() {
        return Ok(());
    }
    let _ = fs::remove_dir_all(&folder.path);
    let mut install = plain("mariadb-install-db")?;
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    install.args(["--skip-name-resolve"]).args(as_root());
    launch::succeed(install.arg(format!("--datadir={}", text(&folder.path))), PATIENCE)?;
    let mut command = folder.server(plain("mariadbd")?, "fsync");
    // While sysbench fills the tables, no transaction needs to be durable.
    command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]);
    let server = folder.start(&mut command)?;
    let mut client = plain("mariadb")?;
    client.args(["--no-defaults", "--user=root", "--execute=CREATE DATABASE sbtest"]);
    launch::succeed(client.arg(format!("--socket={}", text(&folder.socket))), PATIENCE)?;
    let mut command = folder.client(plain("sysbench")?);
    sysbench::finished(command.args(["--threads=2", "prepare"]), LOAD)?;
    server.stop(PATIENCE)?;
    fs::write(folder.mark(), "").context(|| "mark the tables as loaded".to_owned())
}

pub(crate) fn run(run: &Run<'_>, flush: &str, threads: u32) -> Result<Sample> {
    let folder = Data::new(run.tools, run.size_bytes);
    for table in folder.tables()? {
        cache::make_cold(&table, run.tools.drop_caches)?;
    }
    let (option, says) = match run.way.mode {
        Mode::Uring => ("--innodb-linux-aio=io_uring", "Using io_uring"),
        _ => ("--loose-innodb-linux-aio=aio", "Using Linux native AIO"),
    };
    let server = folder.start(folder.server(run.timed("mariadbd")?, flush).arg(option))?;
    if !server.words().contains(says) {
        return Err(Failure::new(format!("the server does not say '{says}'")));
    }
    let timer = run.tools.timer.as_ref();
    let mut command = folder.client(plain("sysbench")?);
    command.arg(format!("--threads={threads}"));
    sysbench::for_a_time(&mut command, run).arg("run");
    let (cpu_us, times) = (usage::cpu_us_of(server.pid())?, timer.map(Timer::times).transpose()?);
    let done = sysbench::finished(&mut command, run.runtime + GRACE)
        .map_err(|error| Failure::new(format!("{error}; the server: {}", server.last_words())))?;
    let printed = sysbench::parse(&done.stdout)?;
    let mut sample = printed.sample;
    let used_us = usage::cpu_us_of(server.pid())? - cpu_us;
    sample.insert(Metric::CpuUsPerOperation, used_us / printed.events);
    if let (Some(timer), Some(before)) = (timer, times) {
        sample.extend(timer.times()?.since(&before).held_up_sample());
    }
    server.stop(PATIENCE)?;
    Ok(sample)
}

struct Data {
    path: PathBuf,
    socket: PathBuf,
    size_bytes: u64,
}

impl Data {
    fn new(tools: &Tools, size_bytes: u64) -> Self {
        let path = tools.kept.join("nowait-bench-mariadb");
        // The socket is not beside the tables, because its path must have at most 107 bytes.
        Self { path, socket: tools.folder.join("mariadb"), size_bytes }
    }

    fn rows(&self) -> u64 {
        self.size_bytes / TABLES / ROW_BYTES
    }

    /// Returns the path of the file that exists once all rows are loaded.
    fn mark(&self) -> PathBuf {
        self.path.join(format!("nowait-bench-rows-{}", self.rows()))
    }

    fn is_loaded(&self) -> bool {
        self.mark().exists()
    }

    fn tables(&self) -> Result<Vec<PathBuf>> {
        let folder = self.path.join("sbtest");
        let files = fs::read_dir(&folder).context(|| format!("read {}", folder.display()))?;
        let paths = files.flatten().map(|file| file.path());
        Ok(paths.filter(|path| path.extension().is_some_and(|it| it == "ibd")).collect())
    }

    fn server(&self, mut command: Command, flush: &str) -> Command {
        let pool_bytes = (self.size_bytes / TABLES_PER_POOL).max(POOL_BYTES_MIN);
        command.args(["--no-defaults", "--skip-networking", "--skip-log-bin"]).args(as_root());
        command.arg("--innodb-use-native-aio=1");
        command.arg(format!("--innodb-flush-method={flush}"));
        command.arg(format!("--innodb-buffer-pool-size={pool_bytes}"));
        command.arg(format!("--loose-innodb-buffer-pool-chunk-size={}", 2 << 20));
        command.arg(format!("--innodb-log-file-size={}", 2 * pool_bytes));
        // Otherwise the next server would start with a warmer cache.
        command.args(["--innodb-buffer-pool-dump-at-shutdown=0"]);
        command.args(["--innodb-buffer-pool-load-at-startup=0", "--max-connections=200"]);
        for (option, path) in [
            ("datadir", &self.path),
            ("tmpdir", &self.path),
            ("socket", &self.socket),
            ("pid-file", &self.path.join("pid")),
        ] {
            command.arg(format!("--{option}={}", text(path)));
        }
        command
    }

    fn start(&self, command: &mut Command) -> Result<Server> {
        Server::listening(command, PATIENCE, &self.socket)
    }

    fn client(&self, mut command: Command) -> Command {
        command.args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root"]);
        command.args(["--mysql-db=sbtest", "--rand-type=uniform"]);
        command.arg(format!("--mysql-socket={}", text(&self.socket)));
        command.arg(format!("--tables={TABLES}")).arg(format!("--table-size={}", self.rows()));
        command
    }
}

/// Returns the option without which the server does not run as root.
fn as_root() -> Option<&'static str> {
    // SAFETY: takes nothing and cannot fail.
    (unsafe { libc::geteuid() } == 0).then_some("--user=root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_larger_than_the_pool_and_native_aio_is_asked_for() {
        let data = Data { path: "/x/data".into(), socket: "/x/s".into(), size_bytes: 2 << 30 };
        let command = data.server(Command::new("mariadbd"), "O_DIRECT");
        let arguments: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        for expected in [
            "--innodb-buffer-pool-size=134217728",
            "--innodb-flush-method=O_DIRECT",
            "--innodb-use-native-aio=1",
            "--datadir=/x/data",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}");
        }
        assert_eq!(data.rows() * TABLES * ROW_BYTES / (1 << 20), 2047);
    }
}
