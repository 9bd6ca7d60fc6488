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

use nowait_block::Limits;
use nowait_retry::stats::Server;

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

/// The requests that a queue carries by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Queue {
    /// There is none, or it is full.
    #[default]
    None,
    /// Native AIO: direct transfers for which no blocks have to be found.
    Aio,
    /// io_uring: everything.
    Ring,
}

impl Queue {
    /// Returns the requests that a queue with these limits carries.
    pub(crate) fn of(limits: Limits) -> Queue {
        match limits.buffered_reads && limits.writes {
            true => Queue::Ring,
            false => Queue::Aio,
        }
    }
}

impl Route {
    /// Returns who carries what takes this route.
    pub(crate) fn server(self) -> Server {
        match self {
            Route::Own => Server::Kernel,
            Route::Driver => Server::Driver,
            Route::Workers => Server::Worker,
        }
    }
}
