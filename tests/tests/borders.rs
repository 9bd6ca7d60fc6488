//! Requests on files that io_submit has accepted complete although the submitting thread, the
//! context or the process ends, also if a signal handler ends the process at any instruction.
//! Nothing hangs.
//!
//! `NOWAIT_FULL=1` runs 10,000 rounds of most cases, `NOWAIT_ROUNDS` the given number.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nowait_tests::for_each_subject;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip::{self, Skip};
use nowait_tests::subject::Subject;
use nowait_tests::thread_state::wait_until;

const BORDERS: &str = env!("CARGO_BIN_EXE_borders");

fn hold_rounds(subject: Subject, case: &str, folder: &Path, few: u32) {
    let asked = std::env::var("NOWAIT_ROUNDS").ok().map(|it| it.parse().expect("NOWAIT_ROUNDS"));
    let rounds: u32 = asked.unwrap_or(if nowait_tests::full() { 10_000 } else { few });
    // Each child process of the program has a deadline of its own.
    let deadline = Duration::from_mins(1) + Duration::from_millis(500) * rounds;
    let program = subject.launch(BORDERS).arg(case).arg(folder).arg(rounds.to_string());
    program.deadline(deadline).succeed();
}

macro_rules! cases {
    ($([$($library:ident),+] $name:ident = $case:literal, $few:literal rounds;)+) => {$(
        for_each_subject!($name, |subject: Subject| {
            let scratch = Scratch::new("borders");
            hold_rounds(subject, $case, scratch.path(), $few);
        }, [$($library),+]);
    )+};
}

cases! {
    [preload] a_handler_may_end_the_process_at_any_instruction = "handler-exit", 60 rounds;
    [preload] a_handler_may_end_the_process_in_posix_aio = "handler-exit-posix", 40 rounds;
    [preload] a_handler_may_make_calls_at_any_instruction = "handler-calls", 30 rounds;
    [libaio, preload] io_destroy_beside_threads_that_submit_loses_nothing = "destroy", 40 rounds;
    [preload] installed_handlers_are_the_programs_own = "handlers", 1 rounds;
    [libaio, preload] exit_beside_threads_that_submit_loses_nothing = "exit", 20 rounds;
    [libaio, preload] the_return_of_main_loses_nothing = "return", 10 rounds;
    // libaio.so.1 alone does not see _exit, quick_exit, abort and exec; docs/limits.md says so.
    [preload] immediate_exit_beside_threads_that_submit_loses_nothing = "_exit", 20 rounds;
    [preload] quick_exit_loses_nothing = "quick_exit", 10 rounds;
    [preload] abort_in_another_thread_loses_nothing = "abort", 10 rounds;
    [preload] abort_after_the_default_action_was_set_loses_nothing = "abort-default", 10 rounds;
    [preload] abort_after_a_handler_for_one_signal_loses_nothing = "abort-once", 10 rounds;
    [preload] exec_beside_threads_that_submit_loses_nothing = "exec", 20 rounds;
    [preload] what_a_handler_submits_right_before_exec_is_done = "exec-handler", 1 rounds;
    [preload] after_an_exec_that_fails_all_goes_on = "exec-fails", 20 rounds;
}

// A round of `fault` or `stuck` takes one second: the library waits that long for requests that may
// never end.
for_each_subject!(
    a_fault_inside_a_call_may_end_the_process,
    |subject| runs(subject, "fault"),
    [preload]
);
for_each_subject!(
    exit_does_not_wait_for_a_thread_inside_a_call,
    |subject| runs(subject, "stuck"),
    [libaio, preload]
);

for_each_subject!(
    a_handler_that_comes_during_the_end_runs_no_more_and_the_report_is_written_once,
    |subject| reports_once(subject, "report"),
    [preload]
);
for_each_subject!(
    two_threads_that_end_the_process_write_one_report,
    |subject| reports_once(subject, "report-both"),
    [preload]
);

/// The report goes to a FIFO: the process cannot end before the test opens the FIFO.
fn reports_once(subject: Subject, case: &str) {
    if subject.is_system() {
        return;
    }
    let scratch = Scratch::new("reports");
    let fifo = scratch.file("report.json");
    let name = CString::new(fifo.as_os_str().as_bytes()).expect("a path");
    // SAFETY: a terminated path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let program = subject.launch(BORDERS).args([case, scratch.path().to_str().expect("a path")]);
    let running = program.arg("1").env("NOWAIT_REPORT", &fifo).spawn();
    let pid = running.pid();
    let threads = usize::from(case == "report-both") + 1;
    let opens = Cell::new(0);
    wait_until(|| {
        let end = in_the_end(pid);
        opens.set(end.opens);
        scratch.file("leaves").exists() && end.opens + end.waits == threads
    });
    assert_eq!(opens.get(), 1, "threads that write a report");
    if threads == 1 {
        // SAFETY: plain numbers; a child that was not waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
    }
    // Also open for writing, so that the reader sees no end between two reports.
    let mut options = OpenOptions::new();
    let fifo = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(fifo);
    let mut fifo = fifo.expect("the FIFO");
    let output = running.wait(Duration::from_mins(1));
    assert!(output.status.success(), "{output}");
    let mut reports = Vec::new();
    let _ = fifo.read_to_end(&mut reports); // EAGAIN: no more data
    let reports = String::from_utf8(reports).expect("text");
    assert_eq!(reports.matches("\"schema\"").count(), 1, "{reports}");
    assert!(reports.ends_with("}\n"), "{reports}");
}

struct End {
    opens: usize,
    /// Threads that wait in futex(2) until the report is written, on a word that is 1 until then.
    waits: usize,
}

fn in_the_end(pid: i32) -> End {
    let mut end = End { opens: 0, waits: 0 };
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return end };
    let reads = |task: &Path, name: &str| std::fs::read_to_string(task.join(name));
    for task in tasks.flatten().map(|task| task.path()) {
        if reads(&task, "comm").is_ok_and(|name| name.trim() == "borders")
            && let Ok(call) = reads(&task, "syscall")
        {
            let call: Vec<_> = call.split_whitespace().collect();
            let is = |number: libc::c_long| call[0] == number.to_string();
            end.opens += usize::from(is(libc::SYS_openat));
            end.waits += usize::from(is(libc::SYS_futex) && call[3] == "0x1");
        }
    }
    end
}

fn runs(subject: Subject, case: &str) {
    let scratch = Scratch::new("borders");
    subject.launch(BORDERS).arg(case).arg(scratch.path()).arg("2").succeed();
}

macro_rules! file_systems {
    ($($name:ident = $mount:expr;)+) => {$(
        for_each_subject!($name, |subject: Subject| {
            thread_end_on(subject, $mount)
        }, [libaio, preload]);
    )+};
}

file_systems! {
    the_end_of_a_thread_loses_nothing_on_ext4 = Mount::new(Kind::Ext4);
    the_end_of_a_thread_loses_nothing_on_ext4_without_delayed_allocation
        = Mount::without_delayed_allocation();
    the_end_of_a_thread_loses_nothing_on_xfs = Mount::new(Kind::Xfs);
    the_end_of_a_thread_loses_nothing_on_btrfs = Mount::new(Kind::Btrfs);
    the_end_of_a_thread_loses_nothing_on_tmpfs = Mount::new(Kind::Tmpfs);
}

fn thread_end_on(subject: Subject, mount: Result<Mount, Skip>) {
    let Some(mount) = skip::unless(mount) else { return };
    hold_rounds(subject, "thread-exit", mount.path(), 20);
}
