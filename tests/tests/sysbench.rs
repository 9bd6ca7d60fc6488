//! sysbench's asynchronous file test runs to its end on every backend.

use nowait_tests::for_each_subject;
use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::Subject;

const FILES: [&str; 3] = ["fileio", "--file-num=4", "--file-total-size=16M"];

for_each_subject!(fileio_runs_asynchronously, fileio, [libaio, preload]);

fn fileio(subject: Subject) {
    let Some(()) = skip::unless(skip::missing_program(&["sysbench"])) else { return };
    let scratch = Scratch::new("sysbench");
    Program::new("sysbench").args(FILES).arg("prepare").dir(scratch.path()).succeed();
    for (mode, flags) in [("rndrw", "direct"), ("rndrw", ""), ("seqrewr", "dsync")] {
        let output = subject
            .launch("sysbench")
            .args(FILES)
            .args(["--file-io-mode=async", "--file-async-backlog=64", "--threads=2"])
            .arg(format!("--file-test-mode={mode}"))
            .arg(format!("--file-extra-flags={flags}"))
            .args(["--time=0", "--events=1000", "run"])
            .dir(scratch.path())
            .succeed();
        assert!(output.stdout.contains("total number of events:"), "{output}");
        assert!(!output.stdout.contains("FATAL"), "{output}");
        subject.assert_served(&output);
    }
}
