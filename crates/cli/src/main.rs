//! The nowait command.
fn main() {}
