//! If a container's seccomp filter forbids a backend, nowait uses the next backend.

use nowait_tests::container::Container;
use nowait_tests::fio::Job;
use nowait_tests::program::Output;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject};

const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");

#[test]
fn docker_forbids_io_uring_and_leaves_native_aio() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    assert!(engine_under(docker(), "libaio").status.success());
    assert!(!engine_under(docker(), "io_uring").status.success());
}

#[test]
fn bare_forbids_native_aio_too() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    assert!(!engine_under(bare(), "libaio").status.success());
    assert!(!engine_under(bare(), "io_uring").status.success());
    assert!(engine_under(bare(), "psync").status.success());
}

#[test]
fn fio_verifies_under_docker_by_libaio() {
    fio(Library::Libaio, docker());
}

#[test]
fn fio_verifies_under_docker_by_preload() {
    fio(Library::Preload, docker());
}

#[test]
fn fio_verifies_under_bare_by_libaio() {
    fio(Library::Libaio, bare());
}

#[test]
fn fio_verifies_under_bare_by_preload() {
    fio(Library::Preload, bare());
}

#[test]
fn qemu_io_works_under_docker() {
    qemu_io(docker());
}

#[test]
fn qemu_io_works_under_bare() {
    qemu_io(bare());
}

#[test]
fn the_harness_passes_under_docker() {
    harness(docker());
}

#[test]
fn the_harness_passes_under_bare() {
    harness(bare());
}

/// Some profiles refuse `preadv2`. nowait must work there, too, if more slowly.
#[test]
fn refused_rwf_nowait_is_survived() {
    for backend in Backend::selected() {
        let Some(subject) = Subject::chosen(Library::Libaio, backend) else { continue };
        let scratch = Scratch::new("rwf");
        let filtered = subject.launch(SECCOMP_RUN).args(["--deny", "rwf=EPERM", "--", "fio"]);
        subject.assert_served(&Job::BASIC.arguments(filtered, scratch.path()).succeed());
    }
}

fn docker() -> Container {
    Container::docker(SECCOMP_RUN)
}

fn bare() -> Container {
    Container::bare(SECCOMP_RUN)
}

fn fio(library: Library, container: Container) {
    if let Some(subject) = container.subject(library) {
        container.hold_fio(subject);
    }
}

fn qemu_io(container: Container) {
    if let Some(subject) = container.subject(Library::Libaio) {
        container.hold_qemu_io(subject);
    }
}

fn harness(container: Container) {
    if let Some(subject) = container.subject(Library::Libaio) {
        container.hold_harness(subject);
    }
}

fn engine_under(container: Container, engine: &str) -> Output {
    let scratch = Scratch::new("engine");
    container
        .launch(Subject::SYSTEM, "fio")
        .args(["--name=probe", "--rw=write", "--size=64k", "--bs=4k"])
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--directory={}", scratch.path().display()))
        .run()
}
