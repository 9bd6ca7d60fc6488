//! The properties of the host on which figures depend: kernel, processor, memory, file system,
//! device.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::memory;

/// No field names the machine or its user.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    pub kernel: String,
    pub processor: String,
    pub cores: usize,
    /// The frequency governor of the first core, or a text which says that none is visible.
    pub governor: String,
    pub memory_bytes: u64,
    pub filesystem: String,
    pub device: String,
    pub fio: String,
    pub unix_time_s: u64,
    pub state: State,
}

#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// Load average of the last minute: processes that ran or waited for a disk.
    pub load: f64,
    pub available_bytes: u64,
    pub page_cache_bytes: u64,
    pub dirty_bytes: u64,
}

impl Host {
    pub fn describe(folder: &Path, fio_version: &str) -> Self {
        Self {
            kernel: line_of("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            processor: field_of("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .unwrap_or_else(|| "not visible".to_owned()),
            memory_bytes: memory::field_bytes("MemTotal"),
            filesystem: filesystem_of(folder).unwrap_or_else(unknown),
            device: device_of(folder).unwrap_or_else(|| "none (not on a block device)".to_owned()),
            fio: fio_version.to_owned(),
            unix_time_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |elapsed| elapsed.as_secs()),
            state: State::now(),
        }
    }
}

impl State {
    fn now() -> Self {
        let load = line_of("/proc/loadavg").unwrap_or_default();
        let field = memory::field_bytes;
        Self {
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            available_bytes: field("MemAvailable"),
            page_cache_bytes: field("Cached"),
            dirty_bytes: field("Dirty"),
        }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn line_of(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned()).filter(|line| !line.is_empty())
}

fn field_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map(|(_, value)| value.trim().to_owned())
}

fn filesystem_of(folder: &Path) -> Option<String> {
    let mut findmnt = Command::new("findmnt");
    findmnt.args(["--noheadings", "--output=FSTYPE,VFS-OPTIONS", "--target"]).arg(folder);
    let said = String::from_utf8(findmnt.output().ok()?.stdout).ok()?;
    let (kind, options) = said.trim().split_once(' ')?;
    Some(format!("{kind} ({})", options.trim()))
}

fn device_of(folder: &Path) -> Option<String> {
    let device = fs::metadata(folder).ok()?.st_dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let link = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = link.file_name()?.to_string_lossy().into_owned();
    // A partition has no queue of its own, but its parent has.
    let whole = if link.join("queue").is_dir() { link } else { link.parent()?.to_owned() };
    let model = line_of(whole.join("device/model")).map(|model| format!(" ({model})"));
    Some(format!("{name}{}, {}", model.unwrap_or_default(), queue_of(&whole.join("queue"))))
}

fn queue_of(queue: &Path) -> String {
    let value = |name: &str| line_of(PathBuf::from(queue).join(name)).unwrap_or_else(unknown);
    let scheduler = value("scheduler");
    // The active scheduler stands in brackets.
    let scheduler = scheduler.split(['[', ']']).nth(1).unwrap_or(&scheduler).to_owned();
    let kind = if value("rotational") == "1" { "rotational flag set" } else { "not rotational" };
    format!(
        "scheduler {scheduler}, {} requests, read-ahead {} KiB, {kind}",
        value("nr_requests"),
        value("read_ahead_kb")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let host = Host::describe(Path::new("/"), "fio-3.33");
        assert!(host.cores >= 1);
        assert!(!host.kernel.is_empty());
        if let Ok(mounts) = fs::read_to_string("/proc/filesystems") {
            let (kind, options) = host.filesystem.split_once(" (").expect("type and options");
            assert!(mounts.contains(kind) && options.starts_with('r'), "{}", host.filesystem);
        }
        assert!(host.state.available_bytes <= host.memory_bytes);
    }
}
