//! Cases of libaio's own harness that pass with the system's library pass with nowait's libraries.

use std::sync::OnceLock;

use nowait_tests::for_each_subject;
use nowait_tests::harness::{self, Harness, Verdict};
use nowait_tests::skip;
use nowait_tests::subject::{Library, Subject};

for_each_subject!(cases_that_pass_with_the_system_pass, check, [libaio, preload]);

fn check(subject: Subject) {
    let Some(built) = skip::unless(Harness::ready()) else { return };
    if subject.is_system() {
        let verdicts = built.run(subject, &built.cases(), &[]);
        assert!(verdicts.iter().all(|it| it.passed), "\n{}", harness::table(subject, &verdicts));
        return;
    }
    let reference = reference(built);
    // Without `NOWAIT_FULL=1`, long cases run only with libaio.so.1: the preload library has the
    // same code behind these calls.
    let thorough = subject.library == Library::Libaio || nowait_tests::full();
    let cases = if thorough { built.cases() } else { built.short_cases() };
    let verdicts = built.run(subject, &cases, &[]);
    let expected = |case: &str| reference.iter().any(|it| it.case == case && it.passed);
    let broken = verdicts.iter().any(|it| !it.passed && expected(&it.case));
    assert!(!broken, "\n{}", harness::table(subject, &verdicts));
}

fn reference(built: &'static Harness) -> &'static [Verdict] {
    static REFERENCE: OnceLock<Vec<Verdict>> = OnceLock::new();
    REFERENCE.get_or_init(|| built.run(Subject::SYSTEM, &built.cases(), &[]))
}
