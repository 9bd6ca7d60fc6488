//! One disk: an arm over turning platters, a track buffer, a queue of tagged commands.
//!
//! Among the commands in the disk, the arm serves the one with the least time from its position,
//! unless one has waited too long. After a read the disk reads ahead into its buffer until a
//! command needs the arm or a buffer segment is full. A read needs no arm if the buffer has its
//! data or readahead is about to bring them. The disk has no write cache.
//!
//! The sustained rate includes track changes, so the angle of a byte grows evenly through a zone.
//! Seek times pass through the three figures of a data sheet: track to track, average (a third of
//! the way), full stroke; as a square root up to the average, and linearly after it. Source:
//! Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3).

use super::transfer_ns;
use crate::delay::WorkKind;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Disk {
    pub(super) capacity_bytes: u64,
    turns_per_minute: u64,
    track_seek_us: u64,
    average_seek_us: u64,
    full_seek_us: u64,
    write_settle_us: u64,
    /// Sustained rate at the outer edge, where addresses begin.
    outer_mb_per_s: f64,
    inner_mb_per_s: f64,
    command_us: u64,
    buffer_segment_kib: u64,
    buffer_segments: usize,
    /// Most commands in the disk; others wait in the host, in the order of an elevator.
    tags: usize,
}

const ZONES: u64 = 16;

/// If the oldest command has been in the disk for longer than this, the arm serves it next.
/// Otherwise a command far from all others could wait for ever.
const AGE_MAX_NS: u64 = 1_000_000_000;

/// A read that starts up to this far past the arm still counts as following it: the model rounds
/// the arm's position.
const ROUNDING_BYTES: u64 = 512;

/// A part of a request on one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) number: u64,
    pub(super) kind: WorkKind,
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) arrival_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServedCommand {
    pub(super) command: Command,
    /// The bytes came from the buffer, so the bus carries them only afterwards.
    pub(super) buffered: bool,
}

#[derive(Debug)]
pub(super) struct Arm {
    disk: Disk,
    host: BTreeMap<(u64, u64), Command>,
    arrivals: u64,
    elevator: u64,
    /// Commands that wait in the disk, each with the time when it came there from the host.
    tagged: Vec<(u64, Command)>,
    busy: Option<(u64, ServedCommand)>,
    head: u64,
    buffer: VecDeque<(u64, u64)>,
    ahead: Option<Ahead>,
}

/// The buffer has the bytes from `start`; the arm was at byte `from` at the time `at_ns`.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    start: u64,
    from: u64,
    at_ns: u64,
    limit: u64,
}

impl Arm {
    pub(super) fn new(disk: &Disk) -> Arm {
        Arm {
            disk: disk.clone(),
            host: BTreeMap::new(),
            arrivals: 0,
            elevator: 0,
            tagged: Vec::new(),
            busy: None,
            head: 0,
            buffer: VecDeque::new(),
            ahead: None,
        }
    }

    pub(super) fn add(&mut self, command: Command) {
        self.arrivals += 1;
        self.host.insert((command.address, self.arrivals), command);
        self.start(command.arrival_ns);
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.busy.as_ref().map(|(ns, _)| *ns)
    }

    pub(super) fn step(&mut self) -> Option<(u64, ServedCommand)> {
        let (ns, served) = self.busy.take()?;
        self.start(ns);
        Some((ns, served))
    }

    fn start(&mut self, now_ns: u64) {
        if self.busy.is_some() {
            return;
        }
        while self.tagged.len() < self.disk.tags {
            let next = self.host.range((self.elevator, 0)..).next().map(|(key, _)| *key);
            let key = next.or_else(|| self.host.keys().next().copied());
            let Some(command) = key.and_then(|key| self.host.remove(&key)) else { break };
            self.elevator = command.address;
            self.tagged.push((now_ns, command));
        }
        let Some(index) = self.choose(now_ns) else { return };
        let (_, command) = self.tagged.swap_remove(index);
        let (end_ns, buffered) = self.serve(command, now_ns);
        self.busy = Some((end_ns, ServedCommand { command, buffered }));
    }

    fn choose(&self, now_ns: u64) -> Option<usize> {
        let commands = || self.tagged.iter().enumerate();
        let (oldest, (since_ns, _)) = commands().min_by_key(|(_, (since_ns, _))| *since_ns)?;
        if now_ns - since_ns > AGE_MAX_NS {
            return Some(oldest);
        }
        let transfer = |one: &Command| transfer_ns(one.len, self.rate(one.address));
        let time = |command: &Command| match self.buffered_ns(command, now_ns) {
            // Subtracts the transfer: commands compare by the time of their first byte.
            Some(ns) => ns.saturating_sub(transfer(command)).max(now_ns),
            None => self.media_start_ns(command, now_ns),
        };
        let nearest = commands().min_by_key(|(_, (since_ns, one))| (time(one), *since_ns))?;
        Some(nearest.0)
    }

    /// Returns the end of the command, and `true` if its data came from the buffer.
    fn serve(&mut self, command: Command, now_ns: u64) -> (u64, bool) {
        let ready_ns = self.ready_ns(&command, now_ns);
        if command.kind == WorkKind::Flush {
            return (ready_ns, false);
        }
        let end = command.address + command.len;
        if let Some(end_ns) = self.buffered_ns(&command, now_ns) {
            if let Some(ahead) = self.ahead.as_mut().filter(|ahead| end <= ahead.limit) {
                ahead.limit = ahead.limit.max(end + self.disk.buffer_segment_kib * 1024);
            }
            return (end_ns, true);
        }
        self.stop_ahead(now_ns);
        let start_ns = self.media_start_ns(&command, now_ns);
        let end_ns = start_ns + transfer_ns(command.len, self.rate(command.address));
        self.head = end;
        if command.kind == WorkKind::Read {
            let limit = end + self.disk.buffer_segment_kib * 1024;
            let start = command.address;
            self.ahead = Some(Ahead { start, from: end, at_ns: end_ns, limit });
        } else {
            self.buffer.retain(|(from, to)| end <= *from || *to <= command.address);
        }
        (end_ns, false)
    }

    fn ready_ns(&self, command: &Command, now_ns: u64) -> u64 {
        now_ns.max(command.arrival_ns + self.disk.command_us * 1_000)
    }

    /// Returns the time at which the buffer has the whole read; `None` if the arm must read.
    fn buffered_ns(&self, command: &Command, now_ns: u64) -> Option<u64> {
        if command.kind != WorkKind::Read {
            return None;
        }
        let (from, end) = (command.address, command.address + command.len);
        let ready_ns = self.ready_ns(command, now_ns);
        if self.buffer.iter().any(|(start, stop)| *start <= from && end <= *stop) {
            return Some(ready_ns);
        }
        let ahead = self.ahead?;
        let reached = self.reached(ahead, now_ns);
        let going_on = reached < ahead.limit && from <= reached.max(ahead.from) + ROUNDING_BYTES;
        if from < ahead.start || end > ahead.limit || !(going_on || end <= reached) {
            return None;
        }
        let there_ns = ahead.at_ns + transfer_ns(end.saturating_sub(ahead.from), self.rate(from));
        Some(ready_ns.max(there_ns))
    }

    fn reached(&self, ahead: Ahead, now_ns: u64) -> u64 {
        let ns = now_ns.saturating_sub(ahead.at_ns);
        let bytes = (ns as f64 * self.rate(ahead.from) / 1_000.0) as u64;
        (ahead.from + bytes).min(ahead.limit)
    }

    fn stop_ahead(&mut self, now_ns: u64) {
        let Some(ahead) = self.ahead.take() else { return };
        self.head = self.reached(ahead, now_ns);
        self.buffer
            .push_back((ahead.start.max(self.head.saturating_sub(self.segment())), self.head));
        if self.buffer.len() > self.disk.buffer_segments {
            self.buffer.pop_front();
        }
    }

    fn segment(&self) -> u64 {
        self.disk.buffer_segment_kib * 1024
    }

    fn media_start_ns(&self, command: &Command, now_ns: u64) -> u64 {
        if command.kind == WorkKind::Flush {
            return self.ready_ns(command, now_ns);
        }
        let head = self.ahead.map_or(self.head, |ahead| self.reached(ahead, now_ns));
        let turn_ns = 60_000_000_000 / self.disk.turns_per_minute;
        let ready_ns = self.ready_ns(command, now_ns);
        let arrival_ns = ready_ns + self.seek_ns(head, command);
        let angle_ns = self.angle_ns(command.address, turn_ns);
        // Rounding must not cost a turn if one command follows another.
        let wait_ns = (angle_ns + turn_ns - arrival_ns % turn_ns) % turn_ns;
        let gapless = command.address == head && ready_ns == now_ns;
        if gapless { now_ns } else { arrival_ns + wait_ns }
    }

    fn seek_ns(&self, head: u64, command: &Command) -> u64 {
        let turn_ns = 60_000_000_000 / self.disk.turns_per_minute;
        let track_bytes = (turn_ns as f64 * self.rate(head) / 1_000.0) as u64;
        let way_bytes = command.address.abs_diff(head);
        let settle_us = if command.kind == WorkKind::Write { self.disk.write_settle_us } else { 0 };
        if way_bytes == 0 {
            return 0;
        }
        if way_bytes < track_bytes {
            return settle_us * 1_000;
        }
        let way = (way_bytes as f64 / self.disk.capacity_bytes as f64).min(1.0);
        let us = |value: u64| value as f64;
        let (track, average, full) = (
            us(self.disk.track_seek_us),
            us(self.disk.average_seek_us),
            us(self.disk.full_seek_us),
        );
        let seek_us = if way <= 1.0 / 3.0 {
            track + (average - track) * (3.0 * way).sqrt()
        } else {
            average + (full - average) * (way - 1.0 / 3.0) * 1.5
        };
        (seek_us * 1_000.0) as u64 + settle_us * 1_000
    }

    fn zone(&self, address: u64) -> u64 {
        let zone_bytes = self.disk.capacity_bytes / ZONES;
        (address / zone_bytes).min(ZONES - 1)
    }

    fn rate(&self, address: u64) -> f64 {
        let part = self.zone(address) as f64 / (ZONES - 1) as f64;
        self.disk.outer_mb_per_s + (self.disk.inner_mb_per_s - self.disk.outer_mb_per_s) * part
    }

    fn angle_ns(&self, address: u64, turn_ns: u64) -> u64 {
        let zone_start = self.zone(address) * (self.disk.capacity_bytes / ZONES);
        transfer_ns(address - zone_start, self.rate(address)) % turn_ns
    }
}
