//! The guest's memory, mapped into this process.

use nowait::Errno;
use std::{fs::File, sync::Arc};
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

#[derive(Clone, Debug)]
struct Part {
    /// The address of the part in the VMM.
    user: u64,
    /// The address of the part in the guest.
    guest: u64,
    bytes: u64,
    region: Arc<GuestRegionMmap>,
}

/// All memory that the VMM has announced.
#[derive(Debug, Default)]
pub(super) struct Memory {
    parts: Vec<Part>,
    whole: Option<Arc<GuestMemoryMmap>>,
}

/// The number of parts from which on a VMM can add no more.
pub(super) const PARTS_MAX: usize = 509;

impl Memory {
    /// Returns all memory by the guest's addresses; `None`: the VMM has announced none.
    pub(super) fn whole(&self) -> Option<Arc<GuestMemoryMmap>> {
        self.whole.clone()
    }

    /// Translates an address of the VMM to an address of the guest; `None`: the address is in no
    /// part.
    pub(super) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        let inside = |part: &&Part| user.checked_sub(part.user).is_some_and(|at| at < part.bytes);
        let part = self.parts.iter().find(inside)?;
        Some(GuestAddress(part.guest + (user - part.user)))
    }

    pub(super) fn replace(
        &mut self,
        parts: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<(), Errno> {
        let mapped = parts.iter().zip(files).map(|(part, file)| map(part, file));
        self.set(mapped.collect::<Result<_, _>>()?)
    }

    pub(super) fn add(&mut self, part: &VhostUserMemoryRegion, file: File) -> Result<(), Errno> {
        if self.parts.len() >= PARTS_MAX {
            return Err(Errno::INVAL);
        }
        let mut parts = self.parts.clone();
        parts.push(map(part, file)?);
        self.set(parts)
    }

    pub(super) fn remove(&mut self, gone: &VhostUserMemoryRegion) -> Result<(), Errno> {
        let (guest, user, bytes) = (gone.guest_phys_addr, gone.user_addr, gone.memory_size);
        let is = |part: &Part| part.guest == guest && part.user == user && part.bytes == bytes;
        let mut parts = self.parts.clone();
        let index = parts.iter().position(is).ok_or(Errno::INVAL)?;
        parts.remove(index);
        self.set(parts)
    }

    fn set(&mut self, mut parts: Vec<Part>) -> Result<(), Errno> {
        parts.sort_by_key(|part| part.guest);
        let regions: Vec<_> = parts.iter().map(|part| part.region.clone()).collect();
        let whole = |regions| GuestMemoryMmap::from_arc_regions(regions).map_err(|_| Errno::INVAL);
        // The crate `vm_memory` refuses memory without regions.
        self.whole = if regions.is_empty() { None } else { Some(Arc::new(whole(regions)?)) };
        self.parts = parts;
        Ok(())
    }
}

fn map(part: &VhostUserMemoryRegion, file: File) -> Result<Part, Errno> {
    // Copy the fields, because the message is packed and allows no references to them.
    let (offset, bytes) = (part.mmap_offset, part.memory_size);
    let (guest, user) = (part.guest_phys_addr, part.user_addr);
    let end = offset.checked_add(bytes).ok_or(Errno::INVAL)?;
    let there = file.metadata().map_err(|_| Errno::INVAL)?;
    // An access behind the end of the file would kill the process with SIGBUS.
    if user.checked_add(bytes).is_none() || (there.is_file() && there.len() < end) {
        return Err(Errno::INVAL);
    }
    let size = usize::try_from(bytes).map_err(|_| Errno::INVAL)?;
    let region: MmapRegion =
        MmapRegion::from_file(FileOffset::new(file, offset), size).map_err(|_| Errno::NOMEM)?;
    let region = GuestRegionMmap::new(region, GuestAddress(guest)).ok_or(Errno::INVAL)?;
    Ok(Part { user, guest, bytes, region: Arc::new(region) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(guest: u64, bytes: u64, user: u64) -> VhostUserMemoryRegion {
        VhostUserMemoryRegion::new(guest, bytes, user, 0)
    }

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn addresses_of_the_vmm_are_translated_to_the_guest() {
        let mut memory = Memory::default();
        let parts = [part(0x10000, 0x2000, 0x7000_0000), part(0, 0x1000, 0x6000_0000)];
        memory.replace(&parts, vec![file(0x2000), file(0x1000)]).unwrap();
        assert_eq!(memory.guest_address(0x7000_1fff), Some(GuestAddress(0x11fff)));
        assert_eq!(memory.guest_address(0x6000_0000), Some(GuestAddress(0)));
        assert_eq!(memory.guest_address(0x7000_2000), None);
        memory.remove(&parts[0]).unwrap();
        assert_eq!(memory.guest_address(0x7000_1fff), None);
        assert_eq!(memory.remove(&parts[0]), Err(Errno::INVAL));
        memory.remove(&parts[1]).unwrap();
        assert!(memory.whole().is_none());
    }

    #[test]
    fn memory_outside_its_file_and_overlaps_are_refused() {
        let mut memory = Memory::default();
        let short = memory.replace(&[part(0, 0x2000, 0)], vec![file(0x1000)]);
        assert_eq!(short, Err(Errno::INVAL));
        memory.add(&part(0, 0x2000, 0x8000), file(0x2000)).unwrap();
        assert_eq!(memory.add(&part(0x1000, 0x2000, 0x9000), file(0x2000)), Err(Errno::INVAL));
        assert_eq!(memory.guest_address(0x8000), Some(GuestAddress(0)));
        let far = part(0, 0x1000, u64::MAX - 0x100);
        assert_eq!(memory.replace(&[far], vec![file(0x1000)]), Err(Errno::INVAL));
    }
}
