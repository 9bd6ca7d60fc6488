//! Backends that wrap another one and behave like it, but for one thing.
//!
//! ```text
//! delay      completions come later: so many reaps, or so much virtual time
//! error      chosen bios fail, come short or stick until cancelled
//! throttle   fewer bios, or fewer bytes, in flight at a time
//! trace      remembers what was asked and answered
//! ```

pub mod delay;
pub mod error;
pub mod throttle;
pub mod trace;
mod wakeup;
