//! Mistakes made on purpose in the engine: a simulation that does not find them has a hole.

use crate::{Program, alone, contexts, faces, files, run};
use nowait_sys::mistake::{self, Mistake};

/// Which program finds each; the seed at which it does is printed.
const FOUND_BY: [(Mistake, Program); Mistake::ALL.len()] = [
    (Mistake::RegisterTooLate, contexts::program),
    (Mistake::KickNobody, files::program),
    (Mistake::AbandonAtClose, files::program),
    (Mistake::KeepNothing, files::program),
    (Mistake::CommitForOthers, contexts::program),
    (Mistake::NoOrder, files::program),
    (Mistake::OpenAtOnce, files::program),
    (Mistake::TellTooEarly, faces::program),
    (Mistake::SleepTooLate, faces::program),
    (Mistake::CancelDone, faces::program),
    (Mistake::LeaveAtOnce, faces::program),
    (Mistake::SubmitToTheEnd, faces::program),
    (Mistake::LeaveToSleepers, faces::program),
];

/// Runs in which each must be found.
const SEEDS_MAX: u64 = 4_000;

#[test]
fn each_mistake_is_found() {
    let _alone = alone();
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let seeds = FOUND_BY.map(|(mistake, program)| {
        mistake::make(Some(mistake));
        let found = (0..SEEDS_MAX).find(|seed| run(program, *seed).is_err());
        mistake::make(None);
        (mistake, found)
    });
    std::panic::set_hook(shown);
    println!("{seeds:?}");
    assert_eq!(FOUND_BY.map(|(mistake, _)| mistake), Mistake::ALL);
    assert!(seeds.iter().all(|(_, found)| found.is_some()), "{seeds:?}");
}
