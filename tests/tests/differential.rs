//! Wrong and unusual calls have the kernel's results, except in the cases of `MAY_DIFFER` and
//! `MAY_DIFFER_OLD`. The system's library and nowait's libraries run the same table.

use std::sync::OnceLock;

use nowait_tests::differences::differences;
use nowait_tests::for_each_subject;
use nowait_tests::scratch::Scratch;
use nowait_tests::subject::{Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_differential");

/// Cases whose results may differ, with the reasons. (The table has no read of an empty *blocking*
/// pipe: the kernel's `io_submit` would wait for ever, while nowait's `io_submit` returns and the
/// request waits.)
const MAY_DIFFER: &[(&str, &str)] = &[
    #[cfg(target_arch = "aarch64")]
    ("bytes of the largest ssize_t:", "memory ends at 48 bits or at 52, and ours does not ask"),
];

/// Cases whose results may differ on kernels without RWF_NOAPPEND (before 6.9), with the reasons.
const MAY_DIFFER_OLD: &[(&str, &str)] = &[
    ("/dev/", PLAIN_CALLS),
    ("/proc/", PLAIN_CALLS),
    ("write of an eventfd:", PLAIN_CALLS),
    ("short write of an eventfd:", PLAIN_CALLS),
    ("read of an inotify file:", PLAIN_CALLS),
];
const PLAIN_CALLS: &str = "ours cannot tell that the driver knows plain calls only";
const IS_OLD: &str = "RWF_NOAPPEND write: submit EOPNOTSUPP";

for_each_subject!(answers_are_those_of_the_kernel, check, [libaio, preload]);

fn check(subject: Subject) {
    let reference = reference();
    let mut may_differ = MAY_DIFFER.to_vec();
    if reference.contains(IS_OLD) {
        may_differ.extend(MAY_DIFFER_OLD);
    }
    for submit in [Submit::Auto, Submit::Offload] {
        let subject = subject.submit(submit);
        let differences = differences(reference, &table(subject), &may_differ);
        assert!(differences.is_empty(), "{subject}, case: system, ours\n{differences}");
    }
}

fn reference() -> &'static str {
    static REFERENCE: OnceLock<String> = OnceLock::new();
    REFERENCE.get_or_init(|| table(Subject::SYSTEM))
}

fn table(subject: Subject) -> String {
    let scratch = Scratch::new("differential");
    let output = subject.launch(PROGRAM).arg(scratch.path()).succeed();
    subject.assert_served(&output);
    output.stdout
}

#[test]
fn the_table_itself_is_deterministic() {
    assert_eq!(differences(reference(), &table(Subject::SYSTEM), MAY_DIFFER), "");
    assert!(reference().lines().count() > 150, "{}", reference());
}
