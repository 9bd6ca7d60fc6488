//! The number of queues of a device. A VMM that wants more queues, for example after the server has
//! restarted with fewer, disconnects without an error message. So the server reports the likely
//! reason.

use nowait_terminal::say;
use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use vhost::vhost_user::Error;

/// `true` after the first report. The server makes no further report, because such a VMM may
/// connect again every second.
static SAID: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(super) struct QueueCount {
    count: usize,
    /// The VMM has asked for the number, and no later message has shown that the number is enough.
    is_last: bool,
}

impl QueueCount {
    pub(super) fn new(count: usize) -> QueueCount {
        QueueCount { count, is_last: false }
    }

    pub(super) fn asked(&mut self) -> u64 {
        self.is_last = true;
        self.count as u64
    }

    /// Records that the VMM has sent a message which shows that the number is enough.
    pub(super) fn is_enough(&mut self) {
        self.is_last = false;
    }

    pub(super) fn check(&self, index: usize) -> Result<(), Error> {
        if index < self.count {
            return Ok(());
        }
        let line = format!(
            "it uses queue {index}, counted from 0, and the device has {} queues: start the \
             server with --queues {} or more",
            self.count,
            index + 1
        );
        Err(Error::ReqHandlerError(io::Error::new(io::ErrorKind::InvalidInput, line)))
    }

    /// If no message since the VMM asked for the number has shown that the number is enough,
    /// reports this likely reason on standard error, once in the life of the process.
    pub(super) fn tell(&self, image: &str) {
        if let Some(line) = self.reason(image)
            && !SAID.swap(true, Relaxed)
        {
            say(line);
        }
    }

    fn reason(&self, image: &str) -> Option<String> {
        let count = self.count;
        self.is_last.then(|| {
            format!(
                "{image}: a VMM disconnected after it learned that the device has {count} queues: \
                     if it needs more, start the server with a larger --queues"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vmm_that_leaves_after_asking_the_number_is_reported() {
        let mut count = QueueCount::new(2);
        assert_eq!(count.reason("vm"), None);
        assert_eq!(count.asked(), 2);
        let line = count.reason("vm").unwrap();
        assert!(line.starts_with("vm: ") && line.contains("has 2 queues"), "{line}");
        count.is_enough();
        assert_eq!(count.reason("vm"), None);
    }

    #[test]
    fn a_queue_that_the_device_lacks_is_named() {
        let count = QueueCount::new(2);
        count.check(1).unwrap();
        let error = count.check(3).unwrap_err().to_string();
        assert!(error.contains("queue 3") && error.contains("--queues 4"), "{error}");
    }
}
