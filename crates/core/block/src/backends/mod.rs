//! Backends that talk to the system, or to memory in its place.
//!
//! ```text
//! uring     reads of the kernel's cache without threads; polls; 27 ns a request in a batch
//! aio       direct I/O where io_uring is forbidden
//! threads   blocking calls, for all that the others cannot do without waiting
//! mem       an array of bytes, completing in a seeded order          for tests
//! null      completes everything at once                             for measurements
//! error     another backend, of which chosen bios fail or come short  for tests
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
