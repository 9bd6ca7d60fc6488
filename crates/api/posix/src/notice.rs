//! Notification of the application at the end of a request: none, by a signal, or by a function in
//! a thread.

use crate::{notifiers::Notifiers, posix::Shared};
use core::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use nowait_sys::signal;
use std::sync::Arc;

/// `struct sigevent` (sigevent(7)), without the members that are not used here.
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
    /// The argument of the function.
    pub value: usize,
    /// The attributes of the thread, or 0.
    pub attributes: usize,
}

/// The notification at the end of a request.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// None: the application polls.
    None,
    /// Queue a signal with a value.
    Signal(i32, usize),
    /// Call a function, as if in a new thread.
    Thread(Call),
}

impl Notice {
    /// Reads the notification that the application wants. As in glibc, the signal 0 and values
    /// unknown to the standard mean none.
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

    /// Returns `true` if there is no notification.
    pub fn is_none(&self) -> bool {
        matches!(self, Notice::None)
    }

    /// Notifies the application. Any thread may call this function.
    pub fn tell(self, notifiers: &Notifiers) {
        match self {
            Notice::None => {}
            // The kernel sends no signal for a number that does not exist.
            Notice::Signal(signo, value) => drop(signal::tell_completion(signo, value)),
            Notice::Thread(call) => notifiers.push(call),
        }
    }
}

/// Actions at the end of a request besides storing its outcome.
pub struct Ending {
    notice: Notice,
    group: Option<Arc<Group>>,
}

impl Ending {
    /// Makes the data of a request's event: the address of an `Ending`, or 0 if the end of the
    /// request needs no action.
    pub fn word(notice: Notice, group: Option<Arc<Group>>) -> u64 {
        if notice.is_none() && group.is_none() {
            return 0;
        }
        Box::into_raw(Box::new(Ending { notice, group })) as u64
    }

    /// Returns the value from which [`Ending::word`] made `word`.
    ///
    /// # Safety
    /// [`Ending::word`] made `word`, and the caller passes `word` only once.
    pub unsafe fn from_word(word: u64) -> Option<Box<Ending>> {
        // SAFETY: promised above.
        (word != 0).then(|| unsafe { Box::from_raw(word as *mut Ending) })
    }

    /// Returns the group of a request that has not begun; sends no notice.
    pub fn untold(self) -> Option<Arc<Group>> {
        self.group
    }

    /// Notifies the application, and takes the request out of its group. Called after the outcome
    /// is visible.
    pub fn tell(self, shared: &Shared) {
        shared.announce(self.notice);
        if let Some(group) = self.group {
            group.leave(shared);
        }
    }
}

/// The requests of one lio_listio call; the end of the last one sends the notice.
pub struct Group {
    /// Number of requests in flight, plus one for the call itself until it has started all.
    left: AtomicUsize,
    notice: Notice,
}

impl Group {
    /// Makes a group that contains only the call.
    pub fn new(notice: Notice) -> Arc<Group> {
        Arc::new(Group { left: AtomicUsize::new(1), notice })
    }

    /// Adds a request.
    pub fn join(self: &Arc<Group>) -> Arc<Group> {
        self.left.fetch_add(1, AcqRel);
        self.clone()
    }

    /// Takes a request, or the call, out of the group. If the group is then empty, sends the
    /// notice.
    pub fn leave(&self, shared: &Shared) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            shared.announce(self.notice);
        }
    }
}
