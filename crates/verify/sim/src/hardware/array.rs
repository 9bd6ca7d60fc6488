//! Drives striped over disks (RAID-0), and the buses that carry the disks' data.

use super::{
    disk::{Arm, Command, Disk, ServedCommand},
    machine::Job,
    transfer_ns,
};
use crate::delay::WorkKind;
use serde::Deserialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    pub(super) drives: usize,
    pub(super) disks_per_drive: usize,
    stripe_kib: u64,
    /// Number of buses; disks are distributed to them in turn.
    buses: usize,
    bus_mb_per_s: f64,
}

/// Distance between the beginnings of files on one drive.
const FILE_SPACING_BYTES: u64 = 4 << 30;

#[derive(Debug)]
pub(crate) struct Array {
    layout: Layout,
    capacity_bytes: u64,
    arms: Vec<Arm>,
    arm_events: BinaryHeap<Reverse<(u64, usize)>>,
    bus_free_ns: Vec<u64>,
    bus_events: BinaryHeap<Reverse<(u64, u64)>>,
    left: BTreeMap<u64, usize>,
}

impl Array {
    pub(super) fn new(disk: &Disk, layout: &Layout) -> Array {
        let disks = layout.drives * layout.disks_per_drive;
        Array {
            layout: layout.clone(),
            capacity_bytes: disk.capacity_bytes,
            arms: (0..disks).map(|_| Arm::new(disk)).collect(),
            arm_events: BinaryHeap::new(),
            bus_free_ns: vec![0; layout.buses],
            bus_events: BinaryHeap::new(),
            left: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, job: Job, at_ns: u64) {
        let mut count = 0;
        let (drive, disks) = (job.file % self.layout.drives, self.layout.disks_per_drive as u64);
        let base = (job.file / self.layout.drives) as u64 * FILE_SPACING_BYTES;
        let (stripe, drive_bytes) = (self.layout.stripe_kib * 1024, disks * self.capacity_bytes);
        let (mut at, mut left) = ((base + job.offset) % drive_bytes, job.len.max(1));
        let mut commands: Vec<(usize, Command)> = Vec::new();
        while left > 0 {
            let (index, inside) = (at / stripe, at % stripe);
            let len = if disks == 1 { left } else { left.min(stripe - inside) };
            let disk = drive * disks as usize + (index % disks) as usize;
            let address = if disks == 1 { at } else { index / disks * stripe + inside };
            let adjoins =
                |one: &&mut (usize, Command)| one.0 == disk && one.1.address + one.1.len == address;
            if let Some((_, command)) = commands.iter_mut().find(adjoins) {
                command.len += len;
            } else {
                let command =
                    Command { number: job.number, kind: job.kind, address, len, arrival_ns: at_ns };
                commands.push((disk, command));
            }
            (at, left) = (at + len, left - len);
        }
        if job.kind == WorkKind::Flush {
            commands.truncate(1);
        }
        for (disk, command) in commands {
            let was_idle = self.arms[disk].next_ns().is_none();
            self.arms[disk].add(command);
            if was_idle {
                self.schedule(disk);
            }
            count += 1;
        }
        self.left.insert(job.number, count);
    }

    fn schedule(&mut self, disk: usize) {
        if let Some(ns) = self.arms[disk].next_ns() {
            self.arm_events.push(Reverse((ns, disk)));
        }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        let arm = self.arm_events.peek().map(|Reverse((ns, _))| *ns);
        let bus = self.bus_events.peek().map(|Reverse((ns, _))| *ns);
        arm.into_iter().chain(bus).min()
    }

    pub(super) fn step(&mut self) -> Option<u64> {
        let bus_ns = self.bus_events.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
        let arm_ns = self.arm_events.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
        if bus_ns <= arm_ns {
            let Reverse((_, number)) = self.bus_events.pop()?;
            let left = self.left.get_mut(&number)?;
            *left -= 1;
            return (*left == 0).then(|| {
                self.left.remove(&number);
                number
            });
        }
        let Reverse((_, disk)) = self.arm_events.pop()?;
        if let Some((ns, served)) = self.arms[disk].step() {
            self.carry(disk, ns, served);
        }
        self.schedule(disk);
        None
    }

    /// The bus carries data while the arm transfers them, as far as the bus was free. Data from the
    /// disk's buffer follow when they are there.
    fn carry(&mut self, disk: usize, ns: u64, served: ServedCommand) {
        let command = served.command;
        let len = if command.kind == WorkKind::Flush { 0 } else { command.len };
        let bus = disk % self.bus_free_ns.len();
        let carry_ns = transfer_ns(len, self.layout.bus_mb_per_s);
        let from_ns = if served.buffered { ns } else { ns.saturating_sub(carry_ns) };
        let free_ns = self.bus_free_ns[bus].max(from_ns) + carry_ns;
        self.bus_free_ns[bus] = free_ns;
        self.bus_events.push(Reverse((free_ns.max(ns), command.number)));
    }
}
