//! Backends that talk to the system, and backends for tests and measurements.
//!
//! ```text
//! uring     io_uring: buffered reads without threads, and polls
//! aio       native AIO: direct I/O, also where io_uring is forbidden
//! threads   blocking calls, also for requests with which the others would wait
//! mem       an array of bytes; bios complete in a seeded order            for tests
//! null      completes every bio at `commit`, without doing it             for measurements
//! error     wraps another backend; chosen bios fail or transfer too little  for tests
//! ```

pub mod aio;
mod aio_blocks;
pub mod error;
pub mod mem;
pub mod null;
pub mod threads;
pub mod uring;
mod uring_entry;
mod uring_requests;
