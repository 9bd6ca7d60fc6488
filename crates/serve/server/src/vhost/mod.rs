//! Images served to virtual machines as vhost-user-blk devices.
//!
//! ```text
//!  VMM ── socket ─▶ Front ─▶ Session: features, memory, queues     (a thread for each socket)
//!                              │ start, stop
//!  guest ── kick ─▶ Worker ─▶ Ring ─▶ Medium = Disk ─▶ Queue       (serving threads)
//!        ◀─ call ────────────── used ring ◀──┘
//! ```
//!
//! * [`chain`]: parses a request of the driver in the guest's memory
//! * [`device`]: the description of the device
//! * [`ring`]: one virtqueue: requests in, answers out; uses no sockets and no threads
//! * [`inflight`]: the requests in flight, in memory that outlives the process
//! * `memory`: the guest's memory, mapped into this process
//! * `session`: one VMM, from its first message to its last
//! * `queue_count`: the number of queues, and the report if a VMM wants more
//! * `worker`: threads that serve rings; `front`: sockets
//!
//! The crate `vhost` defines the messages. The server does not use the loop of
//! `vhost-user-backend`: its serving threads sleep in nowait's queue, and requests must survive the
//! end of the process.
//!
//! **A ring changes only while it is stopped**: the session stops the ring, waits until its
//! requests have ended, changes it, and starts it again. So the session unmaps no memory that a
//! request uses. In addition, each borrowed transfer keeps the guest's memory mapped.

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
