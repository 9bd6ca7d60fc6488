//! Standard error: messages, and on a terminal the line below them that changes.

use core::fmt::Display;
use nowait_sys::mutex::Mutex;
use nowait_terminal::printable;
use std::io::{self, Write};

/// Whether the line is there; held while something is written, whichever threads talk.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// Back to the beginning of the line, which is cleared.
const CLEAR: &str = "\r\x1b[K";
/// Around a line that may be wider than the terminal: it is cut off there, or its first part could
/// not be cleared.
const CUT: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// Says something, in a line of its own.
pub(crate) fn say(message: impl Display) {
    let mut shown = SHOWN.lock();
    let clear = if *shown { CLEAR } else { "" };
    let message = message.to_string();
    put(&format!("{clear}nowait: {}\n", printable::line(&message)));
    *shown = false;
}

/// Shows `line` in the place of the one before; for a terminal.
pub(crate) fn show(line: &str) {
    let mut shown = SHOWN.lock();
    put(&format!("{CLEAR}{}{line}{}", CUT.0, CUT.1));
    *shown = true;
}

/// Leaves the line where it is: what follows comes below it.
pub(crate) fn leave() {
    let mut shown = SHOWN.lock();
    if *shown {
        put("\n");
    }
    *shown = false;
}

/// In one piece. A closed standard error is ignored.
fn put(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
