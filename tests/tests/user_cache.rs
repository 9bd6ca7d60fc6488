//! `NOWAIT_CACHE=user`: what a program writes through nowait's own cache, others see after a close,
//! and what they write it sees at its next open. Plain calls of the program see everything.

use nowait_tests::for_each_subject;
use nowait_tests::report::Report;
use nowait_tests::scratch::Scratch;
use nowait_tests::subject::{Cache, Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_user-cache");
const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");
const FD_LIFETIME: &str = env!("CARGO_BIN_EXE_fd-lifetime");

/// Declares a claim per case of a program, which checks it and says what it saw.
macro_rules! claims {
    ($program:ident: $($name:ident = $case:literal;)+) => {$(
        for_each_subject!($name, |subject: Subject| {
            for submit in [Submit::Auto, Submit::Offload] {
                let subject = subject.cache(Cache::User).submit(submit);
                let scratch = Scratch::new($case);
                let program = subject.launch($program).arg($case).arg(scratch.file("file"));
                subject.assert_served(&program.succeed());
            }
        }, [preload]);
    )+};
}

claims! {
    PROGRAM:
    others_see_what_was_written_before_a_close = "close";
    an_open_sees_what_others_wrote_since = "open";
    plain_calls_see_and_change_what_is_cached = "plain";
    all_descriptors_of_a_file_are_the_file = "descriptors";
    a_file_is_cached_beside_direct_writes = "direct";
    a_mapping_and_requests_are_coherent = "mapping";
    requests_to_a_file_that_was_mapped_before_are_coherent = "mapped";
    a_child_sees_what_was_written_before_the_fork = "fork";
    the_size_and_the_end_are_those_of_the_cache = "size";
    a_submission_does_not_wait_for_the_open_of_another_file = "opening";
}

claims! {
    LIFECYCLE:
    eventfd_counts_completions = "eventfd";
    io_destroy_waits_for_what_is_in_flight = "destroy-in-flight";
    many_threads_share_a_context = "shared";
}

claims! {
    FD_LIFETIME:
    appends_land_in_submission_order = "append";
    overlapping_requests_take_effect_in_order = "overlap";
}

for_each_subject!(advice_is_for_the_cache_that_has_the_file, advice, [preload]);

fn advice(subject: Subject) {
    let scratch = Scratch::new("advice");
    let program = subject.cache(Cache::User).launch(PROGRAM).arg("advice");
    let output = program.arg(scratch.file("file")).succeed();
    let pages = output.reports.iter().map(Report::cached_pages).sum::<u64>();
    assert!(pages >= 2 * 64, "what was not needed any more stayed: {pages} pages read\n{output}");
}

for_each_subject!(no_end_of_the_process_loses_a_write, ends, [preload]);

fn ends(subject: Subject) {
    let subject = subject.cache(Cache::User);
    for way in ["exit", "return", "atexit", "_exit"] {
        let scratch = Scratch::new("exit");
        let file = scratch.file("file");
        let output = subject.launch(LIFECYCLE).arg("exit").arg(&file).arg(way).succeed();
        let bytes = std::fs::read(&file).expect("the file was created");
        let wrong = (0..64 << 16).find(|at| bytes.get(*at) != Some(&((*at >> 16) as u8)));
        assert_eq!(wrong, None, "{way}: the first byte that is not there\n{output}");
    }
}

for_each_subject!(files_with_posix_locks_stay_with_the_kernel, locks, [preload]);

fn locks(subject: Subject) {
    let scratch = Scratch::new("posix-lock");
    let program = subject.cache(Cache::User).launch(FD_LIFETIME).arg("posix-lock");
    let output = program.arg(scratch.file("file")).succeed();
    subject.assert_served(&output);
    // To close a descriptor of ours would drop the lock.
    assert!(output.reports.iter().all(|report| report.cached_pages() == 0), "{output}");
}

for_each_subject!(a_reused_descriptor_never_reaches_the_other_file, reuse, [preload]);

fn reuse(subject: Subject) {
    let subject = subject.cache(Cache::User);
    let scratch = Scratch::new("reuse");
    for way in ["close", "dup2", "dup3", "close_range"] {
        let program = subject.launch(FD_LIFETIME).arg("reuse").arg(scratch.folder(way));
        subject.assert_served(&program.args([way, "200"]).succeed());
    }
}
