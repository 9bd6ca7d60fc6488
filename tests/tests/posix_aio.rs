//! POSIX AIO: the cases of the conformance program (`tests/posix`) with each backend, and
//! unmodified programs that use POSIX AIO.

use nowait_tests::fio::{Job, Mode};
use nowait_tests::for_each_subject;
use nowait_tests::posix::{Conformance, Symbols};
use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject};

const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");

macro_rules! pages {
    ($($name:ident = $page:literal;)+) => {
        const PAGES: &[&str] = &[$($page),+];
        $(for_each_subject!($name, |subject| page_holds(subject, $page), [preload]);)+
    };
}

pages! {
    aio_read_is_as_the_standard_says = "aio_read";
    aio_write_is_as_the_standard_says = "aio_write";
    aio_fsync_is_as_the_standard_says = "aio_fsync";
    aio_error_is_as_the_standard_says = "aio_error";
    aio_return_is_as_the_standard_says = "aio_return";
    aio_suspend_is_as_the_standard_says = "aio_suspend";
    aio_cancel_is_as_the_standard_says = "aio_cancel";
    lio_listio_is_as_the_standard_says = "lio_listio";
    notices_are_as_the_standard_says = "aio_h";
    limits_are_as_the_standard_says = "sysconf";
    aio_init_does_no_harm = "aio_init";
    setuid_is_not_hindered = "setuid";
    cancelled_threads_end_where_they_may = "pthread_cancel";
    close_does_not_hinder_requests = "close";
    the_end_of_a_thread_does_not_hinder_requests = "pthread_exit";
    fork_leaves_requests_to_the_parent = "fork";
    the_end_of_the_process_completes_writes = "exit";
    exec_completes_writes_and_keeps_quiet = "exec";
}

/// The page whose results depend on the backend: `few_threads_serve_many_reads` runs each of its
/// cases on the backends for which the case holds.
const THREADS: &str = "threads";

fn page_holds(subject: Subject, page: &str) {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    let mut cases = built.cases(page);
    cases.retain(|case| case.glibc || !subject.is_system());
    built.demand(subject, &cases);
}

#[test]
fn no_page_is_forgotten() {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    let forgotten: Vec<&str> =
        built.pages().into_iter().filter(|it| !PAGES.contains(it) && *it != THREADS).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

/// glibc must pass the cases that are marked as conforming: a case that glibc fails may test a
/// property of nowait, not the standard.
#[test]
fn glibc_keeps_the_claims_it_is_said_to_keep() {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    let mut cases = built.cases("*");
    cases.retain(|case| case.glibc);
    built.demand(Subject::SYSTEM, &cases);
}

/// Programs that were built with 64-bit offsets or on old distributions use other symbols for the
/// same functions.
#[test]
fn the_64_names_and_the_old_versions_are_the_same() {
    let Some(subject) = Subject::chosen(Library::Preload, Backend::Auto) else { return };
    for symbols in [Symbols::Large, Symbols::Old] {
        let Some(built) = skip::unless(Conformance::built(symbols)) else { return };
        let mut cases = built.cases("*");
        cases.retain(|case| case.glibc || !subject.is_system());
        built.demand(subject, &cases);
    }
}

/// The threads backend needs a thread for each read in flight. io_uring needs few threads, and so
/// does native AIO for direct reads.
#[test]
fn few_threads_serve_many_reads() {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    for (backend, name) in [
        (Backend::Uring, "at_most_four_serve_64_buffered_reads"),
        (Backend::Uring, "at_most_four_serve_64_direct_reads"),
        (Backend::Kaio, "at_most_four_serve_64_direct_reads"),
    ] {
        let Some(subject) = Subject::chosen(Library::Preload, backend) else { continue };
        if !subject.is_system() {
            let cases = built.cases(THREADS).into_iter().filter(|case| case.name == name);
            built.demand(subject, &cases.collect::<Vec<_>>());
        }
    }
}

for_each_subject!(a_refused_priority_fails_no_request, without_priorities, [preload]);

fn without_priorities(subject: Subject) {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    let mut cases = built.cases("*");
    cases.retain(|case| case.name == "takes_every_allowed_priority");
    assert_eq!(cases.len(), 2, "of aio_read and of aio_write");
    built.demand_under(subject, &cases, &[SECCOMP_RUN, "--deny", "ioprio=EPERM", "--"]);
}

for_each_subject!(fio_verifies, |subject| fio(subject, None), [preload]);

fn fio(subject: Subject, profile: Option<&str>) {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    for mode in [Mode::Buffered, Mode::Direct, Mode::Sync] {
        let scratch = Scratch::new("fio");
        let job = Job { engine: "posixaio", mode, ..Job::BASIC };
        let program = launched(subject, profile, "fio");
        let output = job.arguments(program, scratch.path()).succeed();
        assert!(!output.stderr.contains("verify:"), "{subject} {job:?}\n{output}");
        subject.assert_served(&output);
    }
}

for_each_subject!(stress_ng_verifies, |subject| stress(subject, None), [preload]);

fn stress(subject: Subject, profile: Option<&str>) {
    let Some(()) = skip::unless(skip::missing_program(&["stress-ng"])) else { return };
    let scratch = Scratch::new("stress");
    let output = launched(subject, profile, "stress-ng")
        .args(["--aio", "2", "--aio-requests", "64", "--aio-ops", "4000", "--verify"])
        .arg("--temp-path")
        .arg(scratch.path())
        .succeed();
    assert!(!output.stdout.contains("fail:") && !output.stderr.contains("fail:"), "{output}");
    subject.assert_served(&output);
}

fn launched(subject: Subject, profile: Option<&str>, program: &str) -> Program {
    match profile {
        Some(profile) => {
            let subject = Subject { backend: Backend::Auto, ..subject };
            subject.launch(SECCOMP_RUN).args(["--profile", profile, "--", program])
        }
        None => subject.launch(program),
    }
}

/// The seccomp profile, and the backend that works under the profile.
const CONTAINERS: [(&str, Backend); 2] = [("docker", Backend::Kaio), ("bare", Backend::Threads)];

#[test]
fn fio_verifies_in_containers_without_io_uring() {
    in_containers(fio);
}

#[test]
fn stress_ng_verifies_in_containers_without_io_uring() {
    in_containers(stress);
}

fn in_containers(run: fn(Subject, Option<&str>)) {
    for (profile, left) in CONTAINERS {
        let Some(subject) = Subject::chosen(Library::Preload, Backend::Auto) else { return };
        if !subject.is_system() {
            run(Subject { backend: left, ..subject }, Some(profile));
        }
    }
}
