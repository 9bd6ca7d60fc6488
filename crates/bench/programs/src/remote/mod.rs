//! `bench remote`: images on an object store, with a network of a chosen delay before it.
//!
//! ```text
//!  RemoteArgs ─► suite ─► cases      what the client does, with which server, the targets
//!                  ├─ subject        servers of an image, started with the store's address
//!                  │   └─ zerofs     what one of them needs, ninep to make its device
//!                  ├─ killed         what is written before a server is killed, and read after it
//!                  ├─ peer           other crates on the store, in a program of their own
//!                  ├─ store          the store: one that is started here
//!                  └─ relay          between them: delays, and counts what is asked for
//! ```

mod args;
mod cases;
mod client;
mod killed;
mod ninep;
mod peer;
mod relay;
mod store;
mod subject;
mod suite;
mod zerofs;

pub use args::{RemoteArgs, run_remote};
