//! The engine's switch between the real primitives and loom's.

pub(crate) use nowait_retry::primitives::{
    Arc, AtomicU32, AtomicU64, Mutex,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence, fence,
};
