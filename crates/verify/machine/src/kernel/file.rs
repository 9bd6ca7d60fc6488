//! Files: names, sizes, which of their pages are cached, and the lock that writes take.
//!
//! As in ext4, buffered and extending writes hold the inode's lock exclusively, other direct
//! transfers share it, and buffered reads do not take it.

mod pages;

use super::{
    Answer,
    descriptor::{OpenId, What},
    device::{Job, Pace, Part, Then},
    event,
};
use crate::schedule::{Cpu, Key, World};
use core::ops::Range;
use nowait_sim::Faults;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
const DEVICE: u64 = 0x0801;
/// A device number without an entry in /sys.
const NO_DEVICE: u64 = 5;
const MOUNT: u64 = 42;
const EXT4: i64 = 0xef53;
const TMPFS: i64 = 0x0102_1994;
const PIPEFS: i64 = 0x5049_5045;
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
}

#[derive(Debug)]
pub(super) struct Inode {
    /// The bytes that reads see, and those that would remain after a power cut.
    pub(super) medium: nowait_sim::File,
    errors: u64,
    cached: BTreeSet<u64>,
    coming: BTreeMap<u64, u64>,
    allocated: BTreeSet<u64>,
    changed_ns: u64,
    in_memory: bool,
    exclusive: bool,
    sharing: usize,
    moving: Vec<Moving>,
}

#[derive(Clone, Debug)]
struct Moving {
    range: Range<u64>,
    write: bool,
    until: u64,
}

impl Inode {
    fn new(in_memory: bool) -> Inode {
        Inode {
            medium: nowait_sim::File::empty(SECTOR_BYTES as usize),
            errors: 0,
            cached: BTreeSet::new(),
            coming: BTreeMap::new(),
            allocated: BTreeSet::new(),
            changed_ns: 0,
            in_memory,
            exclusive: false,
            sharing: 0,
            moving: Vec::new(),
        }
    }

    fn is_cached(&self, page: u64) -> bool {
        self.cached.contains(&page)
    }

    fn pages(from: u64, to: u64) -> impl Iterator<Item = u64> {
        from / PAGE_BYTES..to.div_ceil(PAGE_BYTES)
    }

    pub(super) fn is_written(&mut self, from: u64, to: u64, now: u64) {
        self.allocated.extend(Inode::pages(from, to));
        self.changed_ns = now;
    }

    /// Returns when the device's earlier transfers in conflict with this one end, or 0. Overlapping
    /// transfers conflict, unless both are reads.
    pub(super) fn moved_at(&self, range: &Range<u64>, write: bool) -> u64 {
        let is_before = |it: &&Moving| {
            (write || it.write) && it.range.start < range.end && range.start < it.range.end
        };
        self.moving.iter().filter(is_before).map(|it| it.until).max().unwrap_or(0)
    }

    pub(super) fn moves(&mut self, range: Range<u64>, write: bool, (now, until): (u64, u64)) {
        self.moving.retain(|it| it.until > now);
        self.moving.push(Moving { range, write, until });
    }

    fn set_len(&mut self, len: u64, now: u64) {
        self.medium.set_len(len);
        let end = len.div_ceil(PAGE_BYTES);
        self.cached.split_off(&end);
        self.coming.split_off(&end);
        self.allocated.split_off(&end);
        self.changed_ns = now;
    }
}

impl World {
    pub(super) fn inode(&mut self, ino: u64) -> &mut Inode {
        self.kernel.files.inodes.get_mut(&ino).expect("files are not removed")
    }

    pub(super) fn unlock_inode(&mut self, ino: u64, exclusive: bool) {
        let inode = self.inode(ino);
        match exclusive {
            true => inode.exclusive = false,
            false => inode.sharing -= 1,
        }
        self.wake(Key::Inode(ino), usize::MAX);
        self.retry_entries();
    }

    fn try_lock_inode(&mut self, ino: u64, exclusive: bool) -> bool {
        let inode = self.inode(ino);
        let is_free = !(inode.exclusive || exclusive && inode.sharing > 0);
        if is_free {
            match exclusive {
                true => inode.exclusive = true,
                false => inode.sharing += 1,
            }
            self.touch_inode(ino);
        }
        is_free
    }

    fn device(&self) -> u64 {
        if self.tags.is_some() { DEVICE } else { NO_DEVICE }
    }

    fn attribute(&mut self, path: &str) -> Option<u64> {
        let (tags, at) = (self.tags?, self.now);
        let text = match path.strip_prefix("/sys/dev/block/8:1/")? {
            "dev" => "8:1\n".to_owned(),
            "queue/nr_requests" | "mq/0/nr_tags" => format!("{tags}\n"),
            _ => return None,
        };
        let ino = self.new_inode(true);
        let inode = self.inode(ino);
        inode.medium.write(0, text.as_bytes());
        inode.is_written(0, text.len() as u64, at);
        Some(ino)
    }

    fn new_inode(&mut self, in_memory: bool) -> u64 {
        let ino = self.new_id() as u64;
        self.kernel.files.inodes.insert(ino, Inode::new(in_memory));
        ino
    }
}

impl Cpu<'_> {
    fn wait_for_inode(&mut self, ino: u64) {
        let began = self.now;
        self.sleep(Key::Inode(ino), None);
        self.waited_for_inode(ino, began);
    }

    fn lock_inode(&mut self, ino: u64) {
        while !self.try_lock_inode(ino, true) {
            self.wait_for_inode(ino);
        }
    }

    pub(super) fn prepare_now(&mut self, ino: u64, wanted: &Wanted) -> Result<Job, i32> {
        loop {
            match prepare(self, ino, wanted)? {
                Some(job) => return Ok(job),
                None => self.wait_for_inode(ino),
            }
        }
    }

    fn file(&mut self, number: usize) -> Result<(OpenId, u64), i32> {
        let id = self.opened(number)?;
        match self.what(id) {
            What::File(ino) => Ok((id, ino)),
            _ => Err(libc::EINVAL),
        }
    }
}

pub(super) unsafe fn openat(cpu: &mut Cpu<'_>, [_, path, flags, ..]: [usize; 6]) -> Answer {
    // SAFETY: a string, given by the caller.
    let path = unsafe { core::ffi::CStr::from_ptr(path as *const core::ffi::c_char) };
    let path = path.to_str().expect("a path");
    let flags = flags as i32;
    if let Some(number) = path.strip_prefix("/proc/thread-self/fd/") {
        let (_, ino) = cpu.file(number.parse().map_err(|_| libc::ENOENT)?)?;
        return cpu.open(What::File(ino), flags & !libc::O_CLOEXEC, 0);
    }
    if path.starts_with("/sys/") {
        let ino = cpu.attribute(path).ok_or(libc::ENOENT)?;
        return cpu.open(What::File(ino), libc::O_RDONLY, 0);
    }
    let known = cpu.kernel.files.names.get(path).copied();
    let ino = match known {
        None if flags & libc::O_CREAT == 0 => return Err(libc::ENOENT),
        None => {
            let ino = cpu.new_inode(false);
            cpu.kernel.files.names.insert(path.to_owned(), ino);
            ino
        }
        Some(ino) => ino,
    };
    if flags & libc::O_TRUNC != 0 {
        cpu.lock_inode(ino);
        let now = cpu.now;
        cpu.inode(ino).set_len(0, now);
        cpu.unlock_inode(ino, true);
    }
    let kept = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC | libc::O_NONBLOCK;
    cpu.open(What::File(ino), flags & kept, 0)
}

pub(super) unsafe fn memfd_create(cpu: &mut Cpu<'_>, _: [usize; 6]) -> Answer {
    let ino = cpu.new_inode(true);
    cpu.open(What::File(ino), libc::O_RDWR, 0)
}

/// Returns the inode's number, its mode, its size and its allocated bytes.
fn described(cpu: &mut Cpu<'_>, id: OpenId) -> (u64, u32, u64, u64) {
    match cpu.what(id) {
        What::File(ino) => {
            let inode = cpu.inode(ino);
            let allocated = inode.allocated.len() as u64 * PAGE_BYTES;
            (ino, libc::S_IFREG | 0o644, inode.medium.size(), allocated)
        }
        What::Reader(pipe) | What::Writer(pipe) => (pipe as u64, libc::S_IFIFO | 0o600, 0, 0),
        What::End { own, .. } | What::Stream { own, .. } => {
            (own as u64, libc::S_IFSOCK | 0o600, 0, 0)
        }
        What::Counter(_) | What::Set(_) | What::Ring(_) | What::Process => (1, 0o600, 0, 0),
    }
}

pub(super) unsafe fn statx(cpu: &mut Cpu<'_>, args: [usize; 6]) -> Answer {
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    let id = cpu.opened(args[0])?;
    let (ino, mode, size, allocated) = described(cpu, id);
    // SAFETY: plain data, for which zeroes are valid.
    let mut stat: libc::statx = unsafe { core::mem::zeroed() };
    stat.stx_mask = args[3] as u32 | STATX_MNT_ID_UNIQUE;
    stat.stx_mode = mode as u16;
    stat.stx_ino = ino;
    stat.stx_size = size;
    stat.stx_blocks = allocated / SECTOR_BYTES;
    (stat.stx_dev_major, stat.stx_dev_minor) =
        (libc::major(cpu.device()), libc::minor(cpu.device()));
    stat.stx_mnt_id = MOUNT;
    // SAFETY: room for one, given by the caller.
    unsafe { (args[4] as *mut libc::statx).write(stat) };
    Ok(0)
}

pub(super) unsafe fn fstat(cpu: &mut Cpu<'_>, [number, room, ..]: [usize; 6]) -> Answer {
    const NS: u64 = 1_000_000_000;
    let id = cpu.opened(number)?;
    let (ino, mode, size, allocated) = described(cpu, id);
    let changed = match cpu.what(id) {
        What::File(ino) => cpu.inode(ino).changed_ns,
        _ => 0,
    };
    // SAFETY: plain data, for which zeroes are valid.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    (stat.st_dev, stat.st_ino, stat.st_mode) = (cpu.device(), ino, mode);
    (stat.st_size, stat.st_blocks) = (size as i64, (allocated / SECTOR_BYTES) as i64);
    (stat.st_mtime, stat.st_mtime_nsec) = ((changed / NS) as i64, (changed % NS) as i64);
    (stat.st_ctime, stat.st_ctime_nsec) = (stat.st_mtime, stat.st_mtime_nsec);
    // SAFETY: room for one, given by the caller.
    unsafe { (room as *mut libc::stat).write(stat) };
    Ok(0)
}

pub(super) unsafe fn fstatfs(cpu: &mut Cpu<'_>, [number, room, ..]: [usize; 6]) -> Answer {
    let id = cpu.opened(number)?;
    // SAFETY: plain data, for which zeroes are valid.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    stat.f_type = match cpu.what(id) {
        What::File(ino) if cpu.inode(ino).in_memory => TMPFS,
        What::File(_) => EXT4,
        _ => PIPEFS,
    };
    // SAFETY: room for one, given by the caller.
    unsafe { (room as *mut libc::statfs).write(stat) };
    Ok(0)
}

pub(super) unsafe fn ftruncate(cpu: &mut Cpu<'_>, [number, len, ..]: [usize; 6]) -> Answer {
    let (id, ino) = cpu.file(number)?;
    if cpu.flags(id) & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(libc::EINVAL);
    }
    cpu.lock_inode(ino);
    let until = cpu.now + cpu.drawn_time();
    cpu.sleep(Key::Time, Some(until));
    let now = cpu.now;
    cpu.inode(ino).set_len(len as u64, now);
    cpu.unlock_inode(ino, true);
    Ok(0)
}

/// Zeroes a range up to the file's end; with FALLOC_FL_PUNCH_HOLE, whole pages become a hole.
pub(super) unsafe fn fallocate(
    cpu: &mut Cpu<'_>,
    [number, mode, offset, len, ..]: [usize; 6],
) -> Answer {
    const PUNCH: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
    const ZERO: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_ZERO_RANGE;
    let (id, ino) = cpu.file(number)?;
    if cpu.flags(id) & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(libc::EBADF);
    }
    if mode as i32 != PUNCH && mode as i32 != ZERO {
        return Err(libc::EOPNOTSUPP);
    }
    cpu.lock_inode(ino);
    let time = cpu.drawn_time().max(cpu.zeroing_ns);
    let until = cpu.now + time;
    cpu.sleep(Key::Time, Some(until));
    let now = cpu.now;
    let inode = cpu.inode(ino);
    let end = (offset + len).min(inode.medium.size() as usize);
    if offset < end {
        inode.medium.punch(offset as u64..end as u64);
        inode.changed_ns = now;
        if mode as i32 == PUNCH {
            let whole = (offset as u64).div_ceil(PAGE_BYTES)..end as u64 / PAGE_BYTES;
            inode.allocated.retain(|page| !whole.contains(page));
        }
    }
    cpu.unlock_inode(ino, true);
    Ok(0)
}

pub(super) unsafe fn lseek(cpu: &mut Cpu<'_>, [number, offset, whence, ..]: [usize; 6]) -> Answer {
    let (_, ino) = cpu.file(number).map_err(|_| libc::ESPIPE)?;
    let inode = cpu.inode(ino);
    let size = inode.medium.size();
    let offset = offset as u64;
    let is_data = |page: u64| inode.allocated.contains(&page);
    let found = match whence as i32 {
        libc::SEEK_END => return Ok(size as usize),
        _ if offset >= size => return Err(libc::ENXIO),
        libc::SEEK_DATA => Inode::pages(offset, size).find(|page| is_data(*page)),
        libc::SEEK_HOLE => Inode::pages(offset, size).find(|page| !is_data(*page)),
        other => panic!("lseek to {other} is not simulated"),
    };
    match found {
        Some(page) => Ok(offset.max(page * PAGE_BYTES).min(size) as usize),
        None if whence as i32 == libc::SEEK_HOLE => Ok(size as usize),
        None => Err(libc::ENXIO),
    }
}

pub(super) unsafe fn fadvise(
    cpu: &mut Cpu<'_>,
    [number, offset, len, advice, ..]: [usize; 6],
) -> Answer {
    let (_, ino) = cpu.file(number)?;
    if advice as i32 == libc::POSIX_FADV_WILLNEED {
        let end = (offset as u64 + len as u64).min(cpu.inode(ino).medium.size());
        cpu.start_read(ino, Inode::pages(offset as u64, end));
        return Ok(0);
    }
    cpu.inode(ino).cached.clear();
    cpu.inode(ino).coming.clear();
    Ok(0)
}

pub(super) unsafe fn cachestat(
    cpu: &mut Cpu<'_>,
    [number, range, counts, ..]: [usize; 6],
) -> Answer {
    let (_, ino) = cpu.file(number)?;
    // SAFETY: a `struct cachestat_range`, given by the caller.
    let [offset, len] = unsafe { *(range as *const [u64; 2]) };
    let inode = cpu.inode(ino);
    let count = Inode::pages(offset, offset + len).filter(|page| inode.has_page(*page)).count();
    // SAFETY: room for a `struct cachestat`, given by the caller.
    unsafe { *(counts as *mut [u64; 5]) = [count as u64, 0, 0, 0, 0] };
    Ok(0)
}

pub(super) unsafe fn fsync(cpu: &mut Cpu<'_>, [number, ..]: [usize; 6]) -> Answer {
    let (id, _) = cpu.file(number)?;
    cpu.refer(id);
    let synced = cpu.await_end(|world, then| world.start_sync(id, then));
    cpu.unrefer(id);
    synced
}

/// Sleeps as long as a write to the device may take, and makes nothing durable.
pub(super) unsafe fn sync_file_range(cpu: &mut Cpu<'_>, [number, ..]: [usize; 6]) -> Answer {
    cpu.file(number)?;
    let until = cpu.now + cpu.drawn_time();
    cpu.sleep(Key::Time, Some(until));
    Ok(0)
}

impl World {
    /// Starts a flush. The caller keeps a reference to the open file until `then` runs.
    pub(super) fn start_sync(&mut self, id: OpenId, then: Then) {
        let What::File(ino) = self.what(id) else { return then(self, Err(libc::EINVAL)) };
        let mark = self.inode(ino).medium.mark();
        let fails = self.prng.chance(self.faults.flush_error_ppm);
        let time = self.drawn_time();
        self.after(time, move |world| {
            match fails {
                true => world.lose_unflushed(ino, mark),
                false => world.inode(ino).medium.flush(mark),
            }
            let told = world.tell_of_errors(id, ino);
            then(world, told);
        });
    }

    /// Some data of a failed flush may never become durable, though reads see them.
    pub(super) fn lose_unflushed(&mut self, ino: u64, mark: u64) {
        let rate = self.faults.forget_ppm;
        let mut prng = self.prng.fork();
        let inode = self.inode(ino);
        inode.errors += 1;
        inode.medium.forget(mark, || prng.chance(rate));
    }

    /// Fails with EIO if a flush of the file has failed since the open or the last call.
    pub(super) fn tell_of_errors(&mut self, id: OpenId, ino: u64) -> Answer {
        let errors = self.inode(ino).errors;
        let told = core::mem::replace(self.told_errors(id), errors);
        if told == errors { Ok(0) } else { Err(libc::EIO) }
    }

    pub(super) fn errors_so_far(&mut self, what: What) -> u64 {
        if let What::File(ino) = what { self.inode(ino).errors } else { 0 }
    }

    pub(crate) fn contents(&mut self, path: &str) -> Vec<u8> {
        let ino = self.kernel.files.names[path];
        let medium = &self.inode(ino).medium;
        medium.read(0, medium.size() as usize)
    }

    pub(crate) fn opens_of(&self, path: &str) -> usize {
        self.kernel.descriptors.count(What::File(self.kernel.files.names[path]))
    }

    pub(crate) fn left_after_cut(&mut self, path: &str, faults: &Faults) -> Vec<u8> {
        let ino = self.kernel.files.names[path];
        let mut prng = self.prng.fork();
        self.inode(ino).medium.left_after_cut(faults, &mut prng)
    }
}

pub(super) struct Wanted {
    pub(super) id: OpenId,
    pub(super) write: bool,
    pub(super) parts: Vec<Part>,
    pub(super) offset: u64,
    pub(super) rw_flags: u32,
    /// A direct transfer may continue after the call has returned.
    pub(super) behind: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Locked {
    pub(super) ino: u64,
    pub(super) exclusive: Option<bool>,
}

/// Locks the inode if the transfer needs the lock, and decides which bytes to move. `Ok(None)`: the
/// caller must wait for the lock.
pub(super) fn prepare(world: &mut World, ino: u64, wanted: &Wanted) -> Result<Option<Job>, i32> {
    const RWF_NOWAIT: u32 = 8;
    const RWF_APPEND: u32 = 0x10;
    const RWF_NOAPPEND: u32 = 0x20;
    const RWF_SYNCS: u32 = 2 | 4;
    let flags = world.flags(wanted.id);
    let access = flags & libc::O_ACCMODE;
    let forbidden = if wanted.write { libc::O_RDONLY } else { libc::O_WRONLY };
    if access == forbidden {
        return Err(libc::EBADF);
    }
    let in_memory = world.inode(ino).in_memory;
    let direct = flags & libc::O_DIRECT != 0 && !in_memory;
    let waits = wanted.rw_flags & RWF_NOWAIT == 0;
    if !waits && !in_memory && world.knows_no_nowait {
        return Err(libc::EOPNOTSUPP);
    }
    let len: u64 = wanted.parts.iter().map(|part| part.len as u64).sum();
    let appends = wanted.rw_flags & RWF_APPEND != 0
        || flags & libc::O_APPEND != 0 && wanted.rw_flags & RWF_NOAPPEND == 0;
    let is_aligned = |value: u64| value.is_multiple_of(SECTOR_BYTES);
    if direct {
        let parts = wanted.parts.iter();
        let aligned = parts.clone().all(|it| is_aligned(it.address as u64 | it.len as u64));
        if !aligned || !is_aligned(wanted.offset) {
            return Err(libc::EINVAL);
        }
    }
    let extends =
        |world: &mut World| appends || wanted.offset + len > world.inode(ino).medium.size();
    let exclusive = match (wanted.write, direct) {
        (true, true) => Some(extends(world)),
        (true, false) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    };
    if let Some(exclusive) = exclusive
        && !world.try_lock_inode(ino, exclusive)
    {
        return if waits { Ok(None) } else { Err(libc::EAGAIN) };
    }
    let locked = Locked { ino, exclusive };
    let decided = decide(world, ino, wanted, (direct, appends, waits, len));
    if decided.is_err()
        && let Some(exclusive) = exclusive
    {
        world.unlock_inode(ino, exclusive);
    }
    let (offset, len, pace) = decided?;
    let (write, parts, id) = (wanted.write, wanted.parts.clone(), wanted.id);
    let sync = write && (flags & libc::O_DSYNC != 0 || wanted.rw_flags & RWF_SYNCS != 0);
    let pace = if sync { Pace::ByDevice } else { pace };
    Ok(Some(Job { locked, write, parts, offset, len, pace, sync, id }))
}

impl World {
    pub(super) fn allocates(&mut self, ino: u64, write: bool, range: Range<u64>) -> bool {
        let inode = self.inode(ino);
        let mut pages = Inode::pages(range.start, range.end);
        write && (range.end > inode.medium.size() || !pages.all(|it| inode.allocated.contains(&it)))
    }
}

fn decide(
    world: &mut World,
    ino: u64,
    wanted: &Wanted,
    (direct, appends, waits, len): (bool, bool, bool, u64),
) -> Result<(u64, u64, Pace), i32> {
    let size = world.inode(ino).medium.size();
    let offset = if wanted.write && appends { size } else { wanted.offset };
    let len = if wanted.write { len } else { len.min(size.saturating_sub(offset)) };
    let grows = wanted.write && (offset + len).div_ceil(PAGE_BYTES) > size.div_ceil(PAGE_BYTES);
    if grows
        && !world.inode(ino).in_memory
        && world.faults.capacity_bytes.is_some_and(|it| offset + len > it)
    {
        return Err(libc::ENOSPC);
    }
    let in_memory = world.inode(ino).in_memory;
    if direct {
        drop_cached(world.inode(ino), offset..offset + len, wanted.write && !waits)?;
        let goes_on =
            waits || wanted.behind && !world.allocates(ino, wanted.write, offset..offset + len);
        return if goes_on { Ok((offset, len, Pace::ByDevice)) } else { Err(libc::EAGAIN) };
    }
    if wanted.write {
        if !waits && !in_memory {
            return Err(libc::EOPNOTSUPP);
        }
        let range = offset..offset + len;
        let pace = if in_memory { Pace::AtOnce } else { world.pace_of_write(ino, &range) };
        world.inode(ino).cache(Inode::pages(range.start, range.end));
        return Ok((offset, len, pace));
    }
    pages::decide_read(world, ino, offset..offset + len, waits)
}

/// Fails with EAGAIN if `refuses` is set, and the cache has or reads a page of the range.
fn drop_cached(inode: &mut Inode, range: Range<u64>, refuses: bool) -> Result<(), i32> {
    let mut pages = Inode::pages(range.start, range.end);
    if refuses && pages.any(|page| inode.has_page(page)) {
        return Err(libc::EAGAIN);
    }
    Inode::pages(range.start, range.end).for_each(|page| inode.uncache(page));
    Ok(())
}

fn transfer(cpu: &mut Cpu<'_>, wanted: &Wanted) -> Answer {
    const RWF_NOWAIT: u32 = 8;
    const RWF_APPEND_OR_NOT: u32 = 0x30;
    const KNOWN: u32 = 0x3f;
    if wanted.rw_flags & !KNOWN != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if wanted.rw_flags & RWF_APPEND_OR_NOT == RWF_APPEND_OR_NOT {
        return Err(libc::EINVAL);
    }
    let What::File(ino) = cpu.what(wanted.id) else {
        let waits = wanted.rw_flags & RWF_NOWAIT == 0;
        return transfer_of_stream(cpu, wanted, waits);
    };
    cpu.refer(wanted.id);
    let moved = cpu.prepare_now(ino, wanted).and_then(|job| cpu.move_now(job));
    cpu.unrefer(wanted.id);
    moved
}

pub(super) fn transfer_of_stream(cpu: &mut Cpu<'_>, wanted: &Wanted, waits: bool) -> Answer {
    let waits = waits && cpu.flags(wanted.id) & libc::O_NONBLOCK == 0;
    loop {
        match event::try_stream(cpu, wanted) {
            Err(libc::EAGAIN) if waits => cpu.sleep(Key::Readiness, None),
            moved => return moved,
        };
    }
}

pub(super) unsafe fn vector(address: usize, count: usize) -> Vec<Part> {
    // SAFETY: the caller's array.
    let parts = unsafe { core::slice::from_raw_parts(address as *const libc::iovec, count) };
    parts.iter().map(|it| Part { address: it.iov_base as usize, len: it.iov_len }).collect()
}

/// An offset of -1 means the file's position.
fn at(cpu: &mut Cpu<'_>, number: usize, offset: i64) -> Result<(OpenId, u64), i32> {
    let id = cpu.opened(number)?;
    match (cpu.what(id), offset) {
        (What::File(_), -1) => Ok((id, *cpu.position(id))),
        (What::File(_), _) => Ok((id, offset as u64)),
        (_, -1) => Ok((id, 0)),
        _ => Err(libc::ESPIPE),
    }
}

macro_rules! transfers {
    ($($name:ident: $write:literal, |$args:ident| $parts:expr, $offset:expr, $flags:expr;)+) => {$(
        pub(super) unsafe fn $name(cpu: &mut Cpu<'_>, $args: [usize; 6]) -> Answer {
            let (id, offset) = at(cpu, $args[0], $offset)?;
            let (write, rw_flags) = ($write, $flags);
            // SAFETY: the caller's arguments.
            let parts = unsafe { $parts };
            let wanted = Wanted { id, write, parts, offset, rw_flags, behind: false };
            let moved = transfer(cpu, &wanted)?;
            if $offset == -1 {
                *cpu.position(id) += moved as u64;
            }
            Ok(moved)
        }
    )+};
}

unsafe fn one(address: usize, len: usize) -> Vec<Part> {
    vec![Part { address, len }]
}

transfers! {
    read: false, |a| one(a[1], a[2]), -1, 0;
    write: true, |a| one(a[1], a[2]), -1, 0;
    readv: false, |a| vector(a[1], a[2]), -1, 0;
    writev: true, |a| vector(a[1], a[2]), -1, 0;
    pread: false, |a| one(a[1], a[2]), a[3] as i64, 0;
    pwrite: true, |a| one(a[1], a[2]), a[3] as i64, 0;
    preadv: false, |a| vector(a[1], a[2]), a[3] as i64, 0;
    pwritev: true, |a| vector(a[1], a[2]), a[3] as i64, 0;
    preadv2: false, |a| vector(a[1], a[2]), a[3] as i64, a[5] as u32;
    pwritev2: true, |a| vector(a[1], a[2]), a[3] as i64, a[5] as u32;
}
