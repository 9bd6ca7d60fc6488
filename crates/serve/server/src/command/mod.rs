//! The command `nowait serve`, from its arguments to the last flush.

mod activation;
mod args;
mod drives;
mod files;
mod pid_file;
mod run;
mod start;
mod task;

pub use args::{CacheArg, NamedImage, ServeArgs, ShownFile, TlsArg, WantedDrive, bytes};
pub use run::serve;
