//! Makes, starts, stops and removes devices: by commands on a ring, one after another.

use super::wire::{self, ControlCommand, DeviceInfo, PARAMETERS_BYTES, Parameters};
use crate::{Errno, time::Deadline, uring};
use io_uring::{IoUring, cqueue, opcode, squeue::Entry128, types};
use std::os::fd::{AsRawFd, OwnedFd};

/// The device by which devices are made.
pub struct Control {
    device: OwnedFd,
    ring: IoUring<Entry128, cqueue::Entry>,
    /// What the last command is known by.
    last: u64,
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Control {}", self.device.as_raw_fd())
    }
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// `ENOENT`: the kernel has no ublk, or it is not loaded. `EACCES`: not for this user. Those of
    /// io_uring_setup(2), such as `EPERM` and `ENOSYS`.
    pub fn open() -> Result<Control, Errno> {
        let device = super::open(c"/dev/ublk-control", libc::O_RDWR)?;
        let ring = IoUring::<Entry128, cqueue::Entry>::builder().build(4)?;
        Ok(Control { device, ring, last: 0 })
    }

    /// Returns what this kernel can do: some of [`super::feature`]. Does not wait.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL`: before Linux 6.5.
    pub fn features(&mut self) -> Result<u64, Errno> {
        self.exchange(wire::control::FEATURES, u32::MAX, 0u64, size_of::<u64>())
    }

    /// Returns what is known of device `id`.
    ///
    /// # Errors
    /// `ENODEV`: there is none. `EPERM`: not for this user.
    pub fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno> {
        let info = DeviceInfo::default();
        self.exchange(wire::control::INFO, id, info, size_of::<DeviceInfo>())
    }

    /// Makes a device; returns what has become of it, its number too.
    ///
    /// # Errors
    /// `EEXIST`: the number is taken. `EPERM`: not root. `ENOMEM`.
    pub fn add(&mut self, wanted: DeviceInfo) -> Result<DeviceInfo, Errno> {
        self.exchange(wire::control::ADD, wanted.id, wanted, size_of::<DeviceInfo>())
    }

    /// Says what the disk is like, before it is started.
    ///
    /// # Errors
    /// `EINVAL`: they make no sense. `EACCES`: it was started.
    pub fn set_parameters(&mut self, id: u32, parameters: Parameters) -> Result<(), Errno> {
        let parameters = Parameters { len: PARAMETERS_BYTES as u32, ..parameters };
        let op = wire::control::SET_PARAMETERS;
        self.exchange(op, id, parameters, PARAMETERS_BYTES).map(drop)
    }

    /// Returns what the disk is like.
    ///
    /// # Errors
    /// `ENODEV`: there is no such device.
    pub fn parameters(&mut self, id: u32) -> Result<Parameters, Errno> {
        let empty = Parameters { len: PARAMETERS_BYTES as u32, ..Parameters::default() };
        self.exchange(wire::control::PARAMETERS, id, empty, PARAMETERS_BYTES)
    }

    /// Makes the disk appear, answered for by `process`. Waits until all queues take requests, and
    /// until the kernel has looked for partitions, which they must answer.
    ///
    /// # Errors
    /// `ETIME`: that has not happened by the deadline. `EINVAL`: it has no parameters.
    pub fn start(&mut self, id: u32, process: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::START, id, u64::from(process), deadline)
    }

    /// Makes the disk disappear. Waits until what is in flight has been answered.
    ///
    /// # Errors
    /// `ETIME`: that has not happened by the deadline. `ENODEV`: there is no such device.
    pub fn stop(&mut self, id: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::STOP, id, 0, deadline)
    }

    /// Gives the number back. Waits until no process has the device's end open.
    ///
    /// # Errors
    /// As for [`Control::stop`].
    pub fn delete(&mut self, id: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::DELETE, id, 0, deadline)
    }

    /// Begins to take over a device whose server has gone.
    ///
    /// # Errors
    /// `EBUSY`: it has not gone, or not quite. `EINVAL`: the device does not outlive its server.
    pub fn start_recovery(&mut self, id: u32) -> Result<(), Errno> {
        self.plain(wire::control::START_RECOVERY, id, 0, Deadline::NEVER)
    }

    /// Goes on with a device that was taken over. Waits until all queues take requests.
    ///
    /// # Errors
    /// `ETIME`: that has not happened by the deadline.
    pub fn end_recovery(&mut self, id: u32, process: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::END_RECOVERY, id, u64::from(process), deadline)
    }

    /// Gives the disk another size, in units of 512 bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL`: it was not made with [`super::feature::UPDATE_SIZE`].
    pub fn update_size(&mut self, id: u32, sectors: u64) -> Result<(), Errno> {
        self.plain(wire::control::UPDATE_SIZE, id, sectors, Deadline::NEVER)
    }

    fn plain(&mut self, op: u32, id: u32, data: u64, deadline: Deadline) -> Result<(), Errno> {
        self.command(op, id, (0, 0), data, deadline)
    }

    /// Gives the kernel a value of `len` bytes, and returns what it has made of it.
    fn exchange<T: Copy>(&mut self, op: u32, id: u32, value: T, len: usize) -> Result<T, Errno> {
        debug_assert!(len <= size_of::<T>() && u16::try_from(len).is_ok());
        // Aligned, and where it stays until the command has ended: none of these waits for others.
        let mut place = Box::new(value);
        let address = core::ptr::from_mut(&mut *place) as u64;
        self.command(op, id, (address, len as u16), 0, Deadline::NEVER)?;
        Ok(*place)
    }

    fn command(
        &mut self,
        op: u32,
        id: u32,
        (address, len): (u64, u16),
        data: u64,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let queue = u16::MAX;
        let command =
            ControlCommand { id, queue, len, address, data, path_len: 0, pad: 0, reserved: 0 };
        self.last += 1;
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), op);
        let entry = entry.cmd(command.bytes()).build().user_data(self.last);
        // SAFETY: the memory that the command names, if any, lives until it has ended: its caller
        // waits without a deadline.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Errno::AGAIN)?;
        let mut submit = 1;
        loop {
            match uring::enter(self.ring.as_raw_fd(), submit, 1, deadline) {
                Ok(submitted) => submit -= (submitted as u32).min(submit),
                // The wait was interrupted, perhaps after the command was taken.
                Err(Errno::INTR) => submit = self.ring.submission().len() as u32,
                Err(errno) => return Err(errno),
            }
            if let Some(result) = self.result() {
                return result;
            }
        }
    }

    /// Returns the result of the last command; those of others, which were given up, are dropped.
    fn result(&mut self) -> Option<Result<(), Errno>> {
        let last = self.last;
        let ended = self.ring.completion().find(|entry| entry.user_data() == last)?;
        Some(if ended.result() < 0 { Err(Errno::new(-ended.result())) } else { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_driver_there_is_an_error_and_no_more() {
        match Control::open() {
            Ok(mut control) => assert_eq!(control.info(u32::MAX - 1), Err(Errno::NODEV)),
            Err(errno) => assert_ne!(errno, Errno::INVAL),
        }
    }
}
