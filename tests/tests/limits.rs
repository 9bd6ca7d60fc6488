//! The memory that the library takes in a process, and its behaviour when memory limits are
//! exhausted.

use std::path::{Path, PathBuf};

use nowait_tests::for_each_subject;
use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject};

fn compiled(scratch: &Scratch, name: &str) -> Option<PathBuf> {
    skip::unless(skip::missing_program(&["cc"]))?;
    let program = scratch.file(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("memory/{name}.c"));
    let cc = Program::new("cc").args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    cc.arg(source).arg("-o").arg(&program).args(["-pthread", "-laio"]).succeed();
    Some(program)
}

fn kib(status: &str, name: &str) -> u64 {
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = lines.next().expect(name);
    value.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_program_that_uses_no_aio_pays_nearly_nothing() {
    let scratch = Scratch::new("idle");
    let Some(program) = compiled(&scratch, "idle") else { return };
    // The size varies: how much of a library the kernel maps at a page fault depends on the
    // library's address.
    const RUNS: usize = 9;
    let usual = |subject: Subject, name: &str| {
        let subject = Subject { disturb: None, limit: None, ..subject };
        let run = |_| kib(&subject.launch(&program).succeed().stdout, name);
        let mut runs: Vec<u64> = (0..RUNS).map(run).collect();
        runs.sort_unstable();
        runs[RUNS / 2]
    };
    for library in [Library::Libaio, Library::Preload] {
        let Some(subject) = Subject::chosen(library, Backend::Auto) else { continue };
        for (name, more_kib_max) in [("VmSize", 16 << 10), ("Rss", 1 << 10)] {
            let (with, alone) = (usual(subject, name), usual(Subject::SYSTEM, name));
            assert!(with <= alone + more_kib_max, "{subject}: {name} {with} KiB, alone {alone}");
        }
    }
}

for_each_subject!(
    a_shortage_of_addresses_is_an_error_of_the_call,
    |subject| runs_short(subject, "as"),
    [libaio, preload]
);
for_each_subject!(
    a_shortage_of_data_is_an_error_of_the_call,
    |subject| runs_short(subject, "data"),
    [libaio, preload]
);
for_each_subject!(
    a_shortage_of_locked_memory_is_an_error_of_the_call,
    |subject| {
        if skip::unless(skip::missing_root()).is_some() {
            runs_short(subject, "memlock");
        }
    },
    [libaio, preload]
);

/// KiB of memory that a limit leaves: from 0 to more than the engine's start and all requests need.
const LEFT_KIB: &[u32] = &[0, 64, 256, 600, 900, 1200, 1500, 1700, 2000, 2500, 3500, 6000];

fn runs_short(subject: Subject, limit: &str) {
    let scratch = Scratch::new("shortage");
    let Some(program) = compiled(&scratch, "shortage") else { return };
    let subject = Subject { disturb: None, limit: None, ..subject };
    for when in ["load", "start", "started"] {
        // For `load`, the program sets the limit before execve(2). execve(2) unlocks memory, so
        // `memlock` has no effect; and with less than 64 KiB the loader itself fails.
        let skipped = match (limit, when) {
            ("memlock", "load") => continue,
            (_, "load") => 1,
            _ => 0,
        };
        for left in &LEFT_KIB[skipped..] {
            let program = subject.launch(&program).arg(scratch.file("file"));
            let program = program.args([limit, when]).arg(left.to_string());
            let is_posix = subject.library == Library::Preload;
            let program = if is_posix { program.arg("posix") } else { program };
            subject.assert_loaded(&program.succeed());
        }
    }
}
