//! The engine: buffered requests on files through the kernel's page cache or the engine's own,
//! direct requests, synchronous writes, fsync, poll and streams.
//!
//! Submit first attempts a request inline. If the data are cached, or nothing has to be waited for,
//! the request is completed there. Otherwise it becomes a request in flight, on one of three
//! routes:
//!
//! | route | who carries its bios |
//! |---|---|
//! | own queue | the context's queue, which a caller in getevents serves |
//! | driver | one thread of the engine; buffered reads by io_uring |
//! | workers | a pool of threads, for work that only a blocking call can do |
//!
//! A request passes through these modules, which use each other:
//!
//! | module | what it is |
//! |---|---|
//! | [`submit`] | from a command to a result or a request: validation, inline attempt, route |
//! | [`context`] | a context, in which a program submits requests and waits for events |
//! | `deferred` | the requests of a context that wait for a caller to run them |
//! | [`request`] | the iterations of a request that was not completed inline, and its event |
//! | [`cached`] | files in the engine's own page cache, and changes that bypass it |
//! | [`route`] | the plug, the driver, the own queue: the ways of bios and completions |
//! | [`engine`] | an engine: its threads, and the state that all of its contexts share |
//!
//! The modules above share the following ones, which do not use them:
//!
//! | module | what it is |
//! |---|---|
//! | [`command`] | a decoded request, and the status flags of its descriptor |
//! | [`hold`] | open files held in the engine's descriptor table |
//! | [`order`] | which requests take effect before which: overlaps, streams, links |
//! | [`hints`] | remembered facts about descriptors, bursts, devices and file systems |
//! | [`limits`] | the limits on requests and bytes in flight |
//! | [`parts`] | the parts of an engine: backends, clock, executor; [`config`]: its settings |
//! | [`turn`] | the loops of threads, one turn at a time; `failure`: threads that panic |
//!
//! No other module imports `submit`. `context`, `deferred`, `request`, `cached`, `route` and
//! `engine` import each other: a request holds its context until its event is delivered, the
//! context finds its requests to cancel them, and the engine runs requests, which hand their bios
//! to it. This is the only import cycle, and `cargo x tidy` keeps it from growing.

pub mod cached;
pub mod command;
pub mod config;
pub mod context;
mod deferred;
pub mod engine;
mod failure;
pub mod hints;
pub mod hold;
pub mod limits;
pub mod order;
pub mod parts;
pub mod request;
pub mod route;
pub mod submit;
pub mod turn;

pub use cached::{Exclusion, Opened, UserFile, UserHandle, UserOperation, Writer};
pub use command::{Command, Kind};
pub use config::{BackendChoice, Config, SubmitMode};
pub use context::Context;
pub use engine::Engine;
pub use nowait_cache::Ahead;
pub use nowait_retry::{Sink, outcome, presence};
pub use order::{InodeKey, Link, Links};
pub use parts::Parts;
pub use request::event::Target;
pub use submit::cached::{Lookahead, Transfer};
