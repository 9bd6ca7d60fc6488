//! Images on stores in memory and in folders, and on stores that do wrong.

mod answers;
mod cache;
mod catalog;
mod checks;
mod damages;
mod encryption;
mod images;
mod repairs;
mod shrink;
mod snapshots;
mod views;
mod wrong;
