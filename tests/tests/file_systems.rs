//! Requests on file systems that are full, shared, frozen, replaced or made read-only.

use std::path::Path;
use std::process::Command;

use nowait_tests::differences::{differences, with_timers_read};
use nowait_tests::for_each_subject;
use nowait_tests::fuse::Shown;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip::{self, Skip};
use nowait_tests::subject::{Backend, Library, Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_file-systems");
const FD_LIFETIME: &str = env!("CARGO_BIN_EXE_fd-lifetime");
const DESCRIPTORS: &str = env!("CARGO_BIN_EXE_descriptors");

/// Rows that may differ from the kernel's AIO, with the reasons; `descriptors.rs` has the same.
const MAY_DIFFER: [(&str, &str); 2] = [
    ("close, for an event counter:", "ours writes to counters, which the kernel's AIO cannot"),
    ("raw, for an event counter:", "the same"),
];

for_each_subject!(on_xfs_answers_are_those_of_the_kernel, xfs, [libaio, preload]);
for_each_subject!(on_btrfs_answers_are_those_of_the_kernel, btrfs, [libaio, preload]);
for_each_subject!(on_an_overlay_answers_are_those_of_the_kernel, overlay, [libaio, preload]);

fn xfs(subject: Subject) {
    compare(subject, Mount::new(Kind::Xfs));
}

fn btrfs(subject: Subject) {
    compare(subject, Mount::new(Kind::Btrfs));
}

fn overlay(subject: Subject) {
    compare(subject, Mount::overlay());
}

fn compare(subject: Subject, mount: Result<Mount, Skip>) {
    let Some(mount) = skip::unless(mount) else { return };
    let rows =
        |subject: Subject| subject.launch(PROGRAM).arg("rows").arg(mount.path()).succeed().stdout;
    let found = differences(&rows(Subject::SYSTEM), &rows(subject), &[]);
    assert!(found.is_empty(), "{subject}, row: system, ours\n{found}");
    // The preload library does not run these rows. libaio.so.1 is the harder case, because it does
    // not see that the program closes a descriptor.
    let modes: &[_] =
        if subject.library == Library::Preload { &[] } else { &["buffered", "direct"] };
    for mode in modes {
        let table = |subject: Subject| {
            subject.launch(DESCRIPTORS).arg(mount.path()).arg(mode).succeed().stdout
        };
        let reference = with_timers_read(&table(Subject::SYSTEM));
        let differences = differences(&reference, &table(subject), &MAY_DIFFER);
        assert!(differences.is_empty(), "{subject}, {mode}, row: system, ours\n{differences}");
    }
}

for_each_subject!(on_fuse_overlapping_requests_take_effect_in_order, fuse, [libaio, preload]);

fn fuse(subject: Subject) {
    let scratch = Scratch::new("fuse");
    let image = scratch.file("image");
    let made = std::fs::File::create(&image).and_then(|file| file.set_len(4 << 20));
    made.expect("an image");
    let shown = scratch.file("shown");
    let Some(shown) = Shown::start(&scratch, &shown, &[image.to_str().expect("a path")]) else {
        return;
    };
    let output = subject.launch(FD_LIFETIME).arg("overlap").arg(shown.file()).succeed();
    subject.assert_served(&output);
    shown.stop();
}

for_each_subject!(where_nothing_is_left_the_answer_is_that_of_the_kernel, full, [libaio, preload]);

fn full(subject: Subject) {
    for kind in [Kind::Ext4, Kind::Tmpfs] {
        let table = |subject: Subject| {
            let made = match kind {
                Kind::Tmpfs => Mount::new(kind),
                _ => Mount::with_reserved_blocks(0, 64 << 20),
            };
            let mount = skip::unless(made)?;
            let output = subject.launch(PROGRAM).arg("full").arg(mount.path()).succeed();
            let folder = mount.path().to_str().expect("a path");
            Some(output.stdout.replace(folder, ""))
        };
        let (Some(reference), Some(ours)) = (table(Subject::SYSTEM), table(subject)) else {
            return;
        };
        let differences = differences(&reference, &ours, &[]);
        assert!(differences.is_empty(), "{subject}, {}\n{differences}", kind.name());
        assert!(reference.contains("write -28"), "no write was refused\n{reference}");
    }
}

for_each_subject!(a_limit_is_told_by_the_request_that_meets_it, quota, [libaio, preload]);

fn quota(subject: Subject) {
    let Some(mount) = skip::unless(Mount::new(Kind::Btrfs)) else { return };
    for args in [&["quota", "enable"][..], &["qgroup", "limit", "8M"]] {
        let made = Command::new("btrfs").args(args).arg(mount.path()).status();
        assert!(made.is_ok_and(|status| status.success()), "btrfs {args:?}");
    }
    subject.launch(PROGRAM).arg("quota").arg(mount.path()).succeed();
}

for_each_subject!(while_it_is_frozen_writes_wait_and_submit_does_not, frozen, [libaio, preload]);

fn frozen(subject: Subject) {
    if subject.is_system() {
        return; // its io_submit waits, and the program would never thaw the file system
    }
    let Some(mount) = skip::unless(Mount::new(Kind::Ext4)) else { return };
    let thawing = Thawing(mount.path());
    for submit in [Submit::Auto, Submit::Offload] {
        // Native AIO begins a direct write inside io_submit, which then waits for the thaw. The
        // same happens with a ring if the submitting thread enters the ring.
        let is_native = match subject.backend {
            Backend::Kaio => true,
            Backend::Threads => false,
            Backend::Auto | Backend::Uring => submit == Submit::Auto,
        };
        // In `auto` mode io_submit itself carries out a buffered write, and waits for the thaw, as
        // the kernel's AIO does.
        let modes = [("buffered", submit == Submit::Offload), ("direct", !is_native)];
        for (mode, _) in modes.into_iter().filter(|(_, is_tried)| *is_tried) {
            let program = subject.submit(submit).launch(PROGRAM).arg("frozen");
            let output = program.arg(mount.path()).arg(mode).succeed();
            subject.assert_served(&output);
        }
    }
    drop(thawing);
}

/// Thaws a file system when dropped: a program that failed may have left it frozen.
struct Thawing<'a>(&'a Path);

impl Drop for Thawing<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).output();
    }
}

for_each_subject!(what_is_mounted_next_in_its_place_is_looked_at, replaced, [libaio, preload]);

fn replaced(subject: Subject) {
    for kind in [Kind::Ext4, Kind::Btrfs] {
        let Some(mount) = skip::unless(Mount::new(kind)) else { return };
        let device = mount.device().expect("a loop device");
        let scratch = Scratch::new("replaced");
        let program = subject.launch(PROGRAM).arg("replaced").arg(scratch.path());
        subject.assert_served(&program.arg(device).arg(kind.name()).succeed());
    }
}

for_each_subject!(nothing_of_ours_keeps_a_file_system_writable, read_only, [libaio, preload]);

fn read_only(subject: Subject) {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(mount) = skip::unless(Mount::new(kind)) else { return };
        let output = subject.launch(PROGRAM).arg("read-only").arg(mount.path()).succeed();
        subject.assert_served(&output);
    }
}
