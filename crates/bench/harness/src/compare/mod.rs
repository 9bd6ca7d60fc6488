//! `bench compare`: two saved measurements of the same kind, figure by figure.
//!
//! ```text
//!  CompareArgs ─► report::Document, twice
//!                   ├─ settings   what else differs: parameters, host
//!                   ├─ judge      ratio, interval, verdict of each figure that both have
//!                   └─ show       table, JSON, of which report makes the page
//! ```

mod args;
mod judge;
mod settings;
mod show;

pub use args::{CompareArgs, run_compare};
