//! Panics in the threads of a server: the places where tests inject them, and their effects.

mod tests;

use nowait_sys::mutex::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// A serving thread reads from a client.
    Read,
    /// A request of a client or a ring ends.
    End,
    /// A serving thread sends to a client.
    Settle,
    /// A serving thread has read from its clients; the panic concerns no particular client.
    Round,
    /// A thread of the FUSE library takes a request from the kernel.
    Front,
    /// A serving thread takes a request to a FUSE file.
    Ask,
    /// A worker is about to take requests from a ring.
    Ring,
    /// A listener thread handles a message of a VMM.
    Talk,
    /// The status endpoint makes a report.
    Status,
}

/// The panics to inject, each once: the place and the image.
static WANTED: Mutex<Vec<(At, String)>> = Mutex::new(Vec::new());

/// Panics once for each call of [`want`] with this place and this image.
pub(crate) fn inject(at: At, image: &str) {
    let mut wanted = WANTED.lock();
    let found = wanted.iter().position(|(there, whose)| *there == at && whose == image);
    let found = found.map(|index| wanted.swap_remove(index));
    drop(wanted);
    assert!(found.is_none(), "injected");
}

fn want(at: At, image: &str) {
    WANTED.lock().push((at, image.to_owned()));
}
