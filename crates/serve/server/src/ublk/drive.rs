//! Makes, takes over and removes ublk devices.

use super::Setup;
use crate::ServeError;
use nowait::Errno;
use nowait_device::{Image, Properties};
use nowait_sys::{
    eventfd::EventFd,
    thread,
    time::Deadline,
    ublk::{
        self, Basic, Control, DeviceInfo, Discard, Parameters, attribute, feature, state, types,
    },
};
use nowait_terminal::say;
use std::{
    fs,
    io::ErrorKind,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
};

/// The limits of each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of queues; the server asks for one for each serving thread.
    pub queues: u16,
    /// The bytes for the data of all requests of a device. A device with many queues may use more,
    /// because each queue takes at least 8 requests.
    pub memory_bytes: usize,
}

/// A block device of an image. Dropping this value removes the device, unless the device still
/// waits for a server.
#[derive(Debug)]
pub struct Drive {
    control: Control,
    image: Arc<Image>,
    info: DeviceInfo,
    /// The open character device of the queues; `None` after [`Drive::start`].
    device: Option<Arc<OwnedFd>>,
    path: PathBuf,
    /// The size in sectors of 512 bytes.
    sectors: u64,
    lost: Arc<EventFd>,
    up: bool,
    /// The device waits for a server, because its previous server was killed.
    recovers: bool,
}

/// The result of removing a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// The device was not in use.
    Clean,
    /// The device was mounted, or a program had claimed it otherwise. Requests to the device fail
    /// from now on.
    InUse,
}

const SECTOR_BYTES: u64 = 512;
const BUFFER_BYTES: u32 = 512 << 10;
/// The number of requests of a queue: as many as the memory allows, within these limits.
const DEPTHS: core::ops::RangeInclusive<usize> = 8..=128;
/// The longest discard or zeroing: 2 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 22;
/// The largest sector of a block device, in bytes.
const SECTOR_BYTES_MAX: u32 = 4096;
/// How long the server waits for steps of the kernel that depend on other programs.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long the server waits for a killed server to end, and for the removal of a dead device.
const LEAVING_NS: u64 = 10_000_000_000;
const ANY: u32 = u32::MAX;

impl Drive {
    /// Makes a device of `image`, with the number `id`, or with a free number for `None`. A device
    /// with a requested number stays when the server is killed, and its requests wait for the next
    /// server. If a killed server of the same image has left the device `id`, takes that device
    /// over.
    ///
    /// # Errors
    /// The kernel has no ublk, or this user may not use it; the number is taken; the sectors are
    /// larger than 4096 bytes; a device cannot be taken over.
    pub fn new(id: Option<u32>, image: &Arc<Image>, limits: Limits) -> Result<Drive, ServeError> {
        let lost = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
        let mut control = Control::open().map_err(unavailable)?;
        let features = control.features().unwrap_or(0);
        if features & feature::IOCTL_ENCODE == 0 {
            return Err(ServeError::new("ublk needs Linux 6.5 or later: use --fuse or --nbd"));
        }
        let parameters = describe(image.properties(), image.size())?;
        clear_away(&mut control);
        let mark = mark_of(image)?;
        let left = id.map(|id| left_behind(&mut control, id, mark)).transpose()?.flatten();
        let recovers = left.is_some();
        let info = if let Some(info) = left {
            take_over(&mut control, info, &parameters)?
        } else {
            let kept = id.map_or(0, |_| feature::RECOVERY | feature::REISSUE);
            let features = kept | (features & feature::UPDATE_SIZE);
            add(&mut control, wanted(id, limits, features, mark), parameters)?
        };
        let path = PathBuf::from(format!("/dev/ublkb{}", info.id));
        let (image, device, sectors) = (image.clone(), None, parameters.basic.sectors);
        // From here on, dropping `drive` removes the device, unless the device waits for a server.
        let mut drive =
            Drive { control, image, info, device, path, sectors, lost, up: false, recovers };
        let opened = ublk::open_device(info.id);
        drive.device = Some(Arc::new(opened.map_err(|errno| {
            ServeError::new(format!("cannot open /dev/ublkc{}: {errno}", info.id))
        })?));
        Ok(drive)
    }

    /// Returns the orders to the serving threads, one for each queue, and a receiver for each
    /// answer.
    pub(crate) fn setups(&self) -> Vec<(Setup, Receiver<Result<(), Errno>>)> {
        let setup = |device: &Arc<OwnedFd>, queue| {
            let (answer, answered) = sync_channel(1);
            let (image, device, lost) = (self.image.clone(), device.clone(), self.lost.clone());
            (Setup { image, device, info: self.info, queue, lost, answer }, answered)
        };
        let queues = 0..self.info.queues;
        self.device.iter().flat_map(|device| queues.clone().map(|q| setup(device, q))).collect()
    }

    /// Lets the kernel show the disk. The caller calls this after all queues are served.
    ///
    /// # Errors
    /// The kernel could not make the disk.
    pub fn start(&mut self) -> Result<(), ServeError> {
        // The queues hold references to the device now, and the last queue closes the device.
        self.device = None;
        let (id, process) = (self.info.id, thread::process_id() as u32);
        let deadline = Deadline::after_ns(PATIENCE_NS);
        let started = match self.recovers {
            true => self.control.end_recovery(id, process, deadline),
            false => self.control.start(id, process, deadline),
        };
        started.map_err(|errno| {
            ServeError::new(format!("cannot start {}: {errno}", self.path.display()))
        })?;
        self.up = true;
        let recovered = core::mem::take(&mut self.recovers);
        self.image.stats().connect();
        let (name, size, path) = (self.image.name(), self.image.size(), self.path.display());
        if recovered {
            say(format_args!("{path} was left by a killed server: its requests continue"));
        }
        say(format_args!("serving {name} ({size} bytes) as {path}"));
        Ok(())
    }

    /// Returns the image.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Returns the path of the block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptor that becomes readable after this program or another has stopped the
    /// device.
    pub fn raw(&self) -> i32 {
        self.lost.raw()
    }

    /// Returns `true` from [`Drive::start`] until this program has removed the device.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Removes the device after another program has stopped it.
    pub fn forget(&mut self) {
        self.remove();
    }

    /// Gives the device the present size of its image; returns `true` if the size has changed.
    ///
    /// # Errors
    /// The kernel cannot change the size, so the device keeps it.
    pub fn resized(&mut self) -> Result<bool, ServeError> {
        let sectors = self.sectors_of_image();
        if sectors == self.sectors {
            return Ok(false);
        }
        let done = match self.info.features & feature::UPDATE_SIZE {
            0 => Err(Errno::OPNOTSUPP),
            _ => self.control.update_size(self.info.id, sectors),
        };
        done.map_err(|errno| {
            let path = self.path.display();
            ServeError::new(format!(
                "{path} keeps its size until it is removed and added again: \
                                     {errno}"
            ))
        })?;
        self.sectors = sectors;
        Ok(true)
    }

    /// Returns the number of 512-byte sectors of the image, in whole sectors of the disk.
    fn sectors_of_image(&self) -> u64 {
        let sector = u64::from(sector_of(self.image.properties()));
        self.image.size() / sector * (sector / SECTOR_BYTES)
    }

    /// Writes back the kernel's cache of a started device, and removes the device. The serving
    /// threads must still run. Reports errors on standard error.
    pub fn remove(&mut self) -> RemoveOutcome {
        self.device = None;
        let was_up = core::mem::take(&mut self.up);
        let mut outcome = RemoveOutcome::Clean;
        if was_up {
            self.image.stats().disconnect();
            outcome = self.write_back();
        }
        let id = self.info.id;
        let stopped = self.control.stop(id, Deadline::after_ns(PATIENCE_NS));
        let removed =
            stopped.and_then(|()| self.control.delete(id, Deadline::after_ns(PATIENCE_NS)));
        match removed {
            // `ENODEV`: another program has removed the device first.
            Ok(()) | Err(Errno::NODEV) => {}
            Err(errno) => {
                say(format_args!("cannot remove {}: {errno}", self.path.display()));
            }
        }
        self.recovers = false;
        self.info.id = ANY;
        outcome
    }

    /// The kernel does not write its cache back when it stops a disk that can outlive its server.
    /// Returns [`RemoveOutcome::InUse`] if the disk is mounted, or a program has claimed it
    /// otherwise.
    fn write_back(&self) -> RemoveOutcome {
        if let Ok(disk) = ublk::open_disk(self.info.id, false)
            && let Err(errno) = ublk::write_back(disk.as_fd())
        {
            let path = self.path.display();
            say(format_args!("{path}: data in the page cache are lost: {errno}"));
        }
        match ublk::open_disk(self.info.id, true) {
            Err(Errno::BUSY) => RemoveOutcome::InUse,
            _ => RemoveOutcome::Clean,
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.info.id != ANY && !self.recovers {
            self.remove();
        }
    }
}

fn unavailable(errno: Errno) -> ServeError {
    ServeError::new(match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "the kernel has no ublk here (no /dev/ublk-control): modprobe ublk_drv, if it has \
             CONFIG_BLK_DEV_UBLK; else use --fuse or --nbd"
                .to_owned()
        }
        Errno::ACCES | Errno::PERM => format!("--ublk needs root, and io_uring: {errno}"),
        errno => format!("cannot use /dev/ublk-control: {errno}"),
    })
}

/// Returns the sector size of the disk. An image behind a page cache takes requests of any size,
/// but a disk has sectors of at least 512 bytes.
fn sector_of(properties: Properties) -> u32 {
    properties.sector_bytes.max(SECTOR_BYTES as u32)
}

fn describe(properties: Properties, size_bytes: u64) -> Result<Parameters, ServeError> {
    let sector = sector_of(properties);
    if sector > SECTOR_BYTES_MAX {
        return Err(ServeError::new(format!(
            "a block device has sectors of at most {SECTOR_BYTES_MAX} bytes, not {sector}"
        )));
    }
    let preferred = properties.preferred_bytes.ilog2() as u8;
    let attributes = match properties.read_only {
        true => attribute::READ_ONLY,
        false => attribute::VOLATILE_CACHE | attribute::FUA,
    };
    let basic = Basic {
        attributes,
        logical_shift: sector.ilog2() as u8,
        physical_shift: preferred,
        optimal_shift: preferred,
        minimal_shift: preferred,
        sectors_max: BUFFER_BYTES / SECTOR_BYTES as u32,
        // The kernel does not check that this is a whole number of the disk's sectors.
        sectors: size_bytes / u64::from(sector) * (u64::from(sector) / SECTOR_BYTES),
        ..Basic::default()
    };
    let discard = Discard {
        granularity: properties.preferred_bytes,
        discard_sectors_max: RANGE_SECTORS_MAX,
        zero_sectors_max: RANGE_SECTORS_MAX,
        segments_max: 1,
        ..Discard::default()
    };
    let (types, discard) = match properties.read_only {
        true => (types::BASIC, Discard::default()),
        false => (types::BASIC | types::DISCARD, discard),
    };
    Ok(Parameters { types, basic, discard, ..Parameters::default() })
}

fn wanted(id: Option<u32>, limits: Limits, features: u64, mark: u64) -> DeviceInfo {
    let each = limits.memory_bytes / usize::from(limits.queues.max(1)) / BUFFER_BYTES as usize;
    DeviceInfo {
        queues: limits.queues.max(1),
        depth: each.clamp(*DEPTHS.start(), *DEPTHS.end()) as u16,
        buffer_bytes: BUFFER_BYTES,
        id: id.unwrap_or(ANY),
        process: thread::process_id(),
        features: features | feature::IOCTL_ENCODE,
        mark,
        ..DeviceInfo::default()
    }
}

fn add(
    control: &mut Control,
    wanted: DeviceInfo,
    parameters: Parameters,
) -> Result<DeviceInfo, ServeError> {
    let info = control.add(wanted).map_err(|errno| match errno {
        Errno::EXIST => ServeError::new(format!("/dev/ublkb{} is taken", wanted.id)),
        Errno::PERM | Errno::ACCES => unavailable(errno),
        errno => ServeError::new(format!("cannot create a ublk device: {errno}")),
    })?;
    control.set_parameters(info.id, parameters).map_err(|errno| {
        let _ = control.delete(info.id, Deadline::after_ns(PATIENCE_NS));
        ServeError::new(format!(
            "cannot create /dev/ublkb{} with these parameters: {errno}",
            info.id
        ))
    })?;
    Ok(info)
}

/// The upper 16 bits of a device's mark identify devices of nowait.
const OURS: u64 = 0x6e77 << 48;
const OURS_MASK: u64 = 0xffff << 48;

/// Returns the mark of devices of this image. A server takes over a device only if the device has
/// the mark of the server's image.
fn mark_of(image: &Image) -> Result<u64, ServeError> {
    let path = image.file().path();
    let mut bytes = image.place(0).to_ne_bytes().to_vec();
    match image.file().metadata() {
        Ok(about) => {
            let numbers = [about.dev(), about.ino(), about.rdev()].map(u64::to_ne_bytes);
            bytes.splice(0..0, numbers.concat());
        }
        // An image on an NBD server or a store has no file, so its name identifies the image.
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            bytes.extend(path.as_os_str().as_encoded_bytes());
        }
        Err(error) => return Err(ServeError::io(path.display(), &error)),
    }
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    Ok(OURS | (hash & !OURS_MASK))
}

/// Returns `true` if the process exists and is not a zombie. Source: proc_pid_stat(5).
fn is_alive(process: i32) -> bool {
    let about = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The process's name stands before the state, and may contain any characters.
    let state = about.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Removes dead devices, which killed servers have left and no server can take over.
fn clear_away(control: &mut Control) {
    let Ok(folder) = fs::read_dir("/dev") else { return };
    let number = |entry: fs::DirEntry| {
        entry.file_name().to_str()?.strip_prefix("ublkc")?.parse::<u32>().ok()
    };
    for id in folder.flatten().filter_map(number) {
        let Ok(info) = control.info(id) else { continue };
        let ours = info.mark & OURS_MASK == OURS && info.state == state::DEAD;
        if ours && !is_alive(info.process) {
            // The removal waits for programs that have the device open, so it has a time limit.
            let _ = control.delete(id, Deadline::after_ns(LEAVING_NS));
        }
    }
}

/// Returns the device with the number `id` if a killed server of the image with this mark has left
/// it; `None`: the number is free.
fn left_behind(
    control: &mut Control,
    id: u32,
    mark: u64,
) -> Result<Option<DeviceInfo>, ServeError> {
    let info = match control.info(id) {
        Ok(info) => info,
        Err(Errno::NODEV) => return Ok(None),
        Err(errno) => return Err(ServeError::new(format!("/dev/ublkb{id}: {errno}"))),
    };
    let taken = |by: &str| Err(ServeError::new(format!("/dev/ublkb{id} is not free: {by}")));
    if info.mark & OURS_MASK != OURS {
        return taken("it is not nowait's");
    }
    if info.state != state::QUIESCED && is_alive(info.process) {
        return taken(&format!("process {} serves it", info.process));
    }
    if info.mark != mark {
        return taken("it belongs to another image, whose server was killed");
    }
    if info.features & feature::RECOVERY == 0 {
        return taken("its server has gone, and it is being removed");
    }
    Ok(Some(info))
}

/// Waits for the end of the killed server, for [`LEAVING_NS`] at most.
fn take_over(
    control: &mut Control,
    info: DeviceInfo,
    wanted: &Parameters,
) -> Result<DeviceInfo, ServeError> {
    let id = info.id;
    let failed =
        |what: String| ServeError::new(format!("/dev/ublkb{id} cannot be taken over: {what}"));
    let found = control.parameters(id).map_err(|errno| failed(errno.to_string()))?;
    if (found.basic.sectors, found.basic.logical_shift, found.basic.attributes)
        != (wanted.basic.sectors, wanted.basic.logical_shift, wanted.basic.attributes)
    {
        let what = "the image's size, sector size or read-only mode has changed";
        return Err(failed(what.to_owned()));
    }
    let deadline = Deadline::after_ns(LEAVING_NS);
    loop {
        match control.start_recovery(id) {
            Ok(()) => break,
            // The previous server is ending, and the kernel does not report when it has ended.
            Err(Errno::BUSY) if !deadline.has_passed() => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(errno) => return Err(failed(errno.to_string())),
        }
    }
    control.info(id).map_err(|errno| failed(errno.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROPERTIES: Properties =
        Properties { read_only: false, sector_bytes: 4096, preferred_bytes: 4096, caches: false };

    #[test]
    fn the_disk_has_whole_sectors_and_a_write_cache() {
        let parameters = describe(PROPERTIES, (1 << 20) + 512).unwrap();
        let basic = parameters.basic;
        assert_eq!((basic.sectors, basic.logical_shift, basic.physical_shift), (2048, 12, 12));
        assert_eq!(basic.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
        assert_eq!(u64::from(basic.sectors_max) * SECTOR_BYTES, u64::from(BUFFER_BYTES));
        assert_eq!(parameters.types, types::BASIC | types::DISCARD);
        let cached = Properties { sector_bytes: 1, caches: true, ..PROPERTIES };
        assert_eq!(describe(cached, 1536).unwrap().basic.sectors, 3);
        assert!(describe(Properties { sector_bytes: 8192, ..PROPERTIES }, 1 << 20).is_err());
    }

    #[test]
    fn a_read_only_disk_offers_no_discard() {
        let read_only = describe(Properties { read_only: true, ..PROPERTIES }, 4096).unwrap();
        assert_eq!(read_only.basic.attributes, attribute::READ_ONLY);
        assert_eq!((read_only.types, read_only.discard), (types::BASIC, Discard::default()));
    }

    #[test]
    fn the_queue_depth_follows_from_the_memory() {
        let depth = |queues, memory_bytes| {
            let info = wanted(Some(3), Limits { queues, memory_bytes }, 0, OURS);
            assert_eq!((info.id, info.queues), (3, queues));
            info.depth
        };
        assert_eq!((depth(1, 256 << 20), depth(4, 64 << 20), depth(64, 32 << 20)), (128, 32, 8));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        assert!(is_alive(thread::process_id()) && !is_alive(-1) && !is_alive(0));
        let mut command = std::process::Command::new("true");
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        // The process ends soon after it has closed its output.
        std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        let id = child.id() as i32;
        while is_alive(id) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(id));
    }
}
