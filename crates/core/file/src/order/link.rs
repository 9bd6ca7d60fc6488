//! Links: a request that begins when another has succeeded.
//!
//! The later request may be submitted while the earlier one is in flight: it then holds its file
//! and has its place in the order of its inode. The later request's first iteration leaves a wait
//! entry in the link. The thread that ends the earlier request kicks that entry.

use nowait_retry::WaitEntry;
use nowait_sys::Errno;
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The end of a request, for the requests that begin after it.
#[derive(Debug)]
pub struct Link {
    /// The result that counts as success; `None`: every result except an error.
    expected: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open(Vec<WaitEntry>),
    Succeeded,
    Failed,
}

impl Link {
    /// Makes the link of a request that has not begun. `expected` is the result that counts as
    /// success, for example the bytes of a transfer; `None`: every result except an error.
    pub fn new(expected: Option<u64>) -> Arc<Link> {
        Arc::new(Link { expected, state: Mutex::new(State::Open(Vec::new())) })
    }

    /// Records how the request ended, and kicks the requests that wait for it. Called only once.
    pub fn end(&self, result: Result<u32, Errno>) {
        let success = match (result, self.expected) {
            (Ok(value), Some(expected)) => u64::from(value) == expected,
            (Ok(_), None) => true,
            (Err(_), _) => false,
        };
        let end = if success { State::Succeeded } else { State::Failed };
        let before = core::mem::replace(&mut *self.state.lock(), end);
        if let State::Open(waiting) = before {
            waiting.into_iter().for_each(WaitEntry::wake);
        }
    }

    /// Returns `None` if the request is in flight: then the request's end will kick `entry`.
    pub(crate) fn look(&self, entry: impl FnOnce() -> WaitEntry) -> Option<bool> {
        match &mut *self.state.lock() {
            State::Open(waiting) => {
                waiting.push(entry());
                None
            }
            State::Succeeded => Some(true),
            State::Failed => Some(false),
        }
    }
}

/// The links of one request.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// The end of an earlier request: this request begins when that one has succeeded, and is
    /// cancelled if that one fails.
    pub after: Option<Arc<Link>>,
    /// The end of this request, if another one waits for it.
    pub end: Option<Arc<Link>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::task::{Wake, Waker};

    struct Kicks(AtomicU32);

    impl Wake for Kicks {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn those_that_wait_are_kicked_once_and_later_ones_need_not_wait() {
        let kicks = Arc::new(Kicks(AtomicU32::new(0)));
        let entry = || Waker::from(kicks.clone());
        let link = Link::new(Some(10));
        assert_eq!((link.look(entry), link.look(entry)), (None, None));
        link.end(Ok(10));
        assert_eq!(kicks.0.load(SeqCst), 2);
        assert_eq!(link.look(entry), Some(true));
    }

    #[test]
    fn short_transfers_and_errors_are_failures() {
        for (expected, result, success) in [
            (Some(10), Ok(10), true),
            (Some(10), Ok(9), false),
            (Some(10), Err(Errno::IO), false),
            (None, Ok(0), true),
            (None, Err(Errno::CANCELED), false),
        ] {
            let link = Link::new(expected);
            link.end(result);
            assert_eq!(link.look(|| unreachable!()), Some(success));
        }
    }
}
