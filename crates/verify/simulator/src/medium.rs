//! The medium below the cache: a backend, and the file system's part.

use nowait_block::{BlockBackend, backends::mem::Mem};
use nowait_cache::{Backing, Target, Writes};
use nowait_sim::SimDevice;
use nowait_sys::Errno;

/// The descriptor of the file, for requests of any length.
pub const FD: i32 = 3;
/// The same file opened with O_DIRECT.
pub const DIRECT_FD: i32 = 4;

/// One file on a device.
pub trait Medium {
    /// Returns the backend that carries the medium's bios.
    fn backend(&self) -> &dyn BlockBackend;

    /// Sets the size of the file, at once. Bytes that were cut off are zero if the file grows
    /// again.
    fn set_len(&self, len: u64) -> Result<(), Errno>;

    /// Returns the size of the file; `None`: unknown.
    fn size(&self) -> Option<u64>;

    /// Returns the bytes that reads of the file see, for comparison.
    fn contents(&self) -> Vec<u8>;

    /// Returns the durable bytes, without changes that are pending; `None`: unknown.
    fn durable_contents(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns the trace, for printing.
    fn trace(&self) -> String {
        String::new()
    }

    /// Returns the access of a cache to the file.
    fn backing(&self, block_bytes: u32) -> Backing {
        let target = |fd| Target { fd, file: None };
        let writes = Some(Writes { direct: target(DIRECT_FD), tail: target(FD) });
        Backing { reads: target(DIRECT_FD), writes, device: 0, block_bytes }
    }
}

impl Medium for SimDevice {
    fn backend(&self) -> &dyn BlockBackend {
        self
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        SimDevice::set_len(self, FD, len)
    }

    fn size(&self) -> Option<u64> {
        SimDevice::size(self, FD).ok()
    }

    fn contents(&self) -> Vec<u8> {
        SimDevice::contents(self, FD).expect("created with the device")
    }

    fn durable_contents(&self) -> Option<Vec<u8>> {
        SimDevice::durable_contents(self, FD).ok()
    }

    fn trace(&self) -> String {
        SimDevice::trace(self).to_string()
    }
}

/// An array in memory: its size is fixed, so only the cache knows the file's size.
impl Medium for Mem {
    fn backend(&self) -> &dyn BlockBackend {
        self
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        self.clear_from(len);
        Ok(())
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn contents(&self) -> Vec<u8> {
        Mem::contents(self)
    }
}

/// Makes the file of a simulated device, and its two descriptors.
pub fn prepare(device: &SimDevice, size: u64) {
    device.create(FD, size);
    device.open_direct(FD, DIRECT_FD);
}
