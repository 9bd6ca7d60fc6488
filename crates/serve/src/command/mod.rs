//! `nowait serve`: from the command line to the last flush.

mod args;
mod run;

pub use args::ServeArgs;
pub use run::serve;
