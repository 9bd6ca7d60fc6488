//! Random overlapping requests take effect in the order of the kernel's AIO, which
//! `src/bin/order/rule.rs` describes.
//!
//! A seed decides the file and the requests of a script, and not the order in which requests
//! complete. `NOWAIT_SEED=17` begins with that seed; `NOWAIT_REQUESTS` is the number of requests of
//! each run.

use std::time::Duration;

use nowait_tests::mount::{Kind, Mount};
use nowait_tests::skip;
use nowait_tests::subject::{Library, Subject, Submit};
use nowait_tests::{for_each_subject, full};

const PROGRAM: &str = env!("CARGO_BIN_EXE_order");
const REQUESTS: u64 = 2_500;
const REQUESTS_FULL: u64 = 250_000;
/// Distance between the first seeds of two libraries or submit modes, so that these run different
/// scripts.
const SEEDS_APART: u64 = 1 << 32;

for_each_subject!(on_ext4_requests_take_effect_in_order, ext4, [libaio, preload]);
for_each_subject!(on_xfs_requests_take_effect_in_order, xfs, [libaio, preload]);
for_each_subject!(on_btrfs_requests_take_effect_in_order, btrfs, [libaio, preload]);
for_each_subject!(on_tmpfs_requests_take_effect_in_order, tmpfs, [libaio, preload]);

fn ext4(subject: Subject) {
    check(subject, Kind::Ext4);
}

fn xfs(subject: Subject) {
    check(subject, Kind::Xfs);
}

fn btrfs(subject: Subject) {
    check(subject, Kind::Btrfs);
}

fn tmpfs(subject: Subject) {
    check(subject, Kind::Tmpfs);
}

fn check(subject: Subject, kind: Kind) {
    let Some(mount) = skip::unless(Mount::new(kind)) else { return };
    for submit in [Submit::Auto, Submit::Offload] {
        let output = run(subject.submit(submit), &mount);
        subject.assert_served(&output);
    }
}

#[test]
fn the_kernel_keeps_the_order_that_is_demanded() {
    for kind in [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Tmpfs] {
        let Some(mount) = skip::unless(Mount::new(kind)) else { return };
        run(Subject::SYSTEM, &mount);
    }
}

fn run(subject: Subject, mount: &Mount) -> nowait_tests::program::Output {
    const HOURS: u64 = 3;
    let usual = if full() { REQUESTS_FULL } else { REQUESTS };
    let apart = u64::from(subject.library == Library::Preload)
        + 2 * u64::from(subject.submit == Submit::Offload);
    let first = number("NOWAIT_SEED", apart * SEEDS_APART).to_string();
    let program = subject.launch(PROGRAM).arg("run").arg(mount.path()).arg(first);
    let program = program.arg(number("NOWAIT_REQUESTS", usual).to_string());
    program.deadline(Duration::from_hours(HOURS)).succeed()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
