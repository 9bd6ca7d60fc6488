//! The reports for other programs and for people.
//!
//! ```text
//!  figures ─► document ─┬─► a file, one object as every benchmark of the tool writes it
//!                       └─► page   page.html, filled in ◄─┬─ view     tables, case by case
//!                                                         └─ family   sizes and numbers ◄── curve
//! ```

mod curve;
mod document;
mod family;
mod files;
mod page;
mod view;

pub use document::{Document, RatioRow, Row, SCHEMA, VerdictRow, distinct, to_text};
pub use files::{ReportArgs, print};
#[cfg(test)]
pub(crate) use page::tests::check;
