//! io_uring as before Linux 6.7, which a seccomp filter simulates on a newer kernel. Before Linux
//! 6.7 a ring cannot wait on a word of memory, so the library uses eventfds to wake threads that
//! wait in a ring. An eventfd may have different numbers in the descriptor tables of the program
//! and of the engine.

use nowait_tests::contexts;
use nowait_tests::program::Program;
use nowait_tests::report::Report;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject, Submit, built};

const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");
const BORDERS: &str = env!("CARGO_BIN_EXE_borders");
const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");
const SCARCE: &str = env!("CARGO_BIN_EXE_scarce");
const SETXID: &str = env!("CARGO_BIN_EXE_setxid");

/// Cases of `borders`, the rounds of each, and `true` if only the preload library can pass the
/// case.
const ENDINGS: &[(&str, u32, bool)] = &[
    ("exit", 6, false),
    ("destroy", 10, false),
    ("thread-exit", 6, false),
    ("_exit", 6, true),
    ("exec", 6, true),
    ("exec-fails", 6, true),
    ("handler-exit", 10, true),
    ("handler-calls", 6, true),
];

fn subjects() -> impl Iterator<Item = Subject> {
    let libraries = [Library::Libaio, Library::Preload].into_iter();
    let chosen = libraries.filter_map(|library| Subject::chosen(library, Backend::Uring));
    chosen.filter(|subject| !subject.is_system())
}

fn filtered(subject: Subject, program: &str) -> Program {
    subject.launch(SECCOMP_RUN).args(["--profile", "words", "--", program])
}

fn lifecycle(subject: Subject, case: &str) {
    contexts::run(subject, filtered(subject, LIFECYCLE), case);
}

#[test]
fn the_filter_hides_what_rings_can_wait_on() {
    for _ in subjects().take(1) {
        let doctor = Program::new(SECCOMP_RUN).args(["--profile", "words", "--"]);
        let output = doctor.arg(built("bin/nowait")).arg("doctor").run();
        assert!(output.stdout.contains("without read, write"), "{output}{}", output.stdout);
    }
}

#[test]
fn contexts_live_and_die_as_ever() {
    for subject in subjects() {
        contexts::CASES.iter().for_each(|case| lifecycle(subject, case));
    }
}

#[test]
fn contexts_live_and_die_as_ever_beside_forks_signals_and_changes_of_groups() {
    for subject in subjects() {
        for (seed, case) in (1..).zip(contexts::CASES) {
            lifecycle(subject.disturb(Some(seed)), case);
        }
    }
}

#[test]
fn setuid_changes_every_thread() {
    let Some(()) = skip::unless(skip::missing_root()) else { return };
    for subject in subjects() {
        for submit in [Submit::Auto, Submit::Offload] {
            let (scratch, subject) = (Scratch::new("counters"), subject.submit(submit));
            let program = filtered(subject, SETXID).arg("in-flight").arg(scratch.path());
            subject.assert_loaded(&program.succeed());
        }
    }
}

#[test]
fn what_ends_loses_nothing() {
    for subject in subjects() {
        let seen = |it: &&(&str, u32, bool)| !it.2 || subject.library == Library::Preload;
        for (case, rounds, _) in ENDINGS.iter().filter(seen) {
            let scratch = Scratch::new("counters");
            let program = filtered(subject, BORDERS).arg(case).arg(scratch.path());
            program.arg(rounds.to_string()).succeed();
        }
    }
}

#[test]
fn a_wait_with_nothing_to_do_is_not_cut_into_slices() {
    subjects().for_each(|subject| lifecycle(subject, "idle"));
}

/// A thread of the program may have a descriptor table of its own, which no thread of the library
/// shares.
#[test]
fn a_table_of_descriptors_ends_with_its_thread() {
    subjects().for_each(|subject| lifecycle(subject, "own-table"));
}

/// Like `a_start_that_failed_is_not_for_ever` in `lifecycle.rs`. Here the ring also needs an
/// eventfd: if only the descriptor of the eventfd is missing, threads serve the program.
#[test]
fn a_start_that_lacks_the_counter_alone_is_served_by_threads() {
    for subject in subjects() {
        let served_by = |left: u32| {
            let scratch = Scratch::new("counters");
            let program = filtered(subject, SCARCE).arg(left.to_string());
            let output = program.arg(scratch.file("file")).succeed();
            let lacked = output.reports.iter().any(Report::lacked_descriptors);
            let backend = if lacked { Backend::Threads } else { Backend::Uring };
            Subject { backend, ..subject }.assert_served(&output);
            backend
        };
        let backends: Vec<Backend> = (0..8).map(served_by).collect();
        let by_threads = backends.iter().filter(|it| **it == Backend::Threads).count();
        assert!((1..4).contains(&by_threads), "{backends:?}");
    }
}
