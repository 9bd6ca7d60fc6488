//! systemd's unit files, read as systemd reads them, without asking it: so it works in images and
//! in containers, where no systemd runs.
//!
//! ```text
//!  name    mariadb.service, backup@.service, backup@disk.service
//!  place   the folders of units by precedence; files below another root
//!  unit    a unit file, and the drop-ins that change it
//!  syntax  sections, assignments, continued lines, quotes, escapes
//! ```
//!
//! The crates that parse unit files do not merge drop-ins by systemd's precedence and do not read
//! quotes as it does; both decide here what a drop-in of ours would replace.
//! `tests/enable/oracle.rs` asks systemd itself whether the result is the same.

mod name;
mod place;
mod syntax;
mod unit;

pub(crate) use name::UnitName;
pub(crate) use place::Place;
pub(crate) use syntax::{Assignment, parse, quote, words};
pub(crate) use unit::{Source, Unit};
