//! The NBD protocol, fixed newstyle: bytes in, bytes out, and requests to a medium in between.
//!
//! ```text
//!  session ─┬─ handshake      options, until the client has chosen an export
//!           ├─ transmission   requests, within a client's limits
//!           └─ outbox         the output: heads (reply), and the memory of reads
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
