//! The facade: what a face (the C ABI, later the Rust and C APIs) needs to run an engine.
//!
//! * [`options`]: the environment variables, read once
//! * [`choice`]: which backend, and why
//! * [`report`]: what the contexts of a process did, as text or JSON

pub mod choice;
pub mod options;
pub mod report;

pub use choice::start_engine;
pub use nowait_block::Segments;
pub use nowait_file::command;
pub use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind, SubmitMode, Target,
    submit::{Reply, Submission},
};
pub use options::Options;
