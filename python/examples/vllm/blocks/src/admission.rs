//! The rules by which blocks may start: loads before stores, and a bound on the bytes in flight.

/// The direction in which a block moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the block's file into memory.
    Load,
    /// From memory into a new file.
    Store,
}

/// Most blocks in flight in both directions together: each has an open file.
pub(crate) const IN_FLIGHT_MAX: usize = 256;

/// Numbers of blocks in flight, and of loads that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) loads: usize,
    pub(crate) stores: usize,
    pub(crate) loads_waiting: usize,
}

/// Returns the number of blocks that may be in flight together: at least one in each direction.
pub(crate) fn limit(in_flight_bytes: u64, block_bytes: usize) -> usize {
    let blocks = in_flight_bytes / block_bytes.max(1) as u64;
    blocks.clamp(2, IN_FLIGHT_MAX as u64) as usize
}

/// Returns `true` if one more block may start.
///
/// Loads leave room for one store, so that some store can always start. Stores take at most half of
/// the limit, and only one while loads wait, so that a load starts at once.
pub(crate) fn may_start(direction: Direction, now: Traffic, limit: usize) -> bool {
    let has_room = now.loads + now.stores < limit;
    match direction {
        Direction::Load => has_room && now.loads < limit - 1,
        Direction::Store if now.stores == 0 => true,
        Direction::Store => has_room && now.loads_waiting == 0 && now.stores < limit / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Load, Store};

    #[test]
    fn loads_go_first_and_neither_direction_starves() {
        for (direction, loads, stores, loads_waiting, expected) in [
            (Load, 0, 0, 1, true),
            (Load, 6, 1, 1, true),
            (Load, 7, 0, 1, false), // the last place is for a store
            (Load, 3, 4, 1, true),
            (Load, 4, 4, 1, false),
            (Store, 0, 3, 0, true),
            (Store, 0, 4, 0, false), // half is for loads
            (Store, 0, 1, 1, false), // loads wait
            (Store, 7, 0, 9, true),
            (Store, 7, 1, 0, false),
        ] {
            let now = Traffic { loads, stores, loads_waiting };
            assert_eq!(may_start(direction, now, 8), expected, "{direction:?} {now:?}");
        }
    }

    #[test]
    fn the_first_block_of_a_direction_always_starts() {
        for limit in 2..20 {
            // Starts as many blocks of the other direction as the rules allow.
            let fill = |direction, mut now: Traffic, count: fn(&mut Traffic) -> &mut usize| {
                while may_start(direction, now, limit) {
                    *count(&mut now) += 1;
                }
                now
            };
            let waiting = Traffic { loads_waiting: 1, ..Traffic::default() };
            let loads = fill(Load, waiting, |now| &mut now.loads);
            assert!(may_start(Store, loads, limit), "{limit}: {loads:?}");
            let stores = fill(Store, Traffic::default(), |now| &mut now.stores);
            assert!(may_start(Load, stores, limit), "{limit}: {stores:?}");
        }
    }

    #[test]
    fn the_limit_has_room_for_one_block_each_way() {
        assert_eq!(limit(0, 4 << 20), 2);
        assert_eq!(limit(64 << 20, 2 << 20), 32);
        assert_eq!(limit(1 << 40, 4096), IN_FLIGHT_MAX);
    }
}
