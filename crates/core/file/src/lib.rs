//! The engine: buffered requests on files through the kernel's page cache or the engine's own,
//! direct requests, synchronous writes, fsync, poll and streams.
//!
//! Submit completes many requests itself, for example reads of cached data. Other requests go on by
//! one of three routes, or are deferred until a caller waits for events:
//!
//! | route | what carries the bios |
//! |---|---|
//! | own queue | the context's queue, which a waiting caller reaps |
//! | driver | one thread of the engine, which has a queue |
//! | workers | a pool of threads, which make blocking calls |
//!
//! A request passes through these modules:
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
//! The modules above share these modules, which import none of those above:
//!
//! | module | what it is |
//! |---|---|
//! | [`command`] | a decoded request, and the status flags of its descriptor |
//! | [`hold`] | open files held in the engine's descriptor table |
//! | [`order`] | which requests take effect before which: overlaps, streams, links |
//! | [`hints`] | remembered facts about descriptors, bursts, devices and file systems |
//! | [`limits`] | the limits on requests and bytes in flight |
//! | [`parts`] | the parts of an engine: backends, clock, executor; [`config`]: its settings |
//! | [`turn`] | the loops of threads, one turn at a time; `failure`: panics |
//!
//! Only tests import `submit`. `context`, `deferred`, `request`, `cached`, `route` and `engine`
//! import each other: a request references its context until its event is delivered, the context
//! finds its requests to cancel them, and the engine runs requests, which hand it their bios.
//! `cargo x tidy` refuses other import cycles of modules.

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
