//! Images served to virtual machines as vhost-user-blk devices.
//!
//! ```text
//!  VMM ── socket ─▶ Front ─▶ Session: features, memory, queues     (a thread each socket)
//!                              │ start, stop
//!  guest ── kick ─▶ Worker ─▶ Ring ─▶ Medium = Disk ─▶ Queue       (serving threads)
//!        ◀─ call ────────────── used ring ◀──┘
//! ```
//!
//! * [`chain`]: a request of the driver, in the guest's memory
//! * [`device`]: the description of the device
//! * [`ring`]: one virtqueue: requests in, answers out; uses no sockets and no threads
//! * [`inflight`]: the requests in flight, in memory that outlives the process
//! * `memory`: the guest's memory, mapped into this process
//! * `session`: one VMM, from its first message to its last
//! * `queue_count`: the number of queues, of which a VMM may want more
//! * `worker`: threads that serve rings; `front`: sockets
//!
//! The crate `vhost` has the messages. The loop is not that of `vhost-user-backend`, because it has
//! to sleep in nowait's queue, and requests must survive the end of the process.
//!
//! **A ring changes only while it is stopped**: the session stops it, waits until its requests have
//! ended, changes it, and starts it again. So memory is never unmapped under a request; in
//! addition, each transfer keeps its memory mapped.

mod arrival;
pub mod chain;
mod counter;
pub mod device;
mod front;
pub mod inflight;
mod memory;
mod queue_count;
pub mod ring;
mod session;
mod worker;

#[cfg(test)]
pub(crate) use worker::Workers;

pub use counter::Counter;
pub use front::{Front, Socket};
pub use ring::{Ring, Setup};
