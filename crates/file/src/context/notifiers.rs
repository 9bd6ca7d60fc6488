//! Bells for callers that wait with a signal mask.

use nowait_retry::waiters::Notifier;
use nowait_sys::Errno;
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The bells of a context, one for each caller that sleeps with a mask at the same time.
///
/// They are used again, and belong to the context: whoever rings one has a hold on it that may
/// outlast the caller's, and must not be the last. A thread of the engine would close the number
/// that the bell has in the application's table in its own.
#[derive(Default)]
pub(crate) struct Bells(Mutex<Vec<Place>>);

struct Place {
    bell: Arc<Notifier>,
    taken: bool,
}

impl Bells {
    /// Takes a bell that nobody has, or one that `make` makes.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn take(
        &self,
        make: impl FnOnce() -> Result<Notifier, Errno>,
    ) -> Result<Arc<Notifier>, Errno> {
        if let Some(place) = self.0.lock().iter_mut().find(|place| !place.taken) {
            place.taken = true;
            return Ok(place.bell.clone());
        }
        let bell = Arc::new(make()?);
        self.0.lock().push(Place { bell: bell.clone(), taken: true });
        Ok(bell)
    }

    /// Gives a bell back. It may still be rung once for the caller that had it.
    pub(crate) fn give_back(&self, bell: &Arc<Notifier>) {
        let mut places = self.0.lock();
        if let Some(place) = places.iter_mut().find(|place| Arc::ptr_eq(&place.bell, bell)) {
            place.taken = false;
        }
    }

    /// Returns the descriptors of all of them.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        self.0.lock().iter().map(|place| place.bell.raw()).collect()
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
        let bells = Bells::default();
        let (first, second) = (bells.take(make).unwrap(), bells.take(make).unwrap());
        assert!(!Arc::ptr_eq(&first, &second));
        bells.give_back(&first);
        let again = bells.take(|| unreachable!("one is free")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(bells.descriptors(), [first.raw(), second.raw()]);
    }

    #[test]
    fn whoever_rings_late_does_not_have_the_last_hold() {
        let bells = Bells::default();
        let bell = bells.take(make).unwrap();
        let rings = bell.clone();
        bells.give_back(&bell);
        drop(bell);
        rings.notify();
        assert_eq!(Arc::strong_count(&rings), 2, "the context's, too");
    }
}
