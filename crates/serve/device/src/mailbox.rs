//! Brings the ends of requests to the serving thread that made the requests.

use crate::RequestEnd;
use nowait::Errno;
use nowait_sys::{eventfd::EventFd, mutex::Mutex};
use std::{collections::VecDeque, sync::Arc};

/// The queue of ended requests of one serving thread. Any thread may add ends.
#[derive(Debug)]
pub struct Mailbox {
    letters: Mutex<Vec<RequestEnd>>,
    bell: EventFd,
}

impl Mailbox {
    /// Makes an empty mailbox.
    ///
    /// # Errors
    /// The errors of eventfd(2), for example `EMFILE` if no descriptors are left.
    pub fn new() -> Result<Arc<Mailbox>, Errno> {
        Ok(Arc::new(Mailbox { letters: Mutex::default(), bell: EventFd::new()? }))
    }

    /// Returns the number of the eventfd, which is readable while the mailbox is not empty.
    pub fn raw(&self) -> i32 {
        self.bell.raw()
    }

    /// Adds the end of a request. If the mailbox was empty, makes its descriptor readable.
    pub fn put(&self, ended: RequestEnd) {
        let mut letters = self.letters.lock();
        letters.push(ended);
        if letters.len() == 1 {
            self.bell.signal();
        }
    }

    /// Moves all ends from the mailbox to the end of `ended`.
    pub fn empty(&self, ended: &mut VecDeque<RequestEnd>) {
        let mut letters = self.letters.lock();
        if !letters.is_empty() {
            self.bell.drain();
            ended.extend(letters.drain(..));
        }
    }
}
