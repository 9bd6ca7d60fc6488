//! Anything, from the first byte of a connection on: the first byte of the input chooses how it is
//! protected.
#![no_main]

#[path = "../../crates/serve/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use nowait_serve::nbd::{Limits, Security};

fuzz_target!(|input: &[u8]| {
    let Some((first, said)) = input.split_first() else { return };
    let security = match first % 3 {
        0 => Security::Plain,
        1 => Security::TlsRequired,
        _ => Security::TlsOffered,
    };
    let mut client = support::Client::new(security, Limits { requests: 16, bytes: 1 << 20 });
    client.say(said);
    client.end_checked();
});
