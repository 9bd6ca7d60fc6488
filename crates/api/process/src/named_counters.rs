//! A table of the contexts whose requests name an eventfd. Threads use it without a lock, because a
//! program may read its eventfds on many threads.

use core::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
};
use nowait_engine::Context;

/// Descriptor numbers that differ by a multiple of this number share a slot.
const SLOTS: usize = 1024;

const NOBODY: *mut Context = ptr::null_mut();
const SEVERAL: *mut Context = ptr::without_provenance_mut(usize::MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namer {
    Nobody,
    /// Only this context, which may have ended.
    One(*const Context),
    /// Any context of the process.
    Several,
}

pub(crate) struct NamedCounters([AtomicPtr<Context>; SLOTS]);

/// A forked child may find entries of its parent's contexts, and then looks at all of its own
/// contexts.
pub(crate) static NAMED: NamedCounters = NamedCounters::new();

impl NamedCounters {
    const fn new() -> NamedCounters {
        NamedCounters([const { AtomicPtr::new(NOBODY) }; SLOTS])
    }

    pub(crate) fn note(&self, number: i32, context: *const Context) {
        let (slot, context) = (self.slot(number), context.cast_mut());
        let known = slot.load(Acquire);
        if known == context || known == SEVERAL {
            return;
        }
        let known = slot.compare_exchange(NOBODY, context, AcqRel, Acquire);
        if known.is_err_and(|other| other != context) {
            slot.store(SEVERAL, Release);
        }
    }

    pub(crate) fn forget(&self, context: *const Context) {
        let context = context.cast_mut();
        for slot in &self.0 {
            if slot.load(Acquire) == context {
                // If the exchange fails, another context has named the eventfd meanwhile.
                let _ = slot.compare_exchange(context, NOBODY, AcqRel, Acquire);
            }
        }
    }

    pub(crate) fn namer(&self, number: i32) -> Namer {
        match self.slot(number).load(Acquire) {
            NOBODY => Namer::Nobody,
            SEVERAL => Namer::Several,
            context => Namer::One(context),
        }
    }

    fn slot(&self, number: i32) -> &AtomicPtr<Context> {
        &self.0[number as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_two_contexts_name_or_that_shares_a_slot_is_anyones() {
        let [first, second, third] = [1, 2, 3].map(ptr::without_provenance);
        let named = NamedCounters::new();
        named.note(7, first);
        named.note(7, first);
        named.note(8, second);
        named.note(9, first);
        named.note(9 + SLOTS as i32, second);
        let found = |named: &NamedCounters| [7, 8, 9, 10].map(|it| named.namer(it));
        let (several, nobody) = (Namer::Several, Namer::Nobody);
        assert_eq!(found(&named), [Namer::One(first), Namer::One(second), several, nobody]);
        named.forget(first);
        assert_eq!(found(&named), [nobody, Namer::One(second), several, nobody]);
        named.note(8, third);
        named.forget(second);
        assert_eq!(named.namer(8), several);
    }
}
