//! Programs that change their user and groups while requests are in flight: the change is not
//! delayed, reaches every thread, and applies to later requests.

use nowait_tests::for_each_subject;
use nowait_tests::mount::Mount;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Subject, Submit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_setxid");

for_each_subject!(every_thread_changes_with_requests_in_flight, in_flight, [libaio, preload]);
for_each_subject!(requests_have_the_rights_of_their_submission, rights, [libaio, preload]);

fn in_flight(subject: Subject) {
    let Some(()) = skip::unless(skip::missing_root()) else { return };
    for &submit in modes(subject) {
        let scratch = Scratch::new("setxid");
        let subject = subject.submit(submit);
        subject
            .assert_loaded(&subject.launch(PROGRAM).arg("in-flight").arg(scratch.path()).succeed());
    }
}

fn rights(subject: Subject) {
    for &submit in modes(subject) {
        for case in ["rights", "rights-direct"] {
            let mount = Mount::with_reserved_blocks(40, 32 << 20);
            let Some(mount) = skip::unless(mount) else { return };
            let subject = subject.submit(submit);
            let program = subject.launch(PROGRAM).arg(case).arg(mount.path());
            subject.assert_loaded(&program.succeed());
        }
    }
}

/// The system's library has no submit modes: one run is enough.
fn modes(subject: Subject) -> &'static [Submit] {
    let all = &[Submit::Auto, Submit::Offload];
    if subject.is_system() { &all[..1] } else { all }
}
