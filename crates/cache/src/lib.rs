//! The page cache: it knows no contexts and no descriptors.
//!
//! * [`readahead`]: what to read before it is asked for, per open file
//! * [`policy`]: which folio leaves when a frame is needed
//! * [`inode_lock`]: direct against cached requests, truncate against requests in flight

pub mod inode_lock;
pub mod policy;
pub mod readahead;
