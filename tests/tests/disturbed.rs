//! Quick forms of other tests with the disturber: a thread of the tested program that sets the
//! group of the process, forks, and sends signals (`tests/disturber`). Without
//! `NOWAIT_TEST_DISTURB`, each backend has a seed of its own. To run a whole test with any seed:
//! `NOWAIT_TEST_DISTURB=SEED cargo test -p nowait-tests --test NAME`.

use nowait_tests::container::Container;
use nowait_tests::contexts;
use nowait_tests::differences::differences;
use nowait_tests::disturber;
use nowait_tests::for_each_subject;
use nowait_tests::harness::{self, Harness};
use nowait_tests::posix::{Conformance, Symbols};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Library, Subject};

const DIFFERENTIAL: &str = env!("CARGO_BIN_EXE_differential");
const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");
const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");

/// Results that may differ in a disturbed program, as they do with the kernel's AIO.
const ALLOWED: &[(&str, &str)] =
    &[("large read of /dev/", "the kernel ends a read of a device where a signal comes")];

for_each_subject!(libaio_s_own_cases_pass_disturbed, own_cases, [libaio]);
for_each_subject!(contexts_live_and_die_as_ever_disturbed, lifecycle, [libaio, preload]);
for_each_subject!(answers_are_the_same_disturbed, answers, [libaio, preload]);
for_each_subject!(posix_aio_conforms_disturbed, posix, [preload]);

fn disturbed(subject: Subject) -> Subject {
    subject.disturb(disturber::seed().or(Some(subject.backend as u64 + 1)))
}

#[test]
fn programs_under_docker_s_filter_are_right_disturbed() {
    filtered(Container::docker(SECCOMP_RUN));
}

#[test]
fn programs_without_io_uring_and_native_aio_are_right_disturbed() {
    filtered(Container::bare(SECCOMP_RUN));
}

fn filtered(container: Container) {
    for library in [Library::Libaio, Library::Preload] {
        let Some(subject) = container.subject(library) else { continue };
        let left = disturbed(Subject { backend: container.left, ..subject });
        let subject = subject.disturb(left.disturb);
        container.hold_fio(subject);
        if library == Library::Libaio {
            container.hold_qemu_io(subject);
            container.hold_harness(subject);
        }
    }
}

fn own_cases(subject: Subject) {
    let Some(built) = skip::unless(Harness::ready()) else { return };
    let subject = disturbed(subject);
    let verdicts = built.run(subject, &built.short_cases(), &[]);
    assert!(verdicts.iter().all(|it| it.passed), "\n{}", harness::table(subject, &verdicts));
}

fn lifecycle(subject: Subject) {
    if subject.is_system() {
        return; // the system's io_submit waits for streams
    }
    for case in contexts::CASES {
        contexts::run(subject, disturbed(subject).launch(LIFECYCLE), case);
    }
}

fn answers(subject: Subject) {
    let table = |subject: Subject| {
        let scratch = Scratch::new("differential");
        subject.launch(DIFFERENTIAL).arg(scratch.path()).succeed().stdout
    };
    let (alone, disturbed) = (table(subject.disturb(None)), table(disturbed(subject)));
    let differences = differences(&alone, &disturbed, ALLOWED);
    assert!(differences.is_empty(), "{subject}, case: alone, disturbed\n{differences}");
}

fn posix(subject: Subject) {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    let mut cases = built.cases("*");
    cases.retain(|case| case.glibc);
    built.demand(disturbed(subject), &cases);
}
