//! A test that cannot run here says so; it never passes in silence.

use std::fs::OpenOptions;
use std::io::Write;

/// Prints the reason, and adds it to the file that the checks count.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("skipped: bench::{test}: {reason}");
    println!("{line}");
    if let Some(path) = std::env::var_os("NOWAIT_SKIPS") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}")).expect("the list of skips is writable");
    }
}
