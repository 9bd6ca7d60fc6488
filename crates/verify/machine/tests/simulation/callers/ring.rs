//! The completion ring of a context, as a program reads it itself.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use nowait_sys::aio::{IoEvent, RingHeader};

pub(super) struct Ring(*const RingHeader);

impl Ring {
    pub(super) fn of(context: usize) -> Ring {
        Ring(context as *const RingHeader)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: a word of the header of an existing context.
        unsafe { &*self.0.byte_add(offset).cast() }
    }

    fn ends(&self) -> [&AtomicU32; 2] {
        let [head, tail] =
            [core::mem::offset_of!(RingHeader, head), core::mem::offset_of!(RingHeader, tail)];
        [self.word(head), self.word(tail)]
    }

    fn slots(&self) -> u32 {
        self.word(core::mem::offset_of!(RingHeader, nr)).load(Acquire)
    }

    pub(super) fn len(&self) -> usize {
        let [head, tail] = self.ends().map(|it| it.load(Acquire));
        ((tail + self.slots() - head) % self.slots()) as usize
    }

    pub(super) fn take(&self) -> Option<IoEvent> {
        let [head, tail] = self.ends();
        let at = head.load(Acquire);
        if at == tail.load(Acquire) {
            return None;
        }
        // SAFETY: an event is in the slot, behind the header.
        let event = unsafe { self.0.add(1).cast::<IoEvent>().add(at as usize).read() };
        head.store((at + 1) % self.slots(), Release);
        Some(event)
    }
}
