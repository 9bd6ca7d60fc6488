//! nowait no longer has the values `NOWAIT_CACHE=user` (a page cache behind libaio and POSIX AIO)
//! and `NOWAIT_SUBMIT=inline` (a submit mode). If one of them is set, nowait says so in one line
//! and continues with the default.

use nowait_tests::fio::Job;
use nowait_tests::for_each_subject;
use nowait_tests::program::{Output, Program};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::Subject;

const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");
const CACHE: &str = "nowait: NOWAIT_CACHE=user: the page cache behind libaio and POSIX AIO was \
    removed; the kernel's page cache is used (for a cache in user space, use nowait's Rust, C or \
    Python API, or nowait serve)";
const INLINE: &str = "nowait: NOWAIT_SUBMIT=inline: the submit mode inline was removed; auto is \
    used (it makes the first attempt inside submit where that is faster)";

for_each_subject!(a_program_with_libaio_is_told_once_and_served, by_libaio, [libaio, preload]);

fn by_libaio(subject: Subject) {
    check(subject, |scratch| subject.launch(LIFECYCLE).arg("eventfd").arg(scratch.file("file")));
}

for_each_subject!(a_program_with_posix_aio_is_told_once_and_served, by_posix_aio, [preload]);

fn by_posix_aio(subject: Subject) {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    check(subject, |scratch| {
        let job = Job { engine: "posixaio", threads: true, ..Job::BASIC };
        job.arguments(subject.launch("fio"), scratch.path())
    });
}

fn check(subject: Subject, program: impl Fn(&Scratch) -> Program) {
    for (name, value, expected) in [
        ("NOWAIT_CACHE", "user", Some(CACHE)),
        ("NOWAIT_CACHE", "host", None),
        ("NOWAIT_CACHE", "none", Some("nowait: NOWAIT_CACHE=none: expected host or user; ignored")),
        ("NOWAIT_SUBMIT", "inline", Some(INLINE)),
    ] {
        let scratch = Scratch::new("removed");
        let launched = program(&scratch).env(name, value);
        let output = launched.env("NOWAIT_CACHE_SIZE", "16M").succeed();
        subject.assert_served(&output);
        let expected = expected.filter(|_| !subject.is_system());
        assert_eq!(told(&output), Vec::from_iter(expected), "{name}={value}\n{output}");
    }
}

fn told(output: &Output) -> Vec<&str> {
    output.stderr.lines().filter(|line| line.starts_with("nowait: ")).collect()
}
