//! Images on stores in memory and in folders, and on stores that do wrong.

mod answers;
mod images;
mod wrong;
