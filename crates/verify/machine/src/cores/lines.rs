//! Cache lines: which processors have them, and how long an access takes.

use std::collections::HashMap;

pub(super) const LINE_BYTES: u64 = 64;
/// Time in which a line comes from another processor.
pub const LINE_NS: u64 = 70;

#[derive(Default)]
pub(crate) struct Lines(HashMap<u64, Line>);

#[derive(Default)]
struct Line {
    /// One bit for each processor that has the line.
    holders: u128,
    /// A processor has written the line while another had it.
    is_contended: bool,
    free_at: u64,
    waited_ns: u64,
    /// Address of the code that has waited last.
    code: u64,
}

/// The waits of all processors for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The sum of the waits, in nanoseconds.
    pub ns: u64,
    /// The address of an instruction that has waited for the line; 0: code of the kernel.
    pub code: u64,
}

impl Lines {
    /// Returns `true` if threads must touch the line in the order of their clocks.
    pub(crate) fn is_contended(&self, line: u64) -> bool {
        self.0.get(&line).is_some_and(|line| line.is_contended)
    }

    /// Returns the time at which the access is over. A write waits if another processor has the
    /// line. A read waits if, moreover, the reader's processor does not have the line.
    pub(crate) fn access(
        &mut self,
        line: u64,
        core: usize,
        writes: bool,
        code: u64,
        now: u64,
    ) -> u64 {
        let me = 1u128.checked_shl(core as u32).expect("at most 128 threads");
        let line = self.0.entry(line).or_default();
        let others = line.holders & !me;
        let has_it = line.holders & me != 0;
        line.is_contended |= others != 0 && writes;
        let over = match (has_it, others != 0) {
            (true, true) if writes => line.free_at.max(now) + LINE_NS,
            (false, true) => line.free_at.max(now) + LINE_NS,
            _ => now,
        };
        line.holders = if writes { me } else { line.holders | me };
        if writes {
            line.free_at = over;
        }
        if over > now {
            line.waited_ns += over - now;
            line.code = code;
        }
        over
    }

    pub(super) fn add_wait(&mut self, line: u64, ns: u64) {
        self.0.entry(line).or_default().waited_ns += ns;
    }

    pub(super) fn forget_waits(&mut self) {
        self.0.values_mut().for_each(|line| line.waited_ns = 0);
    }

    pub(super) fn waits(&self) -> Vec<Wait> {
        let waited = self.0.values().filter(|it| it.waited_ns > 0);
        let mut waits: Vec<Wait> =
            waited.map(|it| Wait { ns: it.waited_ns, code: it.code }).collect();
        waits.sort_by_key(|it| core::cmp::Reverse((it.ns, it.code)));
        waits
    }
}
