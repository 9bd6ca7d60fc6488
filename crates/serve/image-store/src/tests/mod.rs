//! Images on stores in memory and in folders, and on stores with errors.

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
