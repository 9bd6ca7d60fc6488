//! Anything that a driver can do to a virtqueue: descriptors, indices and buffers, in any order.
//! `guest::drive` says what the bytes mean.
#![no_main]

#[path = "../../crates/serve/server/tests/support/guest.rs"]
mod guest;
#[path = "../../crates/serve/server/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| guest::drive(input));
