//! The kernel's structures and numbers of ublk.
//!
//! Source: include/uapi/linux/ublk_cmd.h, Linux 6.12, with additions of later versions.

use core::mem::offset_of;

/// Features of a device.
pub mod feature {
    /// The device outlives its server: requests wait for another server.
    pub const RECOVERY: u64 = 1 << 3;
    /// The kernel gives requests that were in flight to the new server again.
    pub const REISSUE: u64 = 1 << 4;
    /// Commands are encoded as for ioctl(2). Linux 6.4 deprecated every other encoding.
    pub const IOCTL_ENCODE: u64 = 1 << 6;
    /// The size of the device can be changed (Linux 6.16).
    pub const UPDATE_SIZE: u64 = 1 << 10;
}

/// States of a device.
pub mod state {
    /// The device is not a disk: not yet, or not any more.
    pub const DEAD: u16 = 0;
    /// The device is a disk without a server: the kernel keeps its requests until a server comes.
    pub const QUIESCED: u16 = 2;
}

/// The parts of [`Parameters`] that are in use.
pub mod types {
    /// [`super::Basic`], always needed.
    pub const BASIC: u32 = 1;
    /// [`super::Discard`].
    pub const DISCARD: u32 = 1 << 1;
}

/// Attributes of a disk.
pub mod attribute {
    /// The disk is read-only.
    pub const READ_ONLY: u32 = 1;
    /// The disk has a volatile cache that must be flushed.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// The disk supports writes that are durable when they end.
    pub const FUA: u32 = 1 << 3;
}

/// Operations of requests.
pub mod operation {
    /// Read.
    pub const READ: u8 = 0;
    /// Write.
    pub const WRITE: u8 = 1;
    /// Make completed writes durable.
    pub const FLUSH: u8 = 2;
    /// Discard the contents.
    pub const DISCARD: u8 = 3;
    /// Write zeroes.
    pub const WRITE_ZEROES: u8 = 5;
}

/// Flags of requests.
pub mod request_flag {
    /// The write is durable when it ends.
    pub const FUA: u32 = 1 << 13;
    /// The zeroes keep their allocated space.
    pub const NO_UNMAP: u32 = 1 << 15;
}

/// A device: `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The number of queues; the kernel makes at most one for each processor.
    pub queues: u16,
    /// The depth of a queue, in requests.
    pub depth: u16,
    /// One of [`state`].
    pub state: u16,
    /// Padding.
    pub pad0: u16,
    /// The most bytes of a request, in whole pages.
    pub buffer_bytes: u32,
    /// The device's number; `u32::MAX` requests any free number.
    pub id: u32,
    /// The server's process id; -1: none.
    pub process: i32,
    /// Padding.
    pub pad1: u32,
    /// Some of [`feature`]; the kernel adds the features that it always has.
    pub features: u64,
    /// A value that the kernel keeps for the server without using it.
    pub mark: u64,
    /// The user id of the device's maker.
    pub user: u32,
    /// The group id of the device's maker.
    pub group: u32,
    /// Padding.
    pub reserved: [u64; 2],
}

/// The parameters of a disk: `struct ublk_params`, as far as it is used here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The length of this struct in bytes; [`super::Control`] sets it.
    pub len: u32,
    /// Some of [`types`].
    pub types: u32,
    /// The parameters of every disk.
    pub basic: Basic,
    /// The parameters of a disk that supports discards.
    pub discard: Discard,
}

/// `struct ublk_param_basic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basic {
    /// Some of [`attribute`].
    pub attributes: u32,
    /// The logical block size, as a power of two from 9 to 12: requests are multiples of it.
    pub logical_shift: u8,
    /// The physical block size, as a power of two: the disk writes such a block as one.
    pub physical_shift: u8,
    /// The optimal request size, as a power of two: requests should be multiples of it.
    pub optimal_shift: u8,
    /// The minimal efficient request size, as a power of two.
    pub minimal_shift: u8,
    /// The most sectors of a request, in units of 512 bytes.
    pub sectors_max: u32,
    /// No request crosses a multiple of this, in units of 512 bytes; 0: no such limit.
    pub chunk_sectors: u32,
    /// The size, in units of 512 bytes.
    pub sectors: u64,
    /// Between its first and last byte, a request's memory has gaps only at multiples of this value
    /// plus 1; 0: gaps are allowed anywhere.
    pub virtual_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discard {
    /// The offset of the first unit that can be discarded, in bytes.
    pub alignment: u32,
    /// The preferred unit of discards, in bytes. The kernel splits discards at its multiples, and
    /// also sends smaller ones.
    pub granularity: u32,
    /// The most sectors of a discard, in units of 512 bytes.
    pub discard_sectors_max: u32,
    /// The most sectors that one request zeroes, in units of 512 bytes.
    pub zero_sectors_max: u32,
    /// The number of ranges of a discard; the kernel supports only 1.
    pub segments_max: u16,
    /// Padding.
    pub reserved: u16,
}

/// The used bytes of [`Parameters`]; the kernel's struct has more parts after them.
pub(super) const PARAMETERS_BYTES: usize = offset_of!(Parameters, discard) + size_of::<Discard>();

/// A request: `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) operation_and_flags: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    pub(super) address: u64,
}

/// A request as the queue received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The tag, which [`super::Queue::commit`] takes with the result.
    pub tag: u16,
    /// One of [`operation`], or another.
    pub operation: u8,
    /// Some of [`request_flag`], and others.
    pub flags: u32,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
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
    /// The queue number; `u16::MAX`, because the command concerns the whole device.
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

pub(super) mod io {
    use super::encoded;

    const BYTES: u32 = 16;
    const READ_WRITE: u32 = 3;
    /// The first command of each tag.
    pub(crate) const FETCH: u32 = encoded(READ_WRITE, 0x20, BYTES);
    pub(crate) const COMMIT_AND_FETCH: u32 = encoded(READ_WRITE, 0x21, BYTES);
}

/// Returns `_IOC(direction, 'u', number, bytes)`.
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
