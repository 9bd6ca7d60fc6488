//! The synchronization primitives that loom replaces in models.

pub(crate) use nowait_retry::primitives::{
    Arc, AtomicU32, AtomicU64, Mutex,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence, fence,
};
