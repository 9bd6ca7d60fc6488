//! A suite of claims that every backend must fulfil.
//!
//! The suite prints `skipped: …: why` for each claim that needs a feature the backend lacks.

mod completion;
mod fixture;
mod parallel;
mod transfer;
mod waiting;

pub(crate) use fixture::{FILE_BYTES, Fixture, Lacks};

type Claim = (&'static str, fn(&Fixture));

pub(crate) fn suite(make: &dyn Fn() -> Fixture) {
    let all = [transfer::CLAIMS, completion::CLAIMS, waiting::CLAIMS, parallel::CLAIMS];
    for (name, claim) in all.concat() {
        // The test harness shows this output only if the test fails.
        println!("claim: {name}");
        claim(&make());
    }
}

/// Makes one test for each line `name => expression;`, which runs the suite. The expression is a
/// `Result<Fixture, String>`; its error says why the backend cannot work on this machine.
macro_rules! conformance {
    ($($name:ident => $fixture:expr;)*) => { $(
        #[test]
        fn $name() {
            let make = || -> Result<crate::suite::Fixture, String> { $fixture };
            match make() {
                Err(why) => nowait_block::skip::note_skip(stringify!($name), &why),
                Ok(_) => crate::suite::suite(&|| make().expect("it worked before")),
            }
        }
    )* };
}
pub(crate) use conformance;
