//! Anything, after an export has been chosen: the first byte of the input chooses the kind of
//! replies, the size of the pieces and whether ends are kept back.
#![no_main]

#[path = "../../crates/serve/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use nowait_serve::nbd::Limits;

fuzz_target!(|input: &[u8]| {
    let Some((first, said)) = input.split_first() else { return };
    let limits = Limits { requests: 16, bytes: 1 << 20 };
    let mut client = support::Client::on("disk", first & 1 != 0, limits);
    let pieces = usize::from(first >> 2) * 37 + 1;
    for (number, piece) in said.chunks(pieces).enumerate() {
        client.memory.holds = first & 2 != 0 && number % 3 != 0;
        client.say(piece);
        assert!(client.session.in_flight() <= 16);
    }
    client.end_checked();
});
