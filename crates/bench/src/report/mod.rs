//! The reports for other programs and for people.
//!
//! ```text
//!  figures ─► json ─┬─► a file, one object as every benchmark of the tool writes it
//!                   └─► saved ─► page   one page with nothing beside it ◄── plot (SVG)
//! ```

mod files;
mod json;
mod page;
mod plot;
mod saved;

pub(crate) use files::ReportArgs;
pub(crate) use files::print;
pub(crate) use json::{Document, RatioRow, Row, SCHEMA, VerdictRow, to_text};
pub(crate) use page::write_comparison;
pub(crate) use saved::{Saved, SavedRow, distinct};
