//! POSIX AIO of the C library: threads of its own, and one request of a descriptor at a time. Or
//! that of a library which is preloaded.

use std::os::fd::AsRawFd;

use nowait_sys::Errno;

use crate::buffers::Buffers;
use crate::slots::Slots;
use crate::{Files, Peer, Request, sync};
use nowait_harness::error::{BenchError, Context, Result};

/// The control blocks of one thread, which keep their places.
pub(crate) struct PosixPeer {
    files: Files,
    slots: Slots,
    blocks: Box<[libc::aiocb]>,
    /// Slots of requests in flight, in the order of their start.
    in_flight: Vec<usize>,
}

impl PosixPeer {
    pub(crate) fn new(files: Files, buffers: Buffers) -> Self {
        let depth = buffers.depth();
        // SAFETY: all-zero bytes are a valid aiocb, made of integers and pointers.
        let blocks = (0..depth).map(|_| unsafe { core::mem::zeroed() }).collect();
        let (slots, in_flight) = (Slots::new(buffers), Vec::with_capacity(depth));
        Self { files, slots, blocks, in_flight }
    }

    /// Fills in the block of a request; returns its slot.
    fn prepare(&mut self, request: &Request) -> Result<usize> {
        let Some(slot) = self.slots.take(*request) else {
            return Err(BenchError::failed("more requests than buffers"));
        };
        let memory = self.slots.memory(slot);
        let block = &mut self.blocks[slot];
        block.aio_fildes = self.files[0].as_raw_fd();
        block.aio_offset = request.offset as i64;
        block.aio_buf = memory.base.cast();
        block.aio_nbytes = memory.len;
        block.aio_lio_opcode =
            if request.generation == 0 { libc::LIO_READ } else { libc::LIO_WRITE };
        block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        Ok(slot)
    }

    /// Starts the prepared requests by one call: aio_read(3) or aio_write(3) for one, lio_listio(3)
    /// for several.
    fn start(&mut self, slots: &[usize]) -> Result<()> {
        let blocks = self.blocks.as_mut_ptr();
        // SAFETY: each slot is one of the blocks.
        let list: Vec<*mut libc::aiocb> =
            slots.iter().map(|slot| unsafe { blocks.add(*slot) }).collect();
        // SAFETY: the blocks and the memory of their slots keep their places until the requests
        // are over, for which `drop` waits; the list lives through the call.
        let result = unsafe {
            match list[..] {
                [block] if (*block).aio_lio_opcode == libc::LIO_READ => libc::aio_read(block),
                [block] => libc::aio_write(block),
                _ => {
                    let count = list.len() as libc::c_int;
                    let none = core::ptr::null_mut();
                    libc::lio_listio(libc::LIO_NOWAIT, list.as_ptr(), count, none)
                }
            }
        };
        if result == 0 {
            self.in_flight.extend_from_slice(slots);
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        // Some requests of a list that has failed may be in flight.
        let is_in_flight = |slot: &&usize| {
            // SAFETY: a live block, zeroed or given to the library.
            unsafe { libc::aio_error(&raw const self.blocks[**slot]) == libc::EINPROGRESS }
        };
        self.in_flight.extend(slots.iter().filter(is_in_flight));
        Err(error).context(|| "aio_read, aio_write or lio_listio".to_owned())
    }

    /// Waits until one of those in flight is over.
    fn suspend(&self) -> Result<()> {
        let list: Vec<*const libc::aiocb> =
            self.in_flight.iter().map(|slot| &raw const self.blocks[*slot]).collect();
        let count = list.len() as libc::c_int;
        // SAFETY: the list and the blocks live through the call.
        let result = unsafe { libc::aio_suspend(list.as_ptr(), count, core::ptr::null()) };
        match result {
            0 => Ok(()),
            _ => match std::io::Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
                error => Err(error).context(|| "aio_suspend".to_owned()),
            },
        }
    }

    /// Gives back every slot whose request is over; returns how many.
    fn take_ended(&mut self, each: &mut impl FnMut(Request, &[u8])) -> Result<usize> {
        let before = self.in_flight.len();
        let mut index = 0;
        while index < self.in_flight.len() {
            let slot = self.in_flight[index];
            let block = &raw mut self.blocks[slot];
            // SAFETY: the block is live, and was given to aio_read or aio_write.
            let state = unsafe { libc::aio_error(block) };
            if state == libc::EINPROGRESS {
                index += 1;
                continue;
            }
            // SAFETY: as above; the request is over, and asked for its result once.
            let bytes = unsafe { libc::aio_return(block) };
            self.in_flight.remove(index);
            let bytes = usize::try_from(bytes).map_err(|_| Errno::new(state));
            self.slots.end(slot, bytes, each)?;
        }
        Ok(before - self.in_flight.len())
    }
}

impl Peer for PosixPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        let slots: Result<Vec<usize>> = requests.iter().map(|it| self.prepare(it)).collect();
        self.start(&slots?)
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let mut taken = self.take_ended(each)?;
        while taken < min {
            self.suspend()?;
            taken += self.take_ended(each)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.files)
    }
}

impl Drop for PosixPeer {
    fn drop(&mut self) {
        while !self.in_flight.is_empty() && self.suspend().is_ok() {
            let _ = self.take_ended(&mut |_, _| ());
        }
    }
}
