//! Prints the results of requests on descriptor numbers and open files that change: one line `row:
//! outcome` for each.
//!
//! `descriptors FOLDER buffered|direct`: a test runs it under two libraries and compares the two
//! outputs. Most rows begin with requests from which a library may remember state.

mod passing;
mod rows;
mod stage;

use nowait_tests::request::Context;
use stage::Stage;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, mode] = args.as_slice() else { panic!("descriptors FOLDER MODE") };
    let mode = match mode.as_str() {
        "buffered" => 0,
        "direct" => libc::O_DIRECT,
        other => panic!("unknown mode {other}"),
    };
    // All rows use one context, so that the library may remember state from an earlier row.
    let context = Context::new(8).expect("io_setup");
    for (name, row) in rows::all() {
        let mut stage = Stage::new(folder.as_ref(), mode, &context);
        row(&mut stage);
        println!("{name}: {}", stage.outcome());
    }
}
