//! A library with plausible mistakes must fail tests. The failures prove that the tests find the
//! mistakes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::mount::{Kind, Mount};
use nowait_tests::program::{Output, Program};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;

const FD_LIFETIME: &str = env!("CARGO_BIN_EXE_fd-lifetime");
const ORDER: &str = env!("CARGO_BIN_EXE_order");
const RESERVED_BLOCKS: &str = env!("CARGO_BIN_EXE_reserved-blocks");
const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");

struct Canary {
    library: PathBuf,
    scratch: Scratch,
}

impl Canary {
    fn built() -> Option<Self> {
        skip::unless(skip::missing_program(&["cc"]))?;
        let scratch = Scratch::new("canary");
        let library = scratch.file("naive.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("canary/naive.c");
        let cc = Program::new("cc").args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]);
        cc.arg(&library).arg(source).succeed();
        Some(Self { library, scratch })
    }

    fn program(&self, program: &str) -> Program {
        Program::new(program).env("LD_PRELOAD", &self.library).env("RUST_BACKTRACE", "0")
    }

    fn case(&self, name: &str) -> Output {
        self.program(FD_LIFETIME).arg(name).arg(self.scratch.file("file")).run()
    }
}

#[track_caller]
fn assert_noticed(output: &Output, what: &str) {
    assert!(!output.status.success(), "not noticed\n{output}");
    assert!(output.stderr.contains(what), "noticed something else\n{output}");
}

/// If the canary could not serve this program, the programs of the other tests could fail for other
/// reasons than the mistakes.
#[test]
fn the_canary_serves_a_simple_program() {
    let Some(canary) = Canary::built() else { return };
    let output = canary.case("flock");
    assert!(output.status.success(), "{output}");
}

#[test]
fn a_request_on_the_next_owner_of_the_number_is_noticed() {
    let Some(canary) = Canary::built() else { return };
    let program = canary.program(FD_LIFETIME).arg("reuse").arg(canary.scratch.path());
    assert_noticed(&program.args(["dup2", "10"]).run(), "round 0");
}

#[test]
fn a_lock_lost_to_a_closed_duplicate_is_noticed() {
    let Some(canary) = Canary::built() else { return };
    assert_noticed(&canary.case("posix-lock"), "after 1 uncached reads");
}

#[test]
fn a_reversed_order_is_noticed_by_random_requests() {
    let Some(canary) = Canary::built() else { return };
    let program = canary.program(ORDER).arg("run").arg(canary.scratch.path());
    assert_noticed(&program.args(["0", "5000"]).run(), "order again");
}

#[test]
fn reversed_overlapping_requests_are_noticed() {
    let Some(canary) = Canary::built() else { return };
    assert_noticed(&canary.case("overlap"), "the read after write");
}

#[test]
fn an_fsync_that_does_nothing_is_noticed() {
    let Some(canary) = Canary::built() else { return };
    let Some(mount) = skip::unless(Mount::new(Kind::Ext4)) else { return };
    let program = canary.program(FD_LIFETIME).arg("fsync").arg(mount.file("file"));
    assert_noticed(&program.arg(mount.image().unwrap()).run(), "on the device");
}

#[test]
fn a_write_with_another_thread_s_rights_is_noticed() {
    let Some(canary) = Canary::built() else { return };
    let mount = Mount::with_reserved_blocks(40, 32 << 20);
    let Some(mount) = skip::unless(mount) else { return };
    let output = canary.program(RESERVED_BLOCKS).arg(mount.path()).run();
    assert_noticed(&output, "the reserve");
}

#[test]
fn a_hang_is_a_failure_that_says_where() {
    let hangs = Program::new("sleep").arg("1000").deadline(Duration::from_millis(200));
    let message = hangs.try_run().unwrap_err();
    assert!(message.contains("hangs for 200ms: sleep 1000"), "{message}");
    assert!(message.contains("nanosleep"), "{message}");
}

#[test]
fn writes_forgotten_at_exit_are_noticed() {
    let Some(canary) = Canary::built() else { return };
    let file = canary.scratch.file("file");
    canary.program(LIFECYCLE).arg("exit").arg(&file).arg("return").succeed();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0, "which tests/lifecycle.rs refuses");
}
