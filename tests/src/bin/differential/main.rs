//! Prints libaio's result of every wrong or unusual call: one line `case result` for each.
//!
//! `differential FOLDER`: run under two libraries, the two outputs must be the same.

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
