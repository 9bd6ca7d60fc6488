//! If a program installs a seccomp filter on itself, the kernel does not kill it for system calls
//! of nowait.

use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_confines-itself");
/// The value of `-sandbox` with which libvirt starts QEMU.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// The filter forbids io_uring, so native AIO serves the program.
#[test]
fn before_its_first_context_a_program_may_forbid_all_that_it_does_not_call() {
    for library in [Library::Libaio, Library::Preload] {
        for way in ["seccomp", "prctl"] {
            confine(library, ["before", way, "all"], Backend::Kaio);
        }
    }
}

#[test]
fn what_a_filter_allows_is_used() {
    let ring = || Subject::chosen(Library::Preload, Backend::Uring).is_some();
    if ring() {
        confine(Library::Preload, ["before", "seccomp", "some"], Backend::Uring);
    }
    // In these cases the library does not see the installation of the filter. So it makes only
    // those optional system calls that the program makes, too.
    confine(Library::Preload, ["before", "prctl", "some"], Backend::Kaio);
    confine(Library::Libaio, ["before", "seccomp", "some"], Backend::Kaio);
}

#[test]
fn a_filter_may_come_while_contexts_are_in_use() {
    confine(Library::Preload, ["after", "seccomp", "some"], Backend::Auto);
}

/// The filter kills for ioprio_set(2), and the program's requests have priorities.
#[test]
fn workers_make_no_call_for_a_priority_that_a_filter_kills_for() {
    let Some(subject) = Subject::chosen(Library::Preload, Backend::Threads) else { return };
    for moment in ["before", "after"] {
        let subject = subject.submit(Submit::Offload);
        confine_subject(subject, [moment, "seccomp", "some"], Backend::Threads);
    }
}

fn confine(library: Library, args: [&str; 3], left: Backend) {
    if let Some(subject) = Subject::chosen(library, Backend::Auto) {
        confine_subject(subject, args, left);
    }
}

fn confine_subject(subject: Subject, args: [&str; 3], left: Backend) {
    let scratch = Scratch::new("confined");
    let program = subject.disturb(None).launch(PROGRAM).args(args).arg(scratch.file("file"));
    let output = program.succeed();
    Subject { backend: left, ..subject }.assert_served(&output);
}

#[test]
fn a_virtual_machine_of_libvirt_writes_and_reads_its_image() {
    const QEMU: &str = "qemu-system-x86_64";
    let Some(()) = skip::unless(skip::missing_program(&[QEMU])) else { return };
    let Some(subject) = Subject::chosen(Library::Preload, Backend::Auto) else { return };
    let scratch = Scratch::new("sandbox");
    let (image, commands) = (scratch.file("image"), scratch.file("commands"));
    std::fs::File::create(&image).and_then(|it| it.set_len(8 << 20)).expect("an image");
    let lines = "qemu-io disk \"write -P 0x5a 1M 1M\"\nqemu-io disk \"read -P 0x5a 1M 1M\"\nquit\n";
    std::fs::write(&commands, lines).expect("the commands");
    let drive = format!(
        "if=none,id=disk,format=raw,cache=none,aio=native,file={}",
        image.to_str().expect("a path of text")
    );
    let output = subject
        .disturb(None)
        .launch(QEMU)
        .args(["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio"])
        .args(["-sandbox", SANDBOX, "-drive", &drive])
        .stdin(std::fs::File::open(&commands).expect("the commands"))
        .succeed();
    assert!(output.stdout.contains("read 1048576/1048576"), "{output}");
    assert!(!output.stdout.contains("failed"), "{output}");
    subject.assert_served(&output);
    let bytes = std::fs::read(&image).expect("the image");
    assert!(bytes[1 << 20..2 << 20].iter().all(|byte| *byte == 0x5a), "the image");
}
