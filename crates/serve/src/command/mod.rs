//! `nowait serve`, from the command line to the last flush; `nowait top`, which looks on.

mod args;
mod files;
mod run;
mod top;

pub use args::{CacheArg, NamedImage, ServeArgs, ShownFile};
pub use run::serve;
pub use top::{TopArgs, top};
