//! Descriptors, locks, mounts and credentials behave as with the kernel's own AIO.

use nowait_tests::for_each_subject;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fd-lifetime");
const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");
const RESERVED_BLOCKS: &str = env!("CARGO_BIN_EXE_reserved-blocks");

/// Ways to close or replace a descriptor, and the rounds of each; 10,000 rounds together.
const WAYS: [(&str, u32); 5] =
    [("close", 3000), ("fclose", 2000), ("dup2", 3000), ("dup3", 1000), ("close_range", 1000)];

for_each_subject!(a_reused_descriptor_never_reaches_the_other_file, reuse, [libaio, preload]);
for_each_subject!(posix_locks_survive_requests, posix_lock, [libaio, preload]);
for_each_subject!(flock_is_released_by_close, flock, [libaio, preload]);
for_each_subject!(reserved_blocks_are_refused_to_the_submitter, reserved, [libaio, preload]);
for_each_subject!(a_program_may_close_everything_and_go_on, close_all, [preload]);
for_each_subject!(closefrom_needs_no_close_range, closefrom, [preload]);
for_each_subject!(a_closed_event_counter_is_gone, event_counter, [preload]);
for_each_subject!(fsync_covers_the_writes_before_it, fsync, [libaio, preload]);
for_each_subject!(files_in_memory_are_no_exception, in_memory, [libaio, preload]);
for_each_subject!(umount_after_completion_is_not_busy, umount, [libaio, preload]);

fn reuse(subject: Subject) {
    let scratch = Scratch::new("reuse");
    for (way, rounds) in WAYS {
        let program = subject.launch(PROGRAM).arg("reuse").arg(scratch.folder(way));
        subject.assert_served(&program.args([way, &rounds.to_string()]).succeed());
    }
}

fn posix_lock(subject: Subject) {
    in_every_mode(subject, "posix-lock");
}

fn close_all(subject: Subject) {
    in_every_mode(subject, "close-all");
}

fn closefrom(subject: Subject) {
    for denied in [&["--deny", "close_range=EPERM"][..], &[]] {
        let scratch = Scratch::new("closefrom");
        let program = subject.disturb(None).launch(SECCOMP_RUN).args(denied);
        let program = program.args(["--", PROGRAM, "closefrom"]).arg(scratch.file("file"));
        subject.assert_served(&program.succeed());
    }
}

/// Runs without the disturber, whose forked children keep the eventfd open until they end.
fn event_counter(subject: Subject) {
    in_every_mode(subject.disturb(None), "event-counter");
}

/// Runs without the disturber, whose forked children keep the open file and its lock until they
/// end.
fn flock(subject: Subject) {
    in_every_mode(subject.disturb(None), "flock");
}

fn in_every_mode(subject: Subject, case: &str) {
    for &submit in modes(subject) {
        let scratch = Scratch::new(case);
        let subject = subject.submit(submit);
        let output = subject.launch(PROGRAM).arg(case).arg(scratch.file("file")).succeed();
        subject.assert_served(&output);
    }
}

fn in_memory(subject: Subject) {
    for &submit in modes(subject) {
        let Some(mount) = skip::unless(Mount::new(Kind::Tmpfs)) else { return };
        let subject = subject.submit(submit);
        let program = subject.launch(PROGRAM).arg("posix-lock").arg(mount.file("file"));
        subject.assert_served(&program.succeed());
        for (way, rounds) in WAYS {
            let program = subject.launch(PROGRAM).arg("reuse").arg(mount.folder(way));
            subject.assert_served(&program.args([way, &(rounds / 4).to_string()]).succeed());
        }
    }
}

fn reserved(subject: Subject) {
    for &submit in modes(subject) {
        let mount = Mount::with_reserved_blocks(40, 32 << 20);
        let Some(mount) = skip::unless(mount) else { return };
        let subject = subject.submit(submit);
        subject.assert_served(&subject.launch(RESERVED_BLOCKS).arg(mount.path()).succeed());
    }
}

fn fsync(subject: Subject) {
    for &submit in modes(subject) {
        let Some(mount) = skip::unless(Mount::new(Kind::Ext4)) else { return };
        let subject = subject.submit(submit);
        let program = subject.launch(PROGRAM).arg("fsync").arg(mount.file("file"));
        subject.assert_served(&program.arg(mount.image().expect("ext4 has one")).succeed());
    }
}

/// Runs without the disturber, whose forked children keep the file open until they end. While these
/// children live, even a program without any AIO could not unmount the file system.
fn umount(subject: Subject) {
    let subject = subject.disturb(None);
    let Some(mount) = skip::unless(Mount::new(Kind::Ext4)) else { return };
    // The first unmount would detach the loop device: this open descriptor keeps it attached.
    let device = mount.device().expect("a loop device");
    let _kept = std::fs::File::open(&device).expect("the loop device");
    let program = subject.launch(PROGRAM).arg("umount").arg(mount.path()).arg(&device);
    subject.assert_served(&program.succeed());
}

/// The system's library has no submit modes: one run is enough.
fn modes(subject: Subject) -> &'static [Submit] {
    let all = &[Submit::Auto, Submit::Offload];
    if subject.is_system() { &all[..1] } else { all }
}

/// The kernel's threads for a ring share the process's descriptor table. Each time that the kernel
/// enlarges a shared table, it waits for all processors. A child of fork has a small table, so the
/// library enlarges the table before it makes a ring.
#[test]
fn the_table_of_a_child_has_room_before_a_ring_is_tried() {
    let Some(subject) = Subject::chosen(Library::Preload, Backend::Uring) else { return };
    let Some(()) = skip::unless(skip::missing_program(&["strace"])) else { return };
    let scratch = Scratch::new("room");
    let log = scratch.file("calls");
    let traced = subject.disturb(None).launch("strace").args(["-f", "-e", "fcntl,io_uring_setup"]);
    traced.arg("-o").arg(&log).args([PROGRAM, "context-in-child"]).succeed();
    let calls = std::fs::read_to_string(&log).expect("strace writes what was called");
    let parent = calls.split(' ').next().expect("the first line begins with a number");
    let of_child: Vec<&str> = calls.lines().filter(|it| !it.starts_with(parent)).collect();
    let room = of_child.iter().position(|it| lowest_number(it).is_some_and(|it| it > 255));
    let ring = of_child.iter().position(|it| it.contains("io_uring_setup("));
    assert!(room.is_some() && ring.is_some() && room < ring, "{calls}");
}

#[test]
fn descriptors_in_turn_are_looked_at_once_in_each_call() {
    let Some(calls) = fcntls_of("turns") else { return };
    assert_eq!(calls.matches("F_GETFL").count(), 2, "one for each file\n{calls}");
}

#[test]
fn the_file_of_long_direct_reads_is_looked_at_again_only_after_a_close() {
    let Some(calls) = fcntls_of("long-reads") else { return };
    assert_eq!(calls.matches("F_GETFL").count(), 4, "two for each file, of 32 reads\n{calls}");
}

fn fcntls_of(case: &str) -> Option<String> {
    let subject = Subject::chosen(Library::Preload, Backend::Auto)?;
    skip::unless(skip::missing_program(&["strace"]))?;
    let scratch = Scratch::new(case);
    let log = scratch.file("calls");
    let traced = subject.disturb(None).launch("strace").args(["-f", "-e", "fcntl", "-o"]);
    let traced = traced.arg(&log).args([PROGRAM, case]);
    traced.arg(scratch.file("one")).arg(scratch.file("other")).succeed();
    Some(std::fs::read_to_string(&log).expect("strace writes what was called"))
}

/// Returns the lowest number that a traced call of fcntl(2) permits for a duplicate.
fn lowest_number(call: &str) -> Option<u32> {
    let (_, floor) = call.split_once("F_DUPFD_CLOEXEC, ")?;
    floor.split(')').next()?.parse().ok()
}
