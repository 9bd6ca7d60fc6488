//! The engine's switch between the real primitives and loom's.

pub use nowait_sys::primitives::*;
