//! Service times of requests, and the choice of the next request to serve.

use crate::prng::Prng;

/// A device's timing: the number of requests served at a time, their order, and their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Most requests served at the same time; the others wait in the device.
    pub units: usize,
    /// The choice among the waiting requests when a unit becomes free.
    pub pick: Pick,
    /// The service time of a request.
    pub access: Access,
}

/// The request to serve next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The request that arrived first.
    First,
    /// A random request.
    Any,
    /// The request with the shortest time from the position of the head.
    Nearest,
}

/// The service time of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Always the same time.
    Constant {
        /// Time of any request, in nanoseconds.
        ns: u64,
    },
    /// A random time of a range.
    Uniform {
        /// Shortest time, in nanoseconds.
        min_ns: u64,
        /// Longest time, in nanoseconds.
        max_ns: u64,
    },
    /// Memory cells behind a shared bus: more requests in service make each take longer.
    Flash {
        /// Time of a read without its transfer, in nanoseconds.
        read_ns: u64,
        /// Time of a write without its transfer, in nanoseconds.
        write_ns: u64,
        /// Time of a flush, in nanoseconds.
        flush_ns: u64,
        /// Added for each other request being served, in nanoseconds.
        loaded_ns: u64,
        /// Transfer rate of one request.
        bytes_per_second: u64,
    },
    /// One arm over turning platters: seek, wait for the sector, transfer.
    Disk {
        /// Seek to the next track, in nanoseconds.
        track_seek_ns: u64,
        /// Seek over all of the disk, in nanoseconds. Between the two seeks, the time grows as the
        /// square root of the distance.
        full_seek_ns: u64,
        /// One turn, in nanoseconds.
        turn_ns: u64,
        /// Transfer rate; with `turn_ns` it gives the length of a track.
        bytes_per_second: u64,
        /// Number of bytes that the arm travels over.
        span_bytes: u64,
        /// Time of a flush, in nanoseconds.
        flush_ns: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) kind: WorkKind,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    Read,
    Write,
    Flush,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Model {
    /// Returns a model that serves all requests at the same time, each for 1 µs to 100 µs.
    pub const fn any_order() -> Model {
        Model::at_once(Access::Uniform { min_ns: 1_000, max_ns: 100_000 })
    }

    /// Returns a model that serves all requests at the same time, each for `ns` nanoseconds.
    pub const fn constant(ns: u64) -> Model {
        Model::at_once(Access::Constant { ns })
    }

    /// Returns a flash device that serves 32 requests at a time. The figures are chosen, not
    /// measured.
    pub const fn flash() -> Model {
        let access = Access::Flash {
            read_ns: 70_000,
            write_ns: 15_000,
            flush_ns: 500_000,
            loaded_ns: 1_000,
            bytes_per_second: 2_000_000_000,
        };
        Model { units: 32, pick: Pick::First, access }
    }

    /// Returns a disk of 7200 turns a minute that serves the nearest request first. Seek times and
    /// rate are chosen, not measured.
    pub const fn disk() -> Model {
        let access = Access::Disk {
            track_seek_ns: 1_000_000,
            full_seek_ns: 16_000_000,
            turn_ns: 60 * SECOND_NS / 7200,
            bytes_per_second: 150_000_000,
            span_bytes: 1 << 40,
            flush_ns: 10_000_000,
        };
        Model { units: 1, pick: Pick::Nearest, access }
    }

    const fn at_once(access: Access) -> Model {
        Model { units: usize::MAX, pick: Pick::First, access }
    }

    pub(crate) fn choose(
        &self,
        waiting: impl ExactSizeIterator<Item = Work>,
        now_ns: u64,
        head: u64,
        prng: &mut Prng,
    ) -> usize {
        match self.pick {
            Pick::First => 0,
            Pick::Any => prng.index(waiting.len()),
            Pick::Nearest => {
                let times = waiting.map(|work| self.access.position_ns(work, now_ns, head));
                times.enumerate().min_by_key(|(_, ns)| *ns).map_or(0, |(index, _)| index)
            }
        }
    }

    pub(crate) fn time_ns(
        &self,
        work: Work,
        now_ns: u64,
        head: u64,
        others: usize,
        prng: &mut Prng,
    ) -> u64 {
        match &self.access {
            Access::Constant { ns } => *ns,
            Access::Uniform { min_ns, max_ns } => prng.range(*min_ns..=*max_ns),
            Access::Flash { read_ns, write_ns, flush_ns, loaded_ns, bytes_per_second } => {
                let own = match work.kind {
                    WorkKind::Read => *read_ns,
                    WorkKind::Write => *write_ns,
                    WorkKind::Flush => *flush_ns,
                };
                own + loaded_ns * others as u64 + transfer_ns(work.len, *bytes_per_second)
            }
            Access::Disk { flush_ns, .. } if work.kind == WorkKind::Flush => *flush_ns,
            Access::Disk { bytes_per_second, .. } => {
                self.access.position_ns(work, now_ns, head)
                    + transfer_ns(work.len, *bytes_per_second)
            }
        }
    }
}

impl Access {
    fn position_ns(&self, work: Work, now_ns: u64, head: u64) -> u64 {
        let Access::Disk {
            track_seek_ns, full_seek_ns, turn_ns, bytes_per_second, span_bytes, ..
        } = *self
        else {
            return 0;
        };
        // An access that adjoins the last one needs no seek.
        if work.address == head || work.kind == WorkKind::Flush {
            return 0;
        }
        let track_bytes = (bytes_per_second * turn_ns / SECOND_NS).max(1);
        let seek_ns = if work.address / track_bytes == head / track_bytes {
            0
        } else {
            let way = work.address.abs_diff(head).min(span_bytes) as f64 / span_bytes as f64;
            track_seek_ns + ((full_seek_ns - track_seek_ns) as f64 * way.sqrt()) as u64
        };
        let angle_ns = (work.address % track_bytes) * turn_ns / track_bytes;
        let arrival_ns = (now_ns + seek_ns) % turn_ns;
        seek_ns + (angle_ns + turn_ns - arrival_ns) % turn_ns
    }
}

fn transfer_ns(len: u64, bytes_per_second: u64) -> u64 {
    len.saturating_mul(SECOND_NS) / bytes_per_second.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Work = Work { kind: WorkKind::Read, address: 0, len: 4096 };

    #[test]
    fn a_disk_is_fast_in_sequence_and_slow_at_random() {
        let (disk, mut prng) = (Model::disk(), Prng::new(1));
        let in_sequence = disk.time_ns(READ, 0, 0, 0, &mut prng);
        assert_eq!(in_sequence, 4096 * SECOND_NS / 150_000_000);
        let mut sum_ns = 0;
        let (mut now_ns, mut head) = (0, 0);
        for _ in 0..200 {
            let work = Work { address: prng.below(1 << 40), ..READ };
            let time_ns = disk.time_ns(work, now_ns, head, 0, &mut prng);
            sum_ns += time_ns;
            (now_ns, head) = (now_ns + time_ns, work.address + work.len);
        }
        // On average the arm travels a third of the way, and the platters half a turn.
        assert!((10_000_000..16_000_000).contains(&(sum_ns / 200)), "{} ns", sum_ns / 200);
    }

    #[test]
    fn the_nearest_of_many_takes_less_time_than_the_first() {
        let (disk, mut prng) = (Model::disk(), Prng::new(2));
        let waiting: Vec<Work> =
            (0..32).map(|_| Work { address: prng.below(1 << 40), ..READ }).collect();
        let nearest = disk.choose(waiting.iter().copied(), 0, 0, &mut prng);
        let mut time_ns = |work| disk.time_ns(work, 0, 0, 0, &mut prng);
        assert!(time_ns(waiting[nearest]) < time_ns(waiting[0]) / 2);
    }

    #[test]
    fn flash_slows_down_under_load() {
        let (flash, mut prng) = (Model::flash(), Prng::new(3));
        let alone = flash.time_ns(READ, 0, 0, 0, &mut prng);
        assert_eq!(flash.time_ns(READ, 0, 0, 31, &mut prng), alone + 31_000);
    }
}
