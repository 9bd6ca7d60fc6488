//! Models of existing devices: parameters from data sheets, one parameter file for each device.
//!
//! ```text
//! hardware/NAME.toml   the figures, each with its source
//!   disk     one arm: seek, turn, transfer by zone, track buffer, tagged queue
//!   array    drives striped over disks, the elevator before them, the buses they share
//!   flash    cells that work side by side, behind one link
//!   machine  the model that a device uses: disks or flash
//! ```
//!
//! Nothing is random: parameters and requests determine the times.

mod array;
mod disk;
mod flash;
mod machine;

pub(crate) use machine::{Job, Machine};

use serde::Deserialize;

/// An existing device, by its data sheet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// The device's name, such as `sim:u2scsi`.
    pub name: String,
    /// A description in one line.
    pub about: String,
    disk: Option<disk::Disk>,
    layout: Option<array::Layout>,
    flash: Option<flash::Flash>,
}

const FILES: [(&str, &str); 5] = [
    ("sim:u2scsi", include_str!("../hardware/u2scsi.toml")),
    ("sim:raid20", include_str!("../hardware/raid20.toml")),
    ("sim:hdd", include_str!("../hardware/hdd.toml")),
    ("sim:sata-ssd", include_str!("../hardware/sata-ssd.toml")),
    ("sim:nvme", include_str!("../hardware/nvme.toml")),
];

impl Hardware {
    /// Returns all names, such as `sim:u2scsi`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// Returns the device of this name.
    ///
    /// # Errors
    /// No device has this name; the message lists the names.
    pub fn named(name: &str) -> Result<Hardware, String> {
        let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = Hardware::names().collect();
            return Err(format!("no device '{name}'; there are {}", known.join(", ")));
        };
        Ok(Hardware::parse(text).expect("the parameter files are tested"))
    }

    /// Reads a parameter file: `[disk]` with `[layout]`, or `[flash]`.
    ///
    /// # Errors
    /// The text is malformed, or has other tables.
    pub fn parse(text: &str) -> Result<Hardware, String> {
        let hardware: Hardware = toml::from_str(text).map_err(|error| error.to_string())?;
        match (&hardware.disk, &hardware.layout, &hardware.flash) {
            (Some(_), Some(_), None) | (None, None, Some(_)) => Ok(hardware),
            _ => Err(String::from("a device has [disk] and [layout], or [flash]")),
        }
    }

    /// Returns the number of drives. The device puts files on the drives in turn.
    pub fn drives(&self) -> usize {
        self.layout.as_ref().map_or(1, |layout| layout.drives)
    }

    /// Returns the capacity of a drive in bytes; 1 TB for flash.
    pub fn drive_bytes(&self) -> u64 {
        let disks = self.layout.as_ref().map_or(1, |layout| layout.disks_per_drive as u64);
        self.disk.as_ref().map_or(1_000_000_000_000, |disk| disks * disk.capacity_bytes)
    }

    pub(crate) fn machine(&self) -> Machine {
        match (&self.disk, &self.layout, &self.flash) {
            (Some(disk), Some(layout), _) => Machine::disks(disk, layout),
            (_, _, Some(flash)) => Machine::flash(flash),
            _ => unreachable!("parse has looked"),
        }
    }
}

/// Returns the time of `bytes` at a rate in 10⁶ bytes a second.
fn transfer_ns(bytes: u64, mb_per_s: f64) -> u64 {
    (bytes as f64 * 1_000.0 / mb_per_s) as u64
}
