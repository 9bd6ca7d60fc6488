//! Writers and editors on a store that gives arbitrary answers: they end or continue, and do not
//! panic.

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/memory.rs"]
#[allow(dead_code, reason = "other tests have other needs")]
mod memory;
#[path = "support/strangers.rs"]
#[allow(dead_code, reason = "other tests have other needs")]
mod strangers;

use proptest::prelude::*;

fn tapes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_store_that_answers_anything_is_endured(tape in tapes()) {
        hostile::run(&tape);
    }
}
