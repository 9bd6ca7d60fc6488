//! The NBD protocol, newstyle fixed: bytes in, bytes out, requests to a medium between them.
//!
//! ```text
//!  session ─┬─ handshake      options, until an export is chosen
//!           ├─ transmission   requests, within a client's limits
//!           └─ outbox         what is to be sent: heads (reply), and the memory of reads
//!  wire       the protocol's numbers
//! ```

mod handshake;
mod outbox;
mod reply;
mod session;
mod transmission;
mod wire;

pub use handshake::{Exports, Security};
pub use session::{Demand, Session};
pub use transmission::Limits;
