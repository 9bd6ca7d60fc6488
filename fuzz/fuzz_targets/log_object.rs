//! Random bytes as an object of an image on a store. `strangers` lists the claims.
#![no_main]

#[path = "../../crates/serve/image-format/tests/support/strangers.rs"]
mod strangers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| strangers::object(input));
