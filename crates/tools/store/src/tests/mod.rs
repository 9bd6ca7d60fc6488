//! Images on stores in memory and in folders, and on stores that do wrong.

mod answers;
mod catalog;
mod checks;
mod images;
mod views;
mod wrong;
