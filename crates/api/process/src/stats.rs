//! Counters of the running process, for `nowait top`: a thread writes them once a second to a file
//! in the folder `NOWAIT_STATS`. Without `NOWAIT_STATS` there is no thread and no file.
//!
//! The thread has its own descriptor table, as the engine's threads have: the program neither sees
//! nor closes the file. The thread ends with the process; the file of a killed process stays.

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

const PAUSE: Duration = Duration::from_secs(1);

/// Returns a line for the log if the thread cannot be started.
pub(crate) fn begin(process: &Process) -> Option<String> {
    let path = path(process)?;
    let started = OwnThread::spawn("nowait-stats", STACK_BYTES, move || {
        // The thread cannot report its error: `nowait top` shows no figures of this process.
        let _ = write(&path);
    });
    started.err().map(|error| format!("NOWAIT_STATS: cannot start a thread: {error}"))
}

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

fn write(path: &CString) -> Result<(), Errno> {
    // The new table keeps only descriptor 0, which the thread closes at once: descriptor 0 may be a
    // pipe whose other end waits until all copies are closed.
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
                // Made after the first pause, so that a process that ends within a second has no
                // file.
                None => file.insert(inspect::open(path, flags, 0o644)?),
            };
            inspect::replace_content(file.raw(), text.as_bytes())?;
        }
    }
}
