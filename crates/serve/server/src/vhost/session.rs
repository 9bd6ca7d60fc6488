//! The messages of one VMM, from the first to the last.
//!
//! Source: vhost-user protocol (QEMU, docs/interop/vhost-user.rst).

use super::{
    Counter, Setup, device,
    inflight::Area,
    memory::{self, Memory},
    queue_count::QueueCount,
    worker::{RingHandle, StoppedRing, Workers},
};
use nowait::Errno;
use nowait_device::Image;
use std::{fs, io, sync::Arc};
use vhost::{
    VhostUserMemoryRegionBase,
    vhost_user::{
        Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
        message::{
            VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
            VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
            VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion,
            VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
        },
    },
};

#[derive(Debug)]
pub(super) struct Session {
    image: Arc<Image>,
    workers: Arc<Workers>,
    /// The features that the driver and the VMM have accepted.
    features: u64,
    memory: Memory,
    inflight: Option<Area>,
    queues: Vec<QueueState>,
    count: QueueCount,
}

#[derive(Debug, Default)]
struct QueueState {
    size: u16,
    /// The addresses, in the VMM, of descriptors, available ring and used ring.
    places: Option<[u64; 3]>,
    next_available: u16,
    kick: Option<Counter>,
    call: Option<Counter>,
    error: Option<Counter>,
    enabled: bool,
    running: Option<RingHandle>,
}

fn failed(errno: Errno) -> Error {
    Error::ReqHandlerError(io::Error::from_raw_os_error(errno.raw()))
}

fn unsupported<T>() -> Result<T> {
    Err(Error::InvalidOperation("not supported"))
}

impl Session {
    pub(super) fn new(image: Arc<Image>, workers: Arc<Workers>, queues: u16) -> Session {
        image.stats().connect();
        Session {
            image,
            workers,
            features: 0,
            memory: Memory::default(),
            inflight: None,
            queues: (0..queues).map(|_| QueueState::default()).collect(),
            count: QueueCount::new(queues.into()),
        }
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut QueueState)) -> Result<()> {
        self.count.is_enough();
        self.count.check(index)?;
        self.pause(index)?;
        change(&mut self.queues[index]);
        self.resume(index)
    }

    /// If `change` fails, the queues stay stopped.
    fn change_all<T>(&mut self, change: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        self.count.is_enough();
        (0..self.queues.len()).try_for_each(|index| self.pause(index))?;
        let changed = change(self)?;
        (0..self.queues.len()).try_for_each(|index| self.resume(index))?;
        Ok(changed)
    }

    /// Stops a queue, if it runs, and waits until its requests have ended.
    fn pause(&mut self, index: usize) -> Result<()> {
        let queue = &mut self.queues[index];
        let Some(running) = queue.running.take() else { return Ok(()) };
        let stopped = self.workers.stop(running).map_err(failed)?;
        let StoppedRing { next_available, kick, call, error } = stopped;
        queue.next_available = next_available;
        (queue.kick, queue.call, queue.error) = (Some(kick), call, error);
        Ok(())
    }

    /// Starts a queue if it is enabled and all its parameters are known.
    fn resume(&mut self, index: usize) -> Result<()> {
        let Some(memory) = self.memory.whole() else { return Ok(()) };
        let queue = &mut self.queues[index];
        let Some(places) = queue.places.filter(|_| queue.enabled && queue.size > 0) else {
            return Ok(());
        };
        let guest = |user| self.memory.guest_address(user);
        let [Some(descriptors), Some(available), Some(used)] = places.map(guest) else {
            return Err(Error::InvalidParam);
        };
        let Some(kick) = queue.kick.take() else { return Ok(()) };
        let notes = match &self.inflight {
            None => None,
            Some(area) => {
                let used = super::ring::used_index(&memory, used).ok_or(Error::InvalidParam)?;
                let (notes, left) = area.queue(index as u16, queue.size, used).map_err(failed)?;
                Some((notes, left.heads))
            }
        };
        let setup = Setup {
            image: self.image.clone(),
            memory,
            features: self.features,
            size: queue.size,
            descriptors,
            available,
            used,
            next_available: queue.next_available,
            call: queue.call.take(),
            error: queue.error.take(),
            inflight: notes,
        };
        queue.running = Some(self.workers.serve(setup, kick).map_err(failed)?);
        Ok(())
    }

    fn end(&mut self) {
        for index in 0..self.queues.len() {
            // An error means that the serving thread has ended, so that it has no requests in
            // flight any more.
            let _ = self.pause(index);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
        self.count.tell(self.image.name());
        self.image.stats().disconnect();
    }
}

fn counter(file: Option<fs::File>) -> Result<Option<Counter>> {
    file.map(Counter::new).transpose().map_err(failed)
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        self.count.is_enough();
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.change_all(|session| {
            session.features = 0;
            session.queues.iter_mut().for_each(|queue| *queue = QueueState::default());
            Ok(())
        })
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(device::features(self.image.properties()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !device::features(self.image.properties()) != 0 {
            return Err(Error::InvalidParam);
        }
        self.change_all(|session| {
            session.features = features;
            // A VMM without protocol features cannot enable queues, so the session enables them
            // here.
            if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
                session.queues.iter_mut().for_each(|queue| queue.enabled = true);
            }
            Ok(())
        })
    }

    fn set_mem_table(
        &mut self,
        parts: &[VhostUserMemoryRegion],
        files: Vec<fs::File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.change_all(|session| session.memory.replace(parts, files).map_err(failed))?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let size = u16::try_from(size).ok().filter(|size| size.is_power_of_two());
        let size =
            size.filter(|size| *size <= device::QUEUE_SIZE_MAX).ok_or(Error::InvalidParam)?;
        self.change(index as usize, |queue| queue.size = size)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        self.change(index as usize, |queue| queue.places = Some([descriptors, available, used]))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.change(index as usize, |queue| queue.next_available = base as u16)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let place = index as usize;
        self.count.check(place)?;
        // The queue stays stopped until the VMM sends an eventfd for kicks again.
        self.pause(place)?;
        let queue = &mut self.queues[place];
        (queue.kick, queue.call) = (None, None);
        Ok(VhostUserVringState::new(index, u32::from(queue.next_available)))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<fs::File>) -> Result<()> {
        let kick = counter(file)?;
        if kick.is_none() {
            return Err(Error::InvalidOperation(
                "the VMM must give a kick eventfd: rings are not polled",
            ));
        }
        self.change(index.into(), |queue| queue.kick = kick)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<fs::File>) -> Result<()> {
        let call = counter(file)?;
        self.change(index.into(), |queue| queue.call = call)
    }

    fn set_vring_err(&mut self, index: u8, file: Option<fs::File>) -> Result<()> {
        let error = counter(file)?;
        self.change(index.into(), |queue| queue.error = error)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(device::protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        match features & !device::protocol_features().bits() {
            0 => Ok(()),
            _ => Err(Error::InvalidParam),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.count.asked())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.change(index as usize, |queue| queue.enabled = enable)
    }

    fn get_config(&mut self, offset: u32, len: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        self.count.is_enough();
        let (properties, size) = (self.image.properties(), self.image.size());
        let queues = self.queues.len() as u16;
        let config = device::config(properties, size, queues, offset as usize, len as usize);
        config.ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // The driver can change no field, because the device does not offer CONFIG_WCE.
        unsupported()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        unsupported()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<fs::File> {
        unsupported()
    }

    fn get_inflight_fd(
        &mut self,
        wanted: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, fs::File)> {
        let (queues, size) = (wanted.num_queues, wanted.queue_size);
        let possible = (1..=device::QUEUES_MAX).contains(&queues)
            && (1..=device::QUEUE_SIZE_MAX).contains(&size);
        if !possible {
            return Err(Error::InvalidParam);
        }
        let (area, file, bytes) = Area::new(queues, size).map_err(failed)?;
        self.change_all(|session| {
            session.inflight = Some(area);
            Ok(())
        })?;
        Ok((VhostUserInflight::new(bytes as u64, 0, queues, size), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: fs::File) -> Result<()> {
        let (offset, bytes) = (given.mmap_offset, given.mmap_size);
        let (queues, size) = (given.num_queues, given.queue_size);
        let area = Area::map(file, offset, bytes, queues, size).map_err(failed)?;
        self.change_all(|session| {
            session.inflight = Some(area);
            Ok(())
        })
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        self.count.is_enough();
        Ok(memory::PARTS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        part: &VhostUserSingleMemoryRegion,
        file: fs::File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.change_all(|session| session.memory.add(part, file).map_err(failed))?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, part: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.change_all(|session| session.memory.remove(part).map_err(failed))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: fs::File,
    ) -> Result<Option<fs::File>> {
        unsupported()
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: fs::File) -> Result<()> {
        // The server does not offer the log for live migration.
        unsupported()
    }
}
