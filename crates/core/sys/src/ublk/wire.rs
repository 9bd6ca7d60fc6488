//! The structures and numbers of ublk, as the kernel has them.
//!
//! Source: include/uapi/linux/ublk_cmd.h, Linux 6.12, and what later ones added to it.

use core::mem::offset_of;

/// What a device can be asked to have.
pub mod feature {
    /// It outlives its server: requests wait until another one comes.
    pub const RECOVERY: u64 = 1 << 3;
    /// Requests that were in flight are given to that one again.
    pub const REISSUE: u64 = 1 << 4;
    /// Commands are encoded as those of ioctl(2); since 6.4 the only way that lasts.
    pub const IOCTL_ENCODE: u64 = 1 << 6;
    /// Its size can be changed; since 6.16.
    pub const UPDATE_SIZE: u64 = 1 << 10;
}

/// What becomes of a device.
pub mod state {
    /// It is not a disk: not yet, or not any more.
    pub const DEAD: u16 = 0;
    /// It is a disk, with a server.
    pub const LIVE: u16 = 1;
    /// It is a disk that waits for a server.
    pub const QUIESCED: u16 = 2;
}

/// Which parts of [`Parameters`] count.
pub mod types {
    /// [`super::Basic`], always needed.
    pub const BASIC: u32 = 1;
    /// [`super::Discard`].
    pub const DISCARD: u32 = 1 << 1;
}

/// What a disk is like.
pub mod attribute {
    /// Nothing may be changed.
    pub const READ_ONLY: u32 = 1;
    /// It has a cache that must be flushed.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// It has writes that are durable when they end.
    pub const FUA: u32 = 1 << 3;
}

/// What is asked for.
pub mod operation {
    /// Read.
    pub const READ: u8 = 0;
    /// Write.
    pub const WRITE: u8 = 1;
    /// Make durable what has ended.
    pub const FLUSH: u8 = 2;
    /// The contents are of no interest any more.
    pub const DISCARD: u8 = 3;
    /// Zeroes from now on.
    pub const WRITE_ZEROES: u8 = 5;
}

/// How it is asked for.
pub mod request_flag {
    /// Durable when it ends.
    pub const FUA: u32 = 1 << 13;
    /// Zeroes that keep their space.
    pub const NO_UNMAP: u32 = 1 << 15;
}

/// A device: `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// How many queues; the kernel takes no more than there are processors.
    pub queues: u16,
    /// Requests of a queue.
    pub depth: u16,
    /// One of [`state`].
    pub state: u16,
    /// Nothing.
    pub pad0: u16,
    /// Most bytes of a request, whole pages.
    pub buffer_bytes: u32,
    /// Its number; `u32::MAX` asks for any.
    pub id: u32,
    /// The process that answers for it; -1: none.
    pub process: i32,
    /// Nothing.
    pub pad1: u32,
    /// Some of [`feature`]; the kernel adds what it does anyway.
    pub features: u64,
    /// Kept for its server, and of no meaning to the kernel.
    pub mark: u64,
    /// The user that made it.
    pub user: u32,
    /// With which group.
    pub group: u32,
    /// Nothing.
    pub reserved: [u64; 2],
}

/// What the disk is like: `struct ublk_params`, as far as it is used here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Of all that follows and this, in bytes; filled in by [`super::Control`].
    pub len: u32,
    /// Some of [`types`].
    pub types: u32,
    /// Of every disk.
    pub basic: Basic,
    /// Of one that can be discarded.
    pub discard: Discard,
}

/// `struct ublk_param_basic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basic {
    /// Some of [`attribute`].
    pub attributes: u32,
    /// The power of two of bytes that requests are a multiple of, from 9 to 12.
    pub logical_shift: u8,
    /// Of those that are written as one.
    pub physical_shift: u8,
    /// Of those that requests had better be a multiple of.
    pub optimal_shift: u8,
    /// Of those that they had better not be smaller than.
    pub minimal_shift: u8,
    /// Most of a request, in units of 512 bytes.
    pub sectors_max: u32,
    /// No request crosses a multiple of this, in units of 512 bytes; 0: they may.
    pub chunk_sectors: u32,
    /// The size, in units of 512 bytes.
    pub sectors: u64,
    /// Memory of a request has no gaps but at multiples of this plus 1; 0: anywhere.
    pub virtual_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discard {
    /// Where the first piece begins that can be given back, in bytes.
    pub alignment: u32,
    /// In bytes; smaller pieces are not given back.
    pub granularity: u32,
    /// Most of a discard, in units of 512 bytes.
    pub discard_sectors_max: u32,
    /// Most that is zeroed by one request, in units of 512 bytes.
    pub zero_sectors_max: u32,
    /// Ranges of a discard: 1 is all that there is.
    pub segments_max: u16,
    /// Nothing.
    pub reserved: u16,
}

/// The bytes of [`Parameters`] that mean something; other parts follow in the kernel's.
pub(super) const PARAMETERS_BYTES: usize = offset_of!(Parameters, discard) + size_of::<Discard>();

/// A request: `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// The operation, and flags above it.
    pub(super) operation_and_flags: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    pub(super) address: u64,
}

/// A request, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What its result is given with.
    pub tag: u16,
    /// One of [`operation`], or another.
    pub operation: u8,
    /// Some of [`request_flag`], and others.
    pub flags: u32,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub len: u64,
}

impl Descriptor {
    pub(super) fn request(self, tag: u16) -> Request {
        const SECTOR_BYTES: u64 = 512;
        Request {
            tag,
            operation: self.operation_and_flags as u8,
            flags: self.operation_and_flags & !0xff,
            offset: self.first_sector.saturating_mul(SECTOR_BYTES),
            len: u64::from(self.sectors) * SECTOR_BYTES,
        }
    }
}

/// A command about a device: `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControlCommand {
    pub(super) id: u32,
    /// No queue is meant.
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// A command about a request: `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) address: u64,
}

impl ControlCommand {
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.id.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.len.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes
    }
}

impl QueueCommand {
    pub(super) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }
}

/// What is done to a device, by [`super::Control`].
pub(super) mod control {
    use super::encoded;

    const BYTES: u32 = 32;
    pub(crate) const INFO: u32 = encoded(READ, 0x02, BYTES);
    pub(crate) const ADD: u32 = encoded(READ | WRITE, 0x04, BYTES);
    pub(crate) const DELETE: u32 = encoded(READ | WRITE, 0x05, BYTES);
    pub(crate) const START: u32 = encoded(READ | WRITE, 0x06, BYTES);
    pub(crate) const STOP: u32 = encoded(READ | WRITE, 0x07, BYTES);
    pub(crate) const SET_PARAMETERS: u32 = encoded(READ | WRITE, 0x08, BYTES);
    pub(crate) const PARAMETERS: u32 = encoded(READ, 0x09, BYTES);
    pub(crate) const START_RECOVERY: u32 = encoded(READ | WRITE, 0x10, BYTES);
    pub(crate) const END_RECOVERY: u32 = encoded(READ | WRITE, 0x11, BYTES);
    pub(crate) const FEATURES: u32 = encoded(READ, 0x13, BYTES);
    pub(crate) const UPDATE_SIZE: u32 = encoded(READ | WRITE, 0x15, BYTES);
    const READ: u32 = 2;
    const WRITE: u32 = 1;
}

/// What is done to a request, by [`super::Queue`].
pub(super) mod io {
    use super::encoded;

    const BYTES: u32 = 16;
    const READ_WRITE: u32 = 3;
    /// The first of each tag.
    pub(crate) const FETCH: u32 = encoded(READ_WRITE, 0x20, BYTES);
    pub(crate) const COMMIT_AND_FETCH: u32 = encoded(READ_WRITE, 0x21, BYTES);
}

/// Is `_IOC(direction, 'u', number, bytes)`.
const fn encoded(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

const _: () = {
    assert!(size_of::<DeviceInfo>() == 64);
    assert!(size_of::<Basic>() == 32);
    assert!(size_of::<Discard>() == 20);
    assert!(offset_of!(Parameters, basic) == 8 && offset_of!(Parameters, discard) == 40);
    assert!(PARAMETERS_BYTES == 60);
    assert!(size_of::<Descriptor>() == 24);
    assert!(size_of::<ControlCommand>() == 32);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that a C compiler made of the header.
    #[test]
    fn commands_are_encoded_as_the_header_says() {
        assert_eq!(control::INFO, 0x8020_7502);
        assert_eq!(control::ADD, 0xc020_7504);
        assert_eq!(control::UPDATE_SIZE, 0xc020_7515);
        assert_eq!((io::FETCH, io::COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn commands_and_structures_have_their_fields_where_the_kernel_looks() {
        let command = ControlCommand {
            id: 1,
            queue: u16::MAX,
            len: 64,
            address: 3,
            data: 4,
            path_len: 0,
            pad: 0,
            reserved: 0,
        };
        let bytes = command.bytes();
        let at = |offset: usize| u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap());
        assert_eq!((at(0), at(8), at(16), at(24)), (1 | 0xffff << 32 | 64 << 48, 3, 4, 0));
        let command = QueueCommand { queue: 1, tag: 2, result: -5, address: 7 }.bytes();
        assert_eq!((command[0], command[2], command[4], command[8]), (1, 2, 0xfb, 7));
        assert_eq!(offset_of!(DeviceInfo, buffer_bytes), 8);
        assert_eq!(offset_of!(DeviceInfo, process), 16);
        assert_eq!(offset_of!(DeviceInfo, features), 24);
        assert_eq!(offset_of!(DeviceInfo, mark), 32);
        assert_eq!(offset_of!(Basic, sectors_max), 8);
        assert_eq!(offset_of!(Basic, sectors), 16);
        assert_eq!(offset_of!(Discard, segments_max), 16);
    }

    #[test]
    fn a_descriptor_is_a_request_in_bytes() {
        let flags = request_flag::FUA | u32::from(operation::WRITE);
        let descriptor =
            Descriptor { operation_and_flags: flags, sectors: 8, first_sector: 3, address: 0 };
        let request = descriptor.request(9);
        assert_eq!((request.tag, request.operation), (9, operation::WRITE));
        assert_eq!((request.offset, request.len), (1536, 4096));
        assert_eq!(request.flags, request_flag::FUA);
    }
}
