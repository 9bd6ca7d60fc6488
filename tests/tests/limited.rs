//! Quick forms of other tests under limits of the process: 1 GiB of addresses (`ulimit -v`), and
//! all memory locked (mlockall(2)). To run a whole test under a limit:
//! `NOWAIT_TEST_LIMIT=addresses cargo test -p nowait-tests --test NAME`.

use nowait_tests::contexts;
use nowait_tests::differences::differences;
use nowait_tests::for_each_subject;
use nowait_tests::harness::{self, Harness};
use nowait_tests::limiter::Limit;
use nowait_tests::posix::{Case, Conformance, Symbols};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::Subject;

const DIFFERENTIAL: &str = env!("CARGO_BIN_EXE_differential");
const LIFECYCLE: &str = env!("CARGO_BIN_EXE_lifecycle");

for_each_subject!(libaio_s_own_cases_pass_limited, own_cases, [libaio]);
for_each_subject!(contexts_live_and_die_as_ever_limited, lifecycle, [libaio, preload]);
for_each_subject!(answers_are_the_same_limited, answers, [libaio, preload]);
for_each_subject!(posix_aio_conforms_limited, posix, [preload]);

fn own_cases(subject: Subject) {
    let Some(built) = skip::unless(Harness::ready()) else { return };
    for limit in Limit::ALL {
        let subject = subject.limit(limit);
        let verdicts = built.run(subject, &built.short_cases(), &[]);
        let passed = verdicts.iter().all(|it| it.passed);
        assert!(passed, "{limit:?}\n{}", harness::table(subject, &verdicts));
    }
}

fn lifecycle(subject: Subject) {
    if subject.is_system() {
        return; // the system's io_submit waits for streams
    }
    for limit in Limit::ALL {
        for case in contexts::CASES.iter().chain(&["eventfd-destroy", "own-table"]) {
            contexts::run(subject, subject.limit(limit).launch(LIFECYCLE), case);
        }
    }
}

fn answers(subject: Subject) {
    let table = |subject: Subject| {
        let scratch = Scratch::new("differential");
        subject.launch(DIFFERENTIAL).arg(scratch.path()).succeed().stdout
    };
    let without = table(subject);
    for limit in Limit::ALL {
        let differences = differences(&without, &table(subject.limit(limit)), &[]);
        assert!(differences.is_empty(), "{subject}, case: without, {limit:?}\n{differences}");
    }
}

fn posix(subject: Subject) {
    let Some(built) = skip::unless(Conformance::built(Symbols::Usual)) else { return };
    let mut cases = built.cases("*");
    // The page `threads` depends on the backend (`posix_aio.rs`), not on a limit.
    cases.retain(|case| case.page != "threads" && (case.glibc || !subject.is_system()));
    for limit in Limit::ALL {
        let holds = |case: &&&Case| match limit {
            // malloc(3) reserves 64 MiB for each worker. Together with 65,536 requests that does
            // not always fit in 1 GiB, and the case sees EAGAIN too early.
            Limit::Addresses => case.name != "eagain_is_too_many_requests",
            // RLIMIT_MEMLOCK applies while the effective user is not root. Then a new thread
            // gets no memory for its stack, and the request of this thread ends with EAGAIN.
            Limit::Locked => case.page != "setuid",
        };
        let cases: Vec<&Case> = cases.iter().filter(holds).copied().collect();
        built.demand(subject.limit(limit), &cases);
    }
}
