//! Brings the ends of requests to the thread that made them.

use crate::RequestEnd;
use nowait::Errno;
use nowait_sys::{eventfd::EventFd, mutex::Mutex};
use std::{collections::VecDeque, sync::Arc};

/// The queue into which other threads put the ends of requests for the thread that made them.
#[derive(Debug)]
pub struct Mailbox {
    letters: Mutex<Vec<RequestEnd>>,
    bell: EventFd,
}

impl Mailbox {
    /// Makes an empty mailbox.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left.
    pub fn new() -> Result<Arc<Mailbox>, Errno> {
        Ok(Arc::new(Mailbox { letters: Mutex::default(), bell: EventFd::new()? }))
    }

    /// Returns the descriptor that is readable while the mailbox is not empty.
    pub fn raw(&self) -> i32 {
        self.bell.raw()
    }

    /// Adds the end of a request, and wakes the thread that made it.
    pub fn put(&self, ended: RequestEnd) {
        let mut letters = self.letters.lock();
        letters.push(ended);
        if letters.len() == 1 {
            self.bell.signal();
        }
    }

    /// Moves all ends into `ended`.
    pub fn empty(&self, ended: &mut VecDeque<RequestEnd>) {
        let mut letters = self.letters.lock();
        if !letters.is_empty() {
            self.bell.drain();
            ended.extend(letters.drain(..));
        }
    }
}
