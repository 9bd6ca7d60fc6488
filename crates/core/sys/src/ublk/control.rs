//! Makes, starts, stops and removes devices, by commands on a ring, one after another.

use super::wire::{self, ControlCommand, DeviceInfo, PARAMETERS_BYTES, Parameters};
use crate::{Errno, time::Deadline, uring};
use io_uring::{IoUring, cqueue, opcode, squeue::Entry128, types};
use std::os::fd::{AsRawFd, OwnedFd};

/// The control device, by which devices are made.
pub struct Control {
    device: OwnedFd,
    ring: IoUring<Entry128, cqueue::Entry>,
    last: u64,
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Control {}", self.device.as_raw_fd())
    }
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// `ENOENT`: the kernel has no ublk, or it is not loaded. `EACCES`: not for this user. Others
    /// as for io_uring_setup(2), such as `EPERM` and `ENOSYS`.
    pub fn open() -> Result<Control, Errno> {
        let device = super::open(c"/dev/ublk-control", libc::O_RDWR)?;
        let ring = IoUring::<Entry128, cqueue::Entry>::builder().build(4)?;
        Ok(Control { device, ring, last: 0 })
    }

    /// Returns a bit for each feature of this kernel ([`super::feature`] and others). Does not
    /// wait.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL`: before Linux 6.5.
    pub fn features(&mut self) -> Result<u64, Errno> {
        self.exchange(wire::control::FEATURES, u32::MAX, 0u64, size_of::<u64>())
    }

    /// Returns the kernel's information about device `id`.
    ///
    /// # Errors
    /// `ENODEV`: there is no such device. `EPERM`: this user may not do it.
    pub fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno> {
        let info = DeviceInfo::default();
        self.exchange(wire::control::INFO, id, info, size_of::<DeviceInfo>())
    }

    /// Makes a device. Returns the device's actual properties, the number included.
    ///
    /// # Errors
    /// `EEXIST`: the number is taken. `EPERM`: not root. `ENOMEM`.
    pub fn add(&mut self, wanted: DeviceInfo) -> Result<DeviceInfo, Errno> {
        self.exchange(wire::control::ADD, wanted.id, wanted, size_of::<DeviceInfo>())
    }

    /// Sets the parameters of a disk that was not started yet.
    ///
    /// # Errors
    /// `EINVAL`: the parameters are invalid. `EACCES`: the disk was started.
    pub fn set_parameters(&mut self, id: u32, parameters: Parameters) -> Result<(), Errno> {
        let parameters = Parameters { len: PARAMETERS_BYTES as u32, ..parameters };
        let op = wire::control::SET_PARAMETERS;
        self.exchange(op, id, parameters, PARAMETERS_BYTES).map(drop)
    }

    /// Returns the disk's parameters.
    ///
    /// # Errors
    /// `ENODEV`: there is no such device.
    pub fn parameters(&mut self, id: u32) -> Result<Parameters, Errno> {
        let empty = Parameters { len: PARAMETERS_BYTES as u32, ..Parameters::default() };
        self.exchange(wire::control::PARAMETERS, id, empty, PARAMETERS_BYTES)
    }

    /// Makes the disk appear, with `process` as its server. Waits until all queues take requests,
    /// and until the kernel has read the partition table, by requests that the queues must answer.
    ///
    /// # Errors
    /// `ETIME`: the deadline passed. `EINVAL`: the disk has no parameters.
    pub fn start(&mut self, id: u32, process: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::START, id, u64::from(process), deadline)
    }

    /// Makes the disk disappear. Waits until the requests in flight have been answered.
    ///
    /// # Errors
    /// `ETIME`: the deadline passed. `ENODEV`: there is no such device.
    pub fn stop(&mut self, id: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::STOP, id, 0, deadline)
    }

    /// Releases the device's number. Waits until no process has the server's end open.
    ///
    /// # Errors
    /// As for [`Control::stop`].
    pub fn delete(&mut self, id: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::DELETE, id, 0, deadline)
    }

    /// Begins to take over a device whose server has ended.
    ///
    /// # Errors
    /// `EBUSY`: the server has not ended, or not completely. `EINVAL`: the device does not outlive
    /// its server.
    pub fn start_recovery(&mut self, id: u32) -> Result<(), Errno> {
        self.plain(wire::control::START_RECOVERY, id, 0, Deadline::NEVER)
    }

    /// Resumes a device that was taken over. Waits until all queues take requests.
    ///
    /// # Errors
    /// `ETIME`: the deadline passed.
    pub fn end_recovery(&mut self, id: u32, process: u32, deadline: Deadline) -> Result<(), Errno> {
        self.plain(wire::control::END_RECOVERY, id, u64::from(process), deadline)
    }

    /// Changes the disk's size, in units of 512 bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL`: it was not made with [`super::feature::UPDATE_SIZE`].
    pub fn update_size(&mut self, id: u32, sectors: u64) -> Result<(), Errno> {
        self.plain(wire::control::UPDATE_SIZE, id, sectors, Deadline::NEVER)
    }

    fn plain(&mut self, op: u32, id: u32, data: u64, deadline: Deadline) -> Result<(), Errno> {
        self.command(op, id, (0, 0), data, deadline)
    }

    /// Passes the kernel a value of `len` bytes, and returns the value after the command.
    fn exchange<T: Copy>(&mut self, op: u32, id: u32, value: T, len: usize) -> Result<T, Errno> {
        debug_assert!(len <= size_of::<T>() && u16::try_from(len).is_ok());
        // The box keeps the value aligned and in place until the command has ended: these commands
        // wait for no other party.
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
        // SAFETY: the memory that the command names, if any, lives until the command has ended: its
        // caller waits without a deadline.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Errno::AGAIN)?;
        let mut submit = 1;
        loop {
            match uring::enter(self.ring.as_raw_fd(), submit, 1, deadline) {
                Ok(submitted) => submit -= (submitted as u32).min(submit),
                // A signal interrupted the wait, perhaps after the kernel had taken the command.
                Err(Errno::INTR) => submit = self.ring.submission().len() as u32,
                Err(errno) => return Err(errno),
            }
            if let Some(result) = self.result() {
                return result;
            }
        }
    }

    /// Drops the results of earlier commands, for which the caller stopped waiting.
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
