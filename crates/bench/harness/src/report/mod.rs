//! The reports for other programs and for people.
//!
//! ```text
//!  figures ─► document ─┬─► a file, one object as every benchmark of the tool writes it
//!                       └─► page   page.html, whose script shows the object
//! ```

mod document;
mod files;
mod page;

pub use document::{Document, Row, SCHEMA, distinct, to_text};
pub use files::{ReportArgs, print};
