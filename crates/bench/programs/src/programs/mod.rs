//! `bench programs`: programs as their users install them, with and without nowait.
//!
//! ```text
//!  ProgramsArgs ─► suite ─┬─ cases       programs, what they do, the ways to run them
//!                         ├─ need        what a case needs, and how to install it
//!                         ├─ run         one run: its files, its preloads, its filter
//!                         │   └─ qemu, mariadb, …  what each program is asked, and how it answers
//!                         └─ overview    all cases as one table
//!
//!  drivers/               what is compiled or run here in other languages
//!    submit_timer.c         the time inside io_submit of a program that does not tell it  ◄ timer
//!    caio_reads.py          an asyncio program, and how late its event loop comes
//!    nixl_transfers.py      transfers of NIXL's POSIX plugin
//! ```

mod args;
mod cases;
mod http;
mod mariadb;
mod need;
mod nginx;
mod overview;
mod python;
mod qemu;
mod run;
mod suite;
mod sysbench;
mod thin;
mod timer;

pub use args::{ProgramsArgs, run_programs};
