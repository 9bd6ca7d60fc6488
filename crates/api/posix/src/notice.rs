//! Notification of the application at an end: none, by a signal, by a function in a thread.

use crate::{notifiers::Notifiers, posix::Shared};
use core::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use nowait_sys::signal;
use std::sync::Arc;

/// `struct sigevent` (sigevent(7)), as far as it is used.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SigEvent {
    value: usize,
    signo: i32,
    notify: i32,
    function: usize,
    attributes: usize,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<SigEvent>() == 64);

const SIGEV_SIGNAL: i32 = 0;
const SIGEV_THREAD: i32 = 2;

/// A call that a thread will make.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The application's function.
    pub function: usize,
    /// What it is given.
    pub value: usize,
    /// The attributes of the thread, or 0.
    pub attributes: usize,
}

/// What to do at an end.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Nothing: the application looks.
    None,
    /// Queue a signal with a value.
    Signal(i32, usize),
    /// Call a function, as if in a new thread.
    Thread(Call),
}

impl Notice {
    /// Reads what the application wants; what the standard does not know is nothing, as in glibc.
    pub fn of(event: &SigEvent) -> Notice {
        match event.notify {
            SIGEV_SIGNAL if event.signo != 0 => Notice::Signal(event.signo, event.value),
            SIGEV_THREAD => Notice::Thread(Call {
                function: event.function,
                value: event.value,
                attributes: event.attributes,
            }),
            _ => Notice::None,
        }
    }

    /// Tells whether there is no notification.
    pub fn is_none(&self) -> bool {
        matches!(self, Notice::None)
    }

    /// Tells the application, on whatever thread; never waits.
    pub fn tell(self, notifiers: &Notifiers) {
        match self {
            Notice::None => {}
            // No signal is sent for a number that does not exist.
            Notice::Signal(signo, value) => drop(signal::tell_completion(signo, value)),
            Notice::Thread(call) => notifiers.push(call),
        }
    }
}

/// What happens at the end of a request, beside its outcome. Behind the event's data.
pub struct Ending {
    notice: Notice,
    group: Option<Arc<Group>>,
}

impl Ending {
    /// Makes the word that goes with a request: 0 when there is nothing to do at its end.
    pub fn word(notice: Notice, group: Option<Arc<Group>>) -> u64 {
        if notice.is_none() && group.is_none() {
            return 0;
        }
        Box::into_raw(Box::new(Ending { notice, group })) as u64
    }

    /// Takes back what [`Ending::word`] made.
    ///
    /// # Safety
    /// `word` comes from there, and is taken back once.
    pub unsafe fn from_word(word: u64) -> Option<Box<Ending>> {
        // SAFETY: promised above.
        (word != 0).then(|| unsafe { Box::from_raw(word as *mut Ending) })
    }

    /// Returns the group of a request that has not begun, of which nothing is told.
    pub fn untold(self) -> Option<Arc<Group>> {
        self.group
    }

    /// Tells the application, after the outcome is visible.
    pub fn tell(self, shared: &Shared) {
        shared.announce(self.notice);
        if let Some(group) = self.group {
            group.leave(shared);
        }
    }
}

/// The requests of one lio_listio, whose last end is notified.
pub struct Group {
    /// Requests in flight, and the call itself until it has started all.
    left: AtomicUsize,
    notice: Notice,
}

impl Group {
    /// Makes a group with only the call in it.
    pub fn new(notice: Notice) -> Arc<Group> {
        Arc::new(Group { left: AtomicUsize::new(1), notice })
    }

    /// Adds a request.
    pub fn join(self: &Arc<Group>) -> Arc<Group> {
        self.left.fetch_add(1, AcqRel);
        self.clone()
    }

    /// Takes a request, or the call, out; the last one tells the application.
    pub fn leave(&self, shared: &Shared) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            shared.announce(self.notice);
        }
    }
}
