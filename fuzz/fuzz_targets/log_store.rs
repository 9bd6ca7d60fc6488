//! Random bytes as a store's answers to writers and edits. `hostile` describes the meaning of the
//! bytes.
#![no_main]

#[path = "../../crates/serve/image-format/tests/support/hostile.rs"]
mod hostile;
#[path = "../../crates/serve/image-format/tests/support/memory.rs"]
#[allow(dead_code, reason = "other tests have other needs")]
mod memory;
#[path = "../../crates/serve/image-format/tests/support/strangers.rs"]
#[allow(dead_code, reason = "other tests have other needs")]
mod strangers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| hostile::run(input));
