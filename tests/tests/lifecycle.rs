//! Contexts that are destroyed, inherited or interrupted behave as with the kernel's own AIO.

#[path = "lifecycle/rings.rs"]
mod rings;

use nowait_tests::contexts;
use nowait_tests::for_each_subject;
use nowait_tests::program::Output;
use nowait_tests::report::Report;
use nowait_tests::scratch::Scratch;
use nowait_tests::subject::{Backend, Library, Subject, Submit};

const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");
const SCARCE: &str = env!("CARGO_BIN_EXE_scarce");
const SIGNALS: &str = env!("CARGO_BIN_EXE_signals");

macro_rules! claims {
    ($program:ident: $($name:ident = $case:literal;)+) => {$(
        for_each_subject!($name, |subject: Subject| {
            // The tests of signals run without the disturber, which sends signals, too.
            let seed = subject.disturb.filter(|_| $program != SIGNALS);
            contexts::run(subject, subject.disturb(seed).launch($program), $case);
        }, [libaio, preload]);
    )+};
}

claims! {
    LIFECYCLE:
    io_destroy_waits_for_what_is_in_flight = "destroy-in-flight";
    io_destroy_ends_pending_polls = "destroy-poll";
    io_destroy_wakes_blocked_waiters = "destroy-wakes";
    requests_outlive_the_submitting_thread = "thread-exit";
    fork_leaves_the_context_to_the_parent = "fork";
    eventfd_counts_completions = "eventfd";
    each_direct_request_is_counted_once = "eventfd-direct";
    one_that_looks_at_the_ring_first_is_told = "eventfd-peek";
    one_that_looks_before_it_reads_is_told_again = "eventfd-look";
    one_that_never_reads_its_counter_is_told = "eventfd-edge";
    each_of_two_counters_is_signalled = "eventfd-two";
    a_file_that_is_no_counter_is_refused = "eventfd-file";
    events_come_after_the_last_call = "calls-then-ring";
    a_deferred_request_ends_the_calm = "calls-then-deferred";
    all_is_counted_when_io_destroy_returns = "eventfd-destroy";
    an_idle_wait_is_one_sleep = "idle";
    the_descriptors_of_a_thread_end_with_it = "own-table";
    poll_reports_readiness = "poll";
    cancelled_polls_still_complete = "poll-cancel";
    cancelled_reads_of_streams_complete_once = "stream-cancel";
    reads_of_a_stream_take_their_turns = "stream-turns";
    an_empty_pipe_does_not_delay_others = "pipe";
    many_threads_share_a_context = "shared";
    every_waiter_is_woken = "waiters";
}

claims! {
    SIGNALS:
    a_signal_interrupts_a_waiter = "eintr";
    sa_restart_does_not_restart_a_wait = "eintr-restart";
    a_signal_ends_a_wait_with_what_there_is = "partial";
    the_mask_lets_a_pending_signal_in = "mask-lets-in";
    the_mask_lets_signals_in_also_when_there_is_no_need_to_wait = "mask-without-wait";
    a_look_at_nothing_lets_nothing_in = "mask-at-once";
    the_mask_lets_each_wait_have_one_of_a_number = "mask-one-each";
    the_mask_keeps_a_signal_out = "mask-keeps-out";
    helper_threads_block_signals = "threads-block";
}

for_each_subject!(one_that_reads_its_counter_finds_the_events, counter_first, [libaio, preload]);
for_each_subject!(one_that_reads_its_counter_last_goes_on, counter_last, [libaio, preload]);

/// The preload library sees that the program reads its eventfd before it takes events, so it lets
/// the kernel signal the eventfd.
fn counter_first(subject: Subject) {
    let by = direct_reads(subject, "eventfd-ring");
    let is_watched = subject.library == Library::Preload && subject.submit == Submit::Auto;
    if is_watched && subject.backend != Backend::Threads {
        // If the program gets no processor for some time, its reads come late, and then the
        // engine's driver signals instead.
        assert!(by("kernel") > 0, "{} by {}", by("kernel"), by("driver"));
    }
}

/// The program takes events before it reads its eventfd. The engine notices that the reads come too
/// late, and lets its driver signal the eventfd.
fn counter_last(subject: Subject) {
    let by = direct_reads(subject, "eventfd-late");
    if !subject.is_system() && subject.backend != Backend::Threads {
        assert!(by("driver") > 9 * by("kernel"), "{} by {}", by("kernel"), by("driver"));
    }
}

/// Runs a case. Returns a function that returns the number of direct reads that a party completed.
fn direct_reads(subject: Subject, case: &str) -> impl Fn(&str) -> u64 {
    let scratch = Scratch::new(case);
    let output = subject.launch(LIFECYCLE).arg(case).arg(scratch.file("file")).succeed();
    subject.assert_loaded(&output);
    move |party| output.reports.iter().map(|it| it.served("direct_read", party)).sum()
}

for_each_subject!(exit_right_after_submit_loses_nothing, exit, [libaio, preload]);
// libaio.so.1 alone does not see _exit and exec; docs/limits.md says so.
for_each_subject!(immediate_exit_loses_nothing, immediate_exit, [preload]);
for_each_subject!(exec_keeps_submitted_writes, exec, [preload]);

// libaio.so.1 alone does not see the program's own system calls by syscall(2).
for_each_subject!(the_system_call_lets_in_what_the_mask_says, raw_mask, [preload]);

fn raw_mask(subject: Subject) {
    subject.assert_loaded(&subject.launch(SIGNALS).arg("mask-at-once-raw").succeed());
}

for_each_subject!(limits_of_the_environment_refuse_with_eagain, limits, [libaio, preload]);

for_each_subject!(a_start_that_failed_is_not_for_ever, scarce, [libaio, preload]);

/// Leaves 0 to 7 free descriptors at the start of the library; the kernel's AIO needs none. A ring
/// that cannot wait on a word of memory needs an eventfd. If only the descriptor of the eventfd is
/// missing, threads serve the program.
fn scarce(subject: Subject) {
    let needs_counter = subject.backend == Backend::Uring && !rings::wait_on_words();
    for left in 0..8 {
        let scratch = Scratch::new("scarce");
        let program = subject.launch(SCARCE).arg(left.to_string()).arg(scratch.file("file"));
        let output = program.succeed();
        let lacks_counter = needs_counter && output.reports.iter().any(Report::lacked_descriptors);
        let backend = if lacks_counter { Backend::Threads } else { subject.backend };
        Subject { backend, ..subject }.assert_served(&output);
    }
}

fn limits(subject: Subject) {
    let program = subject.launch(LIFECYCLE).arg("limits").env("NOWAIT_MAX_REQUESTS", "3");
    let program = program.env("NOWAIT_MAX_CONTEXT_REQUESTS", "2").env("NOWAIT_MAX_PINNED", "lots");
    let output = program.succeed();
    subject.assert_loaded(&output);
    let complaint = "NOWAIT_MAX_PINNED=lots: expected a size, at least 1: bytes, or K, M or G";
    assert!(output.stderr.contains(complaint), "{output}");
}

fn exec(subject: Subject) {
    let scratch = Scratch::new("exec");
    let program = subject.launch(LIFECYCLE).arg("exec").arg(scratch.file("file"));
    subject.assert_loaded(&program.succeed());
}

fn exit(subject: Subject) {
    leaves_the_file_filled(subject, &["exit", "return", "atexit"]);
}

fn immediate_exit(subject: Subject) {
    leaves_the_file_filled(subject, &["_exit"]);
}

fn leaves_the_file_filled(subject: Subject, ways: &[&str]) {
    for &way in ways {
        let scratch = Scratch::new("exit");
        let file = scratch.file("file");
        let output = subject.launch(LIFECYCLE).arg("exit").arg(&file).arg(way).succeed();
        if way != "_exit" {
            subject.assert_loaded(&output);
        }
        let bytes = std::fs::read(&file).expect("the file was created");
        assert_filled(&bytes, way, &output);
    }
}

fn assert_filled(bytes: &[u8], way: &str, output: &Output) {
    let expected = |at: usize| (at >> 16) as u8;
    let wrong = (0..64 << 16).find(|at| bytes.get(*at) != Some(&expected(*at)));
    assert_eq!(wrong, None, "{way}: the first byte that is not there\n{output}");
}
