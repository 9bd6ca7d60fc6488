//! Forked and cloned children, stopped processes, plug-ins, and threads that end or jump, with
//! requests in flight.
//!
//! The programs are in C: a thread of Rust cannot be cancelled, and a child of vfork must not run
//! Rust.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nowait_tests::differences::differences;
use nowait_tests::for_each_subject;
use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Library, Subject, built};

fn compiled(scratch: &Scratch, name: &str, options: &[&str]) -> Option<PathBuf> {
    skip::unless(skip::missing_program(&["cc"]))?;
    let program = scratch.file(&format!("{name}{}", options.concat().replace('/', "-")));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("process/{name}.c"));
    let cc = Program::new("cc").args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    let cc = cc.args(options).arg(source).arg("-o").arg(&program);
    cc.args(["-pthread", "-Wl,--as-needed", "-laio"]).succeed();
    Some(program)
}

/// Runs a program without the disturber, because some programs count their signals, children or
/// descriptors.
fn holds(subject: Subject, name: &str, args: &[&str]) {
    let scratch = Scratch::new("process");
    let Some(program) = compiled(&scratch, name, &[]) else { return };
    let program = subject.disturb(None).launch(program);
    let wants_folder = matches!(name, "stop" | "children" | "vfork");
    let program = if wants_folder { program.arg(scratch.path()) } else { program };
    subject.assert_served(&program.args(args).succeed());
}

for_each_subject!(
    a_stopped_process_loses_nothing,
    |subject| holds(subject, "stop", &[]),
    [libaio, preload]
);
for_each_subject!(
    children_of_every_kind_leave_requests_to_the_parent,
    |subject| holds(subject, "children", &[]),
    [libaio, preload]
);
for_each_subject!(a_child_of_any_kind_has_what_the_kernel_gives_it, offspring, [libaio, preload]);

/// Also checks children of _Fork, clone and clone3, which run no handlers of fork.
fn offspring(subject: Subject) {
    static SYSTEM: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
    // libaio.so.1 alone does not see that a process ends by _exit or exec.
    let is_watched = subject.library != Library::Libaio;
    let table = |subject: Subject| {
        let scratch = Scratch::new("offspring");
        let program = compiled(&scratch, "offspring", &[])?;
        let program = subject.disturb(None).launch(program).arg(scratch.path());
        let output = program.args(is_watched.then_some("watched")).succeed();
        subject.assert_served(&output);
        Some(output.stdout)
    };
    let Some(answers) = table(subject) else { return };
    let system = || table(Subject::SYSTEM).expect("compiled before");
    let system = SYSTEM[usize::from(is_watched)].get_or_init(system);
    assert_eq!(differences(system, &answers, &[]), "", "{subject}, case: system, ours");
}

for_each_subject!(
    a_child_that_has_cleared_its_environment_is_served_as_asked_and_reports,
    |subject: Subject| {
        let scratch = Scratch::new("cleared");
        let file = scratch.file("file");
        holds(subject, "cleared", &[file.to_str().expect("a path")]);
    },
    [libaio, preload]
);
// `-E` exports the program's own `__register_atfork`, so that libraries call this function.
for_each_subject!(
    handlers_of_fork_stay_while_the_process_exits,
    |subject: Subject| {
        let scratch = Scratch::new("forks");
        let Some(program) = compiled(&scratch, "forks", &["-Wl,-E"]) else { return };
        let program = subject.disturb(None).launch(program).arg(scratch.file("file"));
        subject.assert_served(&program.succeed());
    },
    [libaio, preload]
);
for_each_subject!(
    a_process_ends_when_its_last_thread_does,
    |subject| {
        ends_with_its_last_thread(subject, "alone", "goodbye\n");
        ends_with_its_last_thread(subject, "before", "goodbye\n");
        ends_with_its_last_thread(subject, "both", "goodbye\n");
        ends_with_its_last_thread(subject, "fork", "goodbye\ngoodbye\n");
    },
    [libaio, preload]
);
for_each_subject!(
    a_process_without_threads_is_told_what_it_waits_for,
    |subject| ends_with_its_last_thread(subject, "told", "told\ngoodbye\n"),
    [preload]
);

fn ends_with_its_last_thread(subject: Subject, case: &str, says: &str) {
    let scratch = Scratch::new("last-thread");
    let Some(program) = compiled(&scratch, "last_thread", &[]) else { return };
    let subject = subject.disturb(None);
    let output = subject.launch(&program).arg(scratch.file("file")).arg(case).succeed();
    assert_eq!(output.stdout, says, "{case}");
    subject.assert_served(&output);
}

// daemon(3) ends the parent by _exit, which libaio.so.1 alone does not see; docs/limits.md says so.
for_each_subject!(
    becoming_a_daemon_loses_nothing,
    |subject| holds(subject, "children", &["daemon"]),
    [preload]
);
for_each_subject!(
    what_completes_does_not_interrupt_the_waits_of_the_submitter,
    |subject: Subject| {
        let scratch = Scratch::new("waits");
        let file = scratch.file("file");
        std::fs::write(&file, vec![1; 256 * 4096]).expect("a file");
        holds(subject, "waits", &[file.to_str().expect("a path")]);
    },
    [libaio, preload]
);
// With libaio.so.1 alone the handler runs while the engine's functions are on the stack;
// docs/limits.md says so.
for_each_subject!(
    a_handler_may_end_the_thread_in_io_getevents,
    |subject| holds(subject, "thread_end", &["io_getevents"]),
    [preload]
);
for_each_subject!(
    a_handler_may_end_the_thread_in_io_pgetevents,
    |subject| holds(subject, "thread_end", &["io_pgetevents"]),
    [preload]
);
// The program ends by _exit, so only the preload library writes the report that the test reads.
for_each_subject!(a_handler_may_leave_by_a_jump, jumps, [preload]);
for_each_subject!(
    a_killed_child_of_vfork_leaves_its_parent_as_it_was,
    |subject| holds(subject, "vfork", &[]),
    [preload]
);
for_each_subject!(
    cancelled_threads_leave_the_context_to_others,
    |subject| holds(subject, "cancel", &["libaio"]),
    [libaio, preload]
);
for_each_subject!(
    threads_cancelled_in_syscall_leave_the_context_to_others,
    |subject| holds(subject, "cancel", &["syscall"]),
    [preload]
);
for_each_subject!(
    threads_cancelled_in_plain_calls_leave_the_file_to_others,
    |subject: Subject| {
        let scratch = Scratch::new("cancel");
        let file = scratch.file("file");
        holds(subject, "cancel", &["plain", file.to_str().expect("a path")]);
    },
    [preload]
);
for_each_subject!(
    a_handler_may_end_the_thread_in_aio_suspend,
    |subject| holds(subject, "thread_end", &["aio_suspend"]),
    [preload]
);

/// After a jump out of the C library's aio_suspend, the thread has the asynchronous cancellation
/// type. So the case `aio_suspend` runs only with nowait.
fn jumps(subject: Subject) {
    holds(subject, "jumps", if subject.is_system() { &[] } else { &["aio_suspend"] });
}

for_each_subject!(a_destructor_of_a_library_may_wait_for_requests, destructor, [preload]);

/// The library's destructor runs after the preload library's own.
fn destructor(subject: Subject) {
    let scratch = Scratch::new("destructor");
    let options = ["-shared", "-fPIC", "-DLIBRARY"];
    let Some(library) = compiled(&scratch, "exit_waits", &options) else { return };
    let library = ["-Wl,--no-as-needed", library.to_str().expect("a path")];
    let Some(program) = compiled(&scratch, "exit_waits", &library) else { return };
    let program = subject.disturb(None).launch(program).arg(scratch.file("file"));
    subject.assert_served(&program.succeed());
}

for_each_subject!(a_plug_in_may_go_and_come_with_requests_in_flight, plug_in, [libaio, preload]);

/// In the second run the program loads the preload library by dlopen(3), before the plug-in.
fn plug_in(subject: Subject) {
    let scratch = Scratch::new("plug-in");
    let Some(host) = compiled(&scratch, "plugin", &[]) else { return };
    let options = ["-shared", "-fPIC", "-DPLUGIN"];
    let Some(plugin) = compiled(&scratch, "plugin", &options) else { return };
    let run = |library: Option<PathBuf>| {
        let program = subject.disturb(None).launch(&host).arg(&plugin).arg(scratch.file("file"));
        let program = match library {
            Some(library) => program.arg(library).env("LD_PRELOAD", ""),
            None => program,
        };
        subject.assert_served(&program.succeed());
    };
    run(None);
    if subject.library == Library::Preload {
        run(Some(built("lib/libnowait_preload.so")));
    }
}
