//! Notifiers for callers that wait with a signal mask.

use nowait_retry::waiters::Notifier;
use nowait_sys::Errno;
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The notifiers of a context, one for each caller that sleeps with a mask at the same time.
///
/// They are used again, and belong to the context: a thread that signals one has a reference that
/// may outlast the caller's, and must not be the last. A thread of the engine would close the
/// number that the notifier has in the application's table in its own.
#[derive(Default)]
pub(crate) struct Notifiers(Mutex<Vec<Place>>);

struct Place {
    notifier: Arc<Notifier>,
    taken: bool,
}

impl Notifiers {
    /// Takes a free notifier, or one that `make` makes.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn take(
        &self,
        make: impl FnOnce() -> Result<Notifier, Errno>,
    ) -> Result<Arc<Notifier>, Errno> {
        if let Some(place) = self.0.lock().iter_mut().find(|place| !place.taken) {
            place.taken = true;
            return Ok(place.notifier.clone());
        }
        let notifier = Arc::new(make()?);
        self.0.lock().push(Place { notifier: notifier.clone(), taken: true });
        Ok(notifier)
    }

    /// Gives a notifier back. It may still be signalled once for the caller that had it.
    pub(crate) fn give_back(&self, notifier: &Arc<Notifier>) {
        let mut places = self.0.lock();
        if let Some(place) = places.iter_mut().find(|place| Arc::ptr_eq(&place.notifier, notifier))
        {
            place.taken = false;
        }
    }

    /// Returns the descriptors of all of them.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        self.0.lock().iter().map(|place| place.notifier.raw()).collect()
    }

    /// Takes all out, to be dropped elsewhere.
    pub(crate) fn take_all(&mut self) -> impl Send + 'static {
        core::mem::take(self.0.get_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_sys::eventfd::EventFd;

    fn make() -> Result<Notifier, Errno> {
        Ok(Notifier::new(EventFd::new()?, Box::new(|| {})))
    }

    #[test]
    fn a_bell_is_used_again_and_by_one_at_a_time() {
        let notifiers = Notifiers::default();
        let (first, second) = (notifiers.take(make).unwrap(), notifiers.take(make).unwrap());
        assert!(!Arc::ptr_eq(&first, &second));
        notifiers.give_back(&first);
        let again = notifiers.take(|| unreachable!("one is free")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(notifiers.descriptors(), [first.raw(), second.raw()]);
    }

    #[test]
    fn a_late_notification_does_not_have_the_last_reference() {
        let notifiers = Notifiers::default();
        let notifier = notifiers.take(make).unwrap();
        let rings = notifier.clone();
        notifiers.give_back(&notifier);
        drop(notifier);
        rings.notify();
        assert_eq!(Arc::strong_count(&rings), 2, "the context's, too");
    }
}
