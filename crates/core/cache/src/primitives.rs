//! The primitives that models replace by loom's, under one name for this crate.

pub(crate) use nowait_retry::primitives::{
    Arc, AtomicU32, AtomicU64, Mutex,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence, fence,
};
