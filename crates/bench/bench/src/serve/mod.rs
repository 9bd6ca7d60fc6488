//! `bench serve`: servers on the same image, one after another, asked by the same client.
//!
//! ```text
//!  ServeBenchArgs ─► suite ─► cases       what the client does, the servers, the targets
//!                      ├─ server          started, waited for, watched, ended
//!                      ├─ mounted         an ext4 on what is served
//!                      └─ client          fio's nbd engine, or fio on a file, device, file system
//! ```

mod args;
mod cases;
mod charge;
mod client;
mod mounted;
mod server;
mod suite;

pub(crate) use args::{ServeBenchArgs, run_serve};
