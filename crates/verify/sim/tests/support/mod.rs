//! A user of a simulated device, who makes random requests and reports changes to the oracle.

use nowait_block::{Bio, BioOp, BlockBackend, Completion, Segments};
use nowait_sim::{Config, Oracle, Prng, SimDevice};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
    time::Deadline,
};
use std::collections::BTreeMap;

pub(crate) const FD: i32 = 3;
const SECTORS: u64 = 48;

pub(crate) struct User {
    pub(crate) device: SimDevice,
    pub(crate) oracle: Oracle,
    prng: Prng,
    sector_bytes: u64,
    /// The memory of the requests in flight, and `true` for those that the oracle records.
    open: BTreeMap<u64, (Vec<u8>, bool)>,
    next: u64,
}

impl User {
    pub(crate) fn new(config: &Config) -> User {
        let device = SimDevice::new(config);
        let mut oracle = Oracle::new(config.sector_bytes);
        let size = SECTORS / 2 * config.sector_bytes as u64;
        device.create(FD, size);
        oracle.create(FD, size);
        User {
            device,
            oracle,
            prng: Prng::new(!config.seed),
            sector_bytes: config.sector_bytes as u64,
            open: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn go_on(&mut self, device: SimDevice, left: &[u8]) {
        assert!(self.open.is_empty());
        self.oracle.adopt(FD, left);
        self.device = device;
    }

    pub(crate) fn step(&mut self) {
        match self.prng.weighted(&[40, 10, 15, 12, 20, 3, 2, 2]) {
            0 => self.write(0),
            1 => self.write(rwf::DSYNC),
            2 => self.read(),
            3 => self.flush(),
            4 => {
                let min = self.prng.index(4).min(self.open.len());
                self.reap(min);
            }
            5 => {
                let count = self.open.len();
                if let Some(token) = self.open.keys().nth(self.prng.index(count)) {
                    self.device.cancel(*token);
                }
            }
            6 => self.set_len(),
            _ => self.punch(),
        }
        if self.prng.chance(700_000) {
            self.device.commit();
        }
        if self.open.len() > 12 {
            self.reap(6);
        }
    }

    pub(crate) fn drain(&mut self) {
        self.device.commit();
        while !self.open.is_empty() {
            self.reap(1);
        }
    }

    fn range(&mut self) -> (u64, usize) {
        let first = self.prng.below(SECTORS);
        let count = 1 + self.prng.below(8.min(SECTORS - first));
        (first * self.sector_bytes, (count * self.sector_bytes) as usize)
    }

    fn write(&mut self, flags: u32) {
        let (offset, len) = self.range();
        // Each sector of each write has its own content.
        let mut data = Vec::with_capacity(len);
        for sector in 0..len as u64 / self.sector_bytes {
            let tag = (self.next << 8 | sector).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            data.extend(tag.to_le_bytes().repeat(self.sector_bytes as usize / 8));
        }
        self.oracle.begin_write(self.next, FD, offset, &data, flags != 0);
        self.queue(BioOp::Write, data, offset, flags, true);
    }

    fn read(&mut self) {
        let (offset, len) = self.range();
        self.queue(BioOp::Read, vec![0; len], offset, 0, false);
    }

    fn flush(&mut self) {
        let op = if self.prng.chance(500_000) { BioOp::Fsync } else { BioOp::Fdatasync };
        self.oracle.begin_flush(self.next, FD);
        self.queue(op, Vec::new(), 0, 0, true);
    }

    fn set_len(&mut self) {
        let len = self.prng.range(0..=SECTORS) * self.sector_bytes;
        if self.device.set_len(FD, len).is_ok() {
            self.oracle.set_len(FD, len);
        }
    }

    fn punch(&mut self) {
        let (offset, len) = self.range();
        let range = offset..offset + len as u64;
        if self.device.punch(FD, range.clone()).is_ok() {
            self.oracle.punch(FD, range);
        }
    }

    fn queue(&mut self, op: BioOp, mut memory: Vec<u8>, offset: u64, flags: u32, told: bool) {
        let middle = self.prng.index(memory.len() + 1);
        let segments: Vec<IoVec> = if memory.is_empty() {
            Vec::new()
        } else {
            let (a, b) = memory.split_at_mut(middle);
            [a, b].map(|part| IoVec { base: part.as_mut_ptr(), len: part.len() }).into()
        };
        let segments = Segments::Many(segments.into());
        // SAFETY: the memory is kept in `open` until the completion was reaped.
        let mut bio = unsafe { Bio::new(op, FD, segments, offset as i64, self.next) };
        bio.rw_flags = flags;
        assert!(self.device.queue(bio).is_ok(), "a queue has room for twelve");
        self.open.insert(self.next, (memory, told));
        self.next += 1;
    }

    fn reap(&mut self, min: usize) {
        self.device.commit();
        let mut done = Vec::new();
        self.device.reap(&mut done, min, Deadline::NEVER).expect("nothing can interrupt this");
        for Completion { token, result } in done {
            let (_, told) = self.open.remove(&token).expect("completes once");
            if told {
                self.oracle.end(token, result);
            }
            assert_ne!(result, Err(Errno::BADF));
        }
    }
}
