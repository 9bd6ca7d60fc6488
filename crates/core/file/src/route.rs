//! Routes: the backend that carries the bios of a request, and the thread that collects their
//! completions.
//!
//! * [`plug`]: bios and requests collected during a run of iterations, handed over when it ends
//! * [`driver`]: the engine's own thread, which has a queue
//! * `own_queue`: the queue of a context, served by a thread that waits for events
//! * `token`: what tells the completions of a queue from each other

pub mod driver;
pub(crate) mod own_queue;
pub mod plug;
pub(crate) mod token;

pub use plug::{Place, Plug};

/// Which backend carries the bios of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The context's own queue, on the application's descriptor.
    Own,
    /// The driver's queue, on the held file.
    Driver,
    /// The workers, on the held file.
    Workers,
}
