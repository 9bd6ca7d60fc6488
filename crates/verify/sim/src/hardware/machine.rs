//! The model that serves the requests of a device: disks, or flash.

use super::{
    array::{Array, Layout},
    disk::Disk,
    flash::{Flash, Link},
};
use crate::delay::WorkKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) kind: WorkKind,
    /// Index of the file, which determines the drive.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

#[derive(Debug)]
pub(crate) enum Machine {
    Disks(Array),
    Flash(Link),
}

impl Machine {
    pub(super) fn disks(disk: &Disk, layout: &Layout) -> Machine {
        Machine::Disks(Array::new(disk, layout))
    }

    pub(super) fn flash(flash: &Flash) -> Machine {
        Machine::Flash(Link::new(flash))
    }

    /// Adds a job; `at_ns` is not before the time of the last `step`.
    pub(crate) fn add(&mut self, job: Job, at_ns: u64) {
        match self {
            Machine::Disks(array) => array.add(job, at_ns),
            Machine::Flash(link) => link.add(job, at_ns),
        }
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        match self {
            Machine::Disks(array) => array.next_ns(),
            Machine::Flash(link) => link.next_ns(),
        }
    }

    pub(crate) fn step(&mut self) -> Option<u64> {
        match self {
            Machine::Disks(array) => array.step(),
            Machine::Flash(link) => link.step(),
        }
    }
}
