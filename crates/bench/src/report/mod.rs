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

pub use files::ReportArgs;
pub(crate) use files::print;
#[cfg(test)]
pub(crate) use json::json_text;
pub(crate) use json::{Document, RatioRow, Row, SCHEMA, VerdictRow, write_results};
pub(crate) use page::write_comparison;
pub(crate) use saved::{Saved, SavedRow, distinct};
