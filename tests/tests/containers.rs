//! Where a container forbids the better backend, the next one down does the work.

use nowait_tests::fio::Job;
use nowait_tests::harness::{self, Harness};
use nowait_tests::program::{Output, Program};
use nowait_tests::qemu;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject};

const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");

/// The profile, and the backend that is left.
const DOCKER: (&str, Backend) = ("docker", Backend::Kaio);
const BARE: (&str, Backend) = ("bare", Backend::Threads);

#[test]
fn docker_forbids_io_uring_and_leaves_native_aio() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    assert!(engine_under("docker", "libaio").status.success());
    assert!(!engine_under("docker", "io_uring").status.success());
}

#[test]
fn bare_forbids_native_aio_too() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    assert!(!engine_under("bare", "libaio").status.success());
    assert!(!engine_under("bare", "io_uring").status.success());
    assert!(engine_under("bare", "psync").status.success());
}

#[test]
fn fio_verifies_under_docker_by_libaio() {
    fio(Library::Libaio, DOCKER);
}

#[test]
fn fio_verifies_under_docker_by_preload() {
    fio(Library::Preload, DOCKER);
}

#[test]
fn fio_verifies_under_bare_by_libaio() {
    fio(Library::Libaio, BARE);
}

#[test]
fn fio_verifies_under_bare_by_preload() {
    fio(Library::Preload, BARE);
}

#[test]
fn qemu_io_works_under_docker() {
    qemu_io(DOCKER);
}

#[test]
fn qemu_io_works_under_bare() {
    qemu_io(BARE);
}

#[test]
fn the_harness_passes_under_docker() {
    harness(DOCKER);
}

#[test]
fn the_harness_passes_under_bare() {
    harness(BARE);
}

/// Some profiles refuse `preadv2` with flags: that may only cost speed.
#[test]
fn refused_rwf_nowait_is_survived() {
    for backend in Backend::selected() {
        let Some(subject) = Subject::chosen(Library::Libaio, backend) else { continue };
        let scratch = Scratch::new("rwf");
        let filtered = subject.launch(SECCOMP_RUN).args(["--deny", "rwf=EPERM", "--", "fio"]);
        subject.assert_served(&Job::BASIC.arguments(filtered, scratch.path()).succeed());
    }
}

fn fio(library: Library, (profile, left): (&str, Backend)) {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    let Some(subject) = subject(library, left) else { return };
    let scratch = Scratch::new("fio");
    for userspace_reap in [false, true] {
        let job = Job { userspace_reap, ..Job::BASIC };
        let output = job.arguments(filtered(subject, profile, "fio"), scratch.path()).succeed();
        assert_served_by(subject, left, &output);
    }
}

fn qemu_io((profile, left): (&str, Backend)) {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-io"])) else { return };
    let Some(subject) = subject(Library::Libaio, left) else { return };
    let scratch = Scratch::new("qemu-io");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|it| it.set_len(qemu::IMAGE_BYTES)).expect("an image");
    let output = qemu::arguments(filtered(subject, profile, "qemu-io"), &image).succeed();
    assert!(!output.stdout.contains("failed"), "{output}");
    assert_served_by(subject, left, &output);
}

fn harness((profile, left): (&str, Backend)) {
    let Some(built) = skip::unless(Harness::ready()) else { return };
    let Some(subject) = subject(Library::Libaio, left) else { return };
    let wrapper = [SECCOMP_RUN, "--profile", profile, "--"];
    let verdicts = built.run(subject, &built.short_cases(), &wrapper);
    assert!(verdicts.iter().all(|it| it.passed), "\n{}", harness::table(subject, &verdicts));
}

/// Left to choose by itself. The system's library has nothing to fall back to: where native
/// AIO is denied, it is not a subject.
fn subject(library: Library, left: Backend) -> Option<Subject> {
    let subject = Subject::chosen(library, Backend::Auto)?;
    (!subject.is_system() || left == Backend::Kaio).then_some(subject)
}

fn filtered(subject: Subject, profile: &str, program: &str) -> Program {
    subject.launch(SECCOMP_RUN).args(["--profile", profile, "--", program])
}

fn assert_served_by(subject: Subject, left: Backend, output: &Output) {
    Subject { backend: left, ..subject }.assert_served(output);
}

/// fio by another engine and the system's libraries: shows that the filter is real.
fn engine_under(profile: &str, engine: &str) -> Output {
    let scratch = Scratch::new("engine");
    filtered(Subject::SYSTEM, profile, "fio")
        .args(["--name=probe", "--rw=write", "--size=64k", "--bs=4k"])
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--directory={}", scratch.path().display()))
        .run()
}
