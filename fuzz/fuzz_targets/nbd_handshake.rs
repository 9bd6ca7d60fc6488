//! Random bytes from the beginning of a connection. `strangers` describes the meaning of the bytes.
#![no_main]

#[path = "../../crates/serve/server/tests/support/strangers.rs"]
mod strangers;
#[path = "../../crates/serve/server/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| strangers::handshake(input));
