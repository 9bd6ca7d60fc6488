//! The suites that run programs of others, or that act as such a program. Each suite needs programs
//! or packages that the other suites do not need.
//!
//! ```text
//!  programs   QEMU, MariaDB, nginx, NIXL … as they are installed, with and without nowait
//!  kv         tiers of KV caches of language models, and NIXL
//!  serve      servers of images, asked by fio                               ─┬─► served
//!  remote     images on an object store, behind a network of a chosen delay  ─┘
//!  futures    reads as futures of Rust, in the program of the folder futures/
//! ```
//!
//! The folder stores/ has a program that stores the blocks of `remote` by other crates.

#![allow(missing_docs, reason = "what is public is the command line, which clap describes")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests use figures that are exact"))]

pub mod futures;
pub mod kv;
pub mod programs;
pub mod remote;
pub mod serve;
mod served;
