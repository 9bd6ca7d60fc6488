//! The claims that every backend must hold, as one suite.
//!
//! ```text
//! fixture    a backend, a file for it, and what it cannot do
//! transfer   what reads and writes do                 completion  each bio once, failed or not
//! waiting    reap, deadline, wake, cancel, poll       parallel    several threads at once
//! ```
//! The suite prints `skipped: …: why` for each claim that a backend cannot support.

mod completion;
mod fixture;
mod parallel;
mod transfer;
mod waiting;

pub(crate) use fixture::{FILE_BYTES, Fixture, Lacks};

type Claim = (&'static str, fn(&Fixture));

/// Checks all claims, each on its own fixture; panics with the name of the first broken claim.
pub(crate) fn suite(make: &dyn Fn() -> Fixture) {
    let all = [transfer::CLAIMS, completion::CLAIMS, waiting::CLAIMS, parallel::CLAIMS];
    for (name, claim) in all.concat() {
        // The test harness shows this line only if the claim fails.
        println!("claim: {name}");
        claim(&make());
    }
}

/// Makes a test that runs the suite, per line `name => expression;`. The expression is a
/// `Result<Fixture, String>`: an error says why the backend cannot work on this machine.
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
