//! Parses systemd's unit files as systemd does, without calling systemd. So it also works in images
//! and in containers, where no systemd runs.
//!
//! ```text
//!  name    mariadb.service, backup@.service, backup@disk.service
//!  place   the folders of units by precedence; files below another root
//!  unit    a unit file, and the drop-ins that change it
//!  syntax  sections, assignments, continued lines, quotes, escapes
//! ```
//!
//! The existing crates for unit files neither merge drop-ins by systemd's precedence nor read
//! quotes as systemd does; precedence and quotes decide which settings a drop-in of nowait would
//! replace. `tests/enable/oracle.rs` compares the result with systemd's own.

mod name;
mod place;
mod syntax;
mod unit;

pub(crate) use name::UnitName;
pub(crate) use place::Place;
pub(crate) use syntax::{Assignment, parse, quote, words};
pub(crate) use unit::{Source, Unit};
