//! Standard error: messages, and on a terminal a status line below them.

use core::fmt::Display;
use nowait_sys::mutex::Mutex;
use nowait_terminal::printable;
use std::io::{self, Write};

/// `true` while the status line is shown. Threads hold the lock while they write.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// Returns to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[K";
/// Written around the status line: the terminal cuts off a line that is too wide, which could
/// otherwise not be cleared.
const CUT: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// Prints a message in a line of its own.
pub(crate) fn say(message: impl Display) {
    let mut shown = SHOWN.lock();
    let clear = if *shown { CLEAR } else { "" };
    let message = message.to_string();
    put(&format!("{clear}nowait: {}\n", printable::line(&message)));
    *shown = false;
}

/// Shows `line` in place of the previous status line; for a terminal.
pub(crate) fn show(line: &str) {
    let mut shown = SHOWN.lock();
    put(&format!("{CLEAR}{}{line}{}", CUT.0, CUT.1));
    *shown = true;
}

/// Leaves the status line where it is: later output comes below it.
pub(crate) fn leave() {
    let mut shown = SHOWN.lock();
    if *shown {
        put("\n");
    }
    *shown = false;
}

/// Writes a text in one piece. A closed standard error is ignored.
fn put(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
