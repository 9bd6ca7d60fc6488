//! The reports for other programs and for people.
//!
//! ```text
//!  Results ─┬─► json   one object, as every benchmark of the tool writes it
//!           └─► html   one page with nothing beside it ◄── plot (SVG), style.css
//! ```

mod files;
mod html;
mod json;
mod plot;

pub(crate) use files::prepare;
pub(crate) use html::write_html;
#[cfg(test)]
pub(crate) use json::json_text;
pub(crate) use json::{Document, RatioRow, Row, SCHEMA, VerdictRow, write_json};
