//! Routes: the backend that carries the bios of a request, and the thread that collects their
//! completions.

pub mod driver;
pub(crate) mod own_queue;
pub mod plug;
pub(crate) mod token;

pub use plug::{Place, Plug};

use nowait_block::Limits;
use nowait_retry::stats::Server;

/// The backend that carries the bios of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The context's own queue, with the application's descriptor.
    Own,
    /// The driver's queue, with the held file.
    Driver,
    /// The workers, with the held file.
    Workers,
}

/// The requests that a queue carries by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Queue {
    /// There is no queue, or the queue is full.
    #[default]
    None,
    /// Native AIO: direct transfers for which the file system allocates no blocks.
    Aio,
    /// io_uring: all requests.
    Ring,
}

impl Queue {
    pub(crate) fn of(limits: Limits) -> Queue {
        match limits.buffered_reads && limits.writes {
            true => Queue::Ring,
            false => Queue::Aio,
        }
    }
}

impl Route {
    pub(crate) fn server(self) -> Server {
        match self {
            Route::Own => Server::Kernel,
            Route::Driver => Server::Driver,
            Route::Workers => Server::Worker,
        }
    }
}
