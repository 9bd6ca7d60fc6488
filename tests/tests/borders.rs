//! What io_submit has accepted is done, whatever ends: the thread that submitted, the context, the
//! process, in whatever way, by a signal handler at whatever instruction; and nothing hangs.
//!
//! `NOWAIT_FULL=1` runs 10,000 rounds of each case, `NOWAIT_ROUNDS` as many as it says.

use std::path::Path;
use std::time::Duration;

use nowait_tests::for_each_subject;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip::{self, Skip};
use nowait_tests::subject::Subject;

const BORDERS: &str = env!("CARGO_BIN_EXE_borders");

/// Runs as many rounds of a case: few, or what the environment asks for.
fn hold_rounds(subject: Subject, case: &str, folder: &Path, few: u32) {
    let asked = std::env::var("NOWAIT_ROUNDS").ok().map(|it| it.parse().expect("NOWAIT_ROUNDS"));
    let rounds: u32 = asked.unwrap_or(if nowait_tests::full() { 10_000 } else { few });
    // Each process of a round has a deadline of its own.
    let deadline = Duration::from_mins(1) + Duration::from_millis(500) * rounds;
    let program = subject.launch(BORDERS).arg(case).arg(folder).arg(rounds.to_string());
    program.deadline(deadline).succeed();
}

/// Declares a test for each case, in a folder of its own.
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
    // libaio.so.1 alone does not see these calls; docs/limits.md says so.
    [preload] immediate_exit_beside_threads_that_submit_loses_nothing = "_exit", 20 rounds;
    [preload] quick_exit_loses_nothing = "quick_exit", 10 rounds;
    [preload] abort_in_another_thread_loses_nothing = "abort", 10 rounds;
    [preload] exec_beside_threads_that_submit_loses_nothing = "exec", 20 rounds;
    [preload] after_an_exec_that_fails_all_goes_on = "exec-fails", 20 rounds;
}

// A round of these takes the second that is waited for what may never come.
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

fn runs(subject: Subject, case: &str) {
    let scratch = Scratch::new("borders");
    subject.launch(BORDERS).arg(case).arg(scratch.path()).arg("2").succeed();
}

/// Declares a test for each file system.
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
