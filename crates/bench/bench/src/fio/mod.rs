//! An unmodified fio: found, launched as one of the subjects, and its JSON understood.
//!
//! ```text
//!  Fio::find ─► Fio::probe (does this subject work here, what does its start-up cost)
//!   as a Launch    └─► Fio::run (one measured run) ─► output::parse ─► Sample
//! ```

mod command;
mod launch;
mod output;

pub(crate) use command::{Fio, Purpose, Run, Startup};
pub(crate) use launch::Launch;
pub(crate) use output::{PERCENTILES, Parsed, parse, parse_jobs};
