//! `nowait serve`, from the command line to the last flush, and `nowait top`, which watches it.

mod activation;
mod args;
mod drives;
mod files;
mod pid_file;
mod run;
mod start;
mod top;

pub use args::{CacheArg, NamedImage, ServeArgs, ShownFile, TlsArg, WantedDrive, bytes};
pub use run::serve;
pub use top::{TopArgs, top};
