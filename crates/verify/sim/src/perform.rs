//! Performs requests on their files, with the faults that were drawn for them.

use crate::{
    faults::{Fate, Lies},
    memory,
    power::some_of,
    service::{POLLIN_OUT, Request, Service},
    store::{Change, Descriptor},
};
use nowait_block::BioOp;
use nowait_sys::{Errno, file::rwf};

impl Service {
    pub(crate) fn write_of(&self, request: &Request) -> Option<(usize, Change)> {
        let (BioOp::Write, Ok(fd), Ok(data)) = (request.bio.op, request.fd, &request.data) else {
            return None;
        };
        let Descriptor { file, direct } = self.store.descriptor(fd).ok()?;
        let (offset, flags) = (request.bio.offset, request.bio.rw_flags);
        let volatile = &self.store.file(file).volatile;
        let offset = if flags & rwf::APPEND == 0 { offset } else { volatile.size() as i64 };
        check(offset, data.len(), flags).ok()?;
        let aligned = !direct || self.is_aligned(request, offset);
        aligned.then(|| (file, Change::write(volatile, offset as u64, data)))
    }

    fn is_aligned(&self, request: &Request, offset: i64) -> bool {
        let align = self.store.sector_bytes;
        (offset as usize).is_multiple_of(align) && memory::is_aligned(&request.bio.segments, align)
    }

    pub(crate) fn damage(&mut self, request: &Request, at_ns: u64) {
        let hit = self.damage.chance(self.faults.partial_ppm);
        if let Some((file, Change::Write { sectors, .. })) = self.write_of(request)
            && hit
        {
            self.note_fault(request, "partial", at_ns);
            let some = some_of(&sectors, &mut self.damage);
            self.store.file_mut(file).write_partly(some);
        }
    }

    pub(crate) fn perform(&mut self, request: &Request, at_ns: u64) -> Result<u32, Errno> {
        let limit = match request.fate {
            Fate::Fail(errno) => {
                self.note_fault(request, "error", at_ns);
                self.damage(request, at_ns);
                self.forget(request);
                return Err(errno);
            }
            Fate::Short(bytes) => {
                self.note_fault(request, "short", at_ns);
                bytes
            }
            Fate::Normal | Fate::Stuck => usize::MAX,
        };
        let descriptor = self.store.descriptor(request.fd?)?;
        match request.bio.op {
            BioOp::Poll(events) => Ok(u32::from(events & POLLIN_OUT)),
            BioOp::Fsync | BioOp::Fdatasync => {
                if self.faults.lies != Some(Lies::IgnoreFlush) {
                    self.store.file_mut(descriptor.file).flush(request.mark);
                }
                Ok(0)
            }
            BioOp::Read | BioOp::Write => self.transfer(request, descriptor, limit, at_ns),
        }
    }

    /// If `request` is a flush, drops pending writes at random; the caller fails the flush.
    fn forget(&mut self, request: &Request) {
        let is_flush = matches!(request.bio.op, BioOp::Fsync | BioOp::Fdatasync);
        let Ok(Descriptor { file, .. }) = request.fd.and_then(|fd| self.store.descriptor(fd))
        else {
            return;
        };
        if is_flush {
            let (prng, ppm) = (&mut self.damage, self.faults.forget_ppm);
            self.store.file_mut(file).forget(request.mark, || prng.chance(ppm));
        }
    }

    fn transfer(
        &mut self,
        request: &Request,
        Descriptor { file, direct }: Descriptor,
        limit: usize,
        at_ns: u64,
    ) -> Result<u32, Errno> {
        let (bio, size) = (&request.bio, self.store.file(file).volatile.size());
        let append = bio.op == BioOp::Write && bio.rw_flags & rwf::APPEND != 0;
        let offset = if append { size as i64 } else { bio.offset };
        let (len, align) = (bio.segments.len(), self.store.sector_bytes);
        check(offset, len, bio.rw_flags)?;
        if direct && !self.is_aligned(request, offset) {
            return Err(Errno::INVAL);
        }
        // A fault shortens a direct transfer to whole sectors.
        let limit = if direct && limit < len { limit.next_multiple_of(align) } else { limit };
        let from = offset as u64;
        if !self.contents {
            return Ok(self.transfer_nothing(bio.op, file, from, len.min(limit)));
        }
        let len = match bio.op {
            BioOp::Write => request.data.as_ref().map_err(|errno| *errno)?.len(),
            _ => len.min(size.saturating_sub(from) as usize),
        };
        let len = len.min(limit);
        let good = self.store.good_bytes(file, from, len, self.faults.bad_sector_ppm);
        if good < len {
            self.note_fault(request, "bad sector", at_ns);
        }
        if good == 0 && len > 0 {
            return Err(Errno::IO);
        }
        if bio.op == BioOp::Read {
            let bytes = self.store.file(file).volatile.read(from, good);
            return memory::scatter(&bytes, &bio.segments);
        }
        self.write(request, file, from, good)
    }

    fn transfer_nothing(&mut self, op: BioOp, file: usize, from: u64, len: usize) -> u32 {
        let file = &mut self.store.file_mut(file).volatile;
        if op == BioOp::Write {
            file.grow(from + len as u64);
            return len as u32;
        }
        (len as u64).min(file.size().saturating_sub(from)) as u32
    }

    fn write(
        &mut self,
        request: &Request,
        file: usize,
        offset: u64,
        len: usize,
    ) -> Result<u32, Errno> {
        let capacity_bytes = self.faults.capacity_bytes.unwrap_or(u64::MAX);
        let room = self.store.room(file, offset, len, capacity_bytes);
        if room == 0 && len > 0 {
            return Err(Errno::NOSPC);
        }
        let bytes = request.data.as_ref().map_or(&[][..], |data| &data[..room]);
        if bytes.is_empty() {
            return Ok(0);
        }
        let target = self.store.file_mut(file);
        target.write(offset, bytes);
        let synced = request.bio.rw_flags & (rwf::DSYNC | rwf::SYNC) != 0;
        if synced && self.faults.lies != Some(Lies::IgnoreFlush) {
            target.sync(offset..offset + room as u64);
        }
        Ok(room as u32)
    }
}

fn check(offset: i64, len: usize, flags: u32) -> Result<(), Errno> {
    if flags & !rwf::KNOWN != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let end = i64::try_from(len).ok().and_then(|len| offset.checked_add(len));
    if offset < 0 || end.is_none() { Err(Errno::INVAL) } else { Ok(()) }
}
