//! Terminal output and command lines, for the programs of nowait.
//!
//! ```text
//!  failure    an error in one line, and the exit code     usage        a wrong command line
//!  output     text and JSON on standard output            table        the look of most tables
//!  printable  names that must not control a terminal      description  a command line as JSON
//!  pages      manual pages                                completions  for a shell
//! ```

mod completions;
mod description;
mod failure;
mod output;
mod pages;
pub mod printable;
mod table;
mod usage;

pub use completions::completions;
pub use description::Description;
pub use failure::{Failure, Result, say};
pub use output::{print, print_json};
pub use pages::{man_page, man_pages};
pub use table::table;
pub use usage::explain;
