//! The reports for other programs and for people.
//!
//! ```text
//!  figures ─► document ─┬─► a file, one object as every benchmark of the tool writes it
//!                       └─► page   one page with nothing beside it ◄── plot (SVG)
//! ```

mod document;
mod files;
mod page;
mod plot;

pub(crate) use document::{Document, RatioRow, Row, SCHEMA, VerdictRow, distinct, to_text};
pub(crate) use files::ReportArgs;
pub(crate) use files::print;
pub(crate) use page::write_comparison;
