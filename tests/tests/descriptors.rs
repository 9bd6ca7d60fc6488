//! Requests on descriptor numbers and open files that change have the results of the kernel's AIO,
//! except in the rows of `MAY_DIFFER` and for reads of a timerfd.

use std::path::Path;
use std::sync::OnceLock;

use nowait_tests::differences::{differences, with_timers_read};
use nowait_tests::for_each_subject;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::scratch::Scratch;
use nowait_tests::subject::{Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_descriptors");

/// `Ext4` stands for the file system of the temporary folder, `Tmpfs` for a new tmpfs. On these,
/// requests may take different paths in the library.
const KINDS: [Kind; 2] = [Kind::Ext4, Kind::Tmpfs];
const MODES: [&str; 2] = ["buffered", "direct"];

/// Rows that may differ from the kernel's AIO, with the reasons.
const MAY_DIFFER: [(&str, &str); 2] = [
    (
        "close, for an event counter:",
        "before Linux 6.9 ours writes to counters, which the kernel's AIO refuses",
    ),
    ("raw, for an event counter:", "the same"),
];

for_each_subject!(nothing_remembered_decides, check, [libaio, preload]);

fn check(subject: Subject) {
    for submit in [Submit::Auto, Submit::Offload] {
        compare(subject.submit(submit));
    }
}

fn compare(subject: Subject) {
    for kind in KINDS {
        for mode in MODES {
            let reference = reference(kind, mode);
            let ours = table(subject, kind, mode);
            let differences = differences(reference, &ours, &MAY_DIFFER);
            let what = format!("{subject}, {}, {mode}", kind.name());
            assert!(differences.is_empty(), "{what}, row: system, ours\n{differences}");
        }
    }
}

fn reference(kind: Kind, mode: &str) -> &'static str {
    static REFERENCES: [OnceLock<String>; 4] = [const { OnceLock::new() }; 4];
    let index = usize::from(kind == Kind::Tmpfs) * 2 + usize::from(mode == "direct");
    REFERENCES[index].get_or_init(|| with_timers_read(&table(Subject::SYSTEM, kind, mode)))
}

fn table(subject: Subject, kind: Kind, mode: &str) -> String {
    let scratch = Scratch::new("descriptors");
    let mount = (kind == Kind::Tmpfs).then(|| Mount::new(kind).expect("a tmpfs"));
    let folder = mount.as_ref().map_or(scratch.path(), Mount::path);
    run(subject, folder, mode)
}

fn run(subject: Subject, folder: &Path, mode: &str) -> String {
    let output = subject.launch(PROGRAM).arg(folder).arg(mode).succeed();
    subject.assert_loaded(&output);
    output.stdout
}

#[test]
fn the_table_itself_is_deterministic() {
    for kind in KINDS {
        for mode in MODES {
            let again = with_timers_read(&table(Subject::SYSTEM, kind, mode));
            assert_eq!(differences(reference(kind, mode), &again, &[]), "");
            assert!(again.lines().count() > 50, "{again}");
        }
    }
}
