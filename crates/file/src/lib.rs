//! File operations on the retry engine: buffered through the kernel's page cache, direct,
//! synchronous writes, fsync, poll, streams.
//!
//! ```text
//!  submit ── attempt inline ──► done                        (cached, or nothing to wait for)
//!     │
//!     └─ request ─┬─ own queue    the context's; a caller in getevents serves it
//!                 ├─ driver       one thread of the engine; buffered reads by io_uring
//!                 └─ workers      a pool; what can only be done by a blocking call
//! ```
//!
//! * [`command`]: a decoded request; [`target`]: where its event goes
//! * [`submit`]: validation, the choice of a route; `attempt`: what is transferred inside submit
//! * `direct`: direct requests on an own queue, carried whole
//! * [`operation`]: the retry iterations of what was not done inline
//! * `copies`: what the driver copies itself, in memory
//! * `stream`: attempts at files without offsets, and their turns
//! * [`plug`]: bios and requests collected during a run, handed over when it ends
//! * `section`: what was kicked is run, by the thread that kicks or by one of the engine
//! * [`context`]: a context with its own queue; [`engine`]: what a process has once, made of its
//!   [`parts`]
//! * [`turn`]: the loops of the engine's threads; [`owner`]: an engine without threads
//! * [`driver`]: the engine's thread; [`hold`]: open files held in the engine's table
//! * [`user`]: files cached by the engine's own page cache; [`exclusion`]: and what passes it by;
//!   `inode_marks`: which these may be; `kernel_writes`: writes past the cache, which an open waits
//!   for; `parker`: a thread of the application that is kicked
//! * `kept`: files with something to write; `cleaner`: writes it where there is no driver
//! * [`link`]: requests that begin when another has succeeded
//! * `native`: what the native faces ask of a submission beyond the kernel's interface
//! * `own_pump`: a context's own queue, served by whoever leads
//! * `bells`: what rouses callers with a signal mask
//! * `under_way`: what can be cancelled; [`throttle`]: how much may be under way
//! * [`order`]: overlapping requests take effect in submission order
//! * `descriptor`: what is remembered of descriptors, and what that is good for
//! * [`filesystem`]: what file systems can do without waiting

mod attempt;
mod bells;
mod cleaner;
pub mod command;
pub mod config;
pub mod context;
mod copies;
mod depth;
mod descriptor;
mod direct;
pub mod driver;
pub mod engine;
pub mod exclusion;
mod failure;
pub mod filesystem;
pub mod hold;
mod inode_marks;
mod kept;
mod kernel_writes;
pub mod link;
mod native;
pub mod operation;
pub mod order;
mod own_pump;
pub mod owner;
mod parker;
pub mod parts;
pub mod plug;
mod rights;
mod section;
mod stream;
pub mod submit;
mod submit_stream;
mod submit_user;
pub mod target;
pub mod throttle;
pub mod turn;
mod turns;
mod under_way;
pub mod user;

pub use command::{Command, Kind};
pub use config::{BackendChoice, Config, SubmitMode};
pub use context::Context;
pub use engine::Engine;
pub use exclusion::Exclusion;
pub use link::{Link, Links};
pub use nowait_cache::Ahead;
pub use nowait_retry::{Sink, outcome};
pub use order::InodeKey;
pub use parts::Parts;
pub use submit_user::{Lookahead, Transfer};
pub use target::Target;
pub use user::{Opened, UserFile, UserOperation};
