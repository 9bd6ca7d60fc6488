//! Random actions of a driver on a virtqueue: descriptors, indices and buffers, in any order.
//! `guest::drive` describes the meaning of the bytes.
#![no_main]

#[path = "../../crates/serve/server/tests/support/guest.rs"]
mod guest;
#[path = "../../crates/serve/server/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| guest::drive(input));
