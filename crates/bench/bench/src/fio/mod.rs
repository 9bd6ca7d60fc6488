//! An unmodified fio: found, launched as one of the subjects, and its JSON understood.
//!
//! ```text
//!  Fio::find ─► Fio::probe (does this subject work here, what does its start-up cost)
//!   as a Launch    └─► Fio::run (one measured run) ─► nowait_harness::fio::parse ─► Sample
//! ```

mod command;
mod launch;

pub(crate) use command::{Fio, Purpose, Run, Startup};
pub(crate) use launch::Launch;
