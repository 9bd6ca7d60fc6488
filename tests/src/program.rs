//! Runs one program: captures its output, sets a deadline, and explains a failure.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::hang;
use crate::report::{self, Report};

/// Default time limit, long enough for a slow machine. A program that takes longer counts as
/// hanging.
const DEADLINE: Duration = Duration::from_mins(1);

/// A program about to be run.
#[derive(Debug)]
pub struct Program {
    command: Command,
    deadline: Duration,
    report: Option<PathBuf>,
}

/// A program that ended.
#[derive(Debug)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// The program's standard output.
    pub stdout: String,
    /// The program's standard error.
    pub stderr: String,
    /// The reports of nowait, one for each process that wrote one.
    pub reports: Vec<Report>,
    /// The command line, after the environment variables that the test has set.
    pub line: String,
    /// The time that the program ran.
    pub elapsed: Duration,
}

/// A program that runs. A drop kills its process group if the program has not ended.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    stdout: File,
    stderr: File,
    report: Option<PathBuf>,
    started: Instant,
}

impl Program {
    /// Prepares `program`, found by PATH if it has no slash.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        Self { command, deadline: DEADLINE, report: None }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable of the program's environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the program's working folder.
    pub fn dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets the program's standard input.
    pub fn stdin(mut self, input: File) -> Self {
        self.command.stdin(input);
        self
    }

    /// Sets the time limit of `run`, `try_run` and `succeed`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the file for nowait's report. `try_wait` reads the file when the program has ended.
    pub fn report_to(mut self, file: PathBuf) -> Self {
        self.command.env("NOWAIT_REPORT", &file);
        self.report = Some(file);
        self
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// The program cannot be started, or hangs: then the message contains the stacks of its
    /// threads.
    pub fn run(self) -> Output {
        let deadline = self.deadline;
        self.spawn().wait(deadline)
    }

    /// Runs the program to its end. If it does not end in time, kills it and returns a description
    /// of where it hangs.
    pub fn try_run(self) -> Result<Output, String> {
        let deadline = self.deadline;
        self.spawn().try_wait(deadline)
    }

    /// Runs the program and demands success.
    pub fn succeed(self) -> Output {
        let output = self.run();
        assert!(output.status.success(), "failed\n{output}");
        output
    }

    /// Starts the program, in a process group of its own.
    pub fn spawn(mut self) -> Running {
        let line = self.line();
        let stdout = tempfile::tempfile().expect("a file for the output");
        let stderr = tempfile::tempfile().expect("a file for the errors");
        self.command.process_group(0);
        self.command.stdout(stdout.try_clone().expect("a second handle"));
        self.command.stderr(stderr.try_clone().expect("a second handle"));
        let child = self.command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        Running { child, line, stdout, stderr, report: self.report, started: Instant::now() }
    }

    fn line(&self) -> String {
        let mut line = String::new();
        for (name, value) in self.command.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy();
            let _ = write!(line, "{}={value} ", name.to_string_lossy());
        }
        line.push_str(&self.command.get_program().to_string_lossy());
        for arg in self.command.get_args() {
            let _ = write!(line, " {}", quoted(&arg.to_string_lossy()));
        }
        line
    }
}

impl Running {
    /// Returns `true` if the program has ended already.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Returns `true` if the program ends within this time.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.ended() || ends_within(self.pid(), time)
    }

    /// Returns the program's process number.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns the program's standard error so far.
    pub fn stderr(&self) -> String {
        text_of(&self.stderr)
    }

    /// Waits for the program's end. Panics if the program does not end in time.
    pub fn wait(self, deadline: Duration) -> Output {
        self.try_wait(deadline).unwrap_or_else(|hang| panic!("{hang}"))
    }

    /// Waits for the program's end. If it does not end in time, kills it and returns a description
    /// of where it hangs.
    pub fn try_wait(mut self, deadline: Duration) -> Result<Output, String> {
        let deadline = deadline * hang::slowness();
        if !ends_within(self.pid(), deadline) {
            let stacks = hang::describe(self.pid());
            let (stdout, stderr) = (text_of(&self.stdout), text_of(&self.stderr));
            return Err(format!(
                "hangs for {deadline:?}: {}\n--- stdout\n{}\n--- stderr\n{}\n--- stacks\n{stacks}",
                self.line,
                tail(&stdout),
                tail(&stderr),
            ));
        }
        let status = self.child.wait().expect("a child can be waited for");
        Ok(Output {
            status,
            elapsed: self.started.elapsed(),
            stdout: text_of(&self.stdout),
            stderr: text_of(&self.stderr),
            reports: self.report.as_deref().map(report::take).unwrap_or_default(),
            line: std::mem::take(&mut self.line),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended() {
            return;
        }
        // SAFETY: plain numbers; the group is the child's own (see `spawn`), and the child has
        // not been waited for, so its number is not reused.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} after {:?}: {}", self.status, self.elapsed, self.line)?;
        writeln!(f, "--- stdout\n{}\n--- stderr\n{}", tail(&self.stdout), tail(&self.stderr))
    }
}

fn ends_within(pid: i32, deadline: Duration) -> bool {
    // SAFETY: plain numbers; the child is not waited for yet, so the number is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    assert!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor, without another owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) };
        if ready != -1 {
            return ready == 1;
        }
    }
}

/// Reads a file from its beginning. Does not move the file position, which the program that writes
/// the file shares.
fn text_of(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |about| about.len()) as usize];
    let read = file.read_at(&mut bytes, 0).expect("a temporary file can be read");
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(6000);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[start..]
}

fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+%@".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{arg}'") }
}
