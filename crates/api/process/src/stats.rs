//! What the process has done so far, for `nowait top`: a file in the folder of `NOWAIT_STATS`,
//! which a thread writes anew every second. Without that variable there is neither.
//!
//! The thread has a descriptor table of its own, as the engine's threads have: the program neither
//! sees the file nor closes it, and the calls of the C library that are watched are not made. It
//! ends with the process; of a process that was killed, the file stays.

use crate::process::Process;
use nowait_engine::report;
use nowait_sys::{
    Errno, fd, fdtable, fork, inspect,
    own_thread::{OwnThread, STACK_BYTES},
};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// From one writing to the next. Also before the first: then the engine is there.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread if that is wanted; returns a line if it cannot be.
pub(crate) fn begin(process: &Process) -> Option<String> {
    let path = path(process)?;
    let started = OwnThread::spawn("nowait-stats", STACK_BYTES, move || {
        // There is nothing to say it with: `nowait top` shows no figures of this process.
        let _ = write(&path);
    });
    started.err().map(|error| format!("NOWAIT_STATS: no thread for it: {error}"))
}

/// Removes the file: the process ends.
pub(crate) fn end(process: &Process) {
    if let Some(path) = path(process) {
        let _ = inspect::unlink(&path);
    }
}

fn path(process: &Process) -> Option<CString> {
    let folder = process.options().stats.as_ref()?;
    let path = folder.join(format!("run-{}.json", fork::owner()));
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Writes the file until the process ends.
fn write(path: &CString) -> Result<(), Errno> {
    // Keeps descriptor 0, which is let go of at once: a pipe's other end waits for that.
    fdtable::make_private(0)?;
    fd::close(0);
    let flags = inspect::O_CREAT | inspect::O_TRUNC | inspect::O_WRONLY | inspect::O_NOFOLLOW;
    let mut file = None;
    loop {
        std::thread::sleep(PAUSE);
        let Some(process) = Process::existing() else { continue };
        let Some(engine) = process.existing_engine() else { continue };
        if !process.has_memory_for_report() {
            continue;
        }
        let text = || report::as_json(Some(Arc::as_ref(engine)), &process.summaries());
        if let Some(text) = engine.caught("as it told its figures", text) {
            let file = match &file {
                Some(file) => file,
                // Late: a process that ends at once has removed it before.
                None => file.insert(inspect::open(path, flags, 0o644)?),
            };
            inspect::replace_content(file.raw(), text.as_bytes())?;
        }
    }
}
