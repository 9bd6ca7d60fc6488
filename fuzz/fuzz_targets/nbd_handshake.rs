//! Anything, from the first byte of a connection on. `strangers` says what the bytes mean.
#![no_main]

#[path = "../../crates/serve/server/tests/support/strangers.rs"]
mod strangers;
#[path = "../../crates/serve/server/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| strangers::handshake(input));
