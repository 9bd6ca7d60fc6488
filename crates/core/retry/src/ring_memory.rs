//! The memory of an event ring: the kernel's `struct aio_ring`, mapped for the application.

#[cfg(not(loom))]
mod real {
    use crate::primitives::AtomicU32;
    use nowait_sys::{
        Errno,
        aio::{IoEvent, RING_COMPAT, RING_MAGIC, RingHeader},
        memory::{PAGE_SIZE, TwoViews},
    };

    const HEADER: usize = size_of::<RingHeader>();

    /// A mapping with a header and event slots, visible to the library and to the application.
    #[derive(Debug)]
    pub struct RingMemory {
        views: TwoViews,
        id: u32,
        nr: u32,
    }

    impl RingMemory {
        /// Maps a ring of at least `nr_min` slots, which fills whole pages, as the kernel's does.
        ///
        /// # Errors
        /// `ENOMEM`: no memory or too many mappings.
        pub fn new(id: u32, nr_min: u32) -> Result<RingMemory, Errno> {
            let len = (HEADER + nr_min as usize * size_of::<IoEvent>()).next_multiple_of(PAGE_SIZE);
            let nr = ((len - HEADER) / size_of::<IoEvent>()) as u32;
            let views = TwoViews::new(len)?;
            let header = RingHeader {
                id,
                nr,
                head: 0,
                tail: 0,
                magic: RING_MAGIC,
                compat: RING_COMPAT,
                incompat: 0,
                header_length: HEADER as u32,
            };
            // SAFETY: the view is writable, page-aligned and longer than a header; no other thread
            // knows it yet.
            unsafe { views.ours().cast::<RingHeader>().write(header) };
            Ok(RingMemory { views, id, nr })
        }

        /// Returns the number of slots.
        pub fn nr(&self) -> u32 {
            self.nr
        }

        /// Returns the context number that the header had when the ring was made.
        pub fn id(&self) -> u32 {
            self.id
        }

        /// Returns the address of the application's view, which is the context's handle.
        pub fn address(&self) -> usize {
            self.views.theirs() as usize
        }

        /// Unmaps the application's view at `address`, to which the application may have moved it.
        pub fn unmap_theirs(&self, address: usize) {
            self.views.unmap_theirs(address);
        }

        fn word(&self, offset: usize) -> &AtomicU32 {
            // SAFETY: the word lies in the header, which is mapped and aligned as long as
            // `self` lives; the application accesses it as a plain word, as it does the
            // kernel's.
            unsafe { AtomicU32::from_ptr(self.views.ours().add(offset).cast()) }
        }

        /// Returns the index of the next event to consume. The application may change it.
        pub fn head(&self) -> &AtomicU32 {
            self.word(core::mem::offset_of!(RingHeader, head))
        }

        /// Returns the index of the next slot to fill. Only the library changes it.
        pub fn tail(&self) -> &AtomicU32 {
            self.word(core::mem::offset_of!(RingHeader, tail))
        }

        fn slot(&self, index: u32) -> *mut IoEvent {
            assert!(index < self.nr);
            // SAFETY: the index is in range, so the slot lies in the mapping.
            unsafe { self.views.ours().add(HEADER).cast::<IoEvent>().add(index as usize) }
        }

        /// Fills a slot. No reader may read it yet.
        pub fn write(&self, index: u32, event: IoEvent) {
            // SAFETY: `slot` is in the mapping and aligned to 32 bytes.
            unsafe { self.slot(index).write(event) };
        }

        /// Reads a slot below the tail.
        pub fn read(&self, index: u32) -> IoEvent {
            // SAFETY: `slot` is in the mapping and aligned to 32 bytes.
            unsafe { self.slot(index).read() }
        }
    }
}

#[cfg(loom)]
mod model {
    use crate::primitives::AtomicU32;
    use nowait_sys::{Errno, aio::IoEvent};

    /// The ring in memory of loom, which finds unsynchronized accesses to a slot.
    pub struct RingMemory {
        head: AtomicU32,
        tail: AtomicU32,
        slots: Vec<loom::cell::UnsafeCell<IoEvent>>,
    }

    // SAFETY: loom's cell checks every access; that is what the models are for.
    unsafe impl Sync for RingMemory {}
    // SAFETY: as above.
    unsafe impl Send for RingMemory {}

    impl RingMemory {
        /// Makes a ring of exactly `nr` slots.
        pub fn new(_: u32, nr: u32) -> Result<RingMemory, Errno> {
            let slots = (0..nr).map(|_| loom::cell::UnsafeCell::new(IoEvent::default())).collect();
            Ok(RingMemory { head: AtomicU32::new(0), tail: AtomicU32::new(0), slots })
        }

        /// Returns the number of slots.
        pub fn nr(&self) -> u32 {
            self.slots.len() as u32
        }

        /// Returns 0: there is no application's view.
        pub fn address(&self) -> usize {
            0
        }

        /// Does nothing: there is no application's view.
        pub fn unmap_theirs(&self, _: usize) {}

        /// Returns the index of the next event to consume.
        pub fn head(&self) -> &AtomicU32 {
            &self.head
        }

        /// Returns the index of the next slot to fill.
        pub fn tail(&self) -> &AtomicU32 {
            &self.tail
        }

        /// Fills a slot.
        pub fn write(&self, index: u32, event: IoEvent) {
            // SAFETY: loom reports it if this races with a read.
            self.slots[index as usize].with_mut(|slot| unsafe { *slot = event });
        }

        /// Reads a slot.
        pub fn read(&self, index: u32) -> IoEvent {
            // SAFETY: loom reports it if this races with a write.
            self.slots[index as usize].with(|slot| unsafe { *slot })
        }
    }
}

#[cfg(loom)]
pub use model::RingMemory;
#[cfg(not(loom))]
pub use real::RingMemory;
