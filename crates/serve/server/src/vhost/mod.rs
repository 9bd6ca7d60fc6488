//! Images served to virtual machines as vhost-user-blk devices.
//!
//! ```text
//!  VMM ── socket ─▶ Front ─▶ Session: features, memory, queues     (a thread each socket)
//!                              │ start, stop
//!  guest ── kick ─▶ Worker ─▶ Ring ─▶ Medium = Disk ─▶ Queue       (serving threads)
//!        ◀─ call ────────────── used ring ◀──┘
//! ```
//!
//! * [`chain`]: a request of the driver, as it lies in the guest's memory
//! * [`device`]: what the device tells about itself
//! * [`ring`]: one virtqueue: requests in, answers out; knows no sockets and no threads
//! * [`inflight`]: what is in flight, in memory that outlives the process
//! * `memory`: the guest's memory in ours
//! * `session`: one VMM, from its first message to its last
//! * `queue_count`: the number of queues, which a VMM may want more of
//! * `worker`: threads that serve rings; `front`: sockets
//!
//! The messages are those of the crate `vhost`. The loop is not that of `vhost-user-backend`: ours
//! has to sleep in nowait's queue, and requests must survive the end of the process.
//!
//! **A ring is changed only while it stands still**: the session stops it, which lasts until its
//! requests have ended, changes it, and starts it again. So memory is never unmapped under a
//! request; besides, each transfer into it keeps it mapped.

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
