//! The sources' experiments, in virtual time, on models of the devices they were made on.
//!
//! ```text
//! paper        all tables
//!   aio_stress   M1: buffered AIO, before and after      rawio     M8: AIO against threads
//!   randrw       M9: time inside submit                  vector    M7: many segments
//!   cleaner      M13: page cleaners of a database
//!     stage      files, the page cache, requests of one kind
//!       world    threads, processors, the device; virtual time
//!       costs    the processor time of each action
//! table        figures of the source beside the simulated ones
//! ```
//!
//! The *baseline* is what a source calls unpatched, sync or loop: mostly the same operations of the
//! same page cache, with the caller waiting at each blocking point. In M8 the baseline is the
//! kernel's AIO of 2003. *nowait* is the operations as requests: a wait ends the iteration, and a
//! kick begins the next one.

mod aio_stress;
mod cleaner;
mod costs;
mod old_readahead;
mod paper;
mod randrw;
mod rawio;
mod stage;
mod table;
mod vector;
mod world;

pub use paper::{Scale, tables};
pub use table::{Point, Row, Source, Table};
