//! The engine: requests on files, buffered through the kernel's page cache or the engine's own,
//! direct, synchronous writes, fsync, poll, streams.
//!
//! ```text
//!  submit ── attempt inline ──► completed                   (cached, or nothing to wait for)
//!     │
//!     └─ request ─┬─ own queue    the context's; a caller in getevents serves it
//!                 ├─ driver       one thread of the engine; buffered reads by io_uring
//!                 └─ workers      a pool; what can only be done by a blocking call
//! ```
//!
//! The way of a request. It comes from `submit`, and goes on in the others, which know each other:
//!
//! | module | what it is |
//! |---|---|
//! | [`submit`] | from a command to a result or a request: validation, the attempt inline, the route |
//! | [`context`] | a context with its own queue, in which a program submits and waits |
//! | `deferred` | the requests of a context that wait for a caller to run them |
//! | [`request`] | the iterations of what was not over inline, and its event |
//! | [`cached`] | files in the engine's own page cache, and what passes it by |
//! | [`route`] | the plug, the driver, the own queue: where bios go, and what brings completions |
//! | [`engine`] | what a process has once: threads, and the state that all contexts share |
//!
//! Modules that these share. They know none of them:
//!
//! | module | what it is |
//! |---|---|
//! | [`command`] | a decoded request, and the status flags of its descriptor |
//! | [`hold`] | open files held in the engine's descriptor table |
//! | [`order`] | which requests take effect before which: overlaps, streams, links |
//! | [`hints`] | what is remembered of descriptors, streams, depths and file systems |
//! | [`limits`] | how much may be in flight |
//! | [`parts`] | what an engine is made of: backends, clock, executor; [`config`]: how it is set up |
//! | [`turn`] | the loops of threads, one turn at a time; `failure`: threads that fail |
//!
//! `submit` is imported by no other module. `context`, `deferred`, `request`, `cached`, `route` and
//! `engine` import each other: a request holds its context until its event is there, the context
//! finds its requests to cancel them, and the engine runs requests, which hand their bios to it.
//! That is the one circle, and `cargo x tidy` keeps it from growing.

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
