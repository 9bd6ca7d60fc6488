//! Prints the results of wrong and unusual calls of libaio, one line `case: result` for each.
//!
//! `differential FOLDER`: a test runs it under two libraries and compares the two outputs.

mod calls;
mod iocbs;
mod world;

use world::World;

fn main() {
    let folder = std::env::args_os().nth(1).expect("a folder");
    let world = World::new(folder.as_ref());
    iocbs::print_all(&world);
    calls::print_all(&world);
}
